"""Answers that contradict what was done: refused and done all the same, failed and done twice, refused for no reason.

"It said available": a read that shows a thing free and a claim of it that is refused are no contradiction as long as a
rival's claim can have come between the two; then the refusal is how it should be. Only where nothing can have taken the
thing, and the snapshots around show it free, was it refused although nobody held it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from replayproxy.detect.cells import Row
from replayproxy.detect.lost_write import may_set
from replayproxy.detect.normal import normal
from replayproxy.detect.ops import PRESENCE, Effect, Op
from replayproxy.detect.race_claims import TAKEN, row_of
from replayproxy.detect.race_names import empty, is_holder, live
from replayproxy.detect.timeline import Change, Timeline, cell


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A write that was refused and whose words the state shows: `column` of `row` has become `value`."""

    op: Op
    row: Row
    column: str
    was: Any
    value: Any
    before: int
    after: int


def refused_but_done(timeline: Timeline) -> Iterator[Done]:
    """Changes that only a refused write explains: it was alone between two snapshots, and they are its words."""
    for change in timeline.changes:
        op = change.by
        if op is None or not op.refused or not isinstance(change.after, Mapping) or _declined(change):
            continue
        named = change.row in op.about or (change.before is None and _place_of(op) == change.row.table)
        columns = [c for c in sorted(op.asked) if _became(change, c, op.asked[c])]
        # A created row may share a word with what was asked; all of them are no chance.
        if named and columns and (change.before is not None or len(columns) == len(_scalars(op.asked))):
            before = change.before if isinstance(change.before, Mapping) else {}
            yield Done(
                op=op, row=change.row, column=columns[0], was=before.get(columns[0]),
                value=change.after.get(columns[0]), before=change.gap, after=change.gap + 1,
            )  # fmt: skip


def _declined(change: Change) -> bool:
    """Whether it is the record of an attempt: a row that came, and says itself that it does not count."""
    return change.before is None and not live(change.after)


def _place_of(op: Op) -> str | None:
    return op.place.table if op.place is not None else None


def _became(change: Change, column: str, asked: Any) -> bool:
    value = cell(change.after, column)
    return not isinstance(asked, list | dict) and value == normal(asked) and value != cell(change.before, column)


def _scalars(asked: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in asked.items() if not isinstance(value, list | dict)}


def failed_but_done(timeline: Timeline, own: Sequence[Op]) -> Iterator[Done]:
    """Writes that were answered 5xx, whose words a row shows that nothing else can have changed meanwhile."""
    failed = {(op.episode, op.seq): op for op in own if op.effect is Effect.OPEN and (op.status or 0) >= 500}
    told: set[tuple[str, int]] = set()
    for change in timeline.changes if failed else ():
        of_this = [op for op in change.possible if (op.episode, op.seq) in failed and _scalars(op.asked)]
        for op in of_this if isinstance(change.after, Mapping) and not _declined(change) else ():
            place = op.episode, op.seq
            named = change.row in op.about or (change.before is None and _place_of(op) == change.row.table)
            columns = [c for c in sorted(_scalars(op.asked)) if _became(change, c, op.asked[c])]
            if place in told or not named or len(columns) < len(_scalars(op.asked)) or not _sole(change, op):
                continue
            told.add(place)
            before = change.before if isinstance(change.before, Mapping) else {}
            yield Done(
                op=op, row=change.row, column=columns[0], was=before.get(columns[0]),
                value=op.asked[columns[0]], before=change.gap, after=change.gap + 1,
            )  # fmt: skip


