"""What a re-drive found, as the one JSON document of `redrive --json`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from replayproxy.core.bindings import Substitution
from replayproxy.core.canonical import Kind, view
from replayproxy.core.comparison import Root
from replayproxy.core.values import Outcome
from replayproxy.errors import Exit, worst
from replayproxy.session.redrive import DIFFERENT, SAME, UNDECIDED, Redriven, Repetition

EXITS = {SAME: Exit.OK, DIFFERENT: Exit.DIFFERENT, UNDECIDED: Exit.UNJUDGED}


def exit_code(results: Sequence[Redriven]) -> int:
    """Of all episodes, by the strength of the table of exit codes."""
    codes = [EXITS[one.verdict] for one in results]
    codes += [one.problem.exit for one in results if one.problem is not None]
    codes += [Exit.WORLD for one in results if _went_away(one)]
    return worst(*map(int, codes))


def _went_away(one: Redriven) -> bool:
    """Whether the environment refused connections, while it was spoken to, that were answered when recorded."""
    recorded = {exchange.seq: exchange.outcome for exchange in one.trace.exchanges}
    return any(
        live.outcome is Outcome.REFUSED and recorded.get(seq) is not Outcome.REFUSED
        for repetition in one.repetitions
        for seq, live in repetition.drive.live.items()
    )


def verdict(results: Sequence[Redriven]) -> str:
    told = {one.verdict for one in results}
    return DIFFERENT if DIFFERENT in told else UNDECIDED if UNDECIDED in told or not told else SAME


def document(results: Sequence[Redriven]) -> dict[str, Any]:
    """`{"verdict", "receipt", "roots", "explained", "repeats"}`; of several episodes also one such per `episodes`."""
    if len(results) == 1:
        return _episode(results[0])
    parts = [_episode(one) for one in results]
    explained: Counter[str] = Counter()
    for part in parts:
        explained.update(part["explained"])
    sums = ("sent", "of", "substituted", "unsent")
    return {
        "verdict": verdict(results),
        "receipt": {
            "reproduced": all(part["receipt"]["reproduced"] for part in parts),
            "episodes": len(parts),
            **{key: sum(part["receipt"].get(key, 0) for part in parts) for key in sums},
            "skipped": [one for part in parts for one in part["receipt"].get("skipped", ())],
        },
        "roots": [{"episode": part["episode"], **root} for part in parts for root in part["roots"]],
        "explained": dict(explained),
        "repeats": [{"episode": part["episode"], **one} for part in parts for one in part["repeats"]],
        "episodes": parts,
    }


def _episode(one: Redriven) -> dict[str, Any]:
    shown = one.shown
    found: dict[str, Any] = {
        "episode": one.trace.address,
        "verdict": one.verdict,
        "receipt": {"reproduced": False, "sent": 0, "of": len(one.trace.exchanges)},
        "roots": [],
        "explained": {},
        "repeats": [_repeat(one, repetition) for repetition in one.repetitions],
    }
    if one.problem is not None:
        found["problem"] = str(one.problem)
    if shown is not None:
        comparison = shown.comparison
        found["receipt"] = _receipt(one, shown)
        found["roots"] = [root_json(one, shown, root) for root in comparison.roots]
        found["explained"] = dict(comparison.explained)
        found["state"] = comparison.state.to_json() if comparison.state else None
        found["notes"] = list(comparison.notes)
        found["not_compared"] = dict(comparison.not_compared)
        found["rules"] = dict(comparison.rules)
        found["different"] = sum(1 for r in one.repetitions if r.verdict == DIFFERENT)
        found["times"] = len(one.repetitions)
        found["outcomes"] = dict(one.histogram)
        found["finding"] = one.trial and one.trial["finding_document"]
    if one.ablation is not None:
        found["ablate"] = one.ablation.to_json()
    return found


def _repeat(one: Redriven, repetition: Repetition) -> dict[str, Any]:
    first = next(iter(repetition.comparison.roots), None)
    return {
        "repeat": repetition.number,
        "verdict": repetition.verdict,
        "roots": len(repetition.comparison.roots),
        "first": None if first is None else {"a": _address(one, first.a), "pointer": first.pointer},
        "undecided": list(repetition.reasons),
        "saved": repetition.saved,
    }


def _receipt(one: Redriven, shown: Repetition) -> dict[str, Any]:
    plan, drive, restored = one.plan, shown.drive, shown.restored
    assert plan is not None
    assert one.targets is not None
    counts = snapshots_of(one, shown)
    return {
        "reproduced": one.verdict == SAME and not restored.answers_only and not plan.skipped,
        "targets": {env: target.origin.url for env, target in one.targets.envs.items()},
        "sent": len(drive.live),
        "of": len(one.trace.exchanges),
        "skipped": [{"exchange": _address(one, step.seq), "why": step.skip} for step in plan.skipped],
        "unsent": len(drive.unsent),
        "substituted": len(shown.bindings.substitutions),
        "substitutions": [_located(one, shown_substitution(item).to_json(), "producer", "consumer")
                          for item in shown.bindings.substitutions],
        "violations": [_located(one, item.to_json(), "exchange", "since") for item in shown.bindings.violations],
        "restore": {
            "by": restored.by,
            "verified": sorted(restored.verified),
            "answers_only": restored.answers_only,
            "unknown": restored.open,
            "before": one.before,
        },
        "snapshots": counts,
        "undecided": list(shown.reasons),
        "saved": shown.saved,
        "seconds": round(shown.seconds, 3),
    }  # fmt: skip


def snapshots_of(one: Redriven, shown: Repetition) -> dict[str, int]:
    """How many states the recording has, how many of them have a live one, and how many roots are equal."""
    wanted = [s for s in one.trace.snapshots if s.when in ("start", "write", "end")]
    live = {(s.name, s.when, s.after_seq): s for s in shown.live.snapshots if s.root is not None}
    both = [(s, live[key]) for s in wanted if s.root and (key := (s.name, s.when, s.after_seq)) in live]
    return {"recorded": len(wanted), "compared": len(both), "equal": sum(1 for a, b in both if a.root == b.root)}


_CREDENTIALS = ("header/cookie/", "header/authorization", "header/proxy-authorization", "header/x-api-key")


def shown_substitution(item: Substitution) -> Substitution:
    """A substitution fit to be printed: of a credential only that it was replaced, and how it begins."""
    if not item.place.startswith(_CREDENTIALS):
        return item
    return replace(item, recorded=_hidden(item.recorded), live=_hidden(item.live))


def _hidden(value: str) -> str:
    return f"{value[:4]}.. ({len(value)} characters)" if len(value) > 12 else f"({len(value)} characters)"


def _located(one: Redriven, item: dict[str, Any], *members: str) -> dict[str, Any]:
    return {**item, **{member: _address(one, item[member]) for member in members}}


def _address(one: Redriven, seq: int | None) -> str | None:
    return None if seq is None else f"{one.trace.address}#{seq}"


def live_address(shown: Repetition, seq: int | None) -> str | None:
    """Where the live exchange is kept: in a saved run it is numbered by the order in which it was sent."""
    if seq is None or shown.saved is None:
        return None
    numbers = {e.seq: number for number, e in enumerate(shown.live.exchanges, 1)}
    return f"{shown.saved}#{numbers[seq]}" if seq in numbers else None


def root_json(one: Redriven, shown: Repetition, root: Root) -> dict[str, Any]:
    """As in a diff; `b` is null unless the live answers were saved."""
    return {**root.to_json(one.trace.address), "b": live_address(shown, root.b)}


def equal_answers(one: Redriven, shown: Repetition) -> int:
    """How many live answers have the recorded status and, by its value, the recorded body."""
    recorded = {e.seq: e for e in one.trace.exchanges}
    equal = 0
    for seq, live in shown.drive.live.items():
        a, b = recorded[seq].response, live.response
        if a is None or b is None:
            equal += a is b
            continue
        left, right = view(a.fields, a.body), view(b.fields, b.body)
        equal += a.status == b.status and left.key == right.key and left.kind is not Kind.MISSING
    return equal
