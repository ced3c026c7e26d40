"""The report of `check` for people: verdict first, denominators always, the next command last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from replayproxy.cli.check_table import GRADES, KINDS, WIDTH, table
from replayproxy.cli.common import columns, count, safe
from replayproxy.cli.moments import moment

WORDS = ("clean", "suspect", "poisoned", "unknown")
SHOWN = 10


def text(documents: Sequence[Mapping[str, Any]], unsaved: Mapping[str, str], *, groups: bool = False) -> list[str]:
    """One report per run. `unsaved`: run -> why its document could not be kept. `groups`: list all that lose some."""
    lines: list[str] = []
    for told in documents:
        lines += ["", *report(told, groups=groups)] if lines else report(told, groups=groups)
        if unsaved.get(told["run"]):
            lines.append(f"not saved: {safe(unsaved[told['run']])}")
    return lines


def report(told: Mapping[str, Any], *, groups: bool = False) -> list[str]:
    """The report of one run's document."""
    words = Counter(told["verdicts"].values())
    return [
        _head(told, words),
        *_rate(told),
        *table(told),
        _verdicts(told, words),
        *_spread(told),
        *_findings(told),
        *_began(told),
        *_rewards(told, groups=groups),
        *_worst(told),
        *_known(told),
        *_why(told),
        *_next(told),
    ]


def _head(told: Mapping[str, Any], words: Mapping[str, int]) -> str:
    word = {0: "PASS", 1: "FAIL"}.get(told["exit"], "NOT JUDGED")
    total = len(told["verdicts"])
    judged = total - words.get("unknown", 0)
    grades = Counter(finding["grade"] for finding in told["findings"])
    found = ", ".join(f"{grades[grade]} {grade}" for grade in GRADES if grades[grade]) or "no"
    what = "finding" if sum(grades.values()) == 1 else "findings"
    looked = sum(any(kind in seen["checked"] for seen in told["coverage"].values()) for kind in KINDS)
    scope = f"{judged:,} of {count(total, 'episode')} judged, for {looked} of {len(KINDS)} kinds"
    return f"{safe(told['run'])}: {word}   {found} {what}{_limit(told)}   {scope}"


def _limit(told: Mapping[str, Any]) -> str:
    """How many of the findings are known; nothing where none is."""
    known = sum("known" in finding for finding in told["findings"])
    return f" ({known} known)" if known else ""


def _rate(told: Mapping[str, Any]) -> Iterator[str]:
    failures, share = told["failures"], told["failure_rate"]
    if share is None:
        yield "failure rate: none, no sealed episode holds an exchange"
        return
    low, high = told["interval"]
    budget = told["max_failure_rate"]
    word = "above it" if share > budget else "ok"
    if share > budget and any("known" in f for f in told["findings"]) and not any("rate" in why for why in told["why"]):
        word = "above it by known faults alone"
    yield (
        f"failure rate {_percent(share)} [{low * 100:.1f}, {high * 100:.1f}] = {failures['poisoned']:,} poisoned + "
        f"{failures['lost']:,} lost to 5xx, of {failures['of']:,}; budget {_percent(budget)}: {word}"
    )


def _percent(share: float) -> str:
    return f"{share * 100:.1f} %".replace(".0 %", " %")


def _spread(told: Mapping[str, Any]) -> Iterator[str]:
    caught = told["suspected_from"]
    if caught:
        shown = ", ".join(f"{safe(name)} (after {safe(source)})" for name, source in list(caught.items())[:3])
        more = f" and {len(caught) - 3} more" if len(caught) > 3 else ""
        yield f"spread  suspect because of a dirty start before them on their instance: {shown}{more}"


