"""A recorded WebSocket conversation, served: the handshake, then message after message, then its recorded end.

Rules of this file: the agent's messages are matched in the order of the connection (`core.conversation`), and the
environment's follow in their recorded places between them. What does not match closes with 4470 and a reason. Pings are
answered here, and no extension is negotiated: frames are the connection's business, messages are what was said.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import chain, islice

from aiohttp import WSMsgType, web

from replayproxy.core.conversation import ABNORMAL, NO_CODE, Conversation, End, Unlike, end_of, unlike, unlike_close
from replayproxy.core.misses import MISS_CLOSE, Document, message_document
from replayproxy.core.replayer import Serve
from replayproxy.core.values import Exchange, Fields, Message
from replayproxy.serve.bodies import IN_LINE
from replayproxy.serve.hearing import STOPPED, Closing, Ear
from replayproxy.serve.scene import Scene
from replayproxy.serve.sending import Pace
from replayproxy.serve.visit import Asked
from replayproxy.serve.wire import lines

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

CLOSE_GRACE = 2.0
"""Seconds for the agent's answer to a close frame, and for what it said before its connection was lost."""

REMEMBERED = 16
"""So many of the agent's last messages are kept, to tell one that comes twice."""

BATCH_BYTES, BATCH_MESSAGES = 256 * 1024, 256
"""So much is read from the store at a time."""


class Socket(web.WebSocketResponse):
    """aiohttp's end of a WebSocket, with the handshake's answer as it is given. Text comes as bytes, unchecked."""

    def __init__(self, head: bytes) -> None:
        super().__init__(compress=False, max_msg_size=0, autoclose=False, decode_text=False)
        self._head = head

    async def _write_headers(self) -> None:
        # aiohttp would write headers of its own; what was recorded goes out in its order and case.
        assert self._payload_writer is not None
        await self._payload_writer.write(self._head)


def accept_value(key: str) -> bytes:
    """What answers a handshake's key."""
    # SHA-1 is the protocol's, and guards nothing.
    return base64.b64encode(hashlib.sha1(key.strip().encode() + GUID, usedforsecurity=False).digest())


def handshake(exchange: Exchange, fields: Fields, key: str) -> bytes:
    """The recorded 101, `fields` being its own as the agent is to see them: with the accept value for this agent's
    key, and without extensions, for none is spoken here."""
    assert exchange.response is not None
    accept = accept_value(key)
    kept = [(name, value) for name, value in fields if name.lower() != b"sec-websocket-extensions"]
    told = [(name, accept if name.lower() == b"sec-websocket-accept" else value) for name, value in kept]
    if told == kept and accept not in [value for _, value in told]:
        told.append((b"Sec-WebSocket-Accept", accept))
    return b"HTTP/1.1 101 %b\r\n%b\r\n" % (exchange.response.reason or b"Switching Protocols", lines(tuple(told)))


