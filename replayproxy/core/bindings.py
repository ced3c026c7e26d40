"""What the live environment named anew, and what a recorded request must therefore say instead.

One injective map per scope (`core.rewrite`): recorded name to live name. High-entropy values are bound by themselves
wherever they stand as a whole token; small ids only within their environment and collection; validators, cookies,
session ids and locations by their role. A name that was sent as it was recorded, and accepted, is bound to itself:
an answer that then gives another name in its place is a violation and never a renaming.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from replayproxy.core.canonical import body_of
from replayproxy.core.effects import is_write
from replayproxy.core.produced import Pair, Source, pairs
from replayproxy.core.redact_token import TOKEN
from replayproxy.core.rewrite import AUTHORITY, Scope, rewrite
from replayproxy.core.schedule import ended_at, given_by, seen_at, sent_at
from replayproxy.core.values import Exchange, Request, Response

KINDS = {"value": "fresh id", "id": "fresh id", "etag": "ETag", "last-modified": "Last-Modified",
         "cookie": "cookie", "session": "session", "location": "Location", "authority": "authority"}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Substitution:
    """One place of one request in which the live name was sent for the recorded one. `producer` is the exchange whose
    answer gave it (None: it was known from the start, as the environment's own address is)."""

    recorded: str
    live: str
    producer: int | None
    consumer: int
    place: str
    kind: str

    def to_json(self) -> dict[str, Any]:
        return {"recorded": self.recorded, "live": self.live, "producer": self.producer,
                "consumer": self.consumer, "place": self.place, "kind": self.kind}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """Two names where one was: `recorded` should be `live` by this answer, but `held` says otherwise."""

    recorded: str
    live: str
    held: str
    exchange: int
    since: int | None
    place: str

    def to_json(self) -> dict[str, Any]:
        return {"recorded": self.recorded, "live": self.live, "held": self.held, "exchange": self.exchange,
                "since": self.since, "place": self.place}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Bound:
    live: str
    producer: int | None


class Bindings:
    """The names of one repetition. `authorities`: recorded `host:port` to live `host:port`; `writes` tells whether an
    exchange may have created something (small ids are minted by writes alone)."""

    def __init__(
        self, authorities: Mapping[str, str] | None = None, writes: Callable[[Request], bool] = is_write
    ) -> None:
        self._authorities = dict(authorities or {})
        self._maps: dict[Scope, dict[str, _Bound]] = {}
        self._back: dict[Scope, dict[str, str]] = {}
        self._writes = writes
        self._written: set[str] = set()
        self.substitutions: list[Substitution] = []
        self.violations: list[Violation] = []
        for recorded, live in self._authorities.items():
            self._maps.setdefault(AUTHORITY, {})[recorded] = _Bound(live, None)

    def apply(self, exchange: Exchange) -> Request:
        """The request to send. What was put in another's place is added to `substitutions`."""

        def lookup(place: str, scopes: Sequence[Scope], text: str) -> str | None:
            for scope in scopes:
                bound = self._maps.get(scope, {}).get(text)
                if bound is not None:
                    if bound.live == text:
                        return None
                    self.substitutions.append(
                        Substitution(recorded=text, live=bound.live, producer=bound.producer, consumer=exchange.seq,
                                     place=place, kind=KINDS[scope[0]])
                    )  # fmt: skip
                    return bound.live
            return None

        return rewrite(exchange.request, exchange.env, lookup)

    def learn(self, recorded: Exchange, sent: Request, live: Response | None) -> None:
        """Takes the names out of a live answer to the request that `apply` gave for `recorded`."""
        if self._writes(recorded.request):
            self._written.add(recorded.env)
        if recorded.response is None or live is None:
            return
        if recorded.response.status < 400 and live.status < 400:
            self._accepted(recorded)
        own_a, own_b = frozenset(self._authorities), frozenset(self._authorities.values())
        here = Source(request=recorded.request, response=recorded.response, own=own_a)
        there = Source(request=sent, response=live, own=own_b)
        for pair in pairs(recorded.env, here, there):
            if pair.recorded == pair.live or self._can_be_minted(pair, recorded):
                self._bind(pair, recorded.seq)

    def names(self) -> dict[str, set[str]]:
        """Recorded name to the live ones that it was given, of all that was learned (a small id may have several)."""
        found: dict[str, set[str]] = {}
        for scope, held in self._maps.items():
            if scope != AUTHORITY:
                for recorded, bound in held.items():
                    found.setdefault(recorded, set()).add(bound.live)
        return found

    def values(self) -> dict[str, str]:
        """Recorded name to live name, of all that was put in another's place so far."""
        return {one.recorded: one.live for one in self.substitutions}

    def _accepted(self, exchange: Exchange) -> None:
        """Names that went out as recorded and were understood stay as they are."""

        def keep(_place: str, scopes: Sequence[Scope], text: str) -> None:
            if TOKEN.fullmatch(text.encode("utf-8", "replace")):
                return  # what went out in its place was a credential
            if any(text in self._maps.get(scope, {}) for scope in scopes):
                return
            for scope in scopes:
                if scope[0] in ("value", "id"):
                    self._put(scope, text, text, exchange.seq)

        rewrite(exchange.request, exchange.env, keep)

    def _can_be_minted(self, pair: Pair, exchange: Exchange) -> bool:
        """A small id that differs is a new name only after a write; before one it is a difference."""
        return pair.scope[0] != "id" or exchange.env in self._written

    def _bind(self, pair: Pair, seq: int) -> None:
        held = self._maps.get(pair.scope, {}).get(pair.recorded)
        if pair.newest:
            self._put(pair.scope, pair.recorded, pair.live, seq)
        elif held is not None:
            if held.live != pair.live:
                self._violated(pair, held.live, seq, held.producer)
        elif (other := self._back.get(pair.scope, {}).get(pair.live)) is not None:
            self._violated(pair, other, seq, self._maps[pair.scope][other].producer)
        else:
            self._put(pair.scope, pair.recorded, pair.live, seq)

    def _put(self, scope: Scope, recorded: str, live: str, seq: int) -> None:
        self._maps.setdefault(scope, {})[recorded] = _Bound(live, seq)
        self._back.setdefault(scope, {})[live] = recorded

    def _violated(self, pair: Pair, held: str, seq: int, since: int | None) -> None:
        known = (pair.recorded, pair.live)
        if all((one.recorded, one.live) != known for one in self.violations):
            self.violations.append(
                Violation(recorded=pair.recorded, live=pair.live, held=held, exchange=seq, since=since,
                          place=pair.place)
            )  # fmt: skip


def flows(exchanges: Iterable[Exchange], own: frozenset[str] = frozenset()) -> dict[int, set[int]]:
    """Which earlier answers a request took a name from: consumer to producers, by number. What is sent again must
    wait for these answers also where producer and consumer are in different lanes. Of an answer that was still coming
    only what had come counts. `own`: the environments' recorded authorities."""
    ordered = sorted(exchanges, key=sent_at)
    if all(a.lane == b.lane and seen_at(a) < b.times.head for a, b in pairwise(ordered)):
        return {}  # each waits for the one before anyway
    return _drawn(ordered, own, lambda _: frozenset())


def drawn_from(exchanges: Iterable[Exchange], own: frozenset[str] = frozenset()) -> dict[int, set[int]]:
    """As `flows`, of exchanges that waited for one another too, and only of names that the answer's own request had
    not said: a name that is only repeated is nobody's gift."""
    return _drawn(sorted(exchanges, key=sent_at), own, _said)


def _said(exchange: Exchange) -> frozenset[str]:
    found: set[str] = set()

    def note(_place: str, _scopes: Sequence[Scope], text: str) -> None:
        found.add(text)

    rewrite(exchange.request, exchange.env, note)
    return frozenset(found)


def _drawn(
    ordered: Sequence[Exchange], own: frozenset[str], said: Callable[[Exchange], frozenset[str]]
) -> dict[int, set[int]]:
    first: dict[tuple[Scope, str], Exchange] = {}
    found: dict[int, set[int]] = {}
    coming: list[Exchange] = []
    for exchange in ordered:
        begun = sent_at(exchange)
        for source in coming:
            if ended_at(source) < begun:
                _produced(source, first, own, None, said(source))
            elif size := given_by(source, begun):
                _produced(source, first, own, size, said(source))
        coming = [source for source in coming if ended_at(source) >= begun]
        _consumed(exchange, first, found.setdefault(exchange.seq, set()))
        if exchange.response is not None:
            coming.append(exchange)
    return {seq: producers for seq, producers in found.items() if producers}


def _produced(
    exchange: Exchange, first: dict[tuple[Scope, str], Exchange], own: frozenset[str], size: int | None,
    known: frozenset[str],
) -> None:  # fmt: skip
    """Notes the names that an answer gives, but for those `known`; `size`: those in the first bytes of its body."""
    response = exchange.response
    assert response is not None
    if size is not None and response.body is not None and response.body.inline is not None:
        response = replace(response, body=body_of(response.body.inline[:size]))
    source = Source(request=exchange.request, response=response, own=own)
    for pair in pairs(exchange.env, source, source):
        slot = (pair.scope, pair.recorded)
        if (pair.newest or slot not in first) and pair.recorded not in known:
            first[slot] = exchange


def _consumed(exchange: Exchange, first: Mapping[tuple[Scope, str], Exchange], into: set[int]) -> None:
    def note(_place: str, scopes: Sequence[Scope], text: str) -> None:
        for scope in scopes:
            producer = first.get((scope, text))
            if producer is not None:
                into.add(producer.seq)
                return

    rewrite(exchange.request, exchange.env, note)
