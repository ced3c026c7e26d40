"""From stale cells to findings: one for each write that an episode's reads missed, with what was ruled out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from replayproxy.detect.agreement import Agreement, Pair
from replayproxy.detect.bracket import Bracket
from replayproxy.detect.cells import Row
from replayproxy.detect.finding import (
    Blame,
    Finding,
    Kind,
    Witness,
    exchange_address,
    plain,
    seconds,
    snapshot_address,
)
from replayproxy.detect.ops import PRESENCE, Effect, Op
from replayproxy.detect.sights import Sight
from replayproxy.detect.stale_grade import (
    Evidence,
    assumptions,
    evidence_of,
    grade_of,
    healed,
    ruled_out,
    scope_of,
)
from replayproxy.detect.stale_read import Judged, Stale
from replayproxy.detect.timeline import Timeline
from replayproxy.detect.tokens import Tokens

ROWS_TOLD = 20


def findings(
    run: str, episode: str, timeline: Timeline, judged: Judged, agreement: Agreement, tokens: Tokens,
    own: Sequence[Op],
) -> Iterator[tuple[Finding, Pair | None]]:  # fmt: skip
    """One per missed write, the first read that missed it in front; with the pair that it rests on."""
    believed = [stale for stale in judged.stale if stale.credible(agreement, tokens)]
    ordered = sorted(believed, key=_cause)
    for _, same in groupby(ordered, key=_cause):
        folded = list(same)
        first = min(folded, key=_telling)
        evidence = evidence_of(timeline, first, agreement, tokens, own)
        yield _finding(run, episode, evidence, folded, own), first.sight.pair


def _cause(stale: Stale) -> tuple[bool, str, int, int, Row | None]:
    """What the read missed: a write, or one row's change of which nobody can say whose it was. What is in doubt is told
    apart from what is not, which it must not weaken."""
    doubted = stale.late or (bool(stale.sight.doubt) and (stale.token is None or not stale.token.sure))
    writer = stale.writer or _likely(stale)
    if writer is not None:
        return doubted, writer.episode, writer.seq, 0, None
    gap = stale.change.gap if stale.change is not None else stale.verdict.by_snapshot or 0
    return doubted, "", 0, gap, stale.sight.row


def _likely(stale: Stale) -> Op | None:
    """Of the writes that ran while the row changed the only one that is about it. Others may have side effects."""
    if stale.change is None:
        return None
    if stale.change.late is not None:
        return None
    about = [op for op in stale.change.possible if op.touches(stale.sight.row, paths=False)]
    return about[0] if len(about) == 1 and about[0].end < stale.sight.op.fwd else None


def _telling(stale: Stale) -> tuple[int, bool, bool, str]:
    """The first read; of it the member that the write asked for, and rather a member than the row itself."""
    asked = stale.writer is not None and stale.sight.column in stale.writer.asked
    return stale.sight.op.fwd, not asked, stale.sight.column == PRESENCE, stale.sight.column


def _sub(stale: Stale, own: Sequence[Op]) -> str:
    op, writer = stale.sight.op, stale.writer
    if stale.sight.column == PRESENCE:
        return "membership"
    if writer is not None and (writer.episode, writer.lane) == (op.episode, op.lane):
        return "RYW"
    return "MR" if _seen_newer(stale, own) else "RT"


def _seen_newer(stale: Stale, own: Sequence[Op]) -> bool:
    """Whether the reader's own lane had been shown what the read missed."""
    op, sight = stale.sight.op, stale.sight
    if stale.token is not None:
        seen = stale.token.newest.op
        if seen is not None and seen.effect is Effect.NONE and (seen.episode, seen.lane) == (op.episode, op.lane):
            return True
    newer = stale.verdict.by.value if stale.verdict.by else None
    return newer is not None and any(
        other.lane == op.lane and other.end < op.fwd and any(
            one.row == sight.row and sight.column in one.members
            and Sight(op=other, row=one.row, column=sight.column, value=one.members[sight.column],
                      pointer="", pair=None).normal == newer
            for one in other.rows
        )
        for other in own if other.reads and not other.is_probe
    )  # fmt: skip


