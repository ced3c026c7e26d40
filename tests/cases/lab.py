"""Record, then replay, over real sockets in this process: a raw environment, the real recorder, the real origin."""

from __future__ import annotations

import asyncio
import functools
import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Concatenate

from replayproxy.core.values import Exchange
from replayproxy.session import secrecy
from replayproxy.session.record_options import RecordOptions
from replayproxy.session.recorder import Recorder
from replayproxy.session.wiring import EnvSpec
from replayproxy.storage import Store, open_store
from tests.proxy.wire import Answerer, Environment, Peer, says
from tests.serve.staged import Staged, staged

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Talker(Peer):
    """An agent of raw bytes that knows where an answer ends."""

    async def answer(self, method: bytes = b"GET") -> bytes:
        """The next answer with its framing, and the 1xx answers before it."""
        raw = b""
        while True:
            head = await self.read_head()
            raw += head
            status = int(head.split(b" ", 2)[1][:3])
            if status >= 200 or status == 101:
                return raw + await self._body(head, method, status)

    async def _body(self, head: bytes, method: bytes, status: int) -> bytes:
        if method == b"HEAD" or status in (101, 204, 304):
            return b""
        fields = [line.partition(b":") for line in head.lower().split(b"\r\n")[1:] if line]
        named = {name: value.strip() for name, _, value in fields}
        if b"chunked" in named.get(b"transfer-encoding", b""):
            return await self.read_chunked()
        if b"content-length" in named:
            try:
                return await self.read(int(named[b"content-length"]))
            except asyncio.IncompleteReadError as cut:
                return cut.partial
        return await self.read_to_end()

    async def ask(self, request: bytes) -> bytes:
        await self.send(request)
        return await self.answer(request.split(b" ", 1)[0])

    async def is_open(self, within: float = 0.15) -> bool:
        """Whether the other side has not closed by then."""
        try:
            return await asyncio.wait_for(self.reader.read(1), within) != b""
        except TimeoutError:
            return True
        except ConnectionError:
            return False


async def talker(port: int, host: str = "127.0.0.1") -> Talker:
    return Talker(*await asyncio.open_connection(host, port))


@dataclass
class Recorded:
    """A recorder at work. `port(env)` is the listener's."""

    recorder: Recorder
    store: Store
    environments: Mapping[str, Environment]
    agents: list[Talker] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def port(self, env: str = "app") -> int:
        return self.recorder.addresses.listeners[env].bound[1]

    @property
    def environment(self) -> Environment:
        return next(iter(self.environments.values()))

    async def agent(self, env: str = "app") -> Talker:
        host, port = self.recorder.addresses.listeners[env].bound
        self.agents.append(await talker(port, host))
        return self.agents[-1]

    async def ask(self, request: bytes, env: str = "app") -> bytes:
        """One request on a connection of its own."""
        agent = await self.agent(env)
        try:
            return await agent.ask(request)
        finally:
            agent.close()

    async def exchanges(self, episode: str = "e", count: int = 0) -> list[Exchange]:
        """What is stored of an episode by now, at least `count` (within 5 s)."""
        until = time.monotonic() + 5
        while True:
            found = await stored(self.store, episode, writer=self.recorder.recording.writer)
            if len(found) >= count:
                return found
            assert time.monotonic() < until, f"{len(found)} exchanges of {count} were stored"
            await asyncio.sleep(0.02)


async def stored(store: Store, episode: str = "e", run: str = "r", writer: Any = None) -> list[Exchange]:
    if writer is not None:
        await asyncio.wrap_future(writer.flush())
    reader = store.reader()
    return list(reader.exchanges(reader.episode(reader.run(run), episode)))


