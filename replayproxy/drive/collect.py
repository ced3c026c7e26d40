"""An answer's body while it comes: hashed, kept up to what a comparison looks at, passed on to the store if asked."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Protocol

from replayproxy.core.canonical import VIEW_LIMIT, body_of
from replayproxy.core.values import Body, Chunk, Fields, Response


class Sink(Protocol):
    """Where the bytes are stored; `storage.BodySink` is one."""

    def write(self, data: bytes, at: int | None = None) -> None: ...

    def close(self) -> Body: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What came before the body."""

    status: int
    fields: Fields


class Collector:
    """Takes a body piece by piece. `limit`: bytes after these are counted in `size` and dropped (of a stream that is
    closed from our side only as much counts as the recording has)."""

    def __init__(self, sink: Sink | None = None, limit: int | None = None) -> None:
        self.size = 0
        self.head: Head | None = None
        self._grown = asyncio.Event()
        self._sink = sink
        self._limit = limit
        self._kept = bytearray()
        self._taken = 0
        self._hash = blake2b(digest_size=32)
        self._chunk = 0
        self._chunks: list[Chunk] = []

    def begin(self, head: Head) -> None:
        """The answer's head is here."""
        self.head = head
        self._grown.set()

    def so_far(self) -> Response | None:
        """The answer as far as it has come, while its body is not larger than what is looked at."""
        if self.head is None or self._taken > VIEW_LIMIT:
            return None
        return Response(status=self.head.status, reason=b"", version=b"", fields=self.head.fields,
                        body=body_of(bytes(self._kept)))  # fmt: skip

    async def reached(self, size: int) -> None:
        """Returns once the head and that many bytes of the body have come."""
        while self.head is None or self.size < size:
            self._grown.clear()
            await self._grown.wait()

    def write(self, data: bytes) -> None:
        self.size += len(data)
        self._grown.set()
        room = len(data) if self._limit is None else max(0, self._limit - self._taken)
        part = data[:room]
        if not part:
            return
        self._taken += len(part)
        self._chunk += len(part)
        self._hash.update(part)
        if self._taken <= VIEW_LIMIT:
            self._kept += part
        if self._sink is not None:
            self._sink.write(part)

    def chunk_ended(self, at: int) -> None:
        """The piece written since the last call was one chunk of the transfer coding."""
        if self._chunk:
            self._chunks.append(Chunk(size=self._chunk, at=at))
            self._chunk = 0

    def close(self, at: int) -> Body:
        """The body. `inline` holds it while it is not larger than `VIEW_LIMIT`, stored or not."""
        if self._chunks:
            self.chunk_ended(at)
        inline = bytes(self._kept) if self._taken <= VIEW_LIMIT else None
        if self._sink is None:
            stored = Body(size=self._taken, digest=self._hash.digest(), inline=inline)
        else:
            stored = self._sink.close()
        return replace(stored, inline=inline, chunks=tuple(self._chunks))
