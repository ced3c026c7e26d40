"""Who made a value first: an index of values with so much chance in them that two makers cannot have met by accident.

An episode makes a value by a write: what the environment minted in the answer, or what the agent sent in the body.
A later read in another episode that shows it is a flow from one to the other. Values that were read before anybody
made them, that an episode itself sent or was given by a write of its own, or that several episodes were given (a
seeded generator, a constant) are no evidence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from replayproxy.core import jsonvalue
from replayproxy.core.canonical import Kind, View, all_fields, split_query, split_target
from replayproxy.core.effects import is_write
from replayproxy.core.opaque import is_opaque
from replayproxy.core.values import Exchange, Outcome, Run
from replayproxy.detect.views import Views

MAX_MADE = 300_000
MAX_SEEN = 600_000
"""Values kept of a whole run; what comes after is not looked at, and the check says so."""

MAX_FLOWS = 200
"""Flows kept of one episode."""

_PIECE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~+/=:-]{9,}")
_LONG_TEXT = 20_000
_ID_NAMES = frozenset({"id", "uuid", "_id", "guid", "key"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """Where a value came from. `own_id`: it is the id that an answer gives to what was made."""

    episode: str
    seq: int
    fwd: int
    own_id: bool
    sent: bool  # the agent's value, not the environment's


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """A value that `made` brought into the world, in an answer to another episode."""

    value: str
    made: Made
    episode: str
    seq: int
    lane: str
    pointer: str
    up_end: int


def key_of(value: str) -> str:
    """One spelling for a uuid with and without dashes and in either case."""
    bare = value.replace("-", "").lower()
    return bare if len(bare) == 32 and all(c in "0123456789abcdef" for c in bare) else value


def tokens(seen: View) -> Iterator[tuple[str, tuple[str | int, ...]]]:
    """The values of a body that could not be met by accident, each with its place."""
    if seen.kind is Kind.JSON:
        yield from _in_tree(seen.value, ())
    elif seen.kind is Kind.FORM:
        for name, value in seen.value:
            for token in in_text((value or b"").decode("utf-8", "replace")):
                yield token, (name.decode("utf-8", "replace"),)
    elif seen.kind is Kind.TEXT and len(seen.value) <= _LONG_TEXT:
        for token in in_text(seen.value.decode("utf-8", "replace")):
            yield token, ()


def _in_tree(tree: Any, at: tuple[str | int, ...]) -> Iterator[tuple[str, tuple[str | int, ...]]]:
    for path, leaf in jsonvalue.leaves(tree, at):
        for name in path[len(at) :]:
            if isinstance(name, str) and len(name) >= 12 and is_opaque(name):
                yield name, path
        if isinstance(leaf, str) and len(leaf) >= 10:
            if leaf[0] in "{[" and len(leaf) <= _LONG_TEXT:
                try:
                    yield from _in_tree(jsonvalue.parse(leaf), path)
                    continue
                except jsonvalue.NotJson:
                    pass  # prose that begins with a bracket
            for token in in_text(leaf):
                yield token, path
        elif isinstance(leaf, int) and not isinstance(leaf, bool) and leaf > 1 << 46 and is_opaque(str(leaf)):
            yield str(leaf), path


def in_text(text: str) -> Iterator[str]:
    """The whole text if it is one such value, else the pieces of it that are."""
    if len(text) < 10:
        return
    if is_opaque(text) and "/" not in text:
        yield text
    elif len(text) <= _LONG_TEXT:
        for piece in _PIECE.findall(text):
            for part in piece.split("/"):
                bare = part.strip(".:=~+")
                if len(bare) >= 10 and is_opaque(bare):
                    yield bare


def in_head(exchange: Exchange) -> Iterator[str]:
    """The values in a request's target, and in what it carries for credentials."""
    path, query = split_target(exchange.request.target)
    yield from in_text(path.decode("utf-8", "replace"))
    for _, value in split_query(query or b""):
        yield from in_text((value or b"").decode("utf-8", "replace"))
    for name in (b"authorization", b"cookie", b"x-api-key", b"mcp-session-id", b"if-match", b"idempotency-key"):
        for field_value in all_fields(exchange.request.fields, name):
            text = field_value.decode("utf-8", "replace")
            yield from in_text(text)
            for part in re.split(r"[;,\s=]+", text):
                yield from in_text(part)


