"""The words between a recorder and its worker processes: tuples of plain values, in frames over a socket pair.

A frame is a format number (1 byte), a length (4 bytes, big endian) and the tuple as `marshal` writes it. Both ends are
one version of this program under one interpreter, which is what `marshal` wants; loading it runs no code.
"""

from __future__ import annotations

import asyncio
import marshal
import struct
from collections.abc import Callable
from enum import IntEnum
from typing import Any

FORMAT = 1
_HEAD = struct.Struct("!BI")

type Message = tuple[Any, ...]
"""A `Word`, and what belongs to it."""


class Word(IntEnum):
    """What a message is about. Those of a worker first, then those of the recorder."""

    READY = 1
    ARRIVE = 2
    BODY = 3
    TALK = 4
    FORWARD = 5
    HOLD = 6
    FINISHED = 7
    EVENT = 8
    FAULT = 9
    FORGET = 10
    LISTENS = 11
    CLOSED = 12
    STOPPED = 13
    PASSED = 14
    WHOSE = 15
    OPTIONS = 20
    TICKET = 21
    GO_ON = 22
    LISTEN = 23
    CLOSE = 24
    RELEASE = 25
    ROOM = 26
    STOP = 27
    LISTEN_FORWARD = 28
    ITS = 29


class NotAFrame(Exception):
    """The other end says something that this version does not understand."""


def packed(word: Word, *values: Any) -> bytes:
    """Raises ValueError for what is no plain value."""
    body = marshal.dumps((int(word), *values))
    return _HEAD.pack(FORMAT, len(body)) + body


class Frames:
    """Bytes, in whatever pieces they come, to messages."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """The messages that are whole now. Raises NotAFrame."""
        self._held += data
        found, at, held = [], 0, memoryview(self._held)
        try:
            while len(held) - at >= _HEAD.size:
                number, length = _HEAD.unpack_from(held, at)
                if number != FORMAT:
                    raise NotAFrame(f"a frame of format {number}; this one knows {FORMAT}")
                end = at + _HEAD.size + length
                if len(held) < end:
                    break
                found.append(marshal.loads(held[at + _HEAD.size : end]))
                at = end
        except (ValueError, EOFError, TypeError) as error:
            raise NotAFrame(str(error)) from None
        finally:
            held.release()
        del self._held[:at]
        return found


class Channel(asyncio.Protocol):
    """One end. What is said in one turn of the loop goes out together; `now`: at once."""

    def __init__(self, hear: Callable[[Message], None], lost: Callable[[], None]) -> None:
        """`hear` gets each message, `lost` is called once the other end is gone. `hear` may not raise."""
        self._hear, self._lost = hear, lost
        self._frames = Frames()
        self._out: list[bytes] = []
        self._hearing = False
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._hearing = True
        try:
            for message in self._frames.feed(data):
                self._hear(message)
        except NotAFrame:
            self.close()
        finally:
            self._hearing = False
            self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._lost()

    def say(self, word: Word, *values: Any, now: bool = False) -> None:
        """Does nothing once the other end is gone."""
        if self._transport is None:
            return
        self._out.append(packed(word, *values))
        if now:
            self.flush()
        elif len(self._out) == 1 and not self._hearing:
            asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        if self._out and self._transport is not None:
            self._transport.write(b"".join(self._out))
            self._out.clear()

    @property
    def waiting(self) -> int:
        """Bytes that the other end has not taken yet."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def close(self) -> None:
        self.flush()
        if self._transport is not None:
            self._transport.close()