def _sole(change: Change, op: Op) -> bool:
    """Whether no other write that ran meanwhile can have made the row so. One that asked for the same may have, also
    where it was refused: then nobody can tell which of the two did it."""
    others = [other for other in change.possible if other is not op]
    return not any(
        other.asked == op.asked or (
            not other.refused and (other.place is None or other.is_reset or change.row in other.about)
        )
        for other in others
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Twice:
    """A write that failed, or bears the same idempotency key, and its repeat: each made a row of what was asked."""

    failed: Op
    again: Op
    first: Row
    second: Row
    index: int  # the snapshot that shows both


def applied_twice(timeline: Timeline, own: Sequence[Op]) -> Iterator[Twice]:
    """Rows made by one that failed and again by the same request. Linear in the failed writes, times their repeats."""
    failed = [op for op in timeline.writes.floating if op.method == "POST" and _scalars(op.asked)]
    yield from _same_key(timeline, own)
    if not failed:
        return
    made: dict[str, list[Change]] = defaultdict(list)
    for change in timeline.changes:
        if change.before is None and isinstance(change.after, Mapping):
            made[change.row.table].append(change)
    for again in own:
        if again.ok and again.method == "POST" and _place_of(again):
            earlier = [op for op in failed if _repeats(op, again)]
            if len(earlier) == 1:
                yield from _made_by_both(timeline, earlier[0], again, made[_place_of(again) or ""])


def _same_key(timeline: Timeline, own: Sequence[Op]) -> Iterator[Twice]:
    """One request with one key, granted twice, with a row for each."""
    seen: dict[tuple[str, str, int], tuple[Op, Row]] = {}
    for op in sorted((op for op in own if op.ok and op.once and op.method == "POST"), key=lambda op: op.fwd):
        made = next((row for row, column in op.sets if column == PRESENCE), None)
        first = seen.setdefault((op.target, op.once, op.who), (op, made)) if made is not None else None
        if first is None or made is None or first[1] == made or first[0].asked != op.asked:
            continue
        for index in range(_first_after(timeline, op.end), len(timeline.shots)):
            if timeline.row_at(first[1], index) is not None and timeline.row_at(made, index) is not None:
                yield Twice(failed=first[0], again=op, first=first[1], second=made, index=index)
                break


def _repeats(failed: Op, again: Op) -> bool:
    """Whether it is the same request, sent once more by the same client."""
    if failed.fwd >= again.fwd or (failed.target, failed.asked) != (again.target, again.asked):
        return False
    if failed.once or again.once:
        return failed.once == again.once
    return (failed.episode, failed.lane) == (again.episode, again.lane)


def _made_by_both(timeline: Timeline, failed: Op, again: Op, made: Sequence[Change]) -> Iterator[Twice]:
    second = next((row for row, column in again.sets if column == PRESENCE), None)
    like = [
        change for change in made if change.gap + 1 > _first_after(timeline, failed.fwd) - 1 and _says(change, failed)
    ]
    others = [change for change in like if change.row != second and _only(change, failed, again)]
    if second is not None and len(others) == 1 and any(change.row == second for change in like):
        index = max(change.gap + 1 for change in like if change.row in (second, others[0].row))
        first = others[0].row
        if timeline.row_at(first, index) is not None and timeline.row_at(second, index) is not None:
            yield Twice(failed=failed, again=again, first=first, second=second, index=index)


def _says(change: Change, op: Op) -> bool:
    return all(cell(change.after, name) == normal(value) for name, value in _scalars(op.asked).items())


def _only(change: Change, failed: Op, again: Op) -> bool:
    """Whether nothing but the failed write, or its repeat, can have made the row."""
    pair = {(failed.episode, failed.seq), (again.episode, again.seq)}
    others = [op for op in change.possible if (op.episode, op.seq) not in pair and not op.refused]
    return not any(
        op.place is None or op.is_reset or (op.place.table == change.row.table and op.asked == failed.asked)
        or (op.effect is Effect.OPEN and op.place.table == change.row.table) for op in others
    )  # fmt: skip


def _first_after(timeline: Timeline, instant: int) -> int:
    return bisect_right(timeline.line.begun, instant)


@dataclass(frozen=True, slots=True, kw_only=True)
class Phantom:
    """A claim that was refused because of a holder whom the state does not know: `holder`, by the refusal's words."""

    read: Op | None
    refused: Op
    row: Row
    column: str
    holder: Any
    before: int
    after: int


def phantoms(timeline: Timeline, own: Sequence[Op]) -> Iterator[Phantom]:
    """Refusals that name a holder of a thing that is free, before and after, with nothing that can have taken it."""
    reads = [op for op in own if op.reads]
    for op in own:
        row = row_of(op)
        if row is None or op.status not in TAKEN or not op.refused or not timeline.shows(row):
            continue
        if timeline.writes.answered_before(op):
            continue
        for column, holder in op.said.items():
            if is_holder(column) and not empty(holder) and not isinstance(holder, list | dict):
                found = _nobody(timeline, op, row, column, holder, reads)
                if found is not None:
                    yield found


def _nobody(
    timeline: Timeline, op: Op, row: Row, column: str, holder: Any, reads: Sequence[Op]
) -> Phantom | None:  # fmt: skip
    before, after = bisect_left(timeline.line.done, op.fwd) - 1, bisect_right(timeline.line.begun, op.end)
    if before < 0 or after >= len(timeline.shots):
        return None
    for index in (before, after):
        content = timeline.row_at(row, index)
        if not isinstance(content, Mapping) or column not in content or not empty(content[column]):
            return None
    begin, end = timeline.line.begun[before], timeline.line.done[after]
    others = (*timeline.writes.within(begin, end), *timeline.writes.floating)
    if any(other is not op and other.fwd <= end and may_set(timeline, other, row, column) for other in others):
        return None
    free = [r for r in reads if r.end < op.fwd and any(one.row == row and column in one.members
                                                       and empty(one.members[column]) for one in r.rows)]  # fmt: skip
    read = free[-1] if free else None
    return Phantom(read=read, refused=op, row=row, column=column, holder=holder, before=before, after=after)