@dataclass(slots=True)
class _Own:
    """What an episode has sent or was given by its own writes."""

    values: set[int] = field(default_factory=set)
    flowed: set[int] = field(default_factory=set)


class Provenance:
    """Fed with episodes in the order in which they were opened; collects the flows between them."""

    def __init__(self) -> None:
        self._made: dict[int, Made] = {}
        self._seen: set[int] = set()
        self._common: set[int] = set()
        self.flows: list[Flow] = []
        self.full = False

    def add(self, run: Run, episode: str, exchanges: Sequence[Exchange], views: Views, *, judged: bool = True) -> None:
        """`judged`: whether flows into this episode are collected; its own values are known either way."""
        own = _Own()
        for exchange in exchanges:
            if exchange.outcome is Outcome.LOCAL or exchange.times.fwd is None:
                continue
            wiring = run.envs.get(exchange.env)
            writes = is_write(exchange.request, wiring.reads if wiring else ())
            self._request(episode, exchange, own, views, writes)
            if exchange.response is not None and exchange.response.status < 500:
                self._answer(episode, exchange, own, views, writes, judged)

    def _request(self, episode: str, exchange: Exchange, own: _Own, views: Views, writes: bool) -> None:
        for token in in_head(exchange):
            own.values.add(hash(key_of(token)))
        sent = views.of(exchange.request.fields, exchange.request.body)
        worked = exchange.response is not None and 200 <= exchange.response.status < 300
        for token, _ in tokens(sent):
            value = hash(key_of(token))
            if writes and worked and value not in own.values:
                self._make(value, own, _made(episode, exchange, (), sent=True))
            own.values.add(value)

    def _answer(self, episode: str, exchange: Exchange, own: _Own, views: Views, writes: bool, judged: bool) -> None:
        response = exchange.response
        assert response is not None
        seen = views.of(response.fields, response.body)
        envelope = seen.kind is Kind.JSON and isinstance(seen.value, dict) and len(seen.value) == 1
        found = list(tokens(seen))
        for location in all_fields(response.fields, b"location"):
            found += [(token, ("id",)) for token in in_text(location.decode("utf-8", "replace"))]
        for token, path in found:
            value = hash(key_of(token))
            if value in own.values:
                continue
            made = self._made.get(value)
            if writes:
                own.values.add(value)
                if made is not None and made.episode != episode:
                    self._common.add(value)  # it was given to two episodes: seeded, or a constant
                else:
                    made_here = _made(episode, exchange, path[1:] if envelope and len(path) == 2 else path, sent=False)
                    self._make(value, own, made_here)
            elif made is None:
                self._see(value)
            elif made.episode != episode and judged and value not in own.flowed and len(own.flowed) < MAX_FLOWS:
                own.flowed.add(value)
                self._flow(token, value, made, episode, exchange, path)

    def _flow(
        self, token: str, value: int, made: Made, episode: str, exchange: Exchange, path: tuple[str | int, ...]
    ) -> None:
        end = exchange.times.up_end
        if end is None or end < made.fwd:
            self._common.add(value)  # read before it was made: it was there already
            return
        self.flows.append(
            Flow(
                value=token, made=made, episode=episode, seq=exchange.seq, lane=exchange.lane,
                pointer=jsonvalue.pointer(*path), up_end=end,
            )
        )  # fmt: skip

    def _make(self, value: int, own: _Own, made: Made) -> None:
        if value in self._seen or value in self._made:
            if value in self._made and self._made[value].episode != made.episode:
                self._common.add(value)
            return
        if len(self._made) >= MAX_MADE:
            self.full = True
            return
        self._made[value] = made

    def _see(self, value: int) -> None:
        if len(self._seen) < MAX_SEEN:
            self._seen.add(value)
        else:
            self.full = True

    def evidence(self) -> Iterator[Flow]:
        """The flows whose value only one episode was given."""
        return (flow for flow in self.flows if hash(key_of(flow.value)) not in self._common)


def _made(episode: str, exchange: Exchange, path: tuple[str | int, ...], *, sent: bool) -> Made:
    named = len(path) == 1 and str(path[0]).lower() in _ID_NAMES
    fwd = exchange.times.fwd if exchange.times.fwd is not None else exchange.times.head
    return Made(episode=episode, seq=exchange.seq, fwd=fwd, own_id=named and not sent, sent=sent)
