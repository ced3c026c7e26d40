"""More holders than a thing has room for: rows that refer to it, counted in one snapshot against its capacity.

A snapshot is one look at the state: rows of one moment need no account of releases. Only rows that still hold count,
and only in tables whose rows hold something (`bookings`, not `notes`); the room comes from the thing's own row, or is
one where the thing is for one (a slot, a seat). Whether the environment means it so, its refusals say.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from replayproxy.core.opaque import collection_of
from replayproxy.detect.cells import Row, Tables
from replayproxy.detect.normal import normal
from replayproxy.detect.ops import PRESENCE, Op
from replayproxy.detect.race_claims import TAKEN, takes_a_place
from replayproxy.detect.race_names import (
    capacity,
    counts_holders,
    empty,
    is_room,
    is_unit,
    left_below_zero,
    live,
    overfull,
)
from replayproxy.detect.timeline import Change, Timeline

type Relation = tuple[str, str, str]
"""Table of the holders, their column, and the table that it refers to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Over:
    """`holders`: the rows that hold `thing` at snapshot `index`, or none where its own row says too much. `makers`: the
    writes that made the newest of them, in order; those from `room` on were one too many."""

    thing: Row
    column: str  # of the thing, which says how much room there is; "" it is a thing for one
    room: int
    shown: Any  # what the snapshot shows: how many hold it, or the value of the column
    holders: tuple[Row, ...]
    makers: tuple[Op, ...]
    wronged: tuple[Op, ...]
    index: int
    named: bool = True  # names say that the holders hold the thing (`bookings`, `/join`); else only a refusal can

    @property
    def overlap(self) -> bool:
        return all(
            any(one is not other and one.fwd <= other.end and other.fwd <= one.end for other in self.makers)
            for one in self.wronged
        )


@dataclass(slots=True)
class _Holders:
    """Who holds each thing of one relation, as the snapshots go on."""

    by_thing: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def put(self, key: str, before: str | None, after: str | None) -> None:
        if before is not None:
            self.by_thing[before].discard(key)
        if after is not None:
            self.by_thing[after].add(key)


def over_capacity(timeline: Timeline) -> Iterator[Over]:
    """Linear in the changes, and in the rows of the tables whose rows hold something."""
    for change in timeline.changes:
        yield from _in_its_own_row(timeline, change)
    relations = {r for change in timeline.changes if change.before is None for r in _relations(timeline, change)}
    for relation in sorted(relations):
        yield from _related(timeline, relation)


def _tables(timeline: Timeline) -> Tables:
    return timeline.states.tables(timeline.shots[-1].root)


def _relations(timeline: Timeline, change: Change) -> Iterator[Relation]:
    if isinstance(change.after, Mapping):
        for column in change.after:
            table = refers_to(_tables(timeline), column)
            if table is not None and table != change.row.table and not is_room(_short(table)):
                yield change.row.table, column, table


def refers_to(tables: Tables, column: str) -> str | None:
    """The table whose rows a column names: `slots` for `slot_id`, `slotId` and `slot`."""
    owner = collection_of((column,), "")
    return tables.find(owner if owner else column)


def _short(table: str) -> str:
    name = table.rpartition(".")[2]
    return name[:-1] if name.endswith("s") and not name.endswith("ss") else name


def _related(timeline: Timeline, relation: Relation) -> Iterator[Over]:
    table, column, parent = relation
    held = _Holders()
    for key, row in timeline.states.rows(timeline.shots[0].root).get(table, {}).items():
        held.put(key, None, _thing(row, column))
    makers = _makers(timeline, table)
    changes = [change for change in timeline.changes if change.row.table == table]
    for gap in sorted({change.gap for change in changes}):
        came: dict[str, list[str]] = defaultdict(list)
        for change in (one for one in changes if one.gap == gap):
            before, after = _thing(change.before, column), _thing(change.after, column)
            held.put(change.row.key, before, after)
            if after is not None and before != after:
                came[after].append(change.row.key)
        for thing, keys in came.items():
            yield from _counted(timeline, Row(parent, thing), table, held.by_thing[thing], keys, gap + 1, makers)


def _thing(row: Any, column: str) -> str | None:
    """What the row holds; None: it holds nothing (any more)."""
    if not isinstance(row, Mapping) or empty(row.get(column)) or not live(row):
        return None
    value = row[column]
    return None if isinstance(value, list | dict) else str(value)


def _makers(timeline: Timeline, table: str) -> dict[str, Op]:
    """Key of a row -> the write that says that it made it."""
    found: dict[str, Op] = {}
    for op in timeline.writes.all:
        if op.ok:
            for row, column in op.sets:
                if row.table == table and column == PRESENCE:
                    found.setdefault(row.key, op)  # a retry is answered with what the first one made
            for name, value in op.said.items():
                if isinstance(value, str | int) and not isinstance(value, bool) and name.lower().endswith("id"):
                    found.setdefault(str(value), op)
    return found


def room_for(timeline: Timeline, thing: Row, index: int) -> tuple[str, int] | None:
    """How many may hold the thing: its row says it, and says the same all the time, or it is a thing for one."""
    content = timeline.row_at(thing, index)
    if content is None:
        return None
    found, first = capacity(content), capacity(timeline.row_at(thing, 0))
    if found is not None:
        return found if first is None or first == found else None
    return ("", 1) if is_unit(_short(thing.table)) else None


