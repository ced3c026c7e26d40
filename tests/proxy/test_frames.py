"""Frames between the recorder and its workers: whole, however the bytes come; anything else is refused."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from replayproxy.proxy.frames import FORMAT, Channel, Frames, NotAFrame, Word, packed

SAID: list[tuple[Any, ...]] = [
    (Word.ARRIVE, 1, (None, "e", "caf\u00e9"), b"\x00\xff", ((b"Host", b"x"),), 2**62, -1, 0.5, True),
    (Word.TICKET, 1, None),
    (Word.BODY, 1, b"x" * 100_000, []),
    (Word.STOPPED,),
]


@pytest.mark.parametrize("step", [1, 7, 4096, 10**6])
def test_messages_come_out_as_they_went_in_however_the_bytes_are_cut(step: int) -> None:
    raw, frames = b"".join(packed(*message) for message in SAID), Frames()
    came = [message for at in range(0, len(raw), step) for message in frames.feed(raw[at : at + step])]
    assert came == SAID


def test_a_frame_of_another_format_is_refused_with_its_number() -> None:
    raw = bytes([FORMAT + 1]) + packed(Word.STOPPED)[1:]
    with pytest.raises(NotAFrame, match=f"format {FORMAT + 1}; this one knows {FORMAT}"):
        Frames().feed(raw)


def test_bytes_that_are_no_message_are_refused() -> None:
    raw = packed(Word.STOPPED)
    with pytest.raises(NotAFrame):
        Frames().feed(raw[:5] + b"?" * (len(raw) - 5))


def test_what_is_no_plain_value_is_not_sent() -> None:
    with pytest.raises(ValueError, match="unmarshallable"):
        packed(Word.EVENT, object())


async def channels() -> tuple[Channel, Channel, list[Any], asyncio.Event]:
    """Two ends, what the second one heard, and whether it has lost the first."""
    heard: list[Any] = []
    lost = asyncio.Event()
    ours, theirs = socket.socketpair()
    loop = asyncio.get_running_loop()
    one, other = Channel(lambda _: None, lambda: None), Channel(heard.append, lost.set)
    await loop.create_unix_connection(lambda: one, sock=ours)
    await loop.create_unix_connection(lambda: other, sock=theirs)
    return one, other, heard, lost


async def test_what_is_said_in_one_turn_goes_out_in_its_order() -> None:
    one, _, heard, lost = await channels()
    one.say(Word.EVENT, 1)
    one.say(Word.EVENT, 2, now=True)
    one.say(Word.EVENT, 3)
    one.close()
    async with asyncio.timeout(5):
        await lost.wait()
    assert heard == [(Word.EVENT, 1), (Word.EVENT, 2), (Word.EVENT, 3)]


async def test_an_end_that_speaks_another_language_is_left() -> None:
    one, other, heard, lost = await channels()
    assert one._transport is not None
    one._transport.write(b"GET / HTTP/1.1\r\n\r\n")
    async with asyncio.timeout(5):
        await lost.wait()
    other.say(Word.EVENT, 1)  # to nobody
    assert heard == []
    assert other.waiting == 0


def test_a_frame_says_its_format_and_its_length_first() -> None:
    raw = packed(Word.EVENT, b"x" * 300)
    assert (raw[0], int.from_bytes(raw[1:5], "big")) == (FORMAT, len(raw) - 5)
