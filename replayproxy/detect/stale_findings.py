"""From stale cells to findings: one for each write that an episode's reads missed, with what was ruled out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from replayproxy.detect.agreement import Agreement, Pair
from replayproxy.detect.finding import (
    Blame,
    Finding,
    Grade,
    Kind,
    Witness,
    exchange_address,
    plain,
    seconds,
    snapshot_address,
)
from replayproxy.detect.history import Verdict
from replayproxy.detect.ops import PRESENCE, Op
from replayproxy.detect.stale_read import COVERAGE_GATE, Judged, Sight, Stale
from replayproxy.detect.timeline import Timeline


def findings(
    run: str, episode: str, timeline: Timeline, judged: Judged, agreement: Agreement, own: Sequence[Op]
) -> Iterator[tuple[Finding, Pair | None]]:
    """One per missed write, the first read that missed it in front; with the pair that it rests on."""
    believed = [s for s in judged.stale if s.sight.pair is None or agreement.holds(s.sight.pair)]
    ordered = sorted(believed, key=_cause)
    for _, same in groupby(ordered, key=_cause):
        folded = list(same)
        first = min(folded, key=_telling)
        yield _finding(run, episode, timeline, first, folded, agreement, own), first.sight.pair


def _cause(stale: Stale) -> tuple[str, int, int]:
    if stale.writer is not None:
        return stale.writer.episode, stale.writer.seq, 0
    return "", 0, stale.verdict.by_snapshot or 0


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
    newer = stale.verdict.by.value if stale.verdict.by else None
    seen = any(
        other.lane == op.lane and other.end < op.fwd and any(
            one.row == stale.sight.row and stale.sight.column in one.members
            and Sight(op=other, row=one.row, column=stale.sight.column, value=one.members[stale.sight.column],
                      pointer="", pair=None).normal == newer
            for one in other.rows
        )
        for other in own
    )  # fmt: skip
    return "MR" if newer is not None and seen else "RT"


def _grade(timeline: Timeline, stale: Stale) -> tuple[Grade, str]:
    total, explained = len(timeline.changes), timeline.explained
    if not timeline.shots:
        return Grade.SUSPECTED, "there are no snapshots: writers that do not pass the proxy would go unnoticed"
    if stale.sight.row.of_path:
        return Grade.SUSPECTED, "no snapshot shows this path: writers that do not pass the proxy would go unnoticed"
    if total == 0:
        return Grade.SUSPECTED, "no snapshot shows the write: how many writers go unnoticed is not known"
    if explained < COVERAGE_GATE * total:
        return Grade.SUSPECTED, f"only {explained} of {total} state changes are explained by recorded writes"
    if stale.unknown_beside:
        return Grade.SUSPECTED, f"{stale.unknown_beside} other reads of this cell show a value that nobody wrote"
    return Grade.PROVEN, ""


def _finding(
    run: str, episode: str, timeline: Timeline, first: Stale, folded: Sequence[Stale], agreement: Agreement,
    own: Sequence[Op],
) -> Finding:  # fmt: skip
    sight, writer, verdict = first.sight, first.writer, first.verdict
    grade, doubt = _grade(timeline, first)
    reads = {(s.sight.op.episode, s.sight.op.seq) for s in folded}
    witnesses = [_witness(run, writer, "write", first.current)] if writer else []
    witnesses.append(_witness(run, sight.op, "read", sight.value, sight.pointer))
    late = verdict.delta / 1e9
    return Finding(
        kind=Kind.STALE_READ, sub=_sub(first, own), grade=grade,
        blame=Blame.ENVIRONMENT, blame_reason="the write had been answered before the read was sent",
        run=run, episode=episode, lane=sight.op.lane, pointer=sight.pointer,
        values=(plain(first.current), plain(sight.value)),
        exchanges=tuple(witnesses), snapshots=_snapshots(run, timeline, first),
        assumptions=_assumptions(timeline, sight, agreement), ruled_out=_ruled_out(timeline, first),
        reproduce=f"replayproxy redrive {run}/{episode} --env {sight.op.env}=URL --repeat 5",
        title=_title(first, late),
        cannot_say="which layer kept the old value" + (f"; {doubt}" if doubt else ""),
        times=_times(sight.op, writer, verdict),
        effect={
            "out_of_date_s": late, "reads": len(reads), "cells": len(folded),
            "row": f"{sight.row.table}/{sight.row.key}",
        },
        covers=frozenset(reads), count=len(reads), at=sight.op.fwd,
    )  # fmt: skip


def _times(read: Op, writer: Op | None, verdict: Verdict) -> dict[str, object]:
    write = (writer.fwd, writer.answered) if writer else None
    told = seconds(write=write, overwritten=read.fwd - verdict.delta, read=(read.fwd, read.end))
    return {name: at for name, at in told.items() if at is not None}


def _witness(run: str, op: Op, role: str, value: object, pointer: str = "") -> Witness:
    return Witness(
        address=exchange_address(run, op.episode, op.seq), role=role, method=op.method, target=op.target,
        status=op.status, lane=op.lane, fwd=op.fwd, up_end=op.answered, wall=op.wall,
        pointer=pointer, value=value,
    )  # fmt: skip


def _title(stale: Stale, late: float) -> str:
    by = f"missed {stale.writer.method} {stale.writer.target}" if stale.writer else "missed a change of the state"
    return f"{stale.sight.op.target} was at least {late:.3f} s out of date, {by}"


def _snapshots(run: str, timeline: Timeline, stale: Stale) -> tuple[str, ...]:
    shown = timeline.shows(stale.sight.row)
    near = list(timeline.near(stale.sight.op.fwd, stale.sight.op.end)) if shown else []
    return tuple(snapshot_address(run, timeline.shots[i].episode, timeline.shots[i].snapshot) for i in near)


def _assumptions(timeline: Timeline, sight: Sight, agreement: Agreement) -> tuple[str, ...]:
    told = ["a write sets its values within the time between its request and its answer"]
    if timeline.shows(sight.row):
        told.append(
            f"snapshots show the system of record, each row at one instant; {timeline.explained} of "
            f"{len(timeline.changes)} state changes are explained by recorded writes"
        )
    if sight.pair is not None:
        where = "the row" if sight.column == PRESENCE else f"column {sight.column}"
        times = agreement.agreed(sight.pair)
        told.append(f"what it showed is {where} of {sight.row.table}: agreed at {times} quiet points")
    return tuple(told)


def _ruled_out(timeline: Timeline, stale: Stale) -> tuple[str, ...]:
    told = ["overlap of the read with the write: none"]
    others = len(timeline.writes.all) - (stale.writer is not None)
    told.append(f"another write of the value that was read: none of {others} can have set it so late")
    if not stale.sight.op.fresh_for:
        told.append("a declared cache: no Age, Cache-Status or max-age")
    elif stale.verdict.delta > stale.sight.op.fresh_for * 1e9:
        told.append(f"a declared cache: it may be {stale.sight.op.fresh_for:g} s old, and is older")
    else:
        told.append("a declared cache: it must drop what its own client has just written to this path")
    return tuple(told)
