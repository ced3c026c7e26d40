"""Reads a request's body: its bytes where they are to be parsed, in any case its size and digest."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Protocol

from replayproxy.core.canonical import VIEW_LIMIT, body_of
from replayproxy.core.redact_body import Stretch
from replayproxy.core.values import Body

EMPTY = body_of(b"")

IN_LINE = 64 * 1024
"""A body or message above this is worked through in another thread."""


class Content(Protocol):
    """The part of aiohttp's stream reader that is used."""

    def is_eof(self) -> bool: ...

    def at_eof(self) -> bool: ...

    def read_nowait(self, n: int = -1) -> bytes: ...

    async def readany(self) -> bytes: ...


async def read_body(content: Content, stretch: Callable[[], Stretch] | None = None) -> Body | None:
    """The body when it is whole. Memory stays at `VIEW_LIMIT`: of a larger one only size and digest are kept.

    `stretch` takes the secrets out of such a one as it passes; None is given where that cannot be done.
    """
    if content.at_eof():
        return EMPTY
    if content.is_eof():  # it came with the head
        return body_of(content.read_nowait(-1))
    parts: list[bytes] = []
    size = 0
    while not content.at_eof():
        data = await content.readany()
        parts.append(data)
        size += len(data)
        if size > VIEW_LIMIT:
            return await _read_long(content, parts, stretch() if stretch else None)
    return body_of(b"".join(parts))


async def _read_long(content: Content, parts: list[bytes], stretch: Stretch | None) -> Body | None:
    hashed = blake2b(digest_size=32)
    size = 0

    def take(data: bytes) -> None:
        nonlocal size
        for piece in (data,) if stretch is None else (piece for piece, _ in stretch.feed(data)):
            hashed.update(piece)
            size += len(piece)

    for data in parts:
        take(data)
    parts.clear()
    while not content.at_eof():
        take(await content.readany())
    if stretch is not None:
        for piece, _ in stretch.end():
            hashed.update(piece)
            size += len(piece)
        if stretch.given_up:
            return None
    return Body(size=size, digest=hashed.digest(), inline=None)
