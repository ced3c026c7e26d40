"""A row that was read, changed in one place and put back whole, over what another had changed meanwhile.

Each request is done as it asks; the update is lost between them (Adya's P4, `G-single`). Who asks so cannot know better
without a version, and should demand one where the environment gives it: so this is no fault of the environment's unless
it gives none, and what the client meant is not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from replayproxy.detect.cells import Row, Shown
from replayproxy.detect.lost_condition import demands
from replayproxy.detect.normal import normal
from replayproxy.detect.ops import Op
from replayproxy.detect.race_row import VERSIONS
from replayproxy.detect.timeline import Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class PutBack:
    """`read` showed `column` of `row` as `old`, `rival` set it, and `write` put the old value back with another change.
    `versioned`: the read showed a version that the write could have demanded."""

    row: Row
    column: str
    old: str
    read: Op
    rival: Op
    write: Op
    versioned: bool


def put_back(timeline: Timeline, own: Sequence[Op]) -> Iterator[PutBack]:
    """By lane: the last read of a row before each PUT of it. Linear in the lane, times the writes beside the pair."""
    last: dict[tuple[str, Row], tuple[Op, Shown]] = {}
    for op in sorted(own, key=lambda one: one.fwd):
        if op.reads:
            last.update({(op.lane, one.row): (op, one) for one in op.rows})
        elif op.ok and op.method == "PUT" and len(op.asked) > 1 and not demands(op) and op.place and op.place.key:
            row = Row(op.place.table, op.place.key)
            read = last.get((op.lane, row))
            if read is not None and timeline.shows(row) and read[0].end < op.fwd:
                found = _over(timeline, op, row, *read)
                if found is not None:
                    yield found


def _over(timeline: Timeline, op: Op, row: Row, read: Op, shown: Shown) -> PutBack | None:
    same = {c: normal(v) for c, v in shown.members.items() if c in op.asked and normal(op.asked[c]) == normal(v)}
    if len(same) == len(op.asked):
        return None  # it changes nothing of what was read
    for rival in timeline.writes.within(read.end, op.fwd):
        # It acted after the read had ended, for it began then, and before the row was put back.
        if rival is op or not rival.ok or (rival.episode, rival.lane) == (op.episode, op.lane):
            continue
        for (at, column), value in sorted(rival.sets.items(), key=str):
            if at == row and rival.fwd > read.end and rival.end < op.fwd and column in same and same[column] != value:
                return PutBack(
                    row=row, column=column, old=same[column], read=read, rival=rival, write=op,
                    versioned=bool(read.tag) or any(name in shown.members for name in VERSIONS),
                )  # fmt: skip
    return None
