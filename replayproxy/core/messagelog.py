"""The messages of a long conversation as one run of bytes, so that it is kept and read like a body of any size.

message: kind u8 (bit 0: from the agent, bit 1: text) | length varint | ns since the message before (the first: since
0) varint | payload. Times never go back: a clock that did is held where it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b

from replayproxy.core.values import Message

_FROM_AGENT, _TEXT = 1, 2


class Damaged(ValueError):
    """These bytes are no messages."""


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


class Packer:
    """Messages to bytes. `said` is a digest of what was said, without its times."""

    def __init__(self) -> None:
        self.count = 0
        self._at = 0
        self._said = blake2b(digest_size=32)

    @property
    def said(self) -> bytes:
        return self._said.digest()

    def packed(self, message: Message) -> tuple[bytes, bytes]:
        """(head, payload), to be written one after the other: a payload is not copied."""
        at = max(message.at, self._at)
        kind = bytes((message.from_agent * _FROM_AGENT | message.text * _TEXT,))
        length = _varint(len(message.payload))
        self._said.update(kind + length)
        self._said.update(message.payload)
        head = kind + length + _varint(at - self._at)
        self._at = at
        self.count += 1
        return head, message.payload


def unpacked(pieces: Iterable[bytes]) -> Iterator[Message]:
    """The messages in the pieces of a log. Holds one message and one piece. Raises Damaged."""
    source = _Source(pieces)
    at = 0
    while (kind := source.byte(end=True)) is not None:
        if kind > (_FROM_AGENT | _TEXT):
            raise Damaged(f"{kind} is no kind of message")
        length = source.varint()
        at += source.varint()
        payload = source.take(length)
        yield Message(from_agent=bool(kind & _FROM_AGENT), text=bool(kind & _TEXT), payload=payload, at=at)


class _Source:
    """Bytes out of pieces."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._piece, self._at = b"", 0

    def _more(self) -> bool:
        while self._at >= len(self._piece):
            found = next(self._pieces, None)
            if found is None:
                return False
            self._piece, self._at = found, 0
        return True

    def byte(self, *, end: bool = False) -> int | None:
        """`end`: the bytes may end here, and then it is None."""
        if not self._more():
            if end:
                return None
            raise Damaged("the messages are cut")
        self._at += 1
        return self._piece[self._at - 1]

    def varint(self) -> int:
        number = shift = 0
        while True:
            byte = self.byte()
            assert byte is not None
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number
            if shift > 63:
                raise Damaged("a number is too long")

    def take(self, length: int) -> bytes:
        if self._at + length <= len(self._piece):
            self._at += length
            return self._piece[self._at - length : self._at]
        parts: list[bytes] = []
        left = length
        while left:
            if not self._more():
                raise Damaged("the messages are cut")
            part = self._piece[self._at : self._at + left]
            self._at += len(part)
            left -= len(part)
            parts.append(part)
        return b"".join(parts)
