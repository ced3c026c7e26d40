"""From lost writes and lost additions to findings of the kind `lost-update`."""

from __future__ import annotations

from typing import Any

from replayproxy.core import jsonvalue
from replayproxy.detect.finding import Blame, Finding, Grade, Kind, plain, seconds
from replayproxy.detect.lost_write import Lost
from replayproxy.detect.ops import ABSENT, NO_VALUE, PRESENCE, PRESENT, Op
from replayproxy.detect.race_findings import Told, interval, pointer
from replayproxy.detect.timeline import Timeline


def lost_write(told: Told, timeline: Timeline, lost: Lost) -> Finding:
    """The finding on the episode whose write is gone; the caller knows that the column is what answers say."""
    op, column = lost.op, lost.columns[0]
    doubt = told.covered()
    if not doubt and not lost.overlap:
        doubt = "a job of the environment's own may have put the old value back"
    before, after = (_spelled(timeline.row_at(lost.row, index), column) for index in (lost.before, lost.after))
    wrote = PRESENT if lost.value == PRESENT else ABSENT if lost.value == ABSENT else _wrote(op, column)
    witnesses = [told.witness(op, "write", jsonvalue.pointer(column) if column else "", wrote)]
    witnesses += [told.witness(other, "witness") for other in (*lost.rivals[:4], *lost.same[:4])]
    doubts = [doubt] if doubt else []
    if lost.same:
        doubts.append("which of the writes of this cell came last")
    shot = timeline.shots[lost.after].snapshot
    rival = interval(lost.rivals[0]) if lost.rivals else None
    return Finding(
        kind=Kind.LOST_UPDATE, sub="lost-update" if lost.rivals else "lost-write",
        grade=Grade.SUSPECTED if doubt else Grade.PROVEN, blame=Blame.ENVIRONMENT,
        blame_reason="it had acknowledged the write",
        run=told.run, episode=told.episode, lane=op.lane, pointer=pointer(lost.row, column),
        values=(plain(wrote), plain(after)), exchanges=tuple(witnesses),
        snapshots=told.at([lost.before, lost.after]),
        assumptions=(
            "a write takes effect within the time between its request and its answer",
            "a PATCH sets the members that it names and no others", told.assumed(),
        ),
        ruled_out=(
            "another write of this cell: none can have given it this value before the snapshot",
            f"a write that took its time: no later snapshot shows it ({len(timeline.shots) - lost.after - 1} seen)",
        ),
        reproduce=told.reproduce(op.env), title=_title(lost, column),
        cannot_say="; ".join(["what in the environment wrote the old value back", *doubts]),
        times={name: at for name, at in seconds(
            write=interval(op), rival=rival, snapshot=(shot.begun, shot.done)).items() if at is not None},
        effect={"before": plain(before), "lost": list(lost.columns), "overlapped": lost.overlap},
        scope=told.scope, covers=frozenset((one.episode, one.seq) for one in (op, *lost.same)), at=op.fwd,
    )  # fmt: skip


def _wrote(op: Op, column: str) -> Any:
    return op.said.get(column, op.asked.get(column))


def _spelled(row: Any, column: str) -> Any:
    if column == PRESENCE:
        return ABSENT if row is None else PRESENT
    return row.get(column, NO_VALUE) if isinstance(row, dict) else ABSENT


def _title(lost: Lost, column: str) -> str:
    what = f"{lost.row.table}/{lost.row.key}" + (f" {column}" if column else "")
    if lost.same:
        return f"{what} shows none of what {1 + len(lost.same)} writes had set, {lost.op.method} {lost.op.target} one"
    if not lost.rivals:
        return f"{lost.op.method} {lost.op.target} was answered {lost.op.status}, and {what} never changed"
    rival = lost.rivals[0]
    beside = "beside it" if lost.overlap else "after it"
    return f"{what} lost what {lost.op.method} {lost.op.target} wrote, to {rival.method} {rival.target} {beside}"
