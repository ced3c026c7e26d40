"""The scribe of a worker process: it passes on what it is told, and asks the recorder what only that can know.

Nothing goes to an environment before the recorder has answered the request's arrival: so whatever it does with the
episode - a snapshot, its end - knows of every request that may have had an effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from replayproxy.core.chaos import Fault
from replayproxy.core.identity import Attribution, Claims
from replayproxy.core.values import MAIN_LANE, Body, Chunk, Exchange, Fields, Log, Message, Outcome, Request
from replayproxy.proxy import frames, parcels
from replayproxy.proxy.frames import Word
from replayproxy.proxy.naming import FarNaming
from replayproxy.proxy.scribe import Ticket

HELD_LIMIT = 64 * 1024
"""A body up to this many bytes goes along with its exchange; a longer one piece by piece, as it passes."""

BEHIND_LIMIT = 8 * 1024 * 1024
"""Bytes that may wait for the recorder before the proxy is to read slower."""

FORGOTTEN_AT_ONCE = 64

_NOBODY = Attribution(episode=None, reason="", carrier="", lane=MAIN_LANE)
"""Whose an exchange is, the recorder knows."""


class Saying(Protocol):
    """The way to the recorder: a `frames.Channel`."""

    def say(self, word: Word, *values: Any, now: bool = False) -> None: ...

    @property
    def waiting(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FarTicket(Ticket):
    """`number` is this worker's own. `watched`: rules look at the bodies, and the recorder waits for them. `noted`:
    snapshots are taken of the environment, so the recorder is to know when it had answered before the agent does."""

    number: int
    watched: bool
    noted: bool
    gone: Callable[[int], None]

    def __del__(self) -> None:
        """Nothing can be told of it any more."""
        self.gone(self.number)


class RemoteScribe:
    """See the module. `hear` takes the recorder's answers."""

    def __init__(self, channel: Saying) -> None:
        self._channel = channel
        self.naming = FarNaming(channel)
        self._number = 0
        self._arriving: dict[int, asyncio.Future[Ticket | None]] = {}
        self._asked: dict[int, asyncio.Future[int]] = {}
        self._told: dict[int, Request] = {}
        self._held: dict[int, Exchange] = {}
        self._gone: list[int] = []
        self._room = asyncio.Event()
        self._room.set()

    # -- what the recorder says ----------------------------------------------------------------------------------

    def hear(self, message: frames.Message) -> bool:
        """Whether the message was one for the scribe."""
        word = message[0]
        if word == Word.TICKET:
            self._ticket(message)
        elif word == Word.GO_ON:
            asked = self._asked.pop(message[1], None)
            if asked is not None and not asked.done():
                asked.set_result(message[2])
        elif word == Word.ITS:
            self.naming.hear(message)
        elif word == Word.ROOM:
            (self._room.set if message[1] else self._room.clear)()
        else:
            return False
        return True

    def _ticket(self, message: frames.Message) -> None:
        _, number, said = message
        arriving = self._arriving.pop(number)
        if said is None:
            arriving.set_result(None)
            return
        order, env, upstream, reads, note, stopped, watched, noted, fault = said
        arriving.set_result(
            FarTicket(
                order=order, attribution=_NOBODY, env=env, upstream=upstream, reads=reads, note=note, stopped=stopped,
                number=number, watched=watched, noted=noted, gone=self._forget,
                fault=Fault(*fault) if fault else None,
            )
        )  # fmt: skip

    def _forget(self, number: int) -> None:
        self._gone.append(number)

    # -- the scribe ----------------------------------------------------------------------------------------------

    def arrive(
        self, claims: Claims, *, env: str, listener: str, method: bytes, target: bytes, at: int, fields: Fields = ()
    ) -> asyncio.Future[Ticket | None]:
        self._number += 1
        said = (
            claims.port_episode, claims.prefix, claims.header, claims.baggage, claims.proxy_user, claims.rule,
            claims.lane,
        )  # fmt: skip
        self._channel.say(Word.ARRIVE, self._number, said, env, listener, method, target, at, fields)
        if len(self._gone) >= FORGOTTEN_AT_ONCE:
            gone, self._gone = self._gone, []
            self._channel.say(Word.FORGET, gone)
        arriving = self._arriving[self._number] = asyncio.get_running_loop().create_future()
        return arriving

    def sink(self, ticket: Ticket, fields: Fields, *, answer: bool) -> FarSink:
        return FarSink(self._channel, _number(ticket), fields, answer=answer)

    def talk(self, ticket: Ticket) -> FarTalk:
        return FarTalk(self._channel, _number(ticket))

    async def before_forward(self, ticket: Ticket, request: Request) -> None:
        assert isinstance(ticket, FarTicket)
        if ticket.watched:
            if request.body is not None:
                self._told[ticket.number] = request
            await self._ask(Word.FORWARD, ticket.number, parcels.request(request))

    async def hold(self, ticket: Ticket, exchange: Exchange) -> int:
        assert isinstance(ticket, FarTicket)
        if not (ticket.watched or ticket.noted):
            return 0
        number = ticket.number
        parcel = parcels.exchange(exchange, with_request=self._is_news(number, exchange.request))
        self._told[number], self._held[number] = exchange.request, exchange
        return await self._ask(Word.HOLD, number, parcel)

    def _is_news(self, number: int, request: Request) -> bool:
        return self._told.get(number) is not request

    async def _ask(self, word: Word, number: int, parcel: parcels.Parcel) -> int:
        asked: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._asked[number] = asked
        self._channel.say(word, number, parcel, now=True)
        return await asked

    def finished(self, ticket: Ticket, exchange: Exchange) -> None:
        assert isinstance(ticket, FarTicket)
        number = ticket.number
        held = self._held.pop(number, None)
        news = self._is_news(number, exchange.request)
        self._told.pop(number, None)
        if (
            held is not None
            and not news
            and exchange.response is held.response
            and (exchange.outcome, exchange.websocket) == (Outcome.ANSWERED, None)
        ):
            said = parcels.times(exchange.times), exchange.held_ns, exchange.notes
            self._channel.say(Word.FINISHED, number, None, said, now=True)
            return
        # At once where snapshots are taken: a later request must not find this one still under way.
        self._channel.say(Word.FINISHED, number, parcels.exchange(exchange, with_request=news), None, now=ticket.noted)

    def event(self, ticket: Ticket | None, kind: str, detail: Mapping[str, Any], at: int) -> None:
        self._channel.say(Word.EVENT, None if ticket is None else _number(ticket), kind, dict(detail), at)

    def fault(self, ticket: Ticket | None, where: str, error: BaseException) -> None:
        number = None if ticket is None else _number(ticket)
        self._channel.say(Word.FAULT, number, where, str(error) or type(error).__name__)

    def room(self) -> bool:
        return self._room.is_set() and self._channel.waiting < BEHIND_LIMIT

    async def wait_room(self) -> None:
        while not self.room():
            await self._room.wait()
            if self._channel.waiting >= BEHIND_LIMIT:
                await asyncio.sleep(0.005)


