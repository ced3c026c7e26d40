"""A recording in a store, on stage behind real sockets, and a client that speaks raw bytes."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from replayproxy.core.misses import Document
from replayproxy.core.redact import Redactor
from replayproxy.core.relax import Relaxation
from replayproxy.core.replayer import Order
from replayproxy.core.values import EnvWiring, Exchange, Run
from replayproxy.serve.doors import Door
from replayproxy.serve.identity import load_known
from replayproxy.serve.origin import Origin
from replayproxy.serve.ready import ready
from replayproxy.serve.sending import INSTANT, Pace
from replayproxy.serve.shelf import Shelf
from replayproxy.serve.stage import Stage
from replayproxy.serve.visit import Watch
from replayproxy.session.dialect import RecordedDialect
from replayproxy.storage import Store
from replayproxy.testing import episode as made_episode
from replayproxy.testing import trace

UPSTREAM = "http://127.0.0.1:9"


def record(
    store: Store, episodes: Mapping[str, Sequence[Exchange]], *, envs: Sequence[str] = ("app",), **more: Any
) -> Run:
    """Puts a sealed run `r` into the store. Bodies go through the store's own sink where they are large."""
    writer = store.writer()
    wiring = {env: EnvWiring(name=env, upstream=UPSTREAM) for env in envs}
    run = writer.open_run(Run(key=0, name="r", opened_wall=1, envs=wiring, **more))
    for name, exchanges in episodes.items():
        opened = writer.open_episode(made_episode(name, run_key=run.key))
        for exchange in trace(exchanges).exchanges:
            writer.put_exchange(opened.key, exchange)
        writer.seal(opened).result(10)
    writer.close()
    return run


@dataclass
class Staged:
    """A running origin. `url(env)` has no trailing slash."""

    origin: Origin
    stage: Stage
    ports: dict[str, int]
    misses: list[Document] = field(default_factory=list)
    faults: list[BaseException] = field(default_factory=list)

    def url(self, env: str = "app") -> str:
        return f"http://127.0.0.1:{self.ports[env]}"

    async def call(self, data: bytes, env: str = "app", *, until: float = 5.0) -> bytes:
        """One connection: sends `data`, reads until the origin closes it."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.ports[env])
        writer.write(data)
        try:
            return await asyncio.wait_for(reader.read(), until)
        finally:
            writer.close()

    async def get(
        self, target: str = "/x", *, method: str = "GET", body: bytes = b"", env: str = "app", **headers: str
    ) -> bytes:
        """One request with `Connection: close`; the whole answer as bytes."""
        named = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        length = f"Content-Length: {len(body)}\r\n" if body else ""
        host = f"Host: 127.0.0.1:{self.ports[env]}\r\n"
        head = f"{method} {target} HTTP/1.1\r\n{host}Connection: close\r\n{length}{named}\r\n"
        return await self.call(head.encode() + body, env)

    def receipt(self) -> Document:
        return self.stage.receipt()


@asynccontextmanager
async def staged(
    store: Store,
    run: Run,
    *,
    sole: str | None = "e",
    order: Order = Order.LANE,
    pace: Pace = INSTANT,
    port_episode: str | None = None,
    unmarked: str | None = None,
    prepared: bool = True,
    rules: Relaxation | None = None,
    redactor: Redactor | None = None,
    shelf: Shelf | None = None,
) -> AsyncIterator[Staged]:
    """The run, or one episode of it, on stage: one door for each environment. `prepared`: as in a real replay."""
    reader = store.reader()
    chosen = [reader.episode(run, sole)] if sole else reader.episodes(run)
    dialect = RecordedDialect(run)
    stage = Stage(
        reader, run, chosen, sole=sole is not None, order=order, now=time.monotonic_ns, unmarked=unmarked,
        rules=rules, redactor=redactor, shelf=shelf,
        prepare=(lambda entry: ready(entry, dialect.is_plain)) if prepared else None,
    )  # fmt: skip
    stage.known = load_known(reader, run, stage.episodes, shown=lambda value: value, touched=stage.touched)
    if sole:
        await stage.scene(sole)
    misses: list[Document] = []
    faults: list[BaseException] = []
    watch = Watch(miss=misses.append, fault=lambda where, error: faults.append(error))
    origin = Origin(stage, dialect=dialect, now=time.monotonic_ns, pace=pace, watch=watch)
    ports = {}
    for env in run.envs:
        bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        bound.bind(("127.0.0.1", 0))
        bound.setblocking(False)
        ports[env] = port = bound.getsockname()[1]
        door = Door(env=env, origin=f"http://127.0.0.1:{port}", port=port, port_episode=port_episode)
        await origin.listen(door, bound)
    try:
        yield Staged(origin, stage, ports, misses, faults)
    finally:
        await origin.stop(grace=0.2)


def large(store: Store, data: bytes, chunks: Sequence[int] = ()) -> Any:
    """A body as the store keeps it, written with its chunks; to be used before `record`."""
    writer = store.writer()
    sink = writer.body_sink()
    at = 0
    for size in chunks or [len(data)]:
        sink.write(data[at : at + size], at if chunks else None)
        at += size
    body = sink.close()
    writer.flush().result(10)
    writer.close()
    return body


__all__ = ["Staged", "large", "record", "staged"]
