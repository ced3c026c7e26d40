"""The lab over HTTP/2 and TLS: an agent on h2, a listener with a certificate, an environment of either version; then
the whole replay with its front."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h2.connection

from replayproxy.core.misses import Document
from replayproxy.serve.stage import Stage
from replayproxy.session.closed import Guard
from replayproxy.session.replay import replay
from replayproxy.session.replay_options import ReplayOptions
from replayproxy.session.wiring import EnvSpec
from replayproxy.storage import Store
from tests.cases.lab import Recorded, recording
from tests.proxy.h2_server import H2Agent, H2Environment, Pairs
from tests.proxy.wire import Answerer, Environment
from tests.session.tls_server import TlsFiles


@dataclass(frozen=True)
class Told:
    """An answer. `pieces` are DATA frames, or chunks."""

    status: int = 200
    fields: Pairs = ()
    pieces: Sequence[bytes] = ()
    trailers: Pairs = ()
    interim: Sequence[Pairs] = ()


class Scripted(H2Environment):
    """An HTTP/2 environment that answers what a function says."""

    def __init__(self, files: TlsFiles, said: Callable[[Mapping[bytes, bytes], bytes], Told]) -> None:
        super().__init__(files)
        self._said = said

    def answer(self, http: h2.connection.H2Connection, stream: int, head: Mapping[bytes, bytes], body: bytes) -> None:
        told = self._said(head, body)
        for fields in told.interim:
            http.send_headers(stream, [(b":status", b"103"), *fields])
        bare = not told.pieces and not told.trailers
        http.send_headers(stream, [(b":status", b"%d" % told.status), *told.fields], end_stream=bare)
        for number, piece in enumerate(told.pieces, 1):
            http.send_data(stream, piece, end_stream=number == len(told.pieces) and not told.trailers)
        if told.trailers:
            http.send_headers(stream, list(told.trailers), end_stream=True)


def trust(store: Store) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=store.path / "ca" / "replayproxy-ca-cert.pem")


@dataclass
class Recording2:
    """A recorder at work behind a listener that speaks TLS."""

    on: Recorded
    store: Store

    @asynccontextmanager
    async def agent(self) -> AsyncIterator[H2Agent]:
        async with H2Environment.agent(self.on.recorder.addresses.listeners["app"].bound, trust(self.store)) as agent:
            yield agent


@asynccontextmanager
async def recording_http2(
    store: Store, upstream: Answerer | Scripted, files: TlsFiles, **more: Any
) -> AsyncIterator[Recording2]:
    """Before an HTTP/2 environment, or before one that speaks raw HTTP/1.1."""
    async with AsyncExitStack() as stack:
        if isinstance(upstream, Scripted):
            url = (await stack.enter_async_context(upstream)).url
        else:
            plain = Environment(upstream)
            await plain.start()
            stack.push_async_callback(plain.stop)
            url = plain.url
        spec = EnvSpec(name="app", upstream=url, tls=True, ca=files.ca)
        on = await stack.enter_async_context(recording(store, envs=(spec,), **more))
        yield Recording2(on, store)


@dataclass
class Replaying2:
    """A replay at work; `receipt` is there when it has ended."""

    store: Store
    misses: list[Document] = field(default_factory=list)
    receipt: Document = field(default_factory=dict)
    port: int = 0
    guard: Guard = field(default_factory=Guard)
    _serving: asyncio.Event = field(default_factory=asyncio.Event)

    def serving(self, stage: Stage, urls: dict[str, str], control: str) -> None:
        assert urls["app"].startswith("https://")
        self.port = int(urls["app"].rpartition(":")[2])
        self.guard.allow("127.0.0.1", self.port)  # its agent is in this process
        self._serving.set()

    def miss(self, document: Document) -> None:
        self.misses.append(document)

    def interrupted(self) -> None:
        raise AssertionError("nobody interrupts")

    @asynccontextmanager
    async def agent(self) -> AsyncIterator[H2Agent]:
        async with H2Environment.agent(("127.0.0.1", self.port), trust(self.store)) as agent:
            yield agent


@asynccontextmanager
async def replaying_http2(store: Store, folder: Path, address: str = "r/e") -> AsyncIterator[Replaying2]:
    """The replay as the command line runs it, with every listener, until the block ends."""
    told, over = Replaying2(store), folder / "over"
    over.unlink(missing_ok=True)
    command = ("sh", "-c", 'while [ ! -e "$0" ]; do sleep 0.05; done', str(over))
    reader = store.reader()
    resolved = reader.resolve(address)
    running = asyncio.ensure_future(
        replay(reader, resolved, ReplayOptions(), command, tell=told, guard=told.guard, stdout_to_stderr=True)
    )
    serving = asyncio.ensure_future(told._serving.wait())
    try:
        await asyncio.wait((running, serving), return_when=asyncio.FIRST_COMPLETED, timeout=20)
        if running.done():
            running.result()
        yield told
    finally:
        over.touch()
        serving.cancel()
        told.receipt = (await asyncio.wait_for(running, 20)).receipt