def _finding(
    run: str, episode: str, evidence: Evidence, folded: Sequence[Stale], own: Sequence[Op]
) -> Finding:  # fmt: skip
    first = evidence.stale
    sight, verdict = first.sight, first.verdict
    grade, doubt = grade_of(evidence)
    reads = {(s.sight.op.episode, s.sight.op.seq) for s in folded}
    late = verdict.delta / 1e9
    layer = "" if first.late else "which layer kept the old value"
    doubts = [text for text in (layer, doubt, healed(evidence)) if text]
    return Finding(
        kind=Kind.STALE_READ, sub=_sub(first, own), grade=grade,
        blame=Blame.ENVIRONMENT, blame_reason=_why(first),
        run=run, episode=episode, lane=sight.op.lane, pointer=sight.pointer,
        values=(plain(first.current), plain(sight.value)),
        exchanges=tuple(_witnesses(run, evidence)), snapshots=_snapshots(run, evidence),
        assumptions=tuple(assumptions(evidence)), ruled_out=tuple(ruled_out(evidence)),
        reproduce=f"replayproxy redrive {run}/{episode} --env {sight.op.env}=URL --repeat 5",
        title=_title(first, late), cannot_say="; ".join(doubts), times=_times(evidence),
        effect={
            "out_of_date_s": late, "newer_versions": verdict.newer, "reads": len(reads), "cells": len(folded),
            "row": f"{sight.row.table}/{sight.row.key}", "rows": _rows(folded),
        },
        scope=scope_of(evidence, own),
        covers=frozenset(reads), count=len(reads), at=sight.op.fwd,
    )  # fmt: skip


def _rows(folded: Sequence[Stale]) -> list[str]:
    return sorted({f"{s.sight.row.table}/{s.sight.row.key}" for s in folded})[:ROWS_TOLD]


def _why(stale: Stale) -> str:
    if stale.late:
        return "the write had been answered before the read was sent, and took effect only later"
    if stale.writer is not None:
        return "the write had been answered before the read was sent"
    return "a later version had been seen before the read was sent"


def _witnesses(run: str, evidence: Evidence) -> Iterator[Witness]:
    stale = evidence.stale
    sight, token = stale.sight, evidence.token
    if stale.writer is not None:
        yield _witness(run, stale.writer, "write", stale.current)
    elif token is not None and token.newest.op is not None:
        yield _witness(run, token.newest.op, "witness", token.newest.value)
    if sight.op.again is not None:
        yield _witness(run, sight.op.again, "witness", sight.value, sight.pointer)
    yield _witness(run, sight.op, "read", sight.value, sight.pointer)
    if evidence.agrees and evidence.bracket is not None:
        yield _witness(run, evidence.bracket.again, "witness", sight.value, sight.pointer)


def _times(evidence: Evidence) -> dict[str, object]:
    """What the drawing of the intervals is made from. `before` and `after` are the snapshots around the read, or
    around its repetition where it was asked again; `snapshot` the one that first showed the value gone."""
    stale, timeline = evidence.stale, evidence.timeline
    read, writer = stale.sight.op, stale.writer
    shots: dict[str, tuple[int, int] | None] = {}
    if timeline.shows(stale.sight.row):
        line = timeline.line
        around = _around(timeline, stale.sight, evidence.bracket)
        shots = {name: (line.begun[index], line.done[index]) for name, index in around.items()}
        if stale.verdict.by_snapshot is not None:
            shots["snapshot"] = (line.begun[stale.verdict.by_snapshot], line.done[stale.verdict.by_snapshot])
    told = seconds(
        write=(writer.fwd, writer.answered) if writer else None, overwritten=read.fwd - stale.verdict.delta,
        read=(read.fwd, read.end), **shots,
    )  # fmt: skip
    return {name: at for name, at in told.items() if at is not None}


def _around(timeline: Timeline, sight: Sight, bracket: Bracket | None) -> dict[str, int]:
    if bracket is not None:
        return {"before": bracket.before, "after": bracket.after}
    return {
        "before" if timeline.line.done[index] < sight.op.fwd else "after": index
        for index in timeline.near(sight.op.fwd, sight.op.end)
    }


def _witness(run: str, op: Op, role: str, value: object, pointer: str = "") -> Witness:
    return Witness(
        address=exchange_address(run, op.episode, op.seq), role=role, method=op.method, target=op.target,
        status=op.status, lane=op.lane, fwd=op.fwd, up_end=op.answered, wall=op.wall,
        pointer=pointer, value=value,
    )  # fmt: skip


def _title(stale: Stale, late: float) -> str:
    by = f"missed {stale.writer.method} {stale.writer.target}" if stale.writer else "missed a change of the state"
    if stale.late and stale.writer is not None:
        told = f"{stale.writer.method} {stale.writer.target}, answered {late:.3f} s before and in effect only later"
        return f"{stale.sight.op.target} does not show {told}"
    what = f"the 304 for {stale.sight.op.target}" if stale.sight.op.again is not None else stale.sight.op.target
    return f"{what} was at least {late:.3f} s out of date, {by}"


def _snapshots(run: str, evidence: Evidence) -> tuple[str, ...]:
    timeline, stale = evidence.timeline, evidence.stale
    if not timeline.shows(stale.sight.row):
        return ()
    near = list(timeline.near(stale.sight.op.fwd, stale.sight.op.end))
    if evidence.bracket is not None:
        near += [evidence.bracket.before, evidence.bracket.after]
    shots = [timeline.shots[index] for index in dict.fromkeys(near)]
    return tuple(snapshot_address(run, shot.episode, shot.snapshot) for shot in shots)
