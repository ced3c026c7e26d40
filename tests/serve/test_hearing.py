"""What an agent says is read in order, with its end; a failure of our own is not taken for silence."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import WSMessage, WSMsgType
from aiohttp.http import WebSocketError

from replayproxy.core.values import Message
from replayproxy.serve.hearing import GONE, STOPPED, Closing, Ear


class Line:
    """A socket that says these things, and then nothing."""

    def __init__(self, *said: Any) -> None:
        self._said = list(said)

    async def receive(self) -> Any:
        if not self._said:
            await asyncio.Event().wait()
        got = self._said.pop(0)
        if isinstance(got, Exception):
            raise got
        return got


def ear(*said: Any, stopping: asyncio.Event | None = None, clean: Any = lambda message: message) -> Ear:
    made = Ear(Line(*said), stopping or asyncio.Event(), now=lambda: 7, clean=clean)  # type: ignore[arg-type]
    made.begin()
    return made


def text(payload: bytes) -> WSMessage:
    return WSMessage(WSMsgType.TEXT, payload, "")


async def test_messages_come_in_order_and_the_end_stays() -> None:
    one = ear(text(b"a"), WSMessage(WSMsgType.BINARY, b"\x00", ""), WSMessage(WSMsgType.CLOSE, 4000, "bye"))
    assert await one.next() == Message(from_agent=True, text=True, payload=b"a", at=7)
    assert await one.next() == Message(from_agent=True, text=False, payload=b"\x00", at=7)
    assert [await one.next() for _ in range(2)] == [Closing(4000, "bye")] * 2
    one.end()


@pytest.mark.parametrize(
    ("got", "end"),
    [
        (text(b"\xff"), Closing(1007)),
        (WSMessage(WSMsgType.CLOSE, 0, None), Closing(1005, "")),
        (WSMessage(WSMsgType.ERROR, WebSocketError(1002, "bad"), None), Closing(1002)),
        (WSMessage(WSMsgType.CLOSED, None, None), GONE),
        (ConnectionResetError(), GONE),
    ],
)
async def test_every_end_is_told(got: Any, end: Closing) -> None:
    one = ear(got)
    assert await one.next() == end
    one.end()


async def test_a_failure_of_our_own_is_raised() -> None:
    def broken(message: Message) -> Message:
        raise ZeroDivisionError("planted")

    one = ear(text(b"a"), clean=broken)
    with pytest.raises(ZeroDivisionError):
        await one.next()
    one.end()


async def test_the_end_of_the_replay_ends_the_waiting_and_the_pause() -> None:
    stopping = asyncio.Event()
    one = ear(stopping=stopping)
    asyncio.get_running_loop().call_later(0.05, stopping.set)
    async with asyncio.timeout(2):
        assert await one.next() is STOPPED
        await one.pause(60, asyncio.Event())
    one.end()
