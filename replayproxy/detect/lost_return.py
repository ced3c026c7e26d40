"""A value that came back: by the versions of a row, a write of other columns put it back over an acknowledged change.

The answers of writes that ran side by side show the row each with its version. In the order of the versions, a value
that was replaced is there again only if somebody wrote it again. Where nobody can have, the write whose answer shows it
first wrote the whole row as it had read it before. Only counters tell such an order: two times may be stamped in one
order and take effect in the other.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from replayproxy.detect.cells import Row
from replayproxy.detect.lost_condition import demands
from replayproxy.detect.lost_write import may_give
from replayproxy.detect.normal import normal
from replayproxy.detect.ops import PRESENCE, Op
from replayproxy.detect.race_habits import alike
from replayproxy.detect.race_row import VERSIONS, overlapping, version_of
from replayproxy.detect.timeline import Timeline, cell


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """`over` set `column` of `row` to `value`; the next version that shows the column is that of `by`, which names
    other columns, and it is `old` again. `beside`: all writes of the row that were under way together."""

    row: Row
    column: str
    over: Op
    by: Op
    value: str
    old: str
    beside: tuple[Op, ...]

    @property
    def versions(self) -> tuple[str, str]:
        return version_of(self.over), version_of(self.by)


def returned(timeline: Timeline) -> Iterator[Returned]:
    """What came back, row by row. Quadratic only in the writes of one row that were under way together."""
    writes: dict[Row, list[Op]] = defaultdict(list)
    for op in timeline.writes.closed:
        for row in {row for row, column in op.sets if column != PRESENCE and timeline.shows(row)}:
            writes[row].append(op)
    for row, written in writes.items():
        for knot in overlapping(written):
            numbered = sorted((n, i) for i, op in enumerate(knot) if (n := _number(op)) is not None)
            ordered = [(number, knot[index]) for number, index in numbered]
            if len(ordered) > 1 and _is_an_order(ordered):
                yield from _in_knot(timeline, row, ordered, knot, written)


def _number(op: Op) -> int | None:
    """The counter that the answer bears, where the client did not choose it."""
    text = version_of(op).strip().removeprefix("W/").strip('"')
    chosen = any(name in op.asked for name in VERSIONS) and not demands(op)
    return int(text) if text.isdecimal() and len(text) < 19 and op.ok and not chosen else None


def _is_an_order(ordered: Sequence[tuple[int, Op]]) -> bool:
    """Whether each write has a version of its own, and none that had ended before another began has a later one."""
    if any(a == b for (a, _), (b, _) in pairwise(ordered)):
        return False
    latest = 0  # the latest beginning among those of earlier versions
    for _, op in ordered:
        if op.end < latest:
            return False
        latest = max(latest, op.fwd)
    return True


def _in_knot(
    timeline: Timeline, row: Row, ordered: Sequence[tuple[int, Op]], knot: Sequence[Op], written: Sequence[Op]
) -> Iterator[Returned]:
    before = bisect_left(timeline.line.done, knot[0].fwd) - 1
    content = timeline.row_at(row, before) if before >= 0 else None
    for column in sorted(content.keys() - set(VERSIONS)) if isinstance(content, dict) else ():
        # What the cell is known to have held: any other value may be how the environment spells one.
        values = {cell(content, column)}
        values |= {op.sets[row, column] for op in written if op.end < knot[0].fwd and (row, column) in op.sets}
        over: tuple[int, Op] | None = None
        for number, op in ordered:
            if (row, column) in op.sets:
                values |= {over[1].sets[row, column]} if over is not None else set()
                over = number, op
            elif over is not None and column in op.said:
                value, shown = over[1].sets[row, column], normal(op.said[column])
                if shown == value:
                    continue
                one = Returned(
                    row=row, column=column, over=over[1], by=op, value=value, old=shown, beside=tuple(knot)
                )  # fmt: skip
                surely_before = [earlier for n, earlier in ordered if n < over[0]]
                if shown in values and not alike(shown, value) and not _explained(timeline, one, surely_before):
                    yield one
                over, values = None, values | {value}


def _explained(timeline: Timeline, one: Returned, surely_before: Sequence[Op]) -> bool:
    """Whether a write may have brought the old value back in between, or a snapshot shows that nothing was lost."""
    before = {(op.episode, op.seq) for op in surely_before}
    others = [
        *timeline.writes.within(one.over.fwd, one.by.end),
        *(op for op in timeline.writes.floating if op.fwd <= one.by.end),
    ]
    if any(
        (op.episode, op.seq) not in before and not op.refused and may_give(timeline, op, one.row, one.column, one.old)
        for op in others
    ):
        return True
    after = bisect_right(timeline.line.begun, one.by.end)
    return after < len(timeline.shots) and cell(timeline.row_at(one.row, after), one.column) == one.value
