"""Repetitions of a re-drive that differ among themselves, as a finding and a trial of the run.

A difference from the recording alone is none: the environment may have been changed since. Equal starts and equal
requests that are answered in several ways are nondeterminism, whoever recorded what.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from replayproxy.core.canonical import Kind as Form
from replayproxy.core.canonical import view
from replayproxy.core.comparison import Root, plain
from replayproxy.core.effects import is_write
from replayproxy.core.jsonvalue import resolve
from replayproxy.core.schedule import ended_at, sent_at
from replayproxy.core.values import Exchange
from replayproxy.detect.finding import Blame, Finding, Grade, Kind, exchange_address, snapshot_address, witness
from replayproxy.detect.volatility import volatility
from replayproxy.session.bounds import bound_text
from replayproxy.session.outcomes import classes, in_order, told_histogram
from replayproxy.session.redrive_once import Redriven, Repetition, Session
from replayproxy.session.trials import trial

SEVERAL = "several values"
"""What there was: the values themselves differ from re-drive to re-drive, and the finding must not."""

ENOUGH = 3
"""Of two repetitions that differ nobody knows whether chance made them so, or what went from one to the other."""


def trials_of(session: Session, one: Redriven) -> list[dict[str, Any]]:
    """What the repetitions of one episode are worth keeping for: nothing, or one trial with its finding."""
    made = [r for r in one.repetitions if not r.restored.open and not r.restored.answers_only and not r.drive.stopped]
    if len(made) < 2:
        return []
    groups = classes(made, lambda a, b: not session.between(a, b).roots)
    if len(groups) < 2:
        return []
    root = next((r for r in session.between(groups[0][0], groups[1][0]).roots if r.a and r.b), None)
    exchange = next((e for e in one.trace.exchanges if root is not None and e.seq == root.a), None)
    if root is None or exchange is None:
        return []
    found = _finding(session, one, made, groups, root, exchange)
    k = len(made) - len(groups[0])
    told = f"{told_histogram([len(group) for group in groups])} from one start"
    return [
        trial(found.id, "redrive", wall=time.time_ns(), k=k, n=len(made), told=told,
              confirmed=found.grade is Grade.CONFIRMED, evidence={"outcomes": [len(group) for group in groups]},
              found=found)
    ]  # fmt: skip


def _finding(
    session: Session, one: Redriven, made: Sequence[Repetition], groups: Sequence[Sequence[Repetition]], root: Root,
    exchange: Exchange,
) -> Finding:  # fmt: skip
    run, episode, counts = one.trace.run.name, one.trace.episode.name, [len(group) for group in groups]
    pairs = [(seq, seq) for seq in sorted(groups[0][0].drive.live)]
    low = volatility(root, groups[0][0].live, groups[1][0].live, pairs)
    over, beside = _over(session, made, groups), _beside(one)
    unsure = bool(over or beside or len(made) < ENOUGH)
    grade = Grade.SUSPECTED if low or unsure else Grade.CONFIRMED
    recorded = shown_by(exchange, root.pointer)
    starts = [s for s in one.trace.snapshots if s.when == "start" and s.name in made[0].restored.verified]
    envs = " ".join(f"--env {env}=URL" for env in (one.targets.envs if one.targets else {}))
    return Finding(
        kind=Kind.NONDETERMINISM, sub=low or _sub(root, over, beside), grade=grade,
        blame=Blame.UNDECIDED if unsure else Blame.ENVIRONMENT, blame_reason=_why(over, beside, len(made)),
        run=run, episode=episode, lane=exchange.lane, pointer=root.pointer, values=(recorded, SEVERAL),
        exchanges=(witness(run, episode, exchange, "read", pointer=root.pointer, value=recorded),),
        snapshots=tuple(snapshot_address(run, episode, s) for s in starts),
        assumptions=("the snapshots show the whole state that answers depend on",),
        ruled_out=(
            "another start: restored before each, and read back equal",
            "another request: the same were sent, in the recorded order",
            "clock, fresh id, validator: not explained by any of these",
            "a change of the environment since the recording: its own answers are compared with each other",
        ),
        reproduce=f"replayproxy redrive {run}/{episode} {envs} --repeat {len(made)}",
        title=f"{len(made)} times from one start, answered in {len(groups)} ways: {root.request or root.template}",
        cannot_say="whether chance, time, order, or state outside the snapshots (--ablate tries these)",
        effect={"values": [plain(value) for value in root.values],
                "outcomes": len(groups), "of": len(made), "usual": counts[0], "histogram": counts,
                "at": exchange_address(run, episode, exchange.seq)},
        at=exchange.times.fwd or 0,
    )  # fmt: skip


def _sub(root: Root, over: bool, beside: bool) -> str:
    return "carried" if over else "scheduling" if beside else "state" if root.kind == "state" else "repeat"


def _why(over: bool, beside: bool, n: int) -> str:
    if beside:
        return "requests overlapped a write: in another order both answers may be right"
    if over or n < ENOUGH:
        return "something may have gone from one repetition to the next"
    return "from one start the same requests were answered in several ways"


def _beside(one: Redriven) -> bool:
    """Whether requests overlap in an episode that writes: what comes first is not decided by the plan then."""
    ordered = sorted(one.trace.exchanges, key=sent_at)
    reads = one.targets.reads if one.targets is not None else {}
    if not any(is_write(e.request, reads.get(e.env, ())) for e in ordered):
        return False
    until = 0
    for exchange in ordered:
        if exchange.times.head <= until:
            return True
        until = max(until, ended_at(exchange))
    return False


def _over(session: Session, made: Sequence[Repetition], groups: Sequence[Sequence[Repetition]]) -> bool:
    """Whether all that differs looks carried on: one place where an outcome came back is enough against it."""
    whole = [[r.number for r in group] for group in groups]
    roots = {(root.a, root.pointer): root for group in groups[1:]
             for root in session.between(groups[0][0], group[0]).roots}  # fmt: skip
    for root in roots.values():
        values = [value_at(r, root) for r in made]
        by_value: dict[str, list[int]] = {}
        for r, value in zip(made, values, strict=True):
            by_value.setdefault(repr(value), []).append(r.number)
        known = None not in values
        if not carried(list(by_value.values()) if known else whole, values):
            return False
    return True


def carried(groups: Sequence[Sequence[int]], values: Sequence[Any]) -> bool:
    """Whether the outcomes came one after the other and none came back, as what is carried on makes them. Numbers that
    all differ and go up and down are no such thing: they are drawn."""
    if not in_order(groups):
        return False
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) == len(values) == len(groups) and len(numbers) >= ENOUGH:
        return numbers in (sorted(numbers), sorted(numbers, reverse=True))
    return True


def value_at(one: Repetition, root: Root) -> Any:
    """What one repetition showed where two differed first; None where nothing can be resolved."""
    live = one.drive.live.get(root.a or 0)
    return None if live is None else shown_by(live, root.pointer)


def shown_by(exchange: Exchange, pointer: str) -> Any:
    """The scalar at a pointer into an answer's JSON body; None where there is none."""
    if exchange.response is None or not pointer.startswith("body"):
        return None
    seen = view(exchange.response.fields, exchange.response.body)
    try:
        value = resolve(seen.value, pointer.removeprefix("body")) if seen.kind is Form.JSON else None
    except (KeyError, ValueError):
        return None
    return value if not isinstance(value, dict | list) else None


def histogram(session: Session, one: Redriven) -> Mapping[str, Any]:
    """How many repetitions came out alike, the most frequent first, and what that allows to say."""
    groups = classes(one.repetitions, lambda a, b: not session.between(a, b).roots)
    counts = [len(group) for group in groups]
    told = bound_text(sum(counts)) if len(counts) == 1 else f"{told_histogram(counts)} from one start"
    return {"counts": counts, "repeats": [[r.number for r in group] for group in groups], "told": told}
