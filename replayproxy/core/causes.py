"""What must have been asked for before a piece of an event stream may come: in a replay too, causes come first.

The rule: a piece that was recorded after another request had arrived waits for that request, where it is of the
stream's own lane, or a write to its environment by another lane. So does the end of a stream that a read opened.

Counterexample for anything weaker: an agent listens to `GET /events`, then POSTs a job, and the stream tells of it. A
replay that gives the stream at once tells the agent of a job before it has asked for one; and a client whose stream
ends with its session would find it ended before it began to work, and open another that nobody recorded.

Only event streams are held back: an ordinary answer does not tell what others caused, and a client that has but few
connections would wait for itself.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from replayproxy.core.canonical import media_type
from replayproxy.core.effects import SAFE_METHODS
from replayproxy.core.values import Exchange

STREAMS = frozenset({
    b"text/event-stream", b"application/x-ndjson", b"application/ndjson", b"application/jsonl",
    b"application/json-seq", b"multipart/x-mixed-replace",
})  # fmt: skip
"""Media types whose pieces are events, and mean something before the answer is whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One recorded request that a replay waits for. `at` is its place in the script."""

    at: int
    exchange: Exchange
    write: bool


type _Line = tuple[list[int], list[int]]
"""Instants at which requests had come whole, and their places, in the order of the instants."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Causes:
    """Who may have caused what, in one episode: the requests of each lane, and the writes to each environment."""

    lanes: Mapping[str, _Line]
    writes: Mapping[str, _Line]

    def of(self, exchange: Exchange) -> Pending | None:
        """What the pieces of this answer wait for. None: it is no event stream, or nothing came while it ran."""
        if not _is_stream(exchange):
            return None
        last = _last_piece(exchange)
        lines = [line for line in (self.lanes.get(exchange.lane), self.writes.get(exchange.env)) if line]
        begun = _whole_at(exchange)
        spans = [(line, bisect_right(line[0], begun)) for line in lines]
        if not any(bisect_left(line[0], last) > start for line, start in spans):
            return None
        return Pending(spans)


class Pending:
    """What one stream still waits for, in one replay."""

    def __init__(self, spans: Iterable[tuple[_Line, int]]) -> None:
        self._lines = [line for line, _ in spans]
        self._next = [start for _, start in spans]

    def first(self, instant: int, asked: Container[int]) -> int | None:
        """The first of the requests before an instant that is not among those asked for."""
        for number, (instants, places) in enumerate(self._lines):
            at = self._next[number]
            while at < len(places) and instants[at] < instant:
                if places[at] not in asked:
                    self._next[number] = at
                    return places[at]
                at += 1
            self._next[number] = at
        return None


def causes(requests: Iterable[Asked]) -> Causes:
    """Of the requests that a replay must be asked for, in any order."""
    lanes: dict[str, _Line] = defaultdict(lambda: ([], []))
    writes: dict[str, _Line] = defaultdict(lambda: ([], []))
    for one in sorted(requests, key=lambda one: (_whole_at(one.exchange), one.at)):
        found = [lanes[one.exchange.lane]]
        if one.write:
            found.append(writes[one.exchange.env])
        for instants, places in found:
            instants.append(_whole_at(one.exchange))
            places.append(one.at)
    return Causes(lanes=dict(lanes), writes=dict(writes))


def ends_late(exchange: Exchange) -> int | None:
    """The instant of the end, if it waits like a piece. The end of an answer to a write does not: it says nothing, and
    a client may have gone on when it saw the last event, where another reads to the end."""
    return exchange.times.up_end if exchange.request.method in SAFE_METHODS else None


def _is_stream(exchange: Exchange) -> bool:
    response = exchange.response
    if response is None or exchange.websocket is not None or exchange.request.method == b"HEAD":
        return False
    body = response.body
    passed_on = bool(body and body.chunks) or not (body and body.size)
    return passed_on and media_type(response.fields) in STREAMS


def _last_piece(exchange: Exchange) -> int:
    body = exchange.response.body if exchange.response else None
    return max([ends_late(exchange) or 0, *(chunk.at for chunk in (body.chunks if body else ()))])


def _whole_at(exchange: Exchange) -> int:
    times = exchange.times
    return times.head if times.c_in is None else times.c_in
