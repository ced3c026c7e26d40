"""Rows that a read said, or implied, are not there.

A row may be hidden by a right, a filter or a page. It is taken to be missing only where none of these can be why: the
same request has shown it, unchanged, in a list not longer than another one; or it was asked for by its own path, by
the principal that made it. A list that was complete before the row was made, and shows another row as it was before
that, is a suspicion: it may still be cut. So is one that is out of date in another row and the very list that was shown
before the row was made, and an empty one at the address where the same principal had made a row: it may be filtered.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from replayproxy.detect.agreement import Agreement, Pair
from replayproxy.detect.cells import MAX_ITEMS, Row
from replayproxy.detect.normal import normal
from replayproxy.detect.ops import ABSENT, PRESENCE, PRESENT, Effect, Op
from replayproxy.detect.sights import Sight, pair_of
from replayproxy.detect.timeline import Timeline, Written
from replayproxy.detect.tokens import rank

PAGES = frozenset({10, 15, 20, 24, 25, 30, 40, 50, 60, 64, 75, 100, 128, 150, 200, 250, 256, 500, 512, 1000})
"""Lengths at which lists are cut: one of such a length says nothing about a row that came later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A row that a write made while the episode ran."""

    row: Row
    by: Op


def left_out(
    timeline: Timeline, reads: Sequence[Op], rows: set[Row], agreement: Agreement,
    seen: Mapping[tuple[Row, str], Sequence[Sight]], effects: Mapping[tuple[Row, str], Sequence[Written]],
) -> Iterator[tuple[Row, Sight]]:  # fmt: skip
    """By row, each read that left it out."""
    told: set[tuple[Row, int]] = set()
    for row, sight in _not_there(timeline, reads, rows, seen):
        told.add((row, sight.op.seq))
        yield row, sight
    for row, sight in _own_path(timeline, reads, _made(rows, effects), agreement):
        if (row, sight.op.seq) not in told:
            yield row, sight


def _absent(op: Op, row: Row, pair: Pair | None, doubt: str = "") -> Sight:
    return Sight(op=op, row=row, column=PRESENCE, value=ABSENT, pointer="", pair=pair, doubt=doubt)


def _not_there(
    timeline: Timeline, reads: Sequence[Op], rows: set[Row], found: Mapping[tuple[Row, str], Sequence[Sight]]
) -> Iterator[tuple[Row, Sight]]:
    """Those whose request shows the row at another time."""
    askers: dict[tuple[str, int], list[Asker]] = defaultdict(list)
    for op in reads:
        if op.method == "GET" and (op.rows or op.absent is not None or op.status == 200):
            askers[op.target, op.who].append(Asker(op, frozenset(one.row for one in op.rows)))
    longest = {asked: max(len(one.op.rows) for one in alike) for asked, alike in askers.items()}
    for row in rows:
        seen = {(sight.op.target, sight.op.who): sight for sight in found.get((row, PRESENCE), ())}
        for asked, sight in seen.items():
            for op in _leaving_out(timeline, row, askers.get(asked, ()), longest.get(asked, 0)):
                yield row, _absent(op, row, sight.pair)


class Asker(NamedTuple):
    """A request for one or more rows, and those that it was shown."""

    op: Op
    shown: frozenset[Row]


def _leaving_out(timeline: Timeline, row: Row, askers: Sequence[Asker], longest: int) -> Iterator[Op]:
    shown: list[Any] | None = None
    for op, rows in askers:
        if op.absent == row:
            yield op
        elif op.absent is None and len(op.rows) < min(longest, MAX_ITEMS) and row not in rows and timeline.shows(row):
            if shown is None:
                shown = [content for one in askers if row in one.shown for content in _content(timeline, row, one.op)]
            # Whether the row, when this list left it out, was what it was when the same list showed it.
            for content in _content(timeline, row, op):
                if content is not None and content in shown:
                    yield op


def _content(timeline: Timeline, row: Row, op: Op) -> list[Any]:
    """The row as the snapshot next to the request shows it; empty: there is no snapshot beside it."""
    return [timeline.row_at(row, near) for near in islice(timeline.near(op.fwd, op.end), 1)]


def _made(rows: set[Row], effects: Mapping[tuple[Row, str], Sequence[Written]]) -> dict[Row, Made]:
    found = {}
    for row in rows:
        by = next((w.by for w in effects.get((row, PRESENCE), ()) if w.value == PRESENT and w.by is not None), None)
        if by is not None and by.effect is Effect.DONE and by.status is not None and by.status < 300:
            found[row] = Made(row=row, by=by)
    return found


def _own_path(
    timeline: Timeline, reads: Sequence[Op], made: Mapping[Row, Made], agreement: Agreement
) -> Iterator[tuple[Row, Sight]]:
    """404 for a row that the same principal made."""
    for op in reads:
        row = op.absent
        new = made.get(row) if row is not None else None
        if row is None or new is None or new.by.who != op.who:
            continue
        if not timeline.shows(row):
            yield row, _absent(op, row, None)
        elif (pair := agreement.item(op.env, row.table, op.query)) is not None:
            yield row, _absent(op, row, pair)


def left_out_of_old_lists(
    timeline: Timeline, reads: Sequence[Op], rows: set[Row], agreement: Agreement,
    effects: Mapping[tuple[Row, str], Sequence[Written]], older: Mapping[int, int],
) -> Iterator[tuple[Row, Sight]]:  # fmt: skip
    """By row, each list without a query that showed the whole table at a quiet moment, is out of date, and lacks the
    row, which was made later; and each empty list that should have it. `older`: by number of the read, an instant by
    which what it shows had been overwritten.
    """
    made = _made(rows, effects)
    by_table: dict[str, list[Made]] = defaultdict(list)
    for new in made.values():
        if timeline.shows(new.row):
            by_table[new.row.table].append(new)
    first: dict[tuple[str, int, _List], int] = {}  # when a list of just these rows and values was first shown
    for op in sorted(reads, key=lambda op: op.end) if by_table else ():
        place = op.place
        if place is None or place.key is not None or place.rest or op.query or place.table not in by_table:
            continue
        if op.empty:
            for new in by_table[place.table]:
                if (new.by.env, new.by.target, new.by.who) == (op.env, op.target, op.who):
                    yield new.row, _absent(op, new.row, None, "whether the list is filtered: it was empty")
        elif 2 <= len(op.rows) < MAX_ITEMS:
            same = first.setdefault((op.target, op.who, _list_of(op)), op.end)
            if op.seq in older:
                yield from _left_out(timeline, op, by_table[place.table], agreement, min(older[op.seq], same))


type _List = frozenset[tuple[Row, frozenset[tuple[str, str]]]]


def _list_of(op: Op) -> _List:
    return frozenset((one.row, frozenset((c, normal(v)) for c, v in one.members.items())) for one in op.rows)


def _left_out(
    timeline: Timeline, op: Op, made: Sequence[Made], agreement: Agreement, old: int
) -> Iterator[tuple[Row, Sight]]:  # fmt: skip
    """The rows made after the instant `old`, of which what the list shows may be, that it lacks."""
    most = agreement.most_listed(op.env, op.target)
    if most is None or (most in PAGES and len(op.rows) >= most):
        return
    shown = {one.row for one in op.rows}
    for new in made:
        if new.row not in shown and old < new.by.fwd and not _filtered(timeline, op, new.row):
            doubt = f"whether the list is cut or filtered: it showed the whole table, of up to {most} rows"
            yield new.row, _absent(op, new.row, pair_of(op, op.rows[0], PRESENCE), doubt)


def _filtered(timeline: Timeline, op: Op, row: Row) -> bool:
    """Whether a filter could leave the row out: all rows in the list have one value where this row has another."""
    near = list(timeline.near(op.fwd, op.end))
    content = timeline.row_at(row, near[0]) if near else None
    if not isinstance(content, dict):
        return True
    for column, value in content.items():
        when = rank(value)
        if when is not None and when.instant:
            continue  # rows made together share an instant, and nobody asks for one
        values = {normal(one.members[column]) for one in op.rows if column in one.members}
        if len(values) == 1 and normal(value) not in values:
            return True
    return False
