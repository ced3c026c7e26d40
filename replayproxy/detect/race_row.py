"""One row under overlapping writes: reads of two moments at once, and writes that did not see each other.

The acts are the exchanges about the row while some of them overlap; `graph` says whether an order explains them. What
a write was answered with counts as a read only where it shows the value from before: an answer may be read after the
write, so what it shows of others' writes does not say when it acted. Where a write may have set what nobody can tell,
nothing is concluded about the row.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from replayproxy.detect.cells import Row
from replayproxy.detect.graph import MOST_ACTS, Act, Anomaly, Graph
from replayproxy.detect.lost_write import may_set
from replayproxy.detect.normal import normal
from replayproxy.detect.ops import PRESENCE, Op
from replayproxy.detect.timeline import Timeline, cell


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossed:
    """Acts that no order explains. `ops`: those of the circle, in its order. `reader`: the read among them, if one is;
    else all are writes. `columns`: those whose values make the circle. `before`: the snapshot that it starts from."""

    row: Row
    anomaly: Anomaly
    ops: tuple[Op, ...]
    reader: Op | None
    columns: tuple[str, ...]
    before: int
    same_version: bool


def crossed(timeline: Timeline, own: Sequence[Op]) -> Iterator[Crossed]:
    """What no order explains, row by row. n log n, but for knots of at most `MOST_ACTS` overlapping acts."""
    writes: dict[Row, list[Op]] = defaultdict(list)
    for op in timeline.writes.closed:
        for row in {row for row, column in op.sets if column != PRESENCE and timeline.shows(row)}:
            writes[row].append(op)
    reads: dict[Row, list[Op]] = defaultdict(list)
    for op in own:
        for one in op.rows if op.reads else ():
            if one.row in writes:
                reads[one.row].append(op)
    for row, written in writes.items():
        for knot in overlapping(sorted([*written, *reads[row]], key=lambda op: op.fwd)):
            if len(knot) <= MOST_ACTS and any(op.sets for op in knot):
                yield from _judge(timeline, row, knot)


def overlapping(ops: Sequence[Op]) -> Iterator[list[Op]]:
    """Those that overlap, directly or through others; an act that overlaps nothing is left out."""
    knot: list[Op] = []
    end = 0
    for op in ops:
        if knot and op.fwd > end:
            if len(knot) > 1:
                yield knot
            knot = []
        knot.append(op)
        end = max(end, op.end) if len(knot) > 1 else op.end
    if len(knot) > 1:
        yield knot


def _judge(timeline: Timeline, row: Row, knot: Sequence[Op]) -> Iterator[Crossed]:
    begin, end = knot[0].fwd, max(op.end for op in knot)
    before = bisect_left(timeline.line.done, begin) - 1
    if before < 0:
        return
    mine = {(op.episode, op.seq) for op in knot}
    since = timeline.line.begun[before]
    for other in (*timeline.writes.within(since, end), *timeline.writes.floating):
        if (other.episode, other.seq) not in mine and other.fwd <= end and _touches(timeline, other, row):
            return
    content = timeline.row_at(row, before)
    if not isinstance(content, Mapping):
        return
    initial = {column: cell(content, column) for column in content}
    acts = [_act(op, row, initial, number) for number, op in enumerate(knot)]
    for anomaly in Graph(acts, initial).anomalies():
        found = _crossed(row, anomaly, knot, before)
        if found is not None:
            yield found


def _touches(timeline: Timeline, op: Op, row: Row) -> bool:
    """Whether the write may have set any of the row's cells."""
    if op.method == "PATCH" and op.asked and op.place is not None and op.place.key == row.key:
        return op.ok or not op.refused
    return may_set(timeline, op, row, PRESENCE)


def _act(op: Op, row: Row, initial: Mapping[str, str], number: int) -> Act:
    lane = f"{op.episode}/{op.lane}"
    writes = {column: value for (at, column), value in op.sets.items() if at == row and column in initial}
    if op.reads:
        shown = next(one.members for one in op.rows if one.row == row)
        seen = {column: normal(value) for column, value in shown.items() if column in initial}
    else:
        seen = {
            c: normal(v) for c, v in op.said.items() if c in initial and c not in writes and normal(v) == initial[c]
        }
    return Act(inv=op.fwd, end=op.end, lane=lane, reads=seen, writes=writes, ref=number)


def _crossed(row: Row, anomaly: Anomaly, knot: Sequence[Op], before: int) -> Crossed | None:
    ops = [knot[edge.a] for edge in anomaly.cycle]
    readers = [op for op in ops if op.reads]
    if not anomaly.timeless or len(readers) > 1 or len({id(op) for op in ops}) < len(ops):
        return None
    if readers and len(ops) > 2:
        return None
    columns = tuple(sorted({str(edge.cell) for edge in anomaly.cycle}))
    return Crossed(
        row=row, anomaly=anomaly, ops=tuple(ops), reader=readers[0] if readers else None, columns=columns,
        before=before, same_version=_same_version(ops),
    )  # fmt: skip


VERSIONS = ("version", "rev", "revision", "_rev", "lock_version", "row_version", "etag", "seq_no", "generation")


def version_of(op: Op) -> str:
    """The version that a write's answer bears: a member of it, else its ETag; "" none."""
    for name in VERSIONS:
        value = op.said.get(name)
        if isinstance(value, str | int) and not isinstance(value, bool):
            return str(value)
    return op.tag


def _same_version(ops: Sequence[Op]) -> bool:
    """Whether two different writes were given one version: each is the next of the same one."""
    counts = Counter(version_of(op) for op in ops if not op.reads)
    counts.pop("", None)
    return any(count > 1 for count in counts.values())


def came_through(timeline: Timeline, found: Crossed) -> bool | None:
    """Whether the first snapshot after them shows all that was written; None: it was overwritten, or there is none."""
    end = max(op.end for op in found.ops)
    after = bisect_right(timeline.line.begun, end)
    if after >= len(timeline.shots):
        return None
    content = timeline.row_at(found.row, after)
    wrote = [
        (column, value) for op in found.ops for (row, column), value in op.sets.items()
        if row == found.row and column in found.columns
    ]  # fmt: skip
    return True if all(cell(content, column) == value for column, value in wrote) else None
