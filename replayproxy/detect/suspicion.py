"""A read that seems to miss a write of its own lane: told at once, while the episode is still being recorded.

Cheap, and only a suspicion: no state is looked at, each path stands for its row, and what an answer echoed counts as
written. A cell is watched from an answered write that changed it until another write may have set it. What is said
here is for a closer look (a probe, a verdict by the way); a finding is what the whole episode shows.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from replayproxy.core.values import Body, Exchange, Run
from replayproxy.detect.cells import PATHS, Row
from replayproxy.detect.finding import plain
from replayproxy.detect.history import NEVER
from replayproxy.detect.normal import normal
from replayproxy.detect.ops import ABSENT, PRESENCE, PRESENT, Effect, Op, op_of
from replayproxy.detect.views import Views

MAX_BODY = 64 * 1024
"""Bodies larger than this are not looked into: it is done between two answers."""

MAX_ROWS = 1000
"""Rows of an episode that are remembered; those not seen for longest are forgotten first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why a read is suspect. `write` and `read` are the orders of the exchanges, `expected` what the write had set,
    `shown` the earlier value that the read showed, `late` the ns between the write's answer and the read.
    `alone`: no other write of the episode was answered between them."""

    write: tuple[int, int]
    read: tuple[int, int]
    lane: str
    written_by: str
    asked: str
    pointer: str
    expected: Any
    shown: Any
    late: int
    alone: bool

    def __str__(self) -> str:
        told = f"{self.asked} shows {_quoted(self.shown)} at {self.pointer or 'its path'}"
        return f"{told}, {self.late / 1e9:.3f} s after {self.written_by} had been answered, which set another"


@dataclass(slots=True)
class _Watched:
    """A cell that a write changed from `earlier` to `value`. `number`: how many writes there had been."""

    write: Op
    order: tuple[int, int]
    earlier: str
    value: str
    number: int


@dataclass(slots=True)
class _Known:
    """What is known of a row: its members as they were last shown or echoed, and its cells that are watched."""

    members: dict[str, str] = field(default_factory=dict)
    watched: dict[str, _Watched] = field(default_factory=dict)
    doubted: bool = False  # a write that may act at any time may be about it


class Suspect:
    """One episode while it is recorded: `note` each of its exchanges once, as it ends."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._rows: OrderedDict[tuple[str, Row], _Known] = OrderedDict()
        self._writes = 0

    def note(self, exchange: Exchange) -> Reason | None:
        """Remembers the exchange; the reason why it seems to have been answered out of date."""
        if exchange.is_probe or exchange.env not in self._run.envs:
            return None
        if exchange.is_reset:
            self._rows.clear()
            return None
        answer = exchange.response.body if exchange.response is not None else None
        if not (_small(exchange.request.body) and _small(answer)):
            exchange = _without_words(exchange)
        op = op_of(self._run, "", exchange, PATHS, Views())
        if op.effect is not Effect.NONE:
            self._wrote(op, exchange.order)
            return None
        return next(self._misses(op, exchange.order), None) if op.reads else None

    # Writes

    def _wrote(self, op: Op, order: tuple[int, int]) -> None:
        self._writes += 1
        for (env, row), known in self._rows.items():
            at_stake = known.watched or op.end == NEVER
            if at_stake and env == op.env and op.touches(row, paths=True):
                kept = {column for of, column in op.sets if of == row}
                known.watched = {column: one for column, one in known.watched.items() if column in kept}
                known.doubted |= op.end == NEVER
        for (row, column), value in op.sets.items():
            if op.end != NEVER:
                self._set(op, order, self._row(op.env, row), column, value)

    def _set(self, op: Op, order: tuple[int, int], known: _Known, column: str, value: str) -> None:
        before = known.watched.pop(column, None)
        overlaps = before is not None and before.write.end >= op.fwd
        earlier = known.members.get(column)
        if column == PRESENCE and earlier is None:
            earlier = ABSENT if op.method == "POST" else None
        if column == PRESENCE and value == ABSENT:
            earlier = PRESENT
        if earlier not in (None, value) and not overlaps:
            known.watched[column] = _Watched(
                write=op, order=order, earlier=str(earlier), value=value, number=self._writes
            )
        if not (column == PRESENCE and value == ABSENT):
            known.members[column] = value

    # Reads

    def _misses(self, op: Op, order: tuple[int, int]) -> Iterator[Reason]:
        for one in op.rows:
            known = self._row(op.env, one.row)
            members = {PRESENCE: PRESENT, **{name: normal(value) for name, value in one.members.items()}}
            for column, one_seen in list(known.watched.items()):
                if members.get(column) == one_seen.earlier and _missed(op, one_seen, known, members):
                    shown = PRESENT if column == PRESENCE else one.members[column]
                    yield self._reason(op, order, one_seen, column, one.pointer(column) if column else one.at, shown)
            if not known.watched:
                known.members = members
        if op.absent is not None:
            known = self._row(op.env, op.absent)
            made = known.watched.get(PRESENCE)
            if made is not None and made.earlier == ABSENT and _missed(op, made, known, {}):
                yield self._reason(op, order, made, PRESENCE, "", ABSENT)
            elif made is None:
                known.members = {PRESENCE: ABSENT}

    def _reason(
        self, op: Op, order: tuple[int, int], seen: _Watched, column: str, pointer: str, shown: Any
    ) -> Reason:  # fmt: skip
        return Reason(
            write=seen.order, read=order, lane=op.lane, written_by=f"{seen.write.method} {seen.write.target}",
            asked=f"{op.method} {op.target}", pointer=pointer,
            expected=plain(seen.write.asked.get(column, seen.value)), shown=plain(shown),
            late=op.fwd - seen.write.end, alone=seen.number == self._writes,
        )  # fmt: skip

    def _row(self, env: str, row: Row) -> _Known:
        known = self._rows.pop((env, row), None) or _Known()
        self._rows[env, row] = known
        while len(self._rows) > MAX_ROWS:
            self._rows.popitem(last=False)
        return known


def _missed(op: Op, seen: _Watched, known: _Known, members: dict[str, str]) -> bool:
    """Whether the read should have shown what its own lane had written."""
    write = seen.write
    if known.doubted or write.lane != op.lane or write.who != op.who or write.end >= op.fwd:
        return False
    same_path = write.target.partition("?")[0].rstrip("/") == op.target.partition("?")[0].rstrip("/")
    if op.fresh_for and not same_path:
        return False  # a cache that declares itself must only drop what its own client has written to
    # A deleted row that comes back changed may have been marked as deleted; one that is as it was has not been.
    return seen.value != ABSENT or (bool(known.members) and members == known.members)


def _small(body: Body | None) -> bool:
    return body is None or (body.inline is not None and body.size <= MAX_BODY)


def _without_words(exchange: Exchange) -> Exchange:
    """The same exchange as if its bodies were not known: a write that may have set anything, a read of nothing."""
    response = exchange.response
    return replace(
        exchange, request=replace(exchange.request, body=None),
        response=replace(response, body=None) if response is not None else None,
    )  # fmt: skip


def _quoted(value: Any) -> str:
    return value if value in (PRESENT, ABSENT) else json.dumps(value, ensure_ascii=False)
