"""What an agent says on a WebSocket, read all the while: a ping is answered also while a recorded pause is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import WSMsgType, web

from replayproxy.core.conversation import ABNORMAL, NO_CODE
from replayproxy.core.values import Message

UNHEARD = 16
"""So many messages are read before it is their turn; then the agent has to wait."""


@dataclass(frozen=True, slots=True)
class Closing:
    """The agent's end of the conversation. `gone`: without a close frame. `reason` None: not known."""

    code: int
    reason: str | None = None
    gone: bool = False


GONE, STOPPED = Closing(ABNORMAL, gone=True), Closing(ABNORMAL, gone=True)
"""The agent left; the replay ends, and the agent is still there. Told apart by identity."""


class Ear:
    """Reads from `begin` to `end`. `clean` takes the secrets out of what was said; `stopping`: the replay ends."""

    def __init__(
        self, socket: web.WebSocketResponse, stopping: asyncio.Event, *, now: Callable[[], int],
        clean: Callable[[Message], Message], first: Message | None = None,
    ) -> None:  # fmt: skip
        self._socket, self._now, self._clean = socket, now, clean
        self._heard: asyncio.Queue[Message | Closing | Exception] = asyncio.Queue(UNHEARD)
        if first is not None:
            self._heard.put_nowait(clean(first))
        self._stopping = stopping
        self._tasks: tuple[asyncio.Task[Any], ...] = ()

    def begin(self) -> None:
        self._tasks = (asyncio.ensure_future(self._read()), asyncio.ensure_future(self._stopping.wait()))

    def end(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def next(self) -> Message | Closing:
        """The next message, or the end; the end comes again when asked for again."""
        if not self._heard.empty():
            return self._taken(self._heard.get_nowait())
        coming = asyncio.ensure_future(self._heard.get())
        try:
            await asyncio.wait({coming, self._tasks[1]}, return_when=asyncio.FIRST_COMPLETED)
            return self._taken(coming.result()) if coming.done() else STOPPED
        finally:
            coming.cancel()

    def _taken(self, got: Message | Closing | Exception) -> Message | Closing:
        if isinstance(got, Message):
            return got
        self._heard.put_nowait(got)
        if isinstance(got, Exception):
            raise got
        return got

    async def pause(self, seconds: float, lost: asyncio.Event) -> None:
        """Waits, but no longer than anybody is there to wait."""
        gone = asyncio.ensure_future(lost.wait())
        try:
            await asyncio.wait({gone, self._tasks[1]}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()

    async def _read(self) -> None:
        got: Message | Closing | Exception = GONE
        while True:
            try:
                got = self._understood(await self._socket.receive())
            except ConnectionError:
                got = GONE
            except Exception as error:
                got = error  # our own failure: it is the conversation's to tell
            await self._heard.put(got)
            if not isinstance(got, Message):
                return

    def _understood(self, got: Any) -> Message | Closing:
        if got.type in (WSMsgType.TEXT, WSMsgType.BINARY):
            text, payload = got.type is WSMsgType.TEXT, bytes(got.data)
            if text and not _is_utf8(payload):
                return Closing(1007)
            return self._clean(Message(from_agent=True, text=text, payload=payload, at=self._now()))
        if got.type is WSMsgType.CLOSE:
            return Closing(got.data or NO_CODE, got.extra or "")
        if got.type is WSMsgType.ERROR:
            return Closing(int(getattr(got.data, "code", None) or 1002))
        return GONE


def _is_utf8(payload: bytes) -> bool:
    try:
        payload.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
