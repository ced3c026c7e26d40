"""Writes that were acknowledged and then were nowhere: neither they nor anything that may have replaced them.

A write answered with success says which value a cell has now. The first snapshot that begins after the answer shows
it, unless another write replaced it. If no recorded write can have done so, and the snapshot shows what the cell held
before, the write was lost: to a rival that wrote back the whole row as it had read it, or to nobody that is known.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from replayproxy.detect.cells import Row
from replayproxy.detect.normal import normal
from replayproxy.detect.ops import ABSENT, PRESENCE, Effect, Op
from replayproxy.detect.race_double import mentions
from replayproxy.detect.race_habits import alike
from replayproxy.detect.race_names import live
from replayproxy.detect.timeline import Change, Timeline, cell


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """A write that a snapshot does not show. `columns`: the lost ones, in order; `value` and `old` of the first.

    `rivals`: writes to the row (of a row that is missing whole: to its table) beside it or after it, that named other
    columns. `same`: writes of the same cell to other values that may have replaced it before the snapshot: then what
    the last of them wrote is lost. `before`, `after`: the snapshots around.
    """

    op: Op
    row: Row
    columns: tuple[str, ...]
    value: str
    old: str
    rivals: tuple[Op, ...]
    overlap: bool
    before: int
    after: int
    same: tuple[Op, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A write that a snapshot shows: this column of the table is what its answers say it is. `gone`: the row went."""

    env: str
    table: str
    column: str
    gone: bool = False


def look(timeline: Timeline, own: Sequence[Op]) -> Iterator[Lost | Kept]:
    """What became of the writes of `own`. Linear in them, times the writes beside each. Of writes of one cell that may
    have replaced each other only the last one is told as lost."""
    found = list(_each(timeline, own))
    lost = {(one.op.seq, one.row, one.columns[0]) for one in found if isinstance(one, Lost)}
    for one in found:
        if isinstance(one, Kept) or not any(
            (op.seq, one.row, one.columns[0]) in lost and op.episode == one.op.episode and op.fwd > one.op.fwd
            for op in one.same
        ):
            yield one


def _each(timeline: Timeline, own: Sequence[Op]) -> Iterator[Lost | Kept]:
    for op in own:
        if not op.ok or not op.sets:
            continue
        before = bisect_left(timeline.line.done, op.fwd) - 1
        after = bisect_right(timeline.line.begun, op.end)
        if before < 0 or after >= len(timeline.shots):
            continue
        rows: dict[Row, list[str]] = {}
        for row, column in op.sets:
            if timeline.shows(row):
                rows.setdefault(row, []).append(column)
        for row, columns in rows.items():
            yield from _row(timeline, op, row, columns, before, after)


def _row(
    timeline: Timeline, op: Op, row: Row, columns: Sequence[str], before: int, after: int
) -> Iterator[Lost | Kept]:
    old, new = timeline.row_at(row, before), timeline.row_at(row, after)
    lost = []
    for column in [PRESENCE] if op.sets.get((row, PRESENCE)) == cell(new, PRESENCE) == ABSENT else sorted(columns):
        value = op.sets[row, column]
        if value == cell(old, column):
            continue
        if cell(new, column) == value:
            yield Kept(env=op.env, table=row.table, column=column, gone=value == ABSENT)
        elif alike(value, cell(old, column)) or (value == ABSENT and live(old) and not live(new)):
            continue  # the environment spells it in its own way, or marks a row as deleted
        elif _was(timeline, op, row, column, before, cell(new, column)) and _gone(
            timeline, op, row, column, value, after
        ):
            lost.append(column)
    if lost and PRESENCE in lost:
        lost = [PRESENCE]
    if lost:
        yield _lost(timeline, op, row, tuple(lost), before, after)


def taken_back(timeline: Timeline) -> Iterator[Lost]:
    """Cells that went back to what they had been, while all that ran were PATCHes of other columns of the row."""
    for change in timeline.changes:
        if not isinstance(change.before, dict) or not isinstance(change.after, dict):
            continue
        rivals = [op for op in change.possible if op.ok and op.method == "PATCH" and change.row in op.about]
        for column in sorted(change.before) if rivals else ():
            old, value = cell(change.after, column), cell(change.before, column)
            if old == value or any(may_set(timeline, op, change.row, column) for op in change.possible):
                continue
            if any(
                held == old and _in_order(timeline, at, change.gap) for at, held in timeline.values(change.row, column)
            ):
                yield from _undone(timeline, change, column, value, old, rivals)


