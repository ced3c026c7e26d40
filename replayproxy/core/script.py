"""What an episode recorded, indexed so that a replay finds the answer to a request by two hash look-ups.

Rules of this file: a script is built once and never changes; what has been played of it lies in `core.replayer`.
Bodies above 4 KiB are not in it: they stay in the store, and the script is as large as the episode is long.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from replayproxy.core.callids import Ids, replay_key
from replayproxy.core.canonical import KEY_FIELDS, RequestKey
from replayproxy.core.effects import is_write, lane_ambiguities
from replayproxy.core.gates import Gates, Move, gates
from replayproxy.core.minted import Origins
from replayproxy.core.nonces import Shape, echoed, scoped, shape_of
from replayproxy.core.relax import Relaxation, Relaxed
from replayproxy.core.schedule import settled
from replayproxy.core.values import Body, Event, Exchange, Fields, Outcome, Request

INLINE_LIMIT = 4096
"""A body of at least this many bytes is read from the store when it is needed."""

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
    lane_ambiguous: int
    loose: Mapping[int, Loose] = field(default_factory=dict)
    together: frozenset[int] = frozenset()
    shapes: Mapping[tuple[str, RequestKey], Sequence[int]] = field(default_factory=dict)
    relaxed: Mapping[tuple[str, RequestKey], Sequence[int]] = field(default_factory=dict)
    rules: Relaxation = field(default_factory=lambda: Relaxation(()))

    @property
    def address(self) -> str:
        return f"{self.run}/{self.episode}"

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


def why_not_served(exchange: Exchange) -> str:
    """Why a replay never gives this answer: "" when it does."""
    if exchange.is_probe:
        return "probe"
    if exchange.websocket is not None:
        return ""
    if exchange.response is not None and exchange.response.status == 101:
        return "upgraded to another protocol"
    if exchange.outcome in (Outcome.LOCAL, Outcome.HALF_SENT):
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


def build(
    exchanges: Iterable[Exchange],
    *,
    run: str,
    episode: str,
    load: Callable[[Body], Body] = lambda body: body,
    reads: Mapping[str, Sequence[str]] | None = None,
    events: Sequence[Event] = (),
    rules: Relaxation | None = None,
    elsewhere: Callable[[], Iterable[bytes]] = tuple,
    foreign_secrets: bool = False,
) -> Script:
    """The script of an episode's exchanges, which come in order with their numbers.

    `load` gives a body with its bytes where it is to be parsed (up to `canonical.VIEW_LIMIT`); it is asked for the
    body of one request at a time, which is then let go. `reads`: by environment, the requests declared to be reads.
    `events`: they tell when an agent left that did not wait for its answer. `rules`: the user's. `elsewhere`: texts
    from which the agent, or the environment, may have had a value, and `foreign_secrets`: see `core.minted`.
    """
    rules = Relaxation(()) if rules is None else rules
    origins = Origins(elsewhere, foreign=foreign_secrets)
    shapes: dict[int, Shape] = {}
    relaxed: dict[int, Relaxed] = {}
    entries: list[Entry] = []
    numbers: dict[RequestKey, int] = {}
    queues: dict[Queue, list[int]] = defaultdict(list)
    lanes: dict[str, list[int]] = defaultdict(list)
    for exchange in exchanges:
        body = exchange.request.body
        whole = exchange.request if body is None or body.inline is not None else _with_body(exchange.request, load)
        write = exchange.websocket is not None or is_write(whole, (reads or {}).get(exchange.env, ()))
        key, ids = replay_key(exchange.env, whole)
        entry = _entry(len(entries), exchange, whole, key, numbers.setdefault(key, len(numbers)), write, ids)
        entries.append(entry)
        shape = shape_of(exchange.env, whole)
        origins.request(entry.at, exchange.env, whole, shape)
        if shape is not None:
            shapes[entry.at] = shape
        if rules and (by_rules := rules.relaxed(exchange.env, whole)) is not None:
            relaxed[entry.at] = by_rules
        if not entry.skip:
            queues[exchange.lane, entry.number].append(entry.at)
            lanes[exchange.lane].append(entry.at)
    served = [entry for entry in entries if not entry.skip]
    # Calls that only their ids tell apart are told apart where the replay's agent chooses the same.
    number_of = {entry.exchange.order: (entry.number, entry.ids) for entry in served}
    minted = origins.minted([entry.exchange for entry in entries], load) if shapes else {}
    loose = _loosened(served, shapes, relaxed, minted)
    ended = settled([entry.exchange for entry in served], events)
    at_once = _overlapping({one.order: one for one in ended})
    by_shape = _queues(entries, {at: one.shape.key for at, one in loose.items() if one.shape})
    calls = [places for places in queues.values() if entries[places[0]].ids]
    return Script(
        run=run,
        episode=episode,
        entries=entries,
        queues=dict(queues),
        lanes=dict(lanes),
        exact={entry.exact: entry.number for entry in served},
        keys=list(numbers),
        numbers=numbers,
        gates=gates([_move(entry) for entry in served if entry.owed] if len(lanes) > 1 else ()),
        lane_ambiguous=lane_ambiguities(ended, lambda exchange: number_of[exchange.order]),
        loose=loose,
        together=frozenset(at for places in (*calls, *by_shape.values()) for at in at_once(entries, places)),
        shapes=by_shape,
        relaxed=_queues(entries, {at: one.relaxed.shape.key for at, one in loose.items() if one.relaxed}),
        rules=rules,
    )


def _loosened(
    served: Sequence[Entry], shapes: Mapping[int, Shape], relaxed: Mapping[int, Relaxed], minted: Mapping[str, str]
) -> dict[int, Loose]:
    found = {}
    for entry in served:
        shape, by_rules = scoped(shapes.get(entry.at), minted), relaxed.get(entry.at)
        if by_rules is not None:
            by_rules = replace(by_rules, shape=scoped(by_rules.shape, minted) or by_rules.shape)
        if shape is not None or by_rules is not None:
            found[entry.at] = Loose(shape, by_rules)
    return found


def _queues(entries: Sequence[Entry], keys: Mapping[int, RequestKey]) -> dict[tuple[str, RequestKey], list[int]]:
    queues: dict[tuple[str, RequestKey], list[int]] = defaultdict(list)
    for at, key in keys.items():
        queues[entries[at].lane, key].append(at)
    return dict(queues)


def _overlapping(ended: Mapping[tuple[int, int], Exchange]) -> Callable[[Sequence[Entry], Sequence[int]], set[int]]:
    """Finds those of some places that were under way together. `ended`: the exchanges by arrival, as they ended."""

    def found(entries: Sequence[Entry], places: Sequence[int]) -> set[int]:
        both: set[int] = set()
        last, until = -1, 0
        for at in places if len(places) > 1 else ():
            times = ended[entries[at].exchange.order].times
            if last >= 0 and times.head < until:
                both |= {last, at}
            ends = times.c_out or times.up_end or 1 << 63
            if ends >= until:
                last, until = at, ends
        return both

    return found


def _with_body(request: Request, load: Callable[[Body], Body]) -> Request:
    assert request.body is not None
    return replace(request, body=load(request.body))


def _entry(at: int, exchange: Exchange, whole: Request, key: RequestKey, number: int, write: bool, ids: Ids) -> Entry:
    return Entry(
        at=at,
        exchange=_lightened(exchange),
        key=key,
        number=number,
        exact=exact_key(exchange.env, whole),
        skip=why_not_served(exchange),
        owed=not (exchange.is_probe or exchange.is_reset),
        write=write,
        ids=ids,
        echoes=echoed(exchange),
    )


def _lightened(exchange: Exchange) -> Exchange:
    """The exchange without those bytes of its bodies that the store can give again."""
    request, response = exchange.request, exchange.response
    if (body := _light(request.body)) is not request.body:
        exchange = replace(exchange, request=replace(request, body=body))
    if response is not None and (body := _light(response.body)) is not response.body:
        exchange = replace(exchange, response=replace(response, body=body))
    return exchange


def _light(body: Body | None) -> Body | None:
    if body is None or body.inline is None or not body.pieces or body.size < INLINE_LIMIT:
        return body
    return replace(body, inline=None)


def _move(entry: Entry) -> Move:
    times = entry.exchange.times
    return Move(
        at=entry.at,
        lane=entry.lane,
        env=entry.exchange.env,
        target=entry.exchange.request.target,
        write=entry.write,
        begun=times.fwd if times.fwd is not None else times.head,
        # Nothing was sent, or its end is not known: then nobody can be said to have come after it.
        ended=times.up_end if entry.exchange.outcome is not Outcome.REFUSED else None,
    )
