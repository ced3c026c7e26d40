"""What one worker process tells, done at the recorder's scribe as if it happened here.

Rules of this file: for every request that a worker announced there is one `finished`, however its process ended. What
the scribe raises is a fault, and never the worker's trouble.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from replayproxy.core.canonical import body_of
from replayproxy.core.identity import Claims
from replayproxy.core.redact_body import GIVEN_UP
from replayproxy.core.values import Body, Exchange, Fields, Message, Outcome, Request, Response, Times, WebSocket
from replayproxy.proxy import frames, parcels
from replayproxy.proxy.forward import ForwardOptions
from replayproxy.proxy.frames import Word
from replayproxy.proxy.head import with_host
from replayproxy.proxy.naming import PLAIN, told_options, unnamed
from replayproxy.proxy.remote import Saying
from replayproxy.proxy.routes import parse_upstream
from replayproxy.proxy.scribe import BodySink, Scribe, TalkSink, Ticket

_NOTHING = body_of(b"")


class Desk(Scribe, Protocol):
    """A recorder with several workers: each has its own place in the order of arrival."""

    def arrive(
        self,
        claims: Claims,
        *,
        env: str,
        listener: str,
        method: bytes,
        target: bytes,
        at: int,
        fields: Fields = (),
        worker: int = 0,
    ) -> Ticket: ...

    def follows(self, ticket: Ticket) -> tuple[bool, bool]:
        """(whether rules look at the exchange's bodies, whether its episode has snapshots of its environment)."""


class Died(Exception):
    """What a worker reported, or what befell it, in its words."""


@dataclass(slots=True, kw_only=True)
class Entry:
    """A request that the worker announced. `done`: its exchange is over; events may still name it."""

    ticket: Ticket
    at: int
    head: tuple[bytes, bytes, Fields]
    sinks: dict[bool, BodySink] = field(default_factory=dict)
    closed: dict[bool, Body | None] = field(default_factory=dict)
    talk: TalkSink | None = None
    whole: Request | None = None
    held: Exchange | None = None
    done: bool = False


class Link:
    """One worker process, from its start to its end."""

    def __init__(
        self, desk: Desk, worker: int, channel: Saying, wall: Callable[[], int],
        forward: Callable[[], ForwardOptions | None] = lambda: None,
    ) -> None:  # fmt: skip
        """`forward`: the forward listener's, if there is one by now."""
        self._desk, self._worker, self._channel, self._wall = desk, worker, channel, wall
        self._forwarding = forward
        self._entries: dict[int, Entry] = {}
        self._waiting: set[asyncio.Task[None]] = set()
        self._deeds: dict[int, Callable[..., None]] = {
            Word.ARRIVE: self._arrive, Word.BODY: self._body, Word.TALK: self._talk, Word.FORWARD: self._forward,
            Word.HOLD: self._hold, Word.FINISHED: self._finished, Word.EVENT: self._event, Word.FAULT: self._fault,
            Word.FORGET: self._forget, Word.PASSED: self._passed, Word.WHOSE: self._whose,
        }  # fmt: skip

    def hear(self, message: frames.Message) -> bool:
        """Whether the message was one about exchanges."""
        deed = self._deeds.get(message[0])
        if deed is None:
            return False
        try:
            deed(*message[1:])
        except Exception as error:
            entry = self._entries.get(message[1]) if len(message) > 1 and isinstance(message[1], int) else None
            self._desk.fault(entry.ticket if entry else None, "finished", error)
            # The traffic goes on.
            if message[0] in (Word.FORWARD, Word.HOLD):
                self._channel.say(Word.GO_ON, message[1], 0)
            elif message[0] == Word.WHOSE:
                self._channel.say(Word.ITS, message[1], told_options(PLAIN))
        return True

    def in_flight(self) -> dict[int, Ticket]:
        return {number: entry.ticket for number, entry in self._entries.items() if not entry.done}

    def died(self, why: str) -> int:
        """The process is gone: each of its exchanges under way is over, and what became of it is not known. Gives how
        many there were."""
        lost = [entry for entry in self._entries.values() if not entry.done]
        for entry in lost:
            entry.done = True
            self._hand_over(entry, self._lost(entry, why))
        for task in self._waiting:
            task.cancel()
        self._entries.clear()
        return len(lost)

    def _lost(self, entry: Entry, why: str) -> Exchange:
        ticket = entry.ticket
        # It may have reached the environment at any time since it came: `fwd` promises no more than that.
        times = Times(head=entry.at, wall=self._wall(), fwd=entry.at)
        return Exchange(
            seq=0, request=entry.whole or _head(ticket, *entry.head), response=None, outcome=Outcome.LOST,
            times=times, error=why, upstream=parse_upstream(ticket.upstream).origin if ticket.upstream else "",
            websocket=self._said_so_far(entry), **_said_by(ticket),
        )  # fmt: skip

    def _said_so_far(self, entry: Entry) -> WebSocket | None:
        """The messages of a conversation that had passed; nobody knows how it went on."""
        try:
            return None if entry.talk is None else self._conversation(entry, (None, "", None))
        except Exception as error:
            self._desk.fault(entry.ticket, "message", error)
            return None

    # -- the worker's words --------------------------------------------------------------------------------------

    def _arrive(
        self,
        number: int,
        said: tuple[str | None, ...],
        env: str,
        listener: str,
        method: bytes,
        target: bytes,
        at: int,
        fields: Fields,
    ) -> None:
        port, prefix, name, baggage, proxy_user, rule, lane = said
        claims = Claims(
            port_episode=port, prefix=prefix, header=name, baggage=baggage, proxy_user=proxy_user, rule=rule, lane=lane
        )
        try:
            env = self._named(env, target)
            ticket = self._desk.arrive(
                claims, env=env, listener=listener, method=method, target=target, at=at, fields=fields,
                worker=self._worker,
            )  # fmt: skip
            watched, noted = self._desk.follows(ticket)
        except Exception as error:
            self._desk.fault(None, "arrive", error)
            self._channel.say(Word.TICKET, number, None)  # the traffic goes on
            return
        entry = self._entries[number] = Entry(ticket=ticket, at=at, head=(method, target, fields))
        answer = (
            ticket.order, ticket.env, ticket.upstream, ticket.reads, ticket.note, ticket.stopped, watched, noted,
            tuple(ticket.fault) if ticket.fault else None,
        )  # fmt: skip
        self._channel.say(Word.TICKET, number, answer)
        if not watched and any(b"event-stream" in value for _, value in fields):
            self._later(self._desk.before_forward(ticket, _head(ticket, *entry.head)), entry, "before_forward")

    def _named(self, env: str, target: bytes) -> str:
        """The name of an environment that came as an origin. The worker is told, before it has its ticket, how that
        origin is to be verified."""
        at, forward = unnamed(env), self._forwarding()
        if at is None or forward is None:
            return env
        name = forward.naming.env_of(at, target)
        options = forward.naming.options_of(at)
        if options != PLAIN:
            self._channel.say(Word.ITS, at.origin, told_options(options))
        return name

    def _whose(self, origin: str) -> None:
        forward = self._forwarding()
        options = forward.naming.options_of(parse_upstream(origin)) if forward is not None else PLAIN
        self._channel.say(Word.ITS, origin, told_options(options), now=True)

    def _passed(self, host: str) -> None:
        if (forward := self._forwarding()) is not None:
            forward.on_passed(host)

    def _body(self, number: int, answer: bool, fields: Fields | None, data: bytes, at: int | None) -> None:
        entry = self._entries[number]
        try:
            if fields is not None:
                entry.sinks[answer] = self._desk.sink(entry.ticket, fields, answer=answer)
            if (sink := entry.sinks.get(answer)) is not None:
                sink.write(data, at)
        except Exception as error:
            entry.sinks.pop(answer, None)
            entry.closed[answer] = None
            self._desk.fault(entry.ticket, "answer's body" if answer else "request body", error)

    def _talk(self, number: int, from_agent: bool, text: bool, payload: bytes, at: int) -> None:
        entry = self._entries[number]
        try:
            if entry.talk is None:
                entry.talk = self._desk.talk(entry.ticket)
            entry.talk.add(Message(from_agent=from_agent, text=text, payload=payload, at=at))
        except Exception as error:
            self._desk.fault(entry.ticket, "message", error)

    def _forward(self, number: int, parcel: parcels.Parcel) -> None:
        entry = self._entries[number]
        request = self._request(entry, parcel)

        async def asked() -> None:
            try:
                await self._desk.before_forward(entry.ticket, request)
            finally:
                self._channel.say(Word.GO_ON, number, 0)

        self._later(asked(), entry, "before_forward")

    def _hold(self, number: int, parcel: parcels.Parcel) -> None:
        entry = self._entries[number]
        held = entry.held = self._exchange(entry, parcel)

        async def asked() -> None:
            waited = 0
            try:
                waited = await self._desk.hold(entry.ticket, held)
            finally:
                self._channel.say(Word.GO_ON, number, waited)

        self._later(asked(), entry, "response")

    def _finished(self, number: int, parcel: parcels.Parcel | None, more: tuple[Any, ...] | None) -> None:
        entry = self._entries[number]
        entry.done = True
        try:
            if parcel is not None:
                exchange = self._exchange(entry, parcel)
            else:
                assert entry.held is not None
                assert more is not None
                exchange = _ended(entry.held, *more)
        except Exception as error:
            self._desk.fault(entry.ticket, "finished", error)
            return
        self._hand_over(entry, exchange)
        entry.sinks, entry.talk, entry.whole, entry.held = {}, None, None, None

    def _hand_over(self, entry: Entry, exchange: Exchange) -> None:
        try:
            self._desk.finished(entry.ticket, exchange)
        except Exception as error:
            self._desk.fault(entry.ticket, "finished", error)

    def _event(self, number: int | None, kind: str, detail: dict[str, Any], at: int) -> None:
        entry = None if number is None else self._entries.get(number)
        self._desk.event(entry.ticket if entry else None, kind, detail, at)

    def _fault(self, number: int | None, where: str, why: str) -> None:
        entry = None if number is None else self._entries.get(number)
        if entry is not None and where in ("finished", "requestheaders"):
            entry.done = True
        self._desk.fault(entry.ticket if entry else None, where, Died(why))

    def _forget(self, numbers: list[int]) -> None:
        for number in numbers:
            entry = self._entries.get(number)
            if entry is not None and entry.done:
                del self._entries[number]

    def _later(self, work: Coroutine[Any, Any, Any], entry: Entry, where: str) -> None:
        async def guarded() -> None:
            try:
                await work
            except Exception as error:
                self._desk.fault(entry.ticket, where, error)

        task = asyncio.get_running_loop().create_task(guarded())
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    # -- from parcels to values ----------------------------------------------------------------------------------

    def _exchange(self, entry: Entry, parcel: parcels.Parcel) -> Exchange:
        request = self._request(entry, parcel[0]) if parcel[0] is not None else entry.whole
        assert request is not None
        response = self._response(entry, parcel[1])
        exchange = parcels.open_exchange(
            parcel, its_request=request, its_response=response, talk=self._conversation(entry, parcel[4]),
            **_said_by(entry.ticket),
        )  # fmt: skip
        withheld = any(answer in entry.closed and entry.closed[answer] is None for answer in entry.sinks)
        if withheld and GIVEN_UP not in exchange.notes:
            exchange = _noted(exchange, GIVEN_UP)
        return exchange

    def _request(self, entry: Entry, parcel: parcels.Parcel) -> Request:
        request = parcels.open_request(parcel, self._closed(entry, parcel[-1], parcel[3], answer=False))
        if request.body is not None:
            entry.whole = request
        return request

    def _response(self, entry: Entry, parcel: parcels.Parcel | None) -> Response | None:
        if parcel is None:
            return None
        if entry.held is not None and entry.held.response is not None:
            # Its body has been taken already; the exchange has ended otherwise than it looked.
            return parcels.open_response(parcel, entry.held.response.body)
        return parcels.open_response(parcel, self._closed(entry, parcel[-1], parcel[3], answer=True))

    def _closed(self, entry: Entry, told: parcels.Parcel | None, fields: Fields, *, answer: bool) -> Body | None:
        """The body as the store takes it; closed once, however often it is told."""
        if told is None:
            return None
        if answer in entry.closed:
            return entry.closed[answer]
        data, chunks = told
        if data is not None and not data:
            return _NOTHING
        body = None
        try:
            if data is not None:
                sink = entry.sinks[answer] = self._desk.sink(entry.ticket, fields, answer=answer)
                _pour(sink, data, chunks)
            body = entry.sinks[answer].close() if answer in entry.sinks else None
        except Exception as error:
            entry.sinks.pop(answer, None)
            self._desk.fault(entry.ticket, "answer's body" if answer else "request body", error)
        entry.closed[answer] = body
        return body

    def _conversation(self, entry: Entry, parcel: parcels.Parcel | None) -> WebSocket | None:
        if parcel is None:
            return None
        close_code, reason, by_agent = parcel
        messages, log = entry.talk.close() if entry.talk is not None else ((), None)
        return WebSocket(
            messages=messages, close_code=close_code, close_reason=reason, closed_by_agent=by_agent, log=log
        )


def _pour(sink: BodySink, data: bytes, chunks: tuple[int, ...]) -> None:
    done = 0
    for size, at in zip(chunks[::2], chunks[1::2], strict=True):
        sink.write(data[done : done + size], at)
        done += size
    if done < len(data):
        sink.write(data[done:])


def _head(ticket: Ticket, method: bytes, target: bytes, fields: Fields) -> Request:
    """All that is known of a request whose worker told no more."""
    host = parse_upstream(ticket.upstream).authority.encode() if ticket.upstream else None
    fields, agent_host = with_host(fields, host)
    return Request(method=method, target=target, version=b"HTTP/1.1", fields=fields, body=None, agent_host=agent_host)


def _said_by(ticket: Ticket) -> dict[str, Any]:
    attribution = ticket.attribution
    return {
        "order": ticket.order, "env": ticket.env, "lane": attribution.lane,
        "carrier": attribution.carrier if attribution.episode else attribution.reason,
        "is_reset": ticket.is_reset, "is_probe": ticket.is_probe,
    }  # fmt: skip


def _noted(exchange: Exchange, note: str) -> Exchange:
    return replace(exchange, notes=(*exchange.notes, note))


def _ended(held: Exchange, instants: parcels.Parcel, held_ns: int, notes: tuple[str, ...]) -> Exchange:
    kept = tuple(note for note in held.notes if note == GIVEN_UP and note not in notes)
    return replace(held, times=parcels.open_times(instants), held_ns=held_ns, notes=(*notes, *kept))
