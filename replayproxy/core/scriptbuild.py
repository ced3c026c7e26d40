"""Builds the script of an episode from its exchanges, in one pass and then once over what was found."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from replayproxy.core.callids import Ids, replay_key
from replayproxy.core.canonical import RequestKey
from replayproxy.core.causes import Asked, causes
from replayproxy.core.effects import is_write, lane_ambiguities
from replayproxy.core.gates import Move, gates
from replayproxy.core.minted import Origins
from replayproxy.core.nonces import Shape, echoed, scoped, shape_of
from replayproxy.core.relax import Relaxation, Relaxed
from replayproxy.core.schedule import settled
from replayproxy.core.script import Entry, Loose, Queue, Script, exact_key, why_not_served
from replayproxy.core.values import Body, Event, Exchange, Outcome, Request

INLINE_LIMIT = 4096
"""A body of at least this many bytes is read from the store when it is needed."""


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
    builder = _Builder(rules, origins, reads or {}, load)
    for exchange in exchanges:
        builder.add(exchange)
    entries = builder.entries
    served = [entry for entry in entries if not entry.skip]
    minted = origins.minted([entry.exchange for entry in entries], load) if builder.shapes else {}
    loose = _loosened(served, builder.shapes, builder.relaxed, minted)
    by_shape = _queues(entries, {at: one.shape.key for at, one in loose.items() if one.shape})
    ended = settled([entry.exchange for entry in served], events)
    # Calls that only their ids tell apart are told apart where the replay's agent chooses the same.
    number_of = {entry.exchange.order: (entry.number, entry.ids) for entry in served}
    return Script(
        run=run,
        episode=episode,
        entries=entries,
        queues=dict(builder.queues),
        lanes=dict(builder.lanes),
        exact={entry.exact: entry.number for entry in served},
        keys=list(builder.numbers),
        numbers=builder.numbers,
        gates=gates([_move(entry) for entry in served if entry.owed] if len(builder.lanes) > 1 else ()),
        causes=causes(Asked(at=one.at, exchange=one.exchange, write=one.write) for one in served if one.owed),
        lane_ambiguous=lane_ambiguities(ended, lambda exchange: number_of[exchange.order]),
        loose=loose,
        together=_together(entries, (*builder.calls(), *by_shape.values()), ended),
        shapes=by_shape,
        relaxed=_queues(entries, {at: one.relaxed.shape.key for at, one in loose.items() if one.relaxed}),
        rules=rules,
        foreign=foreign_secrets,
    )


class _Builder:
    """The entries of a script and where they lie, as the exchanges come."""

    def __init__(
        self, rules: Relaxation, origins: Origins, reads: Mapping[str, Sequence[str]], load: Callable[[Body], Body]
    ) -> None:
        self._rules, self._origins, self._reads, self._load = rules, origins, reads, load
        self.entries: list[Entry] = []
        self.numbers: dict[RequestKey, int] = {}
        self.queues: dict[Queue, list[int]] = defaultdict(list)
        self.lanes: dict[str, list[int]] = defaultdict(list)
        self.shapes: dict[int, Shape] = {}
        self.relaxed: dict[int, Relaxed] = {}

    def add(self, exchange: Exchange) -> None:
        body, env = exchange.request.body, exchange.env
        whole = (
            exchange.request if body is None or body.inline is not None else _with_body(exchange.request, self._load)
        )
        write = exchange.websocket is not None or is_write(whole, self._reads.get(env, ()))
        key, ids = replay_key(env, whole)
        number = self.numbers.setdefault(key, len(self.numbers))
        entry = _entry(len(self.entries), exchange, whole, key, number, write, ids)
        self.entries.append(entry)
        shape = shape_of(env, whole)
        self._origins.request(entry.at, env, whole, shape)
        if shape is not None:
            self.shapes[entry.at] = shape
        if self._rules and (by_rules := self._rules.relaxed(env, whole)) is not None:
            self.relaxed[entry.at] = by_rules
        if not entry.skip:
            self.queues[exchange.lane, entry.number].append(entry.at)
            self.lanes[exchange.lane].append(entry.at)

    def calls(self) -> Iterator[Sequence[int]]:
        """The queues of JSON-RPC calls."""
        return (places for places in self.queues.values() if self.entries[places[0]].ids)


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


def _together(entries: Sequence[Entry], groups: Iterable[Sequence[int]], ended: Iterable[Exchange]) -> frozenset[int]:
    """The places of each group that were under way together. `ended`: the exchanges as they ended."""
    by_order = {one.order: one for one in ended}
    both: set[int] = set()
    for places in groups:
        last, until = -1, 0
        for at in places if len(places) > 1 else ():
            times = by_order[entries[at].exchange.order].times
            if last >= 0 and times.head < until:
                both |= {last, at}
            ends = times.c_out or times.up_end or 1 << 63
            if ends >= until:
                last, until = at, ends
    return frozenset(both)


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