class Talk:
    """One conversation with one agent."""

    def __init__(
        self, socket: Socket, scene: Scene, serve: Serve, source: Iterator[Message], *, pace: Pace,
        now: Callable[[], int], stopping: asyncio.Event, tell: Callable[[Document], None], hold: float,
        first: Message | None = None,
        clean: Callable[[Message], Message] = lambda message: message,
    ) -> None:  # fmt: skip
        self.lost = asyncio.Event()
        self._socket, self._scene, self._serve, self._source = socket, scene, serve, source
        self._pace, self._now, self._tell, self._hold_limit = pace, now, tell, hold
        # `first` was read before it was known whose the conversation is.
        self._ear = Ear(socket, stopping, now=now, clean=clean, first=first)
        self._state = Conversation(serve.renames, serve.entry.seq)
        exchange = self._exchange = serve.entry.exchange
        self._end = end_of(exchange)
        self._anchor = (asyncio.get_running_loop().time(), exchange.times.first or exchange.times.head)
        self._said: deque[tuple[int, Message]] = deque(maxlen=REMEMBERED)
        self._ahead: deque[Message] = deque()  # read from the store, and not yet their turn
        self._number = 0

    async def play(self) -> None:
        """Returns when it is over and judged. The caller closes the connection."""
        self._ear.begin()
        try:
            async for message in self._recorded():
                self._number += 1
                if not await (self._hear(message) if message.from_agent else self._say(message)):
                    return
            self._number += 1
            await _ENDINGS[self._end](self)
        except ConnectionError:
            await self._left_early("the connection was lost")
        except asyncio.CancelledError:
            self._departed("the replay ended before it")
            raise
        finally:
            self._scene.replayer.bound(self._state.bindings)
            self._ear.end()

    async def _recorded(self) -> AsyncIterator[Message]:
        talk = self._exchange.websocket
        if talk is not None and not talk.is_apart:
            for message in self._source:
                yield message
            return
        while batch := await asyncio.to_thread(_batch, self._source):
            self._ahead.extend(batch)
            while self._ahead:
                yield self._ahead.popleft()

    # -- what the agent says

    async def _hear(self, recorded: Message) -> bool:
        got = await self._ear.next()
        if isinstance(got, Closing):
            await self._closed_early(got)
            return False
        large = len(got.payload) > IN_LINE and got.payload != recorded.payload
        hear = self._state.hear
        same = (
            await asyncio.to_thread(hear, self._number, recorded, got) if large else hear(self._number, recorded, got)
        )
        if not same:
            await self._miss(got, self._state.due(recorded))
            return False
        self._anchor = (asyncio.get_running_loop().time(), recorded.at)
        if len(recorded.payload) <= IN_LINE:
            self._said.append((self._number, recorded))
        return True

    async def _closed_early(self, got: Closing) -> None:
        if got is STOPPED:
            self._departed(f"the replay ended before message {self._number} came")
        elif got.gone:
            await self._left_early(f"the agent left before message {self._number}")
        else:
            self._departed(f"the agent closed with {got.code} before message {self._number}")
            await self._close(got.code, got.reason or "")

    # -- what the environment said

    async def _say(self, recorded: Message) -> bool:
        await self._until(recorded.at)
        kind = WSMsgType.TEXT if recorded.text else WSMsgType.BINARY
        await self._socket.send_frame(self._state.say(recorded), kind)
        return True

    async def _until(self, instant: int | None) -> None:
        """Waits for the replay's counterpart of a recorded instant, counted from what the agent said last."""
        if instant is None or not self._pace.speed:
            return
        due = self._anchor[0] + self._pace.seconds(instant - self._anchor[1])
        if (left := due - asyncio.get_running_loop().time()) > 0:
            await self._ear.pause(left, self.lost)

    async def _close(self, code: int, reason: str | bytes) -> None:
        """A close frame as it was recorded; one without a code is empty."""
        raw = reason.encode() if isinstance(reason, str) else reason
        data = b"" if code == NO_CODE else code.to_bytes(2, "big") + raw
        try:
            await self._socket.send_frame(data, WSMsgType.CLOSE)
        except ConnectionError:
            return  # it has left already

    async def _farewell(self) -> None:
        """After our close frame: until the agent has answered it, or left."""
        try:
            async with asyncio.timeout(CLOSE_GRACE):
                while not isinstance(await self._ear.next(), Closing):
                    pass
        except (TimeoutError, ConnectionError):
            return

    # -- the end

    async def _env_closed(self) -> None:
        talk = self._exchange.websocket
        assert talk is not None
        await self._until(self._exchange.times.up_end)
        await self._socket.send_frame(b"", WSMsgType.PONG)  # fails where the agent has left, and a close would not
        await self._close(talk.close_code or NO_CODE, talk.close_reason)
        self._went()
        await self._farewell()

    async def _env_gone(self) -> None:
        await self._until(self._exchange.times.up_end)
        self._went()

    async def _agent_closed(self) -> None:
        talk = self._exchange.websocket
        assert talk is not None
        got = await self._ear.next()
        if isinstance(got, Message):
            await self._miss(got, None)
        elif got.gone:
            self._departed("the agent left without a close frame; the recorded one closed")
        else:
            self._compare_close((talk.close_code or NO_CODE, talk.close_reason), got)
            await self._close(got.code, talk.close_reason if got.reason is None else got.reason)

    def _compare_close(self, recorded: tuple[int, str], got: Closing) -> None:
        asked = (got.code, recorded[1] if got.reason is None else got.reason)
        if recorded == asked:
            self._went()
        else:
            self._missed(unlike_close(self._number, recorded, asked))

    async def _agent_left(self) -> None:
        """The recorded agent left here, or its conversation was still open at the end: this one has its time, too."""
        self._scene.done(self._serve)
        try:
            async with asyncio.timeout(self._hold_limit):
                got = await self._ear.next()
        except TimeoutError:
            self._scene.replayer.stayed(self._serve, self._now())
            return
        if isinstance(got, Message):
            await self._miss(got, None)
        elif got.gone or self._end is End.OPEN:
            self._went()
        else:
            self._compare_close((ABNORMAL, ""), got)
        if isinstance(got, Closing) and not got.gone:
            await self._close(got.code, got.reason or "")

    # -- the judgement: exactly one of these is called

    def _went(self) -> None:
        self._scene.replayer.conversed(self._serve, exact=self._state.exact)

    def _departed(self, text: str) -> None:
        self._scene.replayer.left(self._serve, self._now(), text)

    async def _left_early(self, text: str) -> None:
        if self._end in (End.AGENT_GONE, End.OPEN) and not await asyncio.to_thread(self._agent_said_more):
            self._went()  # as recorded: what the environment said after that, nobody heard
        else:
            self._departed(text)

    def _agent_said_more(self) -> bool:
        return any(message.from_agent for message in chain(self._ahead, self._source))

    def _missed(self, found: Unlike) -> None:
        script = self._scene.replayer.script
        self._tell(message_document(script, self._scene.replayer.unlike(self._serve, found, self._now())))

    async def _miss(self, got: Message, expected: Message | None) -> None:
        around = [] if expected is None else [(self._number, expected)]
        around += await asyncio.to_thread(_following, chain(self._ahead, self._source), self._number)
        around += reversed(self._said)
        found = await asyncio.to_thread(unlike, self._number, got, around)
        self._missed(found)
        await self._close(MISS_CLOSE, found.reason())
        await self._farewell()