def _verdicts(told: Mapping[str, Any], words: Mapping[str, int]) -> str:
    line = "  ".join(f"{word} {words.get(word, 0):,}" for word in WORDS)
    silenced, known = len(told["silenced"]), sum("known" in finding for finding in told["findings"])
    if not silenced and not known:
        return line
    ending = len(told["silences"]["ending"]) + len(told["baseline"]["ending"])
    parts = [f"{silenced} silenced"] * bool(silenced) + [f"{known} in the baseline"] * bool(known)
    parts += [f"{ending} {'ends' if ending == 1 else 'end'} this week"] * bool(ending)
    return f"{line}        known and silenced: {silenced + known:,} ({', '.join(parts)})"


def _findings(told: Mapping[str, Any]) -> Iterator[str]:
    """One line per fault."""
    faults = _faults(told)
    rows = [
        (
            first["number"], first["grade"], first["kind"], safe(first["episode"]) + _more(same),
            safe(first["pointer"] or "-"), safe(first["title"]),
        )
        for first, same in ((same[0], same) for same in faults[:SHOWN])
    ]  # fmt: skip
    yield from (cut(line) for line in (columns(rows) if rows else ()))
    rest = sum(map(len, faults[SHOWN:]))
    if rest > 0:
        yield f"and {rest:,} more        --json lists all"


def _faults(told: Mapping[str, Any]) -> list[list[Mapping[str, Any]]]:
    """The findings that are not known, those of one fault together: they share a fingerprint."""
    faults: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for finding in told["findings"]:
        if "known" not in finding:
            faults.setdefault((finding["fingerprint"], finding["grade"]), []).append(finding)
    return list(faults.values())


def _more(same: Sequence[Mapping[str, Any]]) -> str:
    others = len({finding["episode"] for finding in same}) - 1
    return f" +{others:,}" if others else ""


def cut(line: str, width: int = WIDTH) -> str:
    """A line that is not wider; an ellipsis shows that something was left out."""
    return line if len(line) <= width else line[: width - 1] + "…"


def _began(told: Mapping[str, Any]) -> Iterator[str]:
    """Since when, and what changed at that moment."""
    began = told["began"]
    if began is None:
        return
    changed = [f"{safe(name)} {_shown(old)} -> {_shown(new)}" for name, (old, new) in began["changed"].items()]
    counting = [f"{k} {_shown(v)}" for k, v in began["meta"].items() if k == "step" and k not in began["changed"]]
    elsewhere = {name: value for name, value in began["only"].items() if name not in (*began["changed"], "step")}
    when = ", ".join([moment(began["wall"]), *counting, f"with {safe(began['episode'])}"])
    yield cut(f"began   {when}")
    rose = began["rose"]
    if rose is not None:
        (early, before), (late, since) = rose["before"], rose["since"]
        yield f"        bad {early:,} of {before:,} before, {late:,} of {since:,} since ({_chance(rose['p'])})"
        if changed:
            yield cut(f"        changed then: {', '.join(changed)}")
    if elsewhere:
        where = ", ".join(f"{safe(name)} {_shown(value)}" for name, value in list(elsewhere.items())[:4])
        yield cut(f"        all bad ones have {where}, not all good ones")


