"""What is known of each cell while an episode ran, as the rule for one register (`history`) asks for it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from replayproxy.detect.cells import Row
from replayproxy.detect.history import ALWAYS, NO_LINE, Blind, Blinds, History, Reading, Version
from replayproxy.detect.ops import ABSENT, PRESENCE, Op
from replayproxy.detect.sights import Sight
from replayproxy.detect.timeline import Timeline, Written


class Histories:
    """The cells of one timeline. `effects`: what was set, by cell; `rows`: the rows that changed or were written."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        found: dict[tuple[Row, str], list[Written]] = defaultdict(list)
        for written in timeline.effects():
            found[written.row, written.column].append(written)
        self.effects: Mapping[tuple[Row, str], Sequence[Written]] = dict(found)
        self.rows = {row for row, _ in self.effects} | {change.row for change in timeline.changes}
        self._unaccounted = [op for op in timeline.writes.closed if (op.episode, op.seq) not in timeline.accounted]
        self._blinds: dict[tuple[bool, frozenset[tuple[str, int]]], Blinds] = {}

    def steady(self, row: Row, column: str) -> str | None:
        """The one value of a cell that nobody is known to have set, and that every snapshot shows; None: no such cell.

        A read of it is current with that value and unknown with any other, whatever blind writes there are.
        """
        if (row, column) in self.effects:
            return None
        values = self._timeline.values(row, column)
        return values[0][1] if len(values) == 1 else None

    def of(self, row: Row, column: str, sights: Sequence[Sight]) -> History:
        """All that is known of the cell; `sights` are its readings."""
        timeline = self._timeline
        known = self.effects.get((row, column), ())
        versions = [Version(inv=w.inv, end=w.end, value=w.value, ref=w.by) for w in known]
        shows = timeline.shows(row)
        if not shows:
            versions += _found_at_first(timeline, sights)
            if column == PRESENCE:
                versions += _not_there_before(versions)
        return History(
            versions=versions,
            blind=self._blind(row, known),
            readings=[Reading(fwd=s.op.fwd, up_end=s.op.end, value=s.normal, ref=s) for s in sights],
            line=timeline.line if shows else NO_LINE,
            runs=timeline.values(row, column),
        )

    def _blind(self, row: Row, known: Sequence[Written]) -> Blinds:
        """The writes that may have set the cell without a word: all but those that say what they set it to, and those
        of which the snapshots around them show what they did."""
        shows, writes = self._timeline.shows(row), self._timeline.writes
        said = frozenset((w.by.episode, w.by.seq) for w in known if w.by is not None)
        if not shows or writes.floating:
            floating = [op for op in writes.floating if op.touches(row, writes.paths)]
            return _blinds([*(self._unaccounted if shows else writes.closed), *floating], said)
        if (shows, said) not in self._blinds:
            self._blinds[shows, said] = _blinds(self._unaccounted, said)
        return self._blinds[shows, said]


def _blinds(writes: Sequence[Op], said: frozenset[tuple[str, int]]) -> Blinds:
    return Blinds(Blind(inv=op.fwd, end=op.end) for op in writes if (op.episode, op.seq) not in said)


def _found_at_first(timeline: Timeline, sights: Sequence[Sight]) -> list[Version]:
    """Without snapshots: what all reads before the first write showed was there from the beginning."""
    first = min((op.fwd for op in timeline.writes.all), default=None)
    early = [sight for sight in sights if first is not None and sight.op.end < first]
    if not early or len({sight.normal for sight in early}) != 1:
        return []
    return [Version(inv=ALWAYS, end=min(sight.op.end for sight in early), value=early[0].normal)]


def _not_there_before(versions: Sequence[Version]) -> list[Version]:
    """Without snapshots: a row that a POST made (201) had not been there."""
    first = min(versions, key=lambda version: version.inv, default=None)
    made = first is not None and first.ref is not None and (first.ref.method, first.ref.status) == ("POST", 201)
    return [Version(inv=ALWAYS, end=first.inv - 1, value=ABSENT)] if made and first is not None else []
