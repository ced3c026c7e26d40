"""What the reads of an episode showed, cell by cell: a row's members, the row itself, and rows that were left out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from replayproxy.detect.agreement import Agreement, Pair
from replayproxy.detect.cells import Row, Shown
from replayproxy.detect.normal import normal
from replayproxy.detect.ops import PRESENCE, PRESENT, Op
from replayproxy.detect.timeline import Timeline, cell


class Sight(NamedTuple):
    """One cell in one answer. `pair` None: there is no state to compare with. `doubt`: what else it may mean."""

    op: Op
    row: Row
    column: str
    value: Any
    pointer: str
    pair: Pair | None
    doubt: str = ""

    @property
    def bare(self) -> bool:
        """Whether it says no more than that the row is there."""
        return self.column == PRESENCE or str(self.value) == self.row.key

    @property
    def normal(self) -> str:
        return str(self.value) if self.column == PRESENCE else normal(self.value)


def pair_of(op: Op, one: Shown, column: str) -> Pair:
    """The member of an answer that should be this column."""
    return Pair(op.env, one.row.table, _kind_of_place(one), column, op.query)


def _kind_of_place(one: Shown) -> str:
    return one.at.rpartition("/")[0] + "/*" if one.listed else one.at


def learn(timeline: Timeline, reads: Sequence[Op], agreement: Agreement) -> None:
    """Compares what reads showed with the snapshot beside them, where nobody wrote meanwhile."""
    for op in reads:
        near = list(timeline.near(op.fwd, op.end))
        still = [index for index in near if timeline.still(op.fwd, op.end, index)]
        for one in op.rows if still else ():
            for index in still if timeline.shows(one.row) else ():
                if timeline.quiet(one.row, op.fwd, op.end, index):
                    _compare(timeline, op, one, index, agreement)
                    break
        for one in op.rows if len(near) > 1 and not still else ():
            if timeline.shows(one.row):
                _compare_steady(timeline, op, one, near, agreement)
        _complete(timeline, op, still, agreement)


def _complete(timeline: Timeline, op: Op, near: Sequence[int], agreement: Agreement) -> None:
    """Notes a list that showed all rows of its table, and no other, at a quiet moment."""
    table = op.place.table if op.place is not None and op.place.key is None and not op.place.rest else None
    if table is None or not op.rows or op.status != 200:
        return
    shown = {one.row.key for one in op.rows}
    first = op.rows[0].row
    for index in near if timeline.shows(first) else ():
        if timeline.quiet(first, op.fwd, op.end, index) and shown == timeline.keys(table, index):
            agreement.listed(op.env, op.target, len(shown))


def _compare(timeline: Timeline, op: Op, one: Shown, index: int, agreement: Agreement) -> None:
    content = timeline.row_at(one.row, index)
    held = content if isinstance(content, dict) else {}
    shown = [(column, normal(value)) for column, value in one.members.items() if column in held and column != PRESENCE]
    table, place = one.row.table, _kind_of_place(one)
    for column, value in [(PRESENCE, PRESENT), *shown]:
        pair = Pair(op.env, table, place, column, op.query)
        if value == cell(content, column):
            agreement.agree(pair, value)
            agreement.saw(pair, op.who, value)
        else:
            since = op.fwd - (timeline.writes.ended_before(op.fwd) or timeline.line.done[0])
            before = {held for at, held in timeline.values(one.row, column) if at <= index}
            agreement.disagree(pair, since_write=since, earlier=value in before)


def _compare_steady(timeline: Timeline, op: Op, one: Shown, near: Sequence[int], agreement: Agreement) -> None:
    """The same while others wrote: what both snapshots around the read show of the row can agree, never disagree."""
    before, after = (timeline.row_at(one.row, index) for index in near)
    if not isinstance(before, dict) or before != after:
        return
    table, place = one.row.table, _kind_of_place(one)
    agreement.agree_steadily(Pair(op.env, table, place, PRESENCE, op.query), one.row.key)
    for column, value in one.members.items():
        if column in before and normal(value) == cell(before, column):
            agreement.agree_steadily(Pair(op.env, table, place, column, op.query), normal(value))


def sights_of(
    timeline: Timeline, reads: Sequence[Op], rows: set[Row], agreement: Agreement
) -> dict[tuple[Row, str], list[Sight]]:
    """By cell, what the reads showed of `rows`."""
    found: dict[tuple[Row, str], list[Sight]] = defaultdict(list)
    for op in reads:
        for one in op.rows:
            if one.row in rows:
                for sight in _cells(op, one, with_pair=timeline.shows(one.row)):
                    if sight.pair is None or not agreement.dropped(sight.pair):
                        found[one.row, sight.column].append(sight)
    return found


def as_the_state(timeline: Timeline, op: Op) -> bool:
    """Whether the read agrees with a snapshot beside it: in a column, beyond the row's key, or in a row's absence."""
    for index in timeline.near(op.fwd, op.end):
        if op.absent is not None and timeline.shows(op.absent) and timeline.row_at(op.absent, index) is None:
            return True
        for one in op.rows:
            content = timeline.row_at(one.row, index) if timeline.shows(one.row) else None
            if isinstance(content, dict) and any(
                column in content and str(value) != one.row.key and normal(value) == cell(content, column)
                for column, value in one.members.items()
            ):
                return True
    return False


def _cells(op: Op, one: Shown, *, with_pair: bool) -> Iterator[Sight]:
    yield Sight(
        op=op, row=one.row, column=PRESENCE, value=PRESENT, pointer=one.at,
        pair=pair_of(op, one, PRESENCE) if with_pair else None,
    )  # fmt: skip
    for column, value in one.members.items():
        yield Sight(
            op=op, row=one.row, column=column, value=value, pointer=one.pointer(column),
            pair=pair_of(op, one, column) if with_pair else None,
        )  # fmt: skip
