"""Effects that came after their answer: a row that changes only while a later write runs, to what an earlier one gave.

Everything else here takes a write to have done what it does before its answer. Where two snapshots around an
acknowledged write, alone between them, show that it did nothing, and its value comes later, while nothing runs that is
about the cell or speaks of the value, that does not hold: the later write did not do it, and who did is undecided.
The snapshots may also be read from a copy that lags; that makes no difference to what can be concluded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from replayproxy.core import jsonvalue
from replayproxy.detect.cells import Row
from replayproxy.detect.jobs import by_itself
from replayproxy.detect.normal import normal
from replayproxy.detect.ops import NO_VALUE, PRESENCE, Op
from replayproxy.detect.sights import Sight
from replayproxy.detect.timeline import Change, Late, Timeline, cell, columns

SHORTEST = 2
"""A text of fewer letters is given by too many writes to say whose it is."""

MOST_WAITING = 8
"""The last writes of a row that did nothing, so many; in a row that is polled by writes the others are too long ago."""

EMPTY = ("null", NO_VALUE, "'")

WHY = "an effect came after its answer: what else came late is not known"
"""Why nothing is concluded in an episode in which that was seen."""


def settle(timeline: Timeline) -> Timeline:
    """Finds what came late, and takes from the writes that ran meanwhile what was ascribed to them. Linear in changed
    cells. Gives the timeline itself."""
    if timeline.shots and timeline.changes:
        _Look(timeline).run()
    return timeline


@dataclass(slots=True)
class _Look:
    """`waiting`: by row, acknowledged writes of it that two snapshots show to have done nothing, and the earlier of the
    two. `changed`: the last gap in which a cell changed."""

    timeline: Timeline
    waiting: dict[Row, list[tuple[Op, int]]] = field(default_factory=lambda: defaultdict(list))
    changed: dict[tuple[Row, str], int] = field(default_factory=dict)

    def run(self) -> None:
        timeline = self.timeline
        alone = self._alone()
        by_gap: dict[int, list[int]] = defaultdict(list)
        for index, change in enumerate(timeline.changes):
            by_gap[change.gap].append(index)
        for gap in sorted({*alone, *by_gap}):
            ours = 0
            for index in by_gap.get(gap, ()):
                ours += not (self.waiting and self._look_at(index))
            for index in by_gap.get(gap, ()):
                self._note(timeline.changes[index])
            if gap in alone and not ours:
                self._wait(alone[gap], gap)

    def _alone(self) -> dict[int, Op]:
        """By gap, the one write in it, if it was answered as done and nobody declared that it acts later."""
        writes = self.timeline.writes
        return {
            gap: op for gap, op in self.timeline.alone.items()
            if op.ok and op.status is not None and op.status < 300 and op.end == op.answered
            and not writes.answered_before(op)
        }  # fmt: skip

    def _note(self, change: Change) -> None:
        for column in _differing(change):
            self.changed[change.row, column] = change.gap

    def _wait(self, op: Op, gap: int) -> None:
        rows = {row for row, _ in op.sets if not row.of_path}
        if op.place is not None and op.place.key is not None:
            rows.add(Row(op.place.table, op.place.key))
        for row in rows:
            self.waiting[row] = [*self.waiting[row][1 - MOST_WAITING :], (op, gap)]

    def _look_at(self, index: int) -> bool:
        """Whether a change came late; it is marked so, or with the earlier write whose work it may be."""
        timeline, change = self.timeline, self.timeline.changes[index]
        for op, gap in reversed(self.waiting.get(change.row, ())):
            since = [other for other in change.possible if other is not op]
            its = [
                column for column in sorted(_differing(change))
                if self.changed.get((change.row, column), -1) <= gap and _is_its(op, change, column, since)
            ]  # fmt: skip
            late = [
                Late(by=op, row=change.row, column=column, value=cell(change.after, column), gap=change.gap)
                for column in its if _nobody_elses(timeline, change, column, since)
            ]  # fmt: skip
            if late:
                timeline.late += late
                timeline.changes[index] = replace(change, by=None, late=op)
            elif its:
                timeline.changes[index] = replace(change, earlier=op)
            if its:
                return bool(late)
        return False


def missed(
    timeline: Timeline, sights: Mapping[tuple[Row, str], Sequence[Sight]]
) -> Iterator[tuple[Sight, Late]]:  # fmt: skip
    """The reads between a write's answer and its late effect that do not show what it had been answered for."""
    for late in timeline.late:
        for sight in sights.get((late.row, late.column), ()):
            between = late.by.end < sight.op.fwd <= timeline.line.done[late.gap + 1]
            if between and sight.normal != late.value and not timeline.writes.acting(sight.row, sight.op.fwd):
                yield sight, late


def _differing(change: Change) -> set[str]:
    return {c for c in columns(change.before, change.after) if cell(change.before, c) != cell(change.after, c)}


def _is_its(op: Op, change: Change, column: str, since: Sequence[Op]) -> bool:
    """Whether the write was answered for the value, and none that ran while it came speaks of it."""
    row, value = change.row, cell(change.after, column)
    said = op.sets.get((row, column)) == value
    if column == PRESENCE:
        return said and not any(_speaks_of(other, normal(row.key), row.key) for other in since)
    of_it = op.place is not None and (op.place.table, op.place.key) == (row.table, row.key)
    text = value[1:] if value.startswith("'") else ""
    its = said or (of_it and len(text) >= SHORTEST and _given(op.asked, value))
    return its and not any(_speaks_of(other, value, text) for other in since)


def _nobody_elses(timeline: Timeline, change: Change, column: str, since: Sequence[Op]) -> bool:
    """Whether none of the writes that ran meanwhile can have made it of what was given before, as `publish` does."""
    if column == PRESENCE:
        # What goes may go with another row; what comes under a key that nobody else speaks of was made by its maker.
        return change.after is not None or by_itself(timeline, change)
    if any(_acts_on(other, change.row) for other in since):
        return False
    # A write beside the row, such as a note under it, may change a cell in turn; that it fills one is not believed.
    return cell(change.before, column) in EMPTY or by_itself(timeline, change)


def _acts_on(op: Op, row: Row) -> bool:
    """Whether the write's path ends at the row, or its words set it: what it makes of what was given before is its own
    doing."""
    named = op.place is None or op.is_reset or (op.place.table == row.table and op.place.key in (None, row.key))
    return named or any(other == row for other, _ in op.sets)


def _speaks_of(op: Op, value: str, text: str) -> bool:
    """Whether request, target or answer of a write hold the value."""
    if text and text in op.target:
        return True
    words = (op.asked, op.said, *(one.members for one in op.echoed))
    return value in op.sets.values() or any(_given(each, value) for each in words)


def _given(words: Mapping[str, Any], value: str) -> bool:
    return any(normal(leaf) == value for _, leaf in jsonvalue.leaves(dict(words)))
