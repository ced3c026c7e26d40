"""A comparison as people read it: verdict and denominators, roots, what was explained, the next command."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from replayproxy.cli.common import count, json_bytes, safe
from replayproxy.core.comparison import DIFFERENT, SAME, UNDECIDED, Fold, Root
from replayproxy.core.secrets import excerpts
from replayproxy.core.treediff import ABSENT
from replayproxy.core.values import Episode
from replayproxy.session.diff import Diff, RunRoot

FULL_ROOTS, SHORT_ROOTS = 3, 12
STATES = {
    "equal": "state before and after: equal -> the answer changed, not the data",
    "differs before": "state before it: differs already",
    "differs after": "state before it: equal, after it: differs",
}
WIDE = 48
"""Values wider than this together stand below each other."""


def text(result: Diff, verbose: bool = False) -> Iterator[str]:
    """What people read: verdict and denominators, roots, what was explained, the next command."""
    yield _verdict(result)
    yield from _reasons(result, verbose)
    limit = len(result.roots) if verbose else FULL_ROOTS
    for number, root in enumerate(result.roots[:limit], 1):
        yield from _root(result, number, root, verbose)
    for number, root in enumerate(result.roots[limit : limit + SHORT_ROOTS], limit + 1):
        yield _short_root(number, root)
    hidden = len(result.roots) - limit - SHORT_ROOTS
    if hidden > 0:
        yield f"  and {count(hidden, 'more root')} (-v)"
    yield _explained(result)
    yield from _examples(result) if verbose else ()
    yield from _state(result)
    yield from _notes(result)
    yield _next(result)


def _verdict(result: Diff) -> str:
    names = f"{safe(result.a)}..{safe(result.b)}: {result.verdict.upper()}"
    if result.single:
        comparison = result.pairs[0].comparison
        whole, differ = comparison.exchanges_compared, comparison.exchanges_different
        line = f"{names}   {count(whole, 'exchange pair')}: {whole - differ:,} same, {differ:,} different"
        for side, what in ((0, "B"), (1, "A")):
            alone = sum(pair[side] is None for pair in comparison.pairs)
            line += f"   only in {what}: {count(alone, 'exchange')}" if alone else ""
        snapshots = comparison.snapshots_compared
        return line + (f"   {count(snapshots, 'snapshot pair')}" if snapshots else "")
    counts = result.counts
    line = f"{names}   {count(len(result.pairs), 'pair')}: {counts[SAME]:,} same, {counts[DIFFERENT]:,} different, "
    line += f"{counts[UNDECIDED]:,} undecided"
    for what, episodes in (("A", result.only_a), ("B", result.only_b)):
        if episodes:
            shown = ", ".join(_called(e) for e in episodes[:3])
            line += f"   only in {what}: {shown}{f' and {len(episodes) - 3:,} more' if len(episodes) > 3 else ''}"
    return line


def _called(episode: Episode) -> str:
    if episode.task is None:
        return safe(episode.name)
    known = (("seed", episode.seed), ("attempt", episode.attempt))
    return " ".join([safe(episode.task), *(f"{name} {value}" for name, value in known if value is not None)])


def _reasons(result: Diff, verbose: bool) -> Iterator[str]:
    told = [(pair, reason) for pair in result.pairs for reason in pair.comparison.undecided]
    for pair, reason in told if verbose else told[:3]:
        where = "" if result.single else f"{safe(pair.b)}: "
        yield f"  cannot tell   {where}{safe(reason)}"
    if len(told) > 3 and not verbose:
        yield f"  cannot tell   and {len(told) - 3:,} more (-v)"
    if not result.pairs:
        yield "  cannot tell   no episode of A has a fellow in B: pairs have one task, seed and attempt, else one name"
    if result.by_order:
        yield f"  {count(result.by_order, 'pair')} of one task, seed and attempt paired by the order of their start"


def _root(result: Diff, number: int, root: RunRoot, verbose: bool) -> Iterator[str]:
    yield f"ROOT {number}  explains {root.differences:,} of {count(result.differences, 'difference')}{_episodes(root)}"
    one = root.root
    request = safe(one.request or one.template)
    lane = f"   lane {safe(one.lane)}" if one.lane else ""
    shots = one.snapshots or (None, None)
    sides = [("A", _address(root.a, one.a, shots[0])), ("B", _address(root.b, one.b, shots[1]))]
    yield f"  {request}{lane}" + "".join(f"   {side} {where}" for side, where in sides)
    yield from _values(one)
    if one.state in STATES:
        yield f"  {STATES[one.state]}"
    folds = folds_of(root.folded)
    if folds:
        shown = folds if verbose else folds[:4]
        more = f", and {len(folds) - len(shown)} more (-v)" if len(folds) > len(shown) else ""
        yield f"  folded under it: {', '.join(shown)}{more}"


def folds_of(folded: Sequence[Fold]) -> list[str]:
    """One for each kind of request, however many places of it differ; the root's own exchange place by place."""
    counts: dict[str, int] = {}
    here = []
    for fold in folded:
        if fold.by == "exchange":
            here.append(f"here too {_place(fold.pointer)}")
        else:
            counts[fold.template] = counts.get(fold.template, 0) + fold.count
    return here + [f"{number:,} x {safe(template)}" for template, number in counts.items()]


def _address(episode: str, seq: int | None, snapshot: int | None = None) -> str:
    if snapshot is not None:
        return f"{safe(episode)}/s{snapshot}"
    return "-" if seq is None else f"{safe(episode)}/{seq}"