_ENDINGS = {
    End.ENV_CLOSED: Talk._env_closed, End.ENV_GONE: Talk._env_gone, End.AGENT_CLOSED: Talk._agent_closed,
    End.AGENT_GONE: Talk._agent_left, End.OPEN: Talk._agent_left,
}  # fmt: skip


def _batch(source: Iterator[Message]) -> list[Message]:
    found: list[Message] = []
    size = 0
    for message in islice(source, BATCH_MESSAGES):
        found.append(message)
        size += len(message.payload)
        if size >= BATCH_BYTES:
            break
    return found


def _following(source: Iterator[Message], number: int) -> list[tuple[int, Message]]:
    """What the agent said later in the recording, small messages only."""
    later = enumerate(islice(source, 4 * BATCH_MESSAGES), number + 1)
    return [(at, message) for at, message in later if message.from_agent and len(message.payload) <= IN_LINE]


def no_handshake(why: str) -> Unlike:
    """The request is the recorded one, but no conversation can begin with it."""
    return Unlike(number=0, near=(), text=why)


async def converse(asked: Asked, talk: Talk, socket: Socket) -> None:
    """From the handshake to the end. Cancelled when the connection is lost: what the agent said before still counts."""
    if not socket.prepared:
        await socket.prepare(asked)
    playing = asyncio.ensure_future(talk.play())
    try:
        await asyncio.shield(playing)
    except asyncio.CancelledError:
        talk.lost.set()
        if asked.transport is None:
            await asyncio.wait({playing}, timeout=CLOSE_GRACE)
        playing.cancel()
        await asyncio.wait({playing}, timeout=CLOSE_GRACE)
        raise
