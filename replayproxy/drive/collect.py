"""An answer's body while it comes: hashed, kept up to what a comparison looks at, passed on to the store if asked."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Protocol

from replayproxy.core.canonical import VIEW_LIMIT, body_of, media_type
from replayproxy.core.values import Body, Chunk, Exchange, Fields, Response

_BLANK_LINE = re.compile(rb"\r\n\r\n|\n\n|\r\r")


class Sink(Protocol):
    """Where the bytes are stored; `storage.BodySink` is one."""

    def write(self, data: bytes, at: int | None = None) -> None: ...

    def close(self) -> Body | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What came before the body."""

    status: int
    fields: Fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """How much of a stream the agent had when it left. Of server-sent events that is `events` whole ones and `rest`
    bytes (ids in them may have another length now), of anything else `size` bytes."""

    size: int
    events: int | None = None
    rest: int = 0

    def end(self, data: bytes | bytearray) -> int | None:
        """Where this stretch ends in a live body; None while it is not all there."""
        at = self.size
        if self.events is not None:
            ends = [match.end() for match in _BLANK_LINE.finditer(data)]
            if len(ends) < self.events:
                return None
            at = (ends[self.events - 1] if self.events else 0) + self.rest
        return at if len(data) >= at else None


def stretch_of(recorded: Exchange) -> Stretch:
    """What the recording has of an answer that the agent did not wait for."""
    response = recorded.response
    body = response.body if response else None
    if response is None or body is None:
        return Stretch(size=0)
    if media_type(response.fields) != b"text/event-stream" or body.inline is None:
        return Stretch(size=body.size)
    ends = [match.end() for match in _BLANK_LINE.finditer(body.inline)]
    return Stretch(size=body.size, events=len(ends), rest=body.size - (ends[-1] if ends else 0))


class Collector:
    """Takes a body piece by piece. With a `stretch` only that counts in the end, and all is held until then: what is
    closed from our side is cut where the recording is."""

    def __init__(self, sink: Sink | None = None, stretch: Stretch | None = None) -> None:
        self.size = 0
        self.head: Head | None = None
        self._grown = asyncio.Event()
        self._sink, self._stretch = sink, stretch
        self._kept = bytearray()
        self._hash = blake2b(digest_size=32)
        self._chunk = 0
        self._chunks: list[Chunk] = []

    def begin(self, head: Head) -> None:
        """The answer's head is here."""
        self.head = head
        self._grown.set()

    def has(self, size: int) -> bool:
        """Whether the head and that many bytes are here."""
        return self.head is not None and self.size >= size

    def is_enough(self) -> bool:
        """Whether the head and the whole stretch are here."""
        return self.head is not None and self._stretch is not None and self._stretch.end(self._kept) is not None

    async def reached(self, size: int) -> None:
        """Returns once the head and that many bytes of the body have come."""
        while not self.has(size):
            await self._growth()

    async def enough(self) -> None:
        """Returns once the whole stretch has come."""
        while not self.is_enough():
            await self._growth()

    async def _growth(self) -> None:
        self._grown.clear()
        await self._grown.wait()

    def so_far(self) -> Response | None:
        """The answer as far as it has come, while its body is not larger than what is looked at."""
        if self.head is None or self.size > VIEW_LIMIT:
            return None
        return Response(status=self.head.status, reason=b"", version=b"", fields=self.head.fields,
                        body=body_of(bytes(self._kept)))  # fmt: skip

    def write(self, data: bytes) -> None:
        self.size += len(data)
        self._chunk += len(data)
        if self._stretch is not None or self.size <= VIEW_LIMIT:
            self._kept += data
        if self._stretch is None:
            self._pass_on(data)
        self._grown.set()

    def _pass_on(self, data: bytes) -> None:
        self._hash.update(data)
        if self._sink is not None:
            self._sink.write(data)

    def chunk_ended(self, at: int) -> None:
        """The piece written since the last call was one chunk of the transfer coding."""
        if self._chunk:
            self._chunks.append(Chunk(size=self._chunk, at=at))
            self._chunk = 0

    def close(self, at: int) -> Body:
        """The body. `inline` holds it while it is not larger than `VIEW_LIMIT`, stored or not."""
        if self._chunks:
            self.chunk_ended(at)
        size = self.size
        if self._stretch is not None:
            end = self._stretch.end(self._kept)
            size = size if end is None else end
            self._pass_on(bytes(self._kept[:size]))
        inline = bytes(self._kept[:size]) if size <= VIEW_LIMIT else None
        if self._sink is None:
            stored = Body(size=size, digest=self._hash.digest(), inline=inline)
        else:
            # None: withheld, for a secret in it.
            stored = self._sink.close() or Body(size=size, digest=self._hash.digest(), inline=None)
        return replace(stored, inline=inline, chunks=_up_to(self._chunks, size))


def _up_to(chunks: list[Chunk], size: int) -> tuple[Chunk, ...]:
    kept = []
    for chunk in chunks:
        if size <= 0:
            break
        kept.append(replace(chunk, size=min(chunk.size, size)))
        size -= chunk.size
    return tuple(kept)
