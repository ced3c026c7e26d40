"""What an episode recorded, indexed so that a replay finds the answer to a request by two hash look-ups.

Rules of this file: a script is built once (`core.scriptbuild`) and never changes; what has been played of it lies in
`core.replayer`. Bodies above 4 KiB are not in it: they stay in the store, and the script is as large as the episode
is long.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from replayproxy.core.callids import Ids, replay_key
from replayproxy.core.canonical import KEY_FIELDS, RequestKey
from replayproxy.core.causes import Causes
from replayproxy.core.gates import Gates
from replayproxy.core.nonces import Shape, shape_of
from replayproxy.core.relax import Relaxation, Relaxed
from replayproxy.core.values import Body, Exchange, Fields, Outcome, Request

type Exact = tuple[str, bytes, bytes, tuple[tuple[bytes, bytes], ...], bytes | None]
"""Environment, method, raw target, raw key fields, digest of the raw body: equal for byte-equal requests only."""

type Queue = tuple[str, int]
"""Lane and number of the key: the n-th request of one queue gets its n-th recorded answer."""

UNKNOWN = -1
"""The number of a key that was never recorded."""

_KEY_NAMES = frozenset(KEY_FIELDS)


class Heard(NamedTuple):
    """What of a request that just came is needed to look it up. A tuple, for one is made for every request."""

    method: bytes
    target: bytes
    fields: Fields
    body: Body | None

    def request(self) -> Request:
        return Request(method=self.method, target=self.target, version=b"HTTP/1.1", fields=self.fields, body=self.body)


def exact_key(env: str, request: Request | Heard) -> Exact:
    """What must be byte-equal for the grade `exact`. Equal exact keys have equal request keys."""
    named = [(lower, value) for name, value in request.fields if (lower := name.lower()) in _KEY_NAMES]
    if len(named) > 1:
        # Fields of different names may come in any order; within one name the order has meaning.
        named.sort(key=lambda pair: pair[0])
    body = request.body
    return (env, request.method, request.target, tuple(named), None if body is None else body.digest)


class Identified(NamedTuple):
    """A request that was asked, with the keys it is looked up by. `number` is the script's for the key.

    `ids`: those of its JSON-RPC calls; None: they are the recorded ones. `loose`: what else it may be, where equal
    requests are used up or there are none; None: nobody has looked.
    """

    env: str
    heard: Request | Heard
    exact: Exact
    key: RequestKey
    number: int
    ids: Ids | None = None
    loose: Loose | None = None

    @property
    def request(self) -> Request:
        return self.heard.request() if isinstance(self.heard, Heard) else self.heard


class Loose(NamedTuple):
    """A request with its values taken out that agents mint, and as the user's rules leave it. None: not at all."""

    shape: Shape | None
    relaxed: Relaxed | None


NOT_LOOSE = Loose(None, None)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Entry:
    """One recorded exchange. `at` is its place in the script; `skip` says why it is never served ("": it is).

    `owed`: a replay that leaves it unused has not reproduced the episode. Resets and probes are not owed.
    `write`: it may have changed the environment. `number` is the script's for the key. `ids`: those of its JSON-RPC
    calls. `echoes`: headers that agents mint, whose values its answer may repeat.
    """

    at: int
    exchange: Exchange
    key: RequestKey
    number: int
    exact: Exact
    skip: str
    owed: bool
    write: bool
    ids: Ids = ()
    echoes: tuple[tuple[bytes, str], ...] = ()

    @property
    def seq(self) -> int:
        return self.exchange.seq

    @property
    def lane(self) -> str:
        return self.exchange.lane


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Script:
    """An episode ready to be replayed. `queues` and `lanes` hold places in `entries`, servable ones only, in order.

    Keys are numbered, because hashing one costs more than everything else that is done for a small request.

    `loose`: by place, what an entry is apart from its minted values and by the rules (only where it is anything);
    `shapes` and `relaxed` are the queues of these, by lane and key. `together`: the entries that only their ids or
    minted values tell from one that was under way at the same time.
    """

    run: str
    episode: str
    entries: Sequence[Entry]
    queues: Mapping[Queue, Sequence[int]]
    lanes: Mapping[str, Sequence[int]]
    exact: Mapping[Exact, int]
    keys: Sequence[RequestKey]
    numbers: Mapping[RequestKey, int]
    gates: Gates
    causes: Causes
    lane_ambiguous: int
    loose: Mapping[int, Loose] = field(default_factory=dict)
    together: frozenset[int] = frozenset()
    shapes: Mapping[tuple[str, RequestKey], Sequence[int]] = field(default_factory=dict)
    relaxed: Mapping[tuple[str, RequestKey], Sequence[int]] = field(default_factory=dict)
    rules: Relaxation = field(default_factory=lambda: Relaxation(()))
    foreign: bool = False  # its tokens were made with another key than ours

    @property
    def address(self) -> str:
        return f"{self.run}/{self.episode}"

    def emptied(self) -> Script:
        """Its name alone."""
        return replace(self, **_EMPTY)

    def known(self, env: str, heard: Request | Heard) -> Identified | None:
        """The request with its keys, when one byte-equal to it was recorded. Costs no parsing."""
        exact = exact_key(env, heard)
        number = self.exact.get(exact)
        return None if number is None else Identified(env, heard, exact, self.keys[number], number)

    def identify(self, env: str, heard: Request | Heard) -> Identified:
        """The request with its keys. Parses the body: for a large one, call it in another thread."""
        key, ids = replay_key(env, heard.request() if isinstance(heard, Heard) else heard)
        return Identified(env, heard, exact_key(env, heard), key, self.numbers.get(key, UNKNOWN), ids)

    def loosened(self, asked: Identified) -> Identified:
        """The request with what else it may be. Parses the body, like `identify`."""
        if not self.shapes and not self.rules:
            return asked._replace(loose=NOT_LOOSE)
        shape = shape_of(asked.env, asked.request) if self.shapes else None
        relaxed = self.rules.relaxed(asked.env, asked.request) if self.rules else None
        return asked._replace(loose=Loose(shape, relaxed))


# The same objects for every script: tens of thousands may be kept emptied.
_EMPTY: dict[str, Any] = {
    "entries": (), "queues": {}, "lanes": {}, "exact": {}, "keys": (), "numbers": {}, "loose": {},
    "together": frozenset(), "shapes": {}, "relaxed": {}, "gates": Gates(cells=(), needs={}, where={}),
    "causes": Causes(lanes={}, writes={}),
}  # fmt: skip


def why_not_served(exchange: Exchange) -> str:
    """Why a replay never gives this answer: "" when it does."""
    if exchange.is_probe:
        return "probe"
    if exchange.outcome is Outcome.LOST:  # also a conversation: what of it passed is kept, and not all of it may be
        return exchange.outcome.value
    if exchange.websocket is not None:
        return ""
    if exchange.response is not None and exchange.response.status == 101:
        return "upgraded to another protocol"
    if exchange.outcome is Outcome.HALF_SENT:
        return exchange.outcome.value
    if exchange.outcome is Outcome.LOCAL and not exchange.injected:
        return exchange.outcome.value
    if exchange.request.body is None:
        return "request body not kept"
    response = exchange.response
    if response is not None and response.body is None and exchange.outcome is Outcome.ANSWERED:
        return "" if is_bodyless(exchange.request.method, response.status) else "body not kept"
    return ""


def is_bodyless(method: bytes, status: int) -> bool:
    """Whether an answer has no body whatever its header says."""
    return method == b"HEAD" or status in (204, 304) or 100 <= status < 200
