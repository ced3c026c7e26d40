"""A server of raw bytes: it keeps what it was sent and answers what it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

type Handler = Callable[["Talk"], Awaitable[None]]


@dataclass
class Talk:
    """One connection, from the server's side."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    got: bytearray

    async def until(self, end: bytes) -> bytes:
        """Reads up to and with `end`."""
        data = await self.reader.readuntil(end)
        self.got += data
        return data

    async def exactly(self, size: int) -> bytes:
        data = await self.reader.readexactly(size)
        self.got += data
        return data

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()


@dataclass
class Raw:
    """What came, one entry a connection."""

    port: int = 0
    connections: list[bytearray] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@asynccontextmanager
async def raw_server(handler: Handler) -> AsyncIterator[Raw]:
    """Every connection is given to `handler` and closed after it."""
    raw = Raw()
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        talk = Talk(reader, writer, bytearray())
        raw.connections.append(talk.got)
        try:
            await handler(talk)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    raw.port = server.sockets[0].getsockname()[1]
    try:
        yield raw
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()


def answers(data: bytes) -> Handler:
    """Reads one head and says `data`."""

    async def handler(talk: Talk) -> None:
        await talk.until(b"\r\n\r\n")
        await talk.say(data)

    return handler
