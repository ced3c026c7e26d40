"""What is known of one state while an episode ran: its snapshots in order, who wrote between them, what changed.

The writes are those of every episode that was open meanwhile on the same instance, and of traffic without an episode.
A change between two adjacent snapshots is explained if a write ran between them; where exactly one did, and wholly
between them, all that changed is known to be its work, and all else that it did nothing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from replayproxy.core.values import RowChange, Snapshot
from replayproxy.detect.cells import Row
from replayproxy.detect.history import NEVER, NO_LINE, Line
from replayproxy.detect.normal import normal
from replayproxy.detect.ops import ABSENT, NO_VALUE, PRESENCE, PRESENT, Effect, Op
from replayproxy.detect.states import States, TooMuchChanged


@dataclass(frozen=True, slots=True, kw_only=True)
class Shot:
    """A snapshot and the episode that it was taken for."""

    episode: str
    snapshot: Snapshot

    @property
    def root(self) -> bytes:
        assert self.snapshot.root is not None
        return self.snapshot.root


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A row that differs between the snapshots `gap` and `gap` + 1. `by`: who changed it, if only one can have.
    `late`: an earlier write that had been answered for what the row came to hold; then nobody is named (see `late`).
    `earlier`: such a write, where `by` is about the row too and may well have done it."""

    row: Row
    before: Any | None
    after: Any | None
    gap: int
    by: Op | None
    explained: bool
    possible: tuple[Op, ...] = ()
    late: Op | None = None
    earlier: Op | None = None

    def may_be_of(self, op: Op) -> bool:
        """Whether a write that ran alone between two snapshots may have done it."""
        return self.by is op or (self.late is not None and (self.late is op or op in self.possible))


@dataclass(frozen=True, slots=True, kw_only=True)
class Late:
    """`column` of `row` came to be `value`, which `by` had been answered for, between the snapshots `gap` and the next;
    the snapshot after `by` still shows what was before."""

    by: Op
    row: Row
    column: str
    value: str
    gap: int


@dataclass(frozen=True, slots=True)
class Written:
    """A column of a row was set to a value at some instant of [`inv`, `end`]. `by` None: one of several did it."""

    row: Row
    column: str
    value: str
    inv: int
    end: int
    by: Op | None


class Writes:
    """Writes by time: which of them overlap an interval."""

    def __init__(self, ops: Iterable[Op], paths: bool) -> None:
        self.paths = paths
        writes = sorted((op for op in ops if op.effect is not Effect.NONE), key=lambda op: op.fwd)
        self.all = writes
        self.closed = [op for op in writes if op.end != NEVER]
        self.floating = [op for op in writes if op.end == NEVER]
        self._eventual = [op for op in self.closed if op.answered is not None and op.end > op.answered]
        self._first_of_key: dict[tuple[str, str], Op] = {}
        for op in writes:
            if op.once:
                self._first_of_key.setdefault((op.target, op.once), op)
        self._begins = [op.fwd for op in self.closed]
        self._latest: list[int] = []
        for op in self.closed:
            self._latest.append(max(op.end, self._latest[-1]) if self._latest else op.end)

    def within(self, begin: int, end: int) -> list[Op]:
        """The closed writes whose interval meets [begin, end]."""
        found = []
        for index in range(bisect_right(self._begins, end) - 1, -1, -1):
            if self._latest[index] < begin:
                break
            if self.closed[index].end >= begin:
                found.append(self.closed[index])
        return found[::-1]

    def answered_before(self, op: Op) -> bool:
        """Whether it repeats an earlier one under its idempotency key: its answer may be that one's, from then."""
        first = self._first_of_key.get((op.target, op.once))
        return first is not None and (first.episode, first.seq) != (op.episode, op.seq)

    def acting(self, row: Row, instant: int) -> bool:
        """Whether a write that is declared to act after its answer may still be at it, and be about the row."""
        return any(
            op.fwd <= instant <= op.end and (not op.sets or op.touches(row, self.paths)) for op in self._eventual
        )

    def floating_on(self, row: Row, until: int) -> list[Op]:
        return [op for op in self.floating if op.fwd <= until and op.touches(row, self.paths)]

    def ended_before(self, instant: int) -> int | None:
        """When the last write that ended before the instant did; None: there was none."""
        index = bisect_left(self._begins, instant)
        ends = [op.end for op in self.closed[max(0, index - 64) : index] if op.end < instant]
        return max(ends, default=None)


