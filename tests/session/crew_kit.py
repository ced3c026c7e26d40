"""`record --workers 2` whole: real worker processes, a small environment in this loop, and what the store holds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from aiohttp import web

from replayproxy.core.values import EpisodeState, Exchange, Snapshot
from replayproxy.session import secrecy
from replayproxy.session.record_options import RecordOptions
from replayproxy.session.recorder import Recorder
from replayproxy.session.wiring import EnvSpec
from replayproxy.storage import open_store

WORKERS = 2


@dataclass
class Crew:
    """The environment, and where the store is."""

    url: str
    store: Path
    delay: float = 0.0
    seen: list[str] = field(default_factory=list)
    value: int = 0
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(request.raw_path)
        if request.path == "/talk":
            talk = web.WebSocketResponse()
            await talk.prepare(request)
            async for message in talk:
                await talk.send_str(message.data.upper())
            return talk
        if request.path == "/events":
            stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await stream.prepare(request)
            await stream.write(b"data: 1\n\n")
            await self.go_on.wait()
            return stream
        if request.path == "/state":
            return web.json_response({"t": {"1": {"value": self.value}}})
        if request.path == "/echo":
            return web.Response(body=await request.content.read(), headers={"Content-Type": "application/octet-stream"})
        if request.method == "POST":
            self.value += 1
        await asyncio.sleep(self.delay)
        return web.json_response({"path": request.raw_path, "value": self.value})

    def options(self, **given: Any) -> RecordOptions:
        envs = (EnvSpec(name="app", upstream=self.url),)
        wired = {"store": self.store, "run": "r", "envs": envs, "log_every": 0.0, "workers": WORKERS, "verdicts": False}
        return RecordOptions(**{**wired, **given})

    @asynccontextmanager
    async def recorder(self, said: list[str] | None = None, **given: Any) -> AsyncIterator[Recorder]:
        with open_store(self.store, create=True) as store:
            writer = store.writer(redactor=secrecy.for_recording(self.store, keep=False, rules=()))
            one = Recorder(self.options(**given), store, writer, (said if said is not None else []).append)
            try:
                await one.start()
                yield one
            finally:
                await one.stop(None)
                writer.close()

    def read(self, name: str) -> tuple[EpisodeState, list[Exchange], list[Snapshot]]:
        with open_store(self.store) as store:
            reader = store.reader()
            episode = reader.episode(reader.run("r"), name)
            return episode.state, list(reader.exchanges(episode)), list(reader.snapshots(episode))


@pytest.fixture
async def crew(tmp_path: Path) -> AsyncIterator[Crew]:
    made = Crew(url="", store=tmp_path / "store")
    runner = web.ServerRunner(web.Server(made.answer, access_log=None), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"  # type: ignore[union-attr]
    yield made
    made.go_on.set()
    await runner.cleanup()


class Agent:
    """One connection, kept open."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.host, self.port, self.path = parts.hostname, parts.port, parts.path
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None

    async def connect(self) -> None:
        self.reader, self.writer = await asyncio.open_connection(self.host, self.port)

    async def ask(self, target: str, method: str = "GET") -> bytes:
        """The answer's body. Raises OSError or EOFError when the connection breaks."""
        assert self.reader is not None
        assert self.writer is not None
        head = f"{method} {self.path}{target} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\nContent-Length: 0\r\n\r\n"
        self.writer.write(head.encode())
        said = await self.reader.readuntil(b"\r\n\r\n")
        assert said.startswith(b"HTTP/1.1 200"), said
        length = next(line for line in said.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        return await self.reader.readexactly(int(length.split(b":")[1]))

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()


async def crowd(url: str, count: int = 24) -> list[Agent]:
    """So many connections, opened at once: they land on all the workers."""
    agents = [Agent(url) for _ in range(count)]
    await asyncio.gather(*(agent.connect() for agent in agents))
    return agents


async def until(holds: Callable[[], Any], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not come to pass"
        await asyncio.sleep(0.02)


def workers_of(exchanges: list[Exchange]) -> set[int]:
    return {exchange.order[1] for exchange in exchanges}
