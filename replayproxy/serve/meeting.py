"""A WebSocket that carries no mark: its agent's first message tells whose it is, so the handshake is answered before.

What of the recorded handshake's answer cannot be known yet (its own headers, a sub-protocol) is left out; what the
environment said before the agent's first message comes after it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from aiohttp import WSMsgType

from replayproxy.core.conversation import cut
from replayproxy.core.misses import MISS_CLOSE
from replayproxy.core.values import Message
from replayproxy.serve.visit import Asked
from replayproxy.serve.websocket import Socket, accept_value

FIRST_MESSAGE = 10.0
"""Seconds in which the first message has to come."""


@dataclass(frozen=True, slots=True)
class Met:
    """A connection whose handshake is answered, and what its agent said first; None: nothing in time."""

    socket: Socket
    first: Message | None = None


def plain_handshake(key: str) -> bytes:
    """A 101 with nothing in it but what makes it one."""
    accept = accept_value(key)
    return (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: %b\r\n\r\n" % accept
    )


async def meet(request: Asked, at: int) -> Met:
    """Answers the handshake and waits for a message. Raises ValueError for no handshake."""
    socket = Socket(plain_handshake(request.headers.get("Sec-WebSocket-Key", "")))
    if not socket.can_prepare(request):
        raise ValueError("no valid WebSocket handshake")
    await socket.prepare(request)
    try:
        got = await socket.receive(FIRST_MESSAGE)
    except TimeoutError:
        return Met(socket)
    if got.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
        return Met(socket)
    text = got.type is WSMsgType.TEXT
    return Met(socket, Message(from_agent=True, text=text, payload=bytes(got.data), at=at))


async def turn_away(socket: Socket, why: str) -> None:
    """Closes what cannot be played, with the reason."""
    try:
        await socket.send_frame(MISS_CLOSE.to_bytes(2, "big") + cut(why), WSMsgType.CLOSE)
        async with asyncio.timeout(1.0):
            await socket.receive()
    except (ConnectionError, TimeoutError):
        return