def _in_order(timeline: Timeline, earlier: int, gap: int) -> bool:
    """Whether a snapshot had surely been read before the one at `gap`, and that one before the next: of two whose
    readings overlap, the one that began first may show the later state."""
    line = timeline.line
    return earlier < gap and line.done[earlier] < line.begun[gap] and line.done[gap] < line.begun[gap + 1]


def _undone(
    timeline: Timeline, change: Change, column: str, value: str, old: str, rivals: Sequence[Op]
) -> Iterator[Lost]:  # fmt: skip
    shown = timeline.line.done[change.gap]
    wrote = [op for op in timeline.writes.closed if op.sets.get((change.row, column)) == value and op.fwd <= shown]
    if wrote:
        op = max(wrote, key=lambda one: one.fwd)
        beside = [rival for rival in rivals if rival is not op and rival.fwd <= op.end]
        yield Lost(
            op=op, row=change.row, columns=(column,), value=value, old=old, rivals=tuple(beside or rivals),
            overlap=bool(beside), before=change.gap, after=change.gap + 1,
        )  # fmt: skip


def _lost(timeline: Timeline, op: Op, row: Row, lost: tuple[str, ...], before: int, after: int) -> Lost:
    beside = list(_beside(timeline, op, after))
    same = [other for other in beside if lost[0] != PRESENCE and (row, lost[0]) in other.sets]
    rivals = [other for other in beside if other not in same and _rival(other, op, row, lost[0])]
    return Lost(
        op=op, row=row, columns=lost, value=op.sets[row, lost[0]], old=cell(timeline.row_at(row, before), lost[0]),
        rivals=tuple(rivals), overlap=any(other.fwd <= op.end and op.fwd <= other.end for other in rivals),
        before=before, after=after, same=tuple(same),
    )  # fmt: skip


def _beside(timeline: Timeline, op: Op, after: int) -> Iterator[Op]:
    """The writes that may have taken effect after this one and before the snapshot had been read."""
    done = timeline.line.done[after]
    for other in (*timeline.writes.within(op.fwd, done), *timeline.writes.floating):
        if (other.episode, other.seq) != (op.episode, op.seq) and other.fwd <= done and not other.refused:
            yield other


def _was(timeline: Timeline, op: Op, row: Row, column: str, before: int, shown: str) -> bool:
    """Whether the cell is known to have held the value before the write began: the snapshot shows it, or a write that
    ended in between had set it. Another value may be how the environment spells what was written."""
    if shown == cell(timeline.row_at(row, before), column):
        return True
    since = timeline.line.begun[before]
    return any(
        other.ok and other.end < op.fwd and other.sets.get((row, column)) == shown
        for other in timeline.writes.within(since, op.fwd)
    )


def _gone(timeline: Timeline, op: Op, row: Row, column: str, value: str, after: int) -> bool:
    """Whether nothing that is recorded explains what the snapshot shows instead of the value, and no later one shows
    the value."""
    shown = cell(timeline.row_at(row, after), column)
    if any(may_give(timeline, other, row, column, shown) for other in _beside(timeline, op, after)):
        return False
    later = (held for index, held in timeline.values(row, column) if index > after)
    # A value that comes late was not lost. Who brings it is not asked: in doubt it was this write.
    return value not in later


def may_set(timeline: Timeline, op: Op, row: Row, column: str) -> bool:
    """Whether the write may have given the cell a value. In doubt it may.

    A PATCH of the row that names other columns sets those; what it does to this one is not its meaning. A write to
    another row is about this one only if its words or the row it names mention it.
    """
    if op.refused or op.effect is Effect.NONE:
        return False
    if (op.episode, op.seq) in timeline.accounted:
        return any(change.may_be_of(op) and change.row == row for change in timeline.changes)
    if op.is_reset or op.place is None or any(row == other and c == column for other, c in op.sets):
        return True
    if op.place.table != row.table or op.place.key not in (None, row.key):
        return row in op.about or mentions(op.asked, row)
    if op.place.key is None:
        return op.method != "POST" or not op.ok or any(other == row for other, _ in op.sets)
    words = op.method == "PATCH" and op.asked and not op.place.rest
    return not (words and column != PRESENCE and column not in op.asked)


def may_give(timeline: Timeline, op: Op, row: Row, column: str, value: str) -> bool:
    """Whether the write may have given the cell this very value. What it says itself that it set is all that it set."""
    if not may_set(timeline, op, row, column):
        return False
    said = op.sets.get((row, column))
    if said is None or not op.ok or column == PRESENCE:
        return True
    asked = normal(op.asked[column]) if column in op.asked else said
    return any(value == one or alike(value, one) for one in (said, asked))


def _rival(other: Op, op: Op, row: Row, column: str) -> bool:
    if other.place is None or other.place.table != row.table:
        return False
    return column == PRESENCE or other.place.key == row.key