@asynccontextmanager
async def recording(
    store: Store,
    *answerers: Answerer,
    episode: str | None = "e",
    run: str = "r",
    discreet: bool = False,
    patience: float = 10.0,
    **options: Any,
) -> AsyncIterator[Recorded]:
    """The recorder between agents and raw environments (`app`, `app2` ..); sealed when the block ends. `discreet`: as
    without --keep-secrets."""
    environments = {}
    for number, answerer in enumerate(answerers or (says(OK),), 1):
        environment = environments["app" if number == 1 else f"app{number}"] = Environment(answerer)
        await environment.start(limit=2**24)
    specs = tuple(EnvSpec(name=name, upstream=one.url) for name, one in environments.items())
    writer = store.writer(redactor=secrecy.for_recording(store.path, keep=not discreet))
    wired = {"store": store.path, "run": run, "envs": specs, "episode": episode, "log_every": 0.0}
    said: list[str] = []
    recorder = Recorder(RecordOptions(**{**wired, **options}), store, writer, said.append)
    await recorder.start()
    made = Recorded(recorder, store, environments, said=said)
    try:
        yield made
    finally:
        for agent in made.agents:
            agent.close()
        await recorder.stop(asyncio.get_running_loop().time() + patience)
        for environment in environments.values():
            await environment.stop()
        writer.close()


@asynccontextmanager
async def replaying(store: Store, episode: str | None = "e", **more: Any) -> AsyncIterator[Staged]:
    """The origin over what was recorded. Its environments are gone."""
    async with staged(store, store.reader().run("r"), sole=episode, **more) as on:
        yield on


async def both(
    store: Store, answerer: Answerer, *requests: bytes, after: Callable[[Staged], Awaitable[None]] | None = None
) -> tuple[list[bytes], list[bytes], Any]:
    """Asks the same on one connection in recording and in replay: (answers, answers, receipt)."""
    async with recording(store, answerer) as on:
        agent = await on.agent()
        live = [await agent.ask(request) for request in requests]
        await on.exchanges(count=len(requests))
    async with replaying(store) as origin:
        again = await talker(origin.ports["app"])
        replayed = [await again.ask(request) for request in requests]
        again.close()
        receipt = origin.receipt()
    return live, replayed, receipt


def answers(*sequence: bytes, close: bool = False) -> Answerer:
    """Answers the n-th request with the n-th answer; the last one stays."""
    left = list(sequence)

    async def answerer(peer: Peer, request: bytes) -> None:
        await peer.send(left.pop(0) if len(left) > 1 else left[0])
        if close:
            peer.close()

    return answerer


def get(target: str | bytes = "/x", *fields: bytes, method: bytes = b"GET", body: bytes = b"") -> bytes:
    """A request as bytes."""
    target = target.encode() if isinstance(target, str) else target
    length = (b"Content-Length: %d" % len(body),) if body else ()
    lines = b"".join(field + b"\r\n" for field in (b"Host: x", *fields, *length))
    return method + b" " + target + b" HTTP/1.1\r\n" + lines + b"\r\n" + body


def ok(body: bytes = b"ok", *fields: bytes, status: bytes = b"200 OK") -> bytes:
    """An answer as bytes."""
    lines = b"".join(field + b"\r\n" for field in (*fields, b"Content-Length: %d" % len(body)))
    return b"HTTP/1.1 " + status + b"\r\n" + lines + b"\r\n" + body


def over_a_store[**P](test: Callable[Concatenate[Store, P], Awaitable[None]]) -> Callable[P, None]:
    """A coroutine over a store of its own for each example of Hypothesis's."""

    @functools.wraps(test)
    def call(*args: P.args, **given: P.kwargs) -> None:
        async def whole() -> None:
            with TemporaryDirectory() as folder:
                store = open_store(Path(folder) / "store", create=True)
                try:
                    await test(store, *args, **given)
                finally:
                    store.close()

        asyncio.run(whole())

    del call.__wrapped__  # type: ignore[attr-defined]  # pytest would ask for a fixture `store`
    call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [one for name, one in inspect.signature(test).parameters.items() if name != "store"]
    )
    return call
