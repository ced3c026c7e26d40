"""Who wrote one cell of a state, as one episode's recording shows it: the newest first.

A change that two adjacent snapshots show is the work of the one write that ran between them, or of one of several.
Where no snapshot tells, a write's own words do: what its request asked for and its answer agreed to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from replayproxy.core import jsonvalue
from replayproxy.detect.cells import Row, Shown
from replayproxy.detect.history import NEVER
from replayproxy.detect.normal import normal
from replayproxy.detect.ops import PRESENCE, PRESENT, Op
from replayproxy.detect.timeline import Timeline, cell


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One column of a row; PRESENCE stands for the row itself."""

    row: Row
    column: str

    def __str__(self) -> str:
        name = f"{self.row.table}/{self.row.key}" if self.row.key else self.row.table
        return f"{name} {jsonvalue.pointer(self.column)}" if self.column != PRESENCE else name


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrote:
    """The cell came to hold `value`. `ops`: who did it; several: one of them, none: nobody who was recorded.
    `source`: `snapshot` where two readings show the change, `answer` where only the write's own words do. `late`: of
    `ops` the one that had been answered for the value before; the others ran when it came."""

    ops: tuple[Op, ...]
    value: str
    source: str
    at: int  # by then it had begun
    late: Op | None = None


def cell_at(op: Op, pointer: str) -> tuple[Cell, Any] | None:
    """The cell that an answer shows at a pointer, and the value there; None where it shows no row of the state."""
    for one in (*op.rows, *op.echoed):
        found = _within(one, pointer)
        if found is not None:
            return found
    if op.absent is not None:
        return Cell(row=op.absent, column=PRESENCE), None
    return None


def _within(one: Shown, pointer: str) -> tuple[Cell, Any] | None:
    if pointer == one.at:
        return Cell(row=one.row, column=PRESENCE), PRESENT
    for column, value in one.members.items():
        at = one.pointer(column)
        if pointer == at or (pointer.startswith(f"{at}/") and isinstance(value, dict | list)):
            return Cell(row=one.row, column=column), value
    return None


def wrote(timeline: Timeline, of: Cell, until: int) -> list[Wrote]:
    """Every write of the cell that had begun before an instant, the newest first."""
    found: list[Wrote] = []
    shown: set[tuple[str, int]] = set()
    for change in timeline.changes:
        before, after = cell(change.before, of.column), cell(change.after, of.column)
        if change.row != of.row or before == after:
            continue
        ops = (change.by,) if change.by is not None else _likely(change.possible, of, after)
        if change.late is not None:
            ops = (change.late, *(op for op in change.possible if op is not change.late))
        elif change.earlier is not None and change.by is not None:
            ops = (change.by, change.earlier)
        at = min((op.fwd for op in ops), default=timeline.line.begun[change.gap + 1])
        found.append(Wrote(ops=ops, value=after, source="snapshot", at=at, late=change.late or change.earlier))
        shown |= {(op.episode, op.seq) for op in change.possible if _says(op, of, after)}
        shown |= {(op.episode, op.seq) for op in ops} if len(ops) == 1 else set()
    for op in timeline.writes.all:
        value = op.sets.get((of.row, of.column))
        if value is not None and (op.episode, op.seq) not in shown and not _contradicted(timeline, op, of):
            found.append(Wrote(ops=(op,), value=value, source="answer", at=op.fwd))
    return sorted((one for one in found if one.at < until), key=lambda one: -one.at)


def _likely(possible: Sequence[Op], of: Cell, value: str) -> tuple[Op, ...]:
    """Of several writes between two readings those whose words set the cell so, where there are any; of these the
    last, and what overlapped it."""
    said = [op for op in possible if _says(op, of, value)]
    saying = tuple(op for op in said if not any(op.end < other.fwd for other in said))
    about = tuple(op for op in possible if op.place is not None and op.place.table == of.row.table)
    return saying or about or tuple(possible)


def _says(op: Op, of: Cell, value: str) -> bool:
    return op.sets.get((of.row, of.column)) == value


def _contradicted(timeline: Timeline, op: Op, of: Cell) -> bool:
    """Whether snapshots around a write that was alone show that it left the cell as it was, or otherwise."""
    return timeline.shows(of.row) and (op.episode, op.seq) in timeline.accounted


def held(timeline: Timeline, of: Cell) -> str | None:
    """What the first reading of the episode holds in the cell; None: there is no reading."""
    return cell(timeline.row_at(of.row, 0), of.column) if timeline.shows(of.row) else None


def overlapped(op: Op, read: Op) -> bool:
    """Whether the write may have taken effect on either side of the read."""
    return op.end == NEVER or op.end >= read.fwd


def words(value: Any) -> str:
    """The normal form of a value that an answer showed."""
    return value if value is PRESENT else normal(value)