def _counted(
    timeline: Timeline, thing: Row, table: str, held: set[str], came: Sequence[str], index: int,
    makers: Mapping[str, Op],
) -> Iterator[Over]:  # fmt: skip
    room = room_for(timeline, thing, index)
    if room is None or len(held) <= room[1]:
        return
    made = sorted(((makers[key], key) for key in came if key in makers), key=lambda one: (one[0].fwd, one[0].end))
    there = len(held) - len(came)
    wronged = [op for place, (op, _) in enumerate(made) if there + place >= room[1]]
    if len(made) == len(came) and wronged:
        earlier = [makers[key] for key in sorted(held - set(came)) if key in makers]
        yield Over(
            thing=thing, column=room[0], room=room[1], shown=len(held),
            holders=tuple(Row(table, key) for key in sorted(held)),
            makers=(*earlier, *(op for op, _ in made)), wronged=tuple(wronged), index=index,
            named=counts_holders(_short(thing.table), _short(table))
            or all(thing in op.about and takes_a_place(op) for op, _ in made),
        )  # fmt: skip


def _in_its_own_row(timeline: Timeline, change: Change) -> Iterator[Over]:
    """A list of holders that is longer than the row's capacity, or fewer than none left."""
    for broken in (overfull, left_below_zero):
        column = broken(change.after)
        if column is None or broken(change.before) is not None or not isinstance(change.before, Mapping):
            continue
        assert isinstance(change.after, Mapping)
        makers = sorted((op for op in change.possible if op.ok and change.row in op.about), key=lambda op: op.fwd)
        if len(makers) < 2:
            continue
        found = capacity(change.after)
        value = change.after[column]
        yield Over(
            thing=change.row, column=column, room=found[1] if found and broken is overfull else 0,
            shown=len(value) if isinstance(value, list) else value, holders=(), makers=tuple(makers),
            wronged=(makers[-1],), index=change.gap + 1,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Full:
    """A refusal. `exact`: it came when there was room for no more, and not only when more than that were there."""

    episode: str
    seq: int
    exact: bool


class Fulls:
    """The rules that the environment has shown: it refused what would have been one too many."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str, str], Full] = {}
        self._beyond: set[tuple[str, str, str]] = set()  # of which more were let in than there is room for, in turn

    def note(self, timeline: Timeline, own: Sequence[Op]) -> None:
        for op in own:
            if op.status not in TAKEN or not op.refused or not timeline.shots or timeline.writes.answered_before(op):
                continue
            for thing in _meant(timeline, op):
                for table, surely, exact in _full(timeline, thing, op):
                    for name in (table, shape(op, thing)) if surely else (shape(op, thing),):
                        full = Full(episode=op.episode, seq=op.seq, exact=exact)
                        key = op.env, thing.table, name
                        if exact or key not in self._seen:
                            self._seen[key] = full

    def let_in(self, over: Over) -> None:
        """Notes that one too many was let in with nobody beside it: there may be a policy."""
        if not over.overlap and over.holders:
            self._beyond.add(_rule(over))

    def lawful(self, over: Over) -> bool:
        return bool(over.holders) and _rule(over) in self._beyond

    def of(self, over: Over) -> Full | None:
        """The exchange that was refused while such rows filled such a thing, or that asked what made one of them."""
        names = [over.holders[0].table] if over.holders else []
        names += [shape(op, over.thing) for op in over.makers]
        env = over.makers[0].env
        return next((s for name in names if (s := self._seen.get((env, over.thing.table, name)))), None)


def _meant(timeline: Timeline, op: Op) -> list[Row]:
    tables = _tables(timeline)
    found = list(op.about)
    for name, value in op.asked.items():
        table = refers_to(tables, name)
        if table is not None and isinstance(value, str | int):
            found.append(Row(table, str(value)))
    return found


def shape(op: Op, thing: Row) -> str:
    """What a write asks for, whichever thing it asks it of."""
    return f"{op.method} {op.target.partition('?')[0]}".replace(f"/{thing.key}", "/*")


def _rule(over: Over) -> tuple[str, str, str]:
    return over.makers[0].env, over.thing.table, over.holders[0].table


def _full(timeline: Timeline, thing: Row, op: Op) -> Iterator[tuple[str, bool, bool]]:
    """The tables of which, by a snapshot beside the refusal, as many rows refer to the thing as it has room for, or
    more; whether that says that they hold it: by the table's name, or because they are exactly so many; and whether
    they are: a service that lets in some more than there is room for refuses too, but later."""
    near = list(timeline.near(op.fwd, op.end))
    beyond: dict[str, dict[int, int]] = defaultdict(dict)  # table -> snapshot -> how many more than there is room for
    for index in near:
        room = room_for(timeline, thing, index)
        if room is None or is_room(_short(thing.table)):
            continue
        for table, rows in timeline.states.rows(timeline.shots[index].root).items():
            if table != thing.table:
                beyond[table][index] = sum(live(row) and _refers(row, thing) for row in rows.values()) - room[1]
    for table, by_index in beyond.items():
        if max(by_index.values()) >= 0:
            full = [index for index, more in by_index.items() if more == 0]
            exact = len(full) == 2 or any(not _others(timeline, op, index) for index in full)
            yield table, bool(full) or counts_holders(_short(thing.table), _short(table)), exact


def _others(timeline: Timeline, op: Op, index: int) -> bool:
    """Whether another write ran between the snapshot and the refusal: more may have come, and be gone again."""
    first, last = min(op.fwd, timeline.line.begun[index]), max(op.end, timeline.line.done[index])
    others = [*timeline.writes.within(first, last), *timeline.writes.floating]
    return any(other is not op and not other.refused and other.fwd <= last for other in others)


def _refers(row: Any, thing: Row) -> bool:
    return isinstance(row, Mapping) and any(
        not isinstance(value, list | dict) and value is not None and normal(value) == normal(thing.key)
        for value in row.values()
    )