def _number(ticket: Ticket) -> int:
    assert isinstance(ticket, FarTicket)
    return ticket.number


class FarSink:
    """Holds a short body until its exchange is told; passes a longer one on."""

    def __init__(self, channel: Saying, number: int, fields: Fields, *, answer: bool) -> None:
        self.size = 0
        self._channel, self._number, self._fields, self._answer = channel, number, fields, answer
        self._pieces: list[tuple[bytes, int | None]] | None = []
        self._body: Body | None = None

    def write(self, data: bytes, at: int | None = None) -> None:
        self.size += len(data)
        if self._pieces is None:
            self._channel.say(Word.BODY, self._number, self._answer, None, data, at)
            return
        self._pieces.append((bytes(data), at))
        if self.size > HELD_LIMIT:
            pieces, self._pieces = self._pieces, None
            fields: Fields | None = self._fields
            for piece, instant in pieces:
                self._channel.say(Word.BODY, self._number, self._answer, fields, piece, instant)
                fields = None

    def close(self) -> Body:
        """What a parcel makes its tuple of. May be called again."""
        if self._body is None:
            pieces = self._pieces
            chunks = tuple(Chunk(size=len(data), at=at) for data, at in pieces or () if at is not None)
            inline = None if pieces is None else b"".join([data for data, _ in pieces])
            self._body = Body(size=self.size, digest=b"", inline=inline, chunks=chunks)
        return self._body


class FarTalk:
    """Passes the messages on one by one."""

    def __init__(self, channel: Saying, number: int) -> None:
        self._channel, self._number = channel, number

    def add(self, message: Message) -> None:
        self._channel.say(Word.TALK, self._number, message.from_agent, message.text, message.payload, message.at)

    def close(self) -> tuple[tuple[Message, ...], Log | None]:
        return (), None