def _episodes(root: RunRoot) -> str:
    return f", {count(root.episodes, 'episode')}" if root.episodes > 1 else ""


def _values(root: Root) -> Iterator[str]:
    if root.kind in ("inserted", "deleted"):
        yield f"  only {'B' if root.kind == 'inserted' else 'A'} sent this request"
        return
    place = _place(root.pointer)
    a, b = (_value(value) for value in excerpts(*root.values))
    note = f"   {safe(root.note)}" if root.note else ""
    if len(a) + len(b) <= WIDE:
        yield f"  {place}   {a} | {b}{note}"
    else:
        yield f"  {place}{note}"
        yield f"    A {a}"
        yield f"    B {b}"


def _place(pointer: str) -> str:
    """A place in an answer's body as its JSON pointer; every other place by its words."""
    if pointer == "body" or pointer.startswith("body/"):
        return safe(pointer.removeprefix("body")) or "body"
    return safe(pointer)


def _value(value: Any) -> str:
    if value is ABSENT:
        return "(absent)"
    shown = safe(json_bytes(value).decode("utf-8", "backslashreplace"))
    return _cut(shown, 200)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _short_root(number: int, root: RunRoot) -> str:
    one = root.root
    where = _address(root.b, one.b) if one.a is None and one.b is not None else _address(root.a, one.a)
    if one.snapshots is not None:
        where = _address(root.a, None, one.snapshots[0])
    what = {"inserted": "only in B", "deleted": "only in A"}.get(one.kind)
    if what is None:
        a, b = (_cut(_value(value), 40) for value in excerpts(*one.values, width=36))
        what = f"{_place(one.pointer)} {a} | {b}"
    request = safe(one.request or one.template)
    return f"ROOT {number}  explains {root.differences:,}{_episodes(root)}   {request}  {where}  {what}"


def _explained(result: Diff) -> str:
    parts = []
    for name, number in result.explained.items():
        if name.startswith("rule:"):
            rule = result.known_rules.get(name.removeprefix("rule:"))
            until = f", until {rule.until}" if rule is not None and rule.until else ""
            why = f" ({safe(rule.reason)}{until})" if rule is not None else ""
            parts.append(f'rule "{safe(name.removeprefix("rule:"))}" {number:,}{why}')
        else:
            parts.append(f"{name.replace('-', ' ')} {number:,}")
    if result.rules or result.expired_rules:
        parts.append(f"unused rules {len(result.unused_rules):,}{_names(result.unused_rules)}")
    if result.expired_rules:
        parts.append(f"expired rules {len(result.expired_rules):,}{_names(result.expired_rules)}")
    beside = sum(sum(pair.comparison.not_compared.values()) for pair in result.pairs)
    if beside:
        parts.append(f"headers never compared {beside:,}")
    return "explained, not counted   " + (" · ".join(parts) if parts else "nothing")


def _names(names: Sequence[str]) -> str:
    return f" ({', '.join(safe(name) for name in names)})" if names else ""


def _examples(result: Diff) -> Iterator[str]:
    shown: dict[str, int] = {}
    for pair in result.pairs:
        for name, examples in pair.comparison.explained_detail.items():
            for example in examples:
                shown[name] = shown.get(name, 0) + 1
                if shown[name] <= 20:
                    a, b = (_cut(_value(value), 60) for value in excerpts(*example.values, width=56))
                    where = _address(pair.a, example.a) if example.a is not None else safe(pair.a)
                    yield f"  {safe(name):10} {where}  {_place(example.pointer)}  {a} | {b}"
    names: dict[str, int] = {}
    for pair in result.pairs:
        for name, number in pair.comparison.not_compared.items():
            names[name] = names.get(name, 0) + number
    if names:
        yield "  never compared: " + ", ".join(f"{safe(name)} {number:,}" for name, number in names.items())


def _state(result: Diff) -> Iterator[str]:
    for pair in result.pairs:
        state = pair.comparison.state
        if state is None:
            continue
        after = f"after /{state.after[0]}" if state.after[0] else f"at {state.when}"
        where = "" if result.single else f"{safe(pair.a)} "
        a, b = (_cut(_value(value), 80) for value in excerpts(*state.values, width=72))
        pointer = f" {safe(state.pointer)}" if state.pointer else ""
        row = f"{safe(state.name)}: {safe(state.table)}/{safe(state.key)}{pointer}"
        more = f"   and {count(state.rows - 1, 'more row')}" if state.rows > 1 else ""
        yield f"state    first differing snapshot: {where}{after} (s{state.a} | s{state.b}), {row}  {a} | {b}{more}"
        return


def _notes(result: Diff) -> Iterator[str]:
    told = dict.fromkeys(note for pair in result.pairs for note in pair.comparison.notes)
    for note in list(told)[:4]:
        yield f"note     {safe(note)}"


def _next(result: Diff) -> str:
    first = next((root for root in result.roots if root.root.a or root.root.b or root.root.snapshots), None)
    if first is not None:
        one = first.root
        where = _address(first.b, one.b) if one.b else _address(first.a, one.a)
        if one.snapshots is not None:
            where = _address(first.b, None, one.snapshots[1])
        more = "" if result.single else f"   replayproxy diff {safe(first.a)} {safe(first.b)}"
        return f"next     replayproxy show {where}{more}"
    if result.verdict == UNDECIDED:
        return f"next     replayproxy {'show' if result.single else 'ls'} {safe(result.b)}"
    return f"next     replayproxy check {safe(result.b.rpartition('/')[0] if result.single else result.b)}"
