"""Reads a request's body: its bytes where they are to be parsed, in any case its size and digest."""

from __future__ import annotations

from hashlib import blake2b
from typing import Protocol

from replayproxy.core.canonical import VIEW_LIMIT, body_of
from replayproxy.core.values import Body

EMPTY = body_of(b"")


class Content(Protocol):
    """The part of aiohttp's stream reader that is used."""

    def is_eof(self) -> bool: ...

    def at_eof(self) -> bool: ...

    def read_nowait(self, n: int = -1) -> bytes: ...

    async def readany(self) -> bytes: ...


async def read_body(content: Content) -> Body:
    """The body when it is whole. Memory stays at `VIEW_LIMIT`: of a larger one only size and digest are kept."""
    if content.at_eof():
        return EMPTY
    if content.is_eof():  # it came with the head
        return body_of(content.read_nowait(-1))
    hashed = blake2b(digest_size=32)
    parts: list[bytes] | None = []
    size = 0
    while not content.at_eof():
        data = await content.readany()
        hashed.update(data)
        size += len(data)
        if parts is not None:
            parts.append(data)
            if size > VIEW_LIMIT:
                parts = None
    return Body(size=size, digest=hashed.digest(), inline=None if parts is None else b"".join(parts))
