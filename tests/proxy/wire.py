"""Raw sockets on both sides of the proxy, and a recorder that only collects."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from replayproxy.core.canonical import digest
from replayproxy.core.identity import Claims, EpisodeBook
from replayproxy.core.limits import Limits
from replayproxy.core.values import Body, Chunk, Exchange, Fields, Request
from replayproxy.proxy.ca import Authority
from replayproxy.proxy.engine import ProxyEngine
from replayproxy.proxy.listeners import EnvOptions, Listener
from replayproxy.proxy.scribe import Ticket
from replayproxy.storage import TalkSink


class Sink:
    def __init__(self) -> None:
        self.data, self.size = bytearray(), 0
        self.chunks: list[Chunk] = []

    def write(self, data: bytes, at: int | None = None) -> None:
        self.data += data
        self.size += len(data)
        if at is not None:
            self.chunks.append(Chunk(size=len(data), at=at))

    def close(self) -> Body:
        whole = bytes(self.data)
        return Body(size=len(whole), digest=digest(whole), inline=whole, chunks=tuple(self.chunks))


class FakeScribe:
    """Keeps what it is told. `upstreams` overrides an environment's URL (None: there is none)."""

    def __init__(self) -> None:
        self.book = EpisodeBook(undeclared="accept")
        self.exchanges: list[Exchange] = []
        self.tickets: list[Ticket] = []
        self.forwarded: list[Request] = []
        self.events: list[tuple[Ticket | None, str, Mapping[str, Any], int]] = []
        self.faults: list[tuple[Ticket | None, str, BaseException]] = []
        self.held: list[Exchange] = []
        self.heads: list[tuple[bool, Fields]] = []
        self.urls: dict[str, str | None] = {}
        self.reads: tuple[str, ...] = ()
        self.hold_for: Callable[[Exchange], Awaitable[None]] | None = None
        self.has_room = True
        self.breaks: set[str] = set()
        self._changed = asyncio.Condition()
        self._count = 0

    def _may_break(self, where: str) -> None:
        if where in self.breaks:
            raise RuntimeError(f"planted in {where}")

    def _notify(self) -> None:
        async def tell() -> None:
            async with self._changed:
                self._changed.notify_all()

        task = asyncio.get_running_loop().create_task(tell())
        _tasks.add(task)
        task.add_done_callback(_tasks.discard)

    def arrive(
        self, claims: Claims, *, env: str, listener: str, method: bytes, target: bytes, at: int, fields: Fields = ()
    ) -> Ticket:
        self._may_break("arrive")
        self._count += 1
        upstream = self.urls.get(env)
        ticket = Ticket(
            order=(at, self._count),
            attribution=self.book.attribute(claims, at=at),
            env=env,
            upstream=upstream,
            reads=self.reads,
            note="" if upstream else f"no upstream for {env}",
        )
        self.tickets.append(ticket)
        return ticket

    def sink(self, ticket: Ticket, fields: Fields, *, answer: bool) -> Sink:
        assert ticket in self.tickets
        self.heads.append((answer, fields))
        self._may_break("sink")
        return Sink() if "sink.write" not in self.breaks else BrokenSink()

    def talk(self, ticket: Ticket) -> TalkSink:
        assert ticket in self.tickets
        self._may_break("talk")
        return TalkSink(lambda address, data: None)

    async def before_forward(self, ticket: Ticket, request: Request) -> None:
        self._may_break("before_forward")
        self.forwarded.append(request)

    async def hold(self, ticket: Ticket, exchange: Exchange) -> int:
        self._may_break("hold")
        begun = time.monotonic_ns()
        self.held.append(exchange)
        if self.hold_for:
            await self.hold_for(exchange)
            return time.monotonic_ns() - begun
        return 0

    def finished(self, ticket: Ticket, exchange: Exchange) -> None:
        self._may_break("finished")
        assert ticket in self.tickets
        self.exchanges.append(exchange)
        self._notify()

    def event(self, ticket: Ticket | None, kind: str, detail: Mapping[str, Any], at: int) -> None:
        self._may_break("event")
        self.events.append((ticket, kind, detail, at))
        self._notify()

    def fault(self, ticket: Ticket | None, where: str, error: BaseException) -> None:
        self.faults.append((ticket, where, error))
        self._notify()
        self._may_break("fault")

    def room(self) -> bool:
        self._may_break("room")
        return self.has_room

    async def wait_room(self) -> None:
        await self.until(lambda: self.has_room)

    def make_room(self) -> None:
        self.has_room = True
        self._notify()

    async def until(self, condition: Callable[[], Any], timeout: float = 5.0) -> None:
        async with asyncio.timeout(timeout), self._changed:
            await self._changed.wait_for(condition)

    async def exchange(self, number: int = 1) -> Exchange:
        """The n-th exchange that finished."""
        await self.until(lambda: len(self.exchanges) >= number)
        return self.exchanges[number - 1]

    def kinds(self) -> list[str]:
        return [kind for _, kind, _, _ in self.events]


