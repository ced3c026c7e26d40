"""Reads that are current only if a write about another row put the cell back, and another one put it forth again.

A write may have effects on rows that it does not name: whoever makes one address the default takes that from another.
Where lanes write side by side, snapshots do not show which of the writes did what, and such a write may have set any
cell for a moment. That no read is judged against it is sound, and leaves almost nothing to be said at four lanes. What
would be out of date without such effects, while the state shows another value again after the read, is a suspicion.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace

from replayproxy.detect.cells import Row
from replayproxy.detect.history import Blinds, History, State, Verdict, judge
from replayproxy.detect.ops import Op
from replayproxy.detect.sights import Sight
from replayproxy.detect.timeline import Timeline, cell

DOUBT = "writes about other rows ran meanwhile: nobody can say that none of them set this back for a moment"


def set_back(
    timeline: Timeline, row: Row, column: str, history: History, verdicts: Sequence[Verdict]
) -> list[Verdict]:  # fmt: skip
    """The verdicts; those that only effects of writes on other rows explain are stale, with that doubt."""
    open_ones = [index for index, verdict in enumerate(verdicts) if _shown_gone(timeline, row, column, verdict)]
    if not open_ones or not history.blind.writes:
        return list(verdicts)
    without = judge(replace(history, blind=_about(timeline, row, history.blind)))
    found = list(verdicts)
    for index in open_ones:
        if without[index].state is State.STALE:
            reading = without[index].reading
            read: Sight = reading.ref
            doubted = read._replace(doubt="; ".join(text for text in (read.doubt, DOUBT) if text))
            found[index] = without[index]._replace(reading=reading._replace(ref=doubted))
    return found


def _shown_gone(timeline: Timeline, row: Row, column: str, verdict: Verdict) -> bool:
    """Whether the snapshot after a read that may be current shows another value."""
    read: Sight = verdict.reading.ref
    if verdict.state is not State.CURRENT or not timeline.shows(row):
        return False
    after = bisect_right(timeline.line.begun, read.op.end)
    return after < len(timeline.shots) and cell(timeline.row_at(row, after), column) != read.normal


def _about(timeline: Timeline, row: Row, blind: Blinds) -> Blinds:
    """Of writes of unknown effect those that may be about the row, or do not say what they are about."""
    kept = {(op.fwd, op.end) for op in timeline.writes.all if _may_be_about(op, row, timeline.writes.paths)}
    return Blinds(write for write in blind.writes if (write.inv, write.end) in kept)


def _may_be_about(op: Op, row: Row, paths: bool) -> bool:
    return not op.sets or op.touches(row, paths)