class Timeline:
    """See the module. `shots` are in order of their readings, `ops` in any order; `name` is that of the snapshots."""

    def __init__(
        self, shots: Sequence[Shot], ops: Sequence[Op], states: States, *, paths: bool, name: str = ""
    ) -> None:  # fmt: skip
        self.name = name
        self.shots = list(shots)
        self.states = states
        self.writes = Writes(ops, paths)
        self.line = NO_LINE
        if self.shots:
            self.line = Line(begun=[s.snapshot.begun for s in self.shots], done=[s.snapshot.done for s in self.shots])
        self.accounted: set[tuple[str, int]] = set()
        self.alone: dict[int, Op] = {}  # by gap, the write that is accounted for there
        self.too_much = False
        self.changes: list[Change] = []
        self.late: list[Late] = []
        self._comings: dict[str, list[tuple[int, str, bool]]] = {}
        self._runs: dict[Row, list[tuple[int, Any | None]]] = {}
        for gap in range(len(self.shots) - 1):
            self._look_into(gap)

    def _look_into(self, gap: int) -> None:
        a, b = self.shots[gap].snapshot, self.shots[gap + 1].snapshot
        between = self.writes.within(a.begun, b.done)
        alone = between[0] if len(between) == 1 else None
        if alone is not None and not (a.done < alone.fwd and alone.end < b.begun):
            alone = None  # it may have been at work while one of the two was read
        try:
            changed = self.states.changes(self.shots[gap].root, self.shots[gap + 1].root)
        except TooMuchChanged:
            self.too_much = True
            return
        if alone is not None:
            self.accounted.add((alone.episode, alone.seq))
            self.alone[gap] = alone
        for change in changed:
            self._note(gap, change, between, alone, b.done)

    def _note(self, gap: int, change: RowChange, between: list[Op], alone: Op | None, until: int) -> None:
        row = Row(change.table, change.key)
        floating = self.writes.floating_on(row, until)
        if not between and not floating:
            # One that began in the gap and failed may have had effects on other rows, as any other write.
            begun = self.shots[gap].snapshot.begun
            floating = [op for op in self.writes.floating if begun <= op.fwd <= until]
        possible = (*between, *floating)
        explained = bool(possible) and not self._put_back(row, change, possible)
        self.changes.append(
            Change(
                row=row, before=change.before, after=change.after, gap=gap,
                by=alone if explained and not floating else None, explained=explained, possible=possible,
            )
        )  # fmt: skip
        self._runs.setdefault(row, [(0, change.before)]).append((gap + 1, change.after))

    def _put_back(self, row: Row, change: RowChange, possible: Sequence[Op]) -> bool:
        """Whether a row went back to what it had been, and no write that ran meanwhile was about it: such a write may
        have side effects, but those go on; what goes back is somebody's who does not pass the proxy."""
        if change.before is None or change.after is None or any(op.touches(row, self.writes.paths) for op in possible):
            return False
        earlier = [content for _, content in self._runs.get(row, ())]
        return any(
            cell(change.after, column) != cell(change.before, column)
            and any(cell(content, column) == cell(change.after, column) for content in earlier)
            for column in columns(change.before, change.after)
        )

    # What the state was

    def shows(self, row: Row) -> bool:
        """Whether snapshots tell of the row."""
        return bool(self.shots) and not row.of_path

    def row_at(self, row: Row, index: int) -> Any | None:
        """The row as the snapshot of that index shows it."""
        runs = self._runs.get(row)
        if runs is None:
            return self.states.row(self.shots[0].root, row)
        return runs[bisect_right(runs, index, key=lambda run: run[0]) - 1][1]

    def contents(self, row: Row) -> list[tuple[int, Any | None]]:
        """(index of the first snapshot that shows it, content) of a row, in order; empty if none shows the row."""
        if not self.shows(row):
            return []
        return self._runs.get(row) or [(0, self.states.row(self.shots[0].root, row))]

    def values(self, row: Row, column: str) -> list[tuple[int, str]]:
        """(index of the first snapshot that shows it, value) of one cell, in order; empty if none shows the row."""
        found: list[tuple[int, str]] = []
        for index, content in self.contents(row):
            value = cell(content, column)
            if not found or found[-1][1] != value:
                found.append((index, value))
        return found

    def keys(self, table: str, index: int) -> set[str]:
        """The keys of a table's rows as the snapshot of that index shows them."""
        if table not in self._comings:
            self._comings[table] = sorted(
                (change.gap, change.row.key, change.after is not None)
                for change in self.changes
                if change.row.table == table and (change.before is None) != (change.after is None)
            )
        found = set(self.states.rows(self.shots[0].root).get(table, ()))
        for gap, key, there in self._comings[table]:
            if gap < index:
                (found.add if there else found.discard)(key)
        return found

    def near(self, begin: int, end: int) -> Iterator[int]:
        """The last snapshot before the interval and the first one after it."""
        before = bisect_left(self.line.done, begin) - 1
        if before >= 0:
            yield before
        after = bisect_right(self.line.begun, end)
        if after < len(self.shots):
            yield after

    def still(self, begin: int, end: int, index: int) -> bool:
        """Whether no write that ended ran between the interval and the snapshot, nor during either."""
        return not self.writes.within(min(begin, self.line.begun[index]), max(end, self.line.done[index]))

    def quiet(self, row: Row, begin: int, end: int, index: int) -> bool:
        """Whether nothing was written between the interval and the snapshot, nor during either."""
        if self.writes.floating and self.writes.floating_on(row, max(end, self.line.done[index])):
            return False
        return self.still(begin, end, index)

    # How far the writes explain the state

    @property
    def explained(self) -> int:
        return sum(change.explained for change in self.changes)

    def effects(self) -> Iterator[Written]:
        """Everything that was set, as far as it is known.

        What a write says itself it set within its own interval. What only snapshots show was set by somebody between
        the two, also where one recorded write alone ran there: that it did so is likely, and somebody who does not
        pass the proxy may have done it before that write began. A change that no recorded write explains is left out.
        """
        for change in self.changes:
            for column in columns(change.before, change.after) if change.explained else ():
                after = cell(change.after, column)
                if after == cell(change.before, column):
                    continue
                if change.by is not None and _surely(change.by, change.row, column):
                    yield Written(change.row, column, after, change.by.fwd, change.by.end, change.by)
                elif not any(op.sets.get((change.row, column)) == after for op in change.possible):
                    begun, done = self.line.begun[change.gap], self.line.done[change.gap + 1]
                    yield Written(change.row, column, after, begun, done, change.by)
        for op in self.writes.all:
            known = (op.episode, op.seq) in self.accounted
            for (row, column), value in op.sets.items():
                if row.of_path or not known:
                    yield Written(row, column, value, op.fwd, op.end, op)


def _surely(op: Op, row: Row, column: str) -> bool:
    """Whether the write says that it sets the column: by its words, or because it is an action on that very row."""
    of_it = op.place is not None and (op.place.table, op.place.key) == (row.table, row.key)
    action = op.method not in ("PUT", "PATCH") or column == PRESENCE
    return (row, column) in op.sets or (of_it and (action or column in op.asked))


def columns(*rows: Any | None) -> set[str]:
    """The columns of a row's versions; PRESENCE stands for the row itself."""
    found = {PRESENCE}
    for row in rows:
        if isinstance(row, dict):
            found |= set(row)
    return found


def cell(row: Any | None, column: str) -> str:
    """The normal value of one column of a row as a state holds it."""
    if column == PRESENCE:
        return ABSENT if row is None else PRESENT
    if row is None or not isinstance(row, dict) or column not in row:
        return NO_VALUE
    return normal(row[column])