def _chance(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def _shown(value: Any) -> str:
    return "(none)" if value is None else cut(safe(str(value)), 24)


def _rewards(told: Mapping[str, Any], *, groups: bool) -> Iterator[str]:
    for one in told["rewards"][:SHOWN]:
        without = "none is left" if one["without"] is None else f"{one['without']:.2f} without"
        task = "no task" if one["task"] is None else safe(str(one["task"]))
        yield f"reward  {task}: mean {one['with']:.2f} with its {one['poisoned']} poisoned, {without} (of {one['of']})"
    rest = len(told["rewards"]) - SHOWN
    if rest > 0:
        yield f"        and {count(rest, 'more task')}        --json lists all"
    losing = told["groups"]
    if losing and not groups:
        lose = "group loses" if len(losing) == 1 else "groups lose"
        yield f"groups  {len(losing):,} {lose} siblings when the poisoned are masked        --groups lists them"
    for one in losing if groups else ():
        names = ", ".join(map(safe, one["poisoned"][:4])) + (", .." if len(one["poisoned"]) > 4 else "")
        yield cut(f"group   {group_name(one)}: {one['left']} of {one['of']} left without {names}")


def group_name(one: Mapping[str, Any]) -> str:
    """The harness's own name of a group, else its task and seed."""
    if one["group"] is not None:
        return safe(str(one["group"]))
    seed = "" if one["seed"] is None else f" seed {one['seed']}"
    return f"{safe(str(one['task'] or 'no task'))}{seed}"


def _worst(told: Mapping[str, Any]) -> Iterator[str]:
    """Which one exchange is behind most of it."""
    worst = told["worst"]
    if worst is not None:
        where = f"{worst['episodes']} episodes, one exchange: {safe(worst['exchange'])}"
        number = worst["number"]
        first = next((f[0]["number"] for f in _faults(told) if number in {one["number"] for one in f}), number)
        among = f" (listed with {first})" if first != number else ""
        yield f"worst   {number} {worst['kind']}{among}, {where}"


def _known(told: Mapping[str, Any]) -> Iterator[str]:
    """What was silenced and why; which entries have expired, and which met nothing."""
    by: dict[tuple[str, str], list[str]] = {}
    for finding in told["silenced"]:
        by.setdefault((finding["silence"]["what"], finding["silence"]["reason"]), []).append(finding["number"])
    for (what, reason), numbers in by.items():
        more = f" and {len(numbers) - 1} more" if len(numbers) > 1 else ""
        yield cut(f"known   {numbers[0]}{more}, silenced by {safe(what)!r}: {safe(reason)}")
    for word, why in (("expired", "has expired: nothing is silenced by it"), ("unused", "met nothing in this run")):
        yield from (cut(f"silence {safe(what)!r} {why}") for what in told["silences"][word])
    base = told["baseline"]
    if base["entries"]:
        unseen = f", {len(base['unseen'])} not seen in this run" if base["unseen"] else ""
        expired = f", {len(base['expired'])} expired" if base["expired"] else ""
        yield f"known   {base['known']:,} in the baseline of {count(base['entries'], 'fault')}{unseen}{expired}"


def _why(told: Mapping[str, Any]) -> Iterator[str]:
    for reason in told["why"]:
        yield f"because {safe(reason)}"
    lost = sum("no reference" in seen["not_checked"].values() for seen in told["coverage"].values())
    if lost:
        where = f"{lost:,} of {count(len(told['verdicts']), 'episode')}"
        yield f"note    the right start is not known for {where} -> --reference {safe(told['run'])}/EPISODE"
    for note in told["notes"]:
        yield f"note    {safe(note)}"
    if annotated := told.get("annotated"):
        yield f"note    {count(annotated, 'episode')} annotated later: rewards and tasks are those said then"
    snapshots = told["snapshots"]
    if any(snapshots.values()):
        told_of = ", ".join(f"{number:,} {what}" for what, number in snapshots.items() if number)
        yield f"note    snapshots: {told_of}"


def _next(told: Mapping[str, Any]) -> list[str]:
    """The commands to go on with, on one line or, where they do not fit, one each."""
    run = safe(told["run"])
    new = [finding for finding in told["findings"] if "known" not in finding]
    if new:
        first = [f"replayproxy show {new[0]['number']}", safe(new[0]["reproduce"])]
        return _commands(first + [f"replayproxy mask {run}"] * ("poisoned" in told["verdicts"].values()))
    if not told["verdicts"]:
        return _commands(["replayproxy record --env NAME=URL -- COMMAND"])
    return _commands([f"replayproxy ls {run}", f"replayproxy diff {run} OTHER"])


NEXT = "next    "


def _commands(commands: Sequence[str]) -> list[str]:
    together = NEXT + "   ".join(commands)
    if len(together) <= WIDTH:
        return [together]
    return [f"{NEXT if not at else '':8}{command}" for at, command in enumerate(commands)]
