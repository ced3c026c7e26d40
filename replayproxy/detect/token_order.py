"""What a version token says of one read: it is out of date if a later token was seen before the read began.

A token orders only writes that did not overlap. Two of them may each take their time (or draw their number) and then
wait for the row: the one that commits last has the earlier token. So a later token counts only if what it stands for
came surely after the version that the read shows: after that one had been seen, the other's write began, or a snapshot
was begun that shows it. If only another read showed it, one of the two is out of date, and it is not proven which.

Whatever may have put a row back to an earlier version ends what earlier sightings say: a reset, a deletion, a write
whose effect nobody knows. A snapshot after it counts anew.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from replayproxy.detect.cells import Row, Shown
from replayproxy.detect.history import ALWAYS, NEVER
from replayproxy.detect.ops import Effect, Op
from replayproxy.detect.timeline import Timeline
from replayproxy.detect.tokens import Key, Rank, Tokens, header_key, key_of, later, rank

RECENT = 64
"""Sightings of a row before a read that are looked at, the last ones: a token that rises is highest there."""


class Mark(NamedTuple):
    """A token that was seen: in [`begun`, `done`], by an operation or (`shot`) in a snapshot, with what else the row
    showed there. `made`: in the answer of the write that gave it to the row."""

    begun: int
    done: int
    value: Any
    rank: Rank
    op: Op | None = None
    shot: int | None = None
    members: Mapping[str, Any] = {}
    made: bool = False

    @property
    def sure(self) -> bool:
        """Whether no cache stood before it."""
        return self.made or self.shot is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """What a read's token says. `old`: `newest`, which is later than `shown` and came surely after it, was seen before
    the read began; such a one had been seen by `since`, `newer` different ones in all. `sure`: not by reads alone.
    Not old: `newest` equals it."""

    key: Key
    pointer: str
    shown: Any
    newest: Mark
    since: int
    old: bool
    newer: int = 0
    sure: bool = True


class TokenOrder:
    """The tokens of some rows in one timeline."""

    def __init__(self, timeline: Timeline, own: Sequence[Op], rows: Iterable[Row], tokens: Tokens) -> None:
        self._timeline = timeline
        self._tokens = tokens
        self._rows = set(rows)
        self._voids = _Voids(timeline)
        self._columns: dict[tuple[str, str, str], Key | None] = {}
        self._versions: dict[tuple[Row, str], list[Mark]] = {}
        self._marks: dict[tuple[object, str], list[Mark]] = defaultdict(list)
        self._by: dict[tuple[object, str], dict[Rank, int]] = defaultdict(dict)  # when each was first seen
        self._shown: dict[tuple[object, str], dict[Rank, int]] = {}  # the same, snapshots included
        seen = {(op.episode, op.seq): op for op in (*timeline.writes.all, *own)}
        for op in sorted(seen.values(), key=lambda op: op.end):
            if not op.is_probe:
                self._note(op)

    def _note(self, op: Op) -> None:
        if op.end == NEVER or op.status is None or not 200 <= op.status < 300:
            return
        for one in (*op.rows, *op.echoed):
            if one.row in self._rows:
                for name, value in one.members.items():
                    found = rank(value) if self._column(op, one.row, name) is not None else None
                    if found is not None:
                        self._add((one.row, name), _seen(op, value, found, one.members, made=_wrote(op, one.row)))
        for name, value in op.validators:
            found = rank(value)
            if found is not None and self._tokens.possible(header_key(op, name)):
                made = op.effect is Effect.DONE
                self._add(((op.target, op.who), name), _seen(op, value, found, {}, made=made))

    def _add(self, subject: tuple[object, str], mark: Mark) -> None:
        self._marks[subject].append(mark)
        self._by[subject].setdefault(mark.rank, mark.done)

    def _column(self, op: Op, row: Row, name: str) -> Key | None:
        """The token that a member of a row may turn out to be; None: it will not."""
        at = (op.env if row.of_path else "", row.table, name)
        if at not in self._columns:
            key = key_of(self._timeline, op, row, name)
            self._columns[at] = key if self._tokens.possible(key) else None
        return self._columns[at]

    def of(self, op: Op, one: Shown) -> Iterator[Token]:
        """What the tokens in a row that a read showed say, and those of its headers if it shows that row alone."""
        for name, value in one.members.items():
            key = self._column(op, one.row, name)
            shown = rank(value) if key is not None else None
            if key is not None and shown is not None:
                known = [*self._before(op, (one.row, name)), *self._snapshots(op, one.row, name)]
                void, first = self._voids.until(one.row, op), self._first(one.row, name)
                yield from self._judged(key, one.pointer(name), value, shown, known, void, first)
        for name, value in op.validators if not one.listed else ():
            shown = rank(value)
            if shown is not None and self._tokens.possible(header_key(op, name)):
                subject = (op.target, op.who), name
                marks, void = self._before(op, subject), self._voids.until(one.row, op)
                yield from self._judged(header_key(op, name), "", value, shown, marks, void, self._by[subject])

    def _first(self, row: Row, name: str) -> Mapping[Rank, int]:
        """An instant by which each version of the row had been committed, by its token: when it was first seen."""
        subject = row, name
        if subject not in self._shown:
            found = self._shown[subject] = self._by[subject]
            for index, content in self._timeline.contents(row):
                seen = rank(content.get(name)) if isinstance(content, dict) else None
                if seen is not None:
                    found[seen] = min(self._timeline.line.done[index], found.get(seen, NEVER))
        return self._shown[subject]

    def _before(self, op: Op, subject: tuple[object, str]) -> Sequence[Mark]:
        marks = self._marks.get(subject, [])
        last = bisect_left(marks, op.fwd, key=lambda mark: mark.done)
        return marks[max(0, last - RECENT) : last]

    def _snapshots(self, op: Op, row: Row, name: str) -> Iterator[Mark]:
        """The first snapshot of each version that was seen before the read, and the last one of all."""
        last = bisect_left(self._timeline.line.done, op.fwd) - 1
        if last < 0:
            return
        versions = self._versions.get((row, name))
        if versions is None:
            contents = self._timeline.contents(row)[-RECENT:]
            versions = [mark for index, content in contents for mark in self._in_snapshot(index, content, name)]
            self._versions[row, name] = versions
        yield from (mark for mark in versions if mark.shot is not None and mark.shot <= last)
        if self._timeline.shows(row):
            yield from self._in_snapshot(last, self._timeline.row_at(row, last), name)

    def _in_snapshot(self, index: int, content: Any, name: str) -> Iterator[Mark]:
        value = content.get(name) if isinstance(content, dict) else None
        found = rank(value)
        if found is not None:
            line = self._timeline.line
            yield Mark(
                begun=line.begun[index], done=line.done[index], value=value, rank=found, shot=index, members=content
            )

    def _judged(
        self, key: Key, pointer: str, value: Any, shown: Rank, known: Sequence[Mark], void: int,
        first: Mapping[Rank, int],
    ) -> Iterator[Token]:  # fmt: skip
        by = first.get(shown, NEVER)
        valid = [mark for mark in known if mark.begun > void and mark.rank.instant == shown.instant]
        later_ones = [mark for mark in valid if later(mark.rank, shown)]
        newer = [mark for mark in later_ones if mark.begun > by and (mark.sure or first[mark.rank] > by)]
        sure = [mark for mark in newer if mark.sure]
        if newer:
            newer = sure or newer
            newest = max(newer, key=lambda mark: (mark.rank.value, -mark.done))
            since = min(mark.done for mark in newer)
            yield Token(
                key=key, pointer=pointer, shown=value, newest=newest, since=since, old=True,
                newer=len({mark.rank for mark in newer}), sure=bool(sure),
            )  # fmt: skip
        elif not later_ones and (equal := [mark for mark in valid if mark.rank == shown]):
            yield Token(key=key, pointer=pointer, shown=value, newest=equal[-1], since=equal[-1].done, old=False)


def _seen(op: Op, value: Any, found: Rank, members: Mapping[str, Any], *, made: bool) -> Mark:
    return Mark(begun=op.fwd, done=op.end, value=value, rank=found, op=op, members=members, made=made)


def _wrote(op: Op, row: Row) -> bool:
    """Whether the operation is a write of that very row: what its answer shows of others it only looked up."""
    if op.effect is not Effect.DONE:
        return False
    by_path = op.place is not None and (op.place.table, op.place.key) == (row.table, row.key)
    return by_path or any(of == row for of, _ in op.sets)


class _Voids:
    """When a row may last have been put back to an earlier version by a recorded operation."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        blind = [op for op in timeline.writes.closed if op.is_reset or not op.sets]
        unread = [op for op in blind if (op.episode, op.seq) not in timeline.accounted]
        # A write between two snapshots is known: had it put a token back, the token would count for nothing.
        self._general = {True: _Latest(unread), False: _Latest(blind)}
        self._deletes: dict[str, list[Op]] = defaultdict(list)
        for op in timeline.writes.closed:
            if op.method == "DELETE" and op.place is not None:
                self._deletes[op.place.table].append(op)

    def until(self, row: Row, read: Op) -> int:
        latest = self._general[self._timeline.shows(row)].before(read.end)
        for op in self._deletes.get(row.table, ()):
            if op.fwd <= read.end and op.touches(row, self._timeline.writes.paths):
                latest = max(latest, op.end)
        floating = self._timeline.writes.floating_on(row, read.end)
        return NEVER if floating else latest


class _Latest:
    """Of the operations that began by an instant, the latest end."""

    def __init__(self, ops: Sequence[Op]) -> None:
        ordered = sorted((op for op in ops if op.effect is not Effect.NONE), key=lambda op: op.fwd)
        self._begun = [op.fwd for op in ordered]
        self._ends: list[int] = []
        for op in ordered:
            self._ends.append(max(op.end, self._ends[-1]) if self._ends else op.end)

    def before(self, instant: int) -> int:
        index = bisect_right(self._begun, instant)
        return self._ends[index - 1] if index else ALWAYS
