"""A read that was sent again between two snapshots (`record --probe`): what that says of a read that looks stale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from replayproxy.detect.normal import normal
from replayproxy.detect.ops import ABSENT, PRESENCE, PRESENT, Op
from replayproxy.detect.sights import Sight
from replayproxy.detect.timeline import Timeline, cell


class Said(Enum):
    AGREES = "agrees"  # the state shows another value on both sides of a read that still shows the old one
    HEALED = "healed"  # the read shows by now what the state does
    NOTHING = "nothing"  # somebody wrote meanwhile, or a snapshot is missing


@dataclass(frozen=True, slots=True, kw_only=True)
class Bracket:
    """The second read, and the indices of the snapshots before and after it."""

    said: Said
    again: Op
    before: int
    after: int


def bracket_of(timeline: Timeline, sight: Sight, probes: Sequence[Op]) -> Bracket | None:
    """The first time that the same was asked again after the read, with a snapshot on either side; None: never."""
    op = sight.op
    for again in sorted(probes, key=lambda probe: probe.fwd):
        same = (again.env, again.method, again.target, again.who) == (op.env, op.method, op.target, op.who)
        if same and again.fwd > op.end and timeline.shows(sight.row):
            near = list(timeline.near(again.fwd, again.end))
            if len(near) == 2 and timeline.line.begun[near[0]] > op.end:
                return Bracket(said=_said(timeline, sight, again, near), again=again, before=near[0], after=near[1])
    return None


def _said(timeline: Timeline, sight: Sight, again: Op, near: Sequence[int]) -> Said:
    before, after = (cell(timeline.row_at(sight.row, index), sight.column) for index in near)
    begun, done = timeline.line.begun[near[0]], timeline.line.done[near[1]]
    meanwhile = [*timeline.writes.within(begun, done), *timeline.writes.floating_on(sight.row, done)]
    shown = _shown(sight, again)
    # A write that says what it set, and to another row, cannot have put the cell to the old value and back.
    may_be_of_it = any(not op.sets or op.touches(sight.row, timeline.writes.paths) for op in meanwhile)
    if before != after or shown is None or may_be_of_it:
        return Said.NOTHING
    if shown == before:
        return Said.HEALED
    return Said.AGREES if shown == sight.normal else Said.NOTHING


def _shown(sight: Sight, again: Op) -> str | None:
    """What the second read showed of the cell; None: it did not show it."""
    if again.absent == sight.row:
        return ABSENT if sight.column == PRESENCE else None
    one = next((one for one in again.rows if one.row == sight.row), None)
    if one is None:
        # A list that leaves the row out again; whether it is complete was decided for the first read.
        return ABSENT if sight.column == PRESENCE and sight.value == ABSENT and again.status == 200 else None
    if sight.column == PRESENCE:
        return PRESENT
    return normal(one.members[sight.column]) if sight.column in one.members else None