class BrokenSink(Sink):
    def write(self, data: bytes, at: int | None = None) -> None:
        raise RuntimeError("planted in sink.write")


_tasks: set[asyncio.Task[None]] = set()


class Peer:
    """One end of a raw connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def read_head(self) -> bytes:
        """Up to and with the empty line."""
        return await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 5)

    async def read(self, size: int) -> bytes:
        return await asyncio.wait_for(self.reader.readexactly(size), 5)

    async def read_chunked(self) -> bytes:
        """A chunked body with its framing, up to the end of its trailers."""
        raw = b""
        while True:
            line = await asyncio.wait_for(self.reader.readuntil(b"\r\n"), 5)
            size = int(line.split(b";")[0], 16)
            raw += line
            if size == 0:
                while True:
                    line = await asyncio.wait_for(self.reader.readuntil(b"\r\n"), 5)
                    raw += line
                    if line == b"\r\n":
                        return raw
            raw += await self.read(size + 2)

    async def read_to_end(self) -> bytes:
        """Until the other side closes; a reset counts as a close."""
        data = b""
        try:
            while piece := await asyncio.wait_for(self.reader.read(65536), 5):
                data += piece
        except ConnectionError:
            pass
        return data

    async def read_message(self) -> bytes:
        """A message with its framing: head, and body by its length or chunks. None of either: no body."""
        head = await self.read_head()
        lowered = head.lower()
        if b"transfer-encoding: chunked" in lowered:
            return head + await self.read_chunked()
        for line in lowered.split(b"\r\n"):
            if line.startswith(b"content-length:"):
                return head + await self.read(int(line.split(b":")[1]))
        return head

    async def ask(self, request: bytes) -> bytes:
        await self.send(request)
        return await self.read_message()

    def abort(self) -> None:
        self.writer.transport.abort()

    def close(self) -> None:
        self.writer.close()


type Answerer = Callable[[Peer, bytes], Awaitable[None]]


class Environment:
    """A raw upstream: every request's bytes are kept, and `answerer` is called with them."""

    def __init__(self, answerer: Answerer) -> None:
        self.requests: list[bytes] = []
        self.connections = 0
        self.port = 0
        self._answerer = answerer
        self._peers: list[Peer] = []
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def authority(self) -> bytes:
        return b"127.0.0.1:%d" % self.port

    async def start(self, **options: Any) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, **options)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server:
            self._server.close()
        for peer in self._peers:
            peer.abort()
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer)
        self._peers.append(peer)
        self.connections += 1
        try:
            while True:
                request = await peer.read_message()
                self.requests.append(request)
                await self._answerer(peer, request)
        except (asyncio.IncompleteReadError, ConnectionError, TimeoutError):
            pass
        finally:
            writer.close()


def says(answer: bytes, *, close: bool = False) -> Answerer:
    """Answers every request with these bytes."""

    async def answerer(peer: Peer, request: bytes) -> None:
        await peer.send(answer)
        if close:
            peer.close()

    return answerer


class Wire:
    """A proxy between raw ends."""

    def __init__(self, scribe: FakeScribe, engine: ProxyEngine) -> None:
        self.scribe, self.engine = scribe, engine
        self._environments: list[Environment] = []
        self._agents: list[Peer] = []

    async def environment(self, answerer: Answerer, **options: Any) -> Environment:
        environment = Environment(answerer)
        await environment.start(**options)
        self._environments.append(environment)
        return environment

    async def listen(
        self, environment: Environment, *, env: str = "app", options: EnvOptions | None = None, **more: Any
    ) -> Listener:
        self.scribe.urls[env] = environment.url
        return await self.engine.listen(env, environment.url, options=options, **more)

    async def agent(self, listener: Listener) -> Peer:
        peer = Peer(*await asyncio.open_connection(*listener.bound))
        self._agents.append(peer)
        return peer

    async def between(self, answerer: Answerer, **more: Any) -> tuple[Environment, Listener, Peer]:
        environment = await self.environment(answerer)
        listener = await self.listen(environment, **more)
        return environment, listener, await self.agent(listener)

    async def close(self) -> None:
        for agent in self._agents:
            agent.close()
        await self.engine.stop(grace=0.05)
        for environment in self._environments:
            await environment.stop()


@asynccontextmanager
async def wire(
    *, upstream_timeout: float | None = None, authority: Authority | None = None, **limits: float
) -> AsyncIterator[Wire]:
    scribe = FakeScribe()
    engine = ProxyEngine(
        scribe,
        now=time.monotonic_ns,
        wall=lambda: time.time_ns(),  # looked up each time: a test may set the clock
        limits=Limits(answer=upstream_timeout, **limits),
        authority=authority,
    )
    await engine.start()
    made = Wire(scribe, engine)
    try:
        yield made
    finally:
        await made.close()
