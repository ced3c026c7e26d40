"""Record and replay over HTTP/2 and TLS: the ends of `h2ends` around the real recorder and the real replay's front."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from replayproxy.proxy.ca import Authority
from replayproxy.proxy.listeners import EnvOptions
from replayproxy.serve.visit import Watch
from replayproxy.session.closed import Guard
from replayproxy.session.replay_doors import Doors
from replayproxy.session.replay_front import ReplayFront
from replayproxy.session.replay_options import ReplayOptions
from replayproxy.session.wiring import EnvSpec
from replayproxy.storage import Store
from tests.cases.h2ends import Agent, Ask, Heard, Pairs, Say, Site
from tests.cases.lab import recording, replaying
from tests.proxy.wire import says
from tests.session.tls_server import TlsFiles

WAYS = ("h2", "h2 in a tunnel", "http/1.1")
"""What the environment speaks behind the listener, and whether agents come by CONNECT. They speak HTTP/2 in any case:
before one that speaks HTTP/1.1 over TLS they would not be offered it, so that one is plain."""


class Desk:
    """Files for TLS, and stores that have an authority from the start (to make one takes long)."""

    def __init__(self, folder: Path, files: TlsFiles) -> None:
        self.files = files
        self.authority = Authority(folder / "ca")

    def lend(self, store: Store) -> None:
        """Gives a store the authority."""
        shutil.copytree(self.authority.folder, store.path / "ca")

    def trust(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.authority.certificate)
        context.set_alpn_protocols(["h2"])
        return context

    async def agent(self, at: tuple[str, int], name: str = "127.0.0.1") -> Agent:
        """To a listener."""
        reader, writer = await asyncio.open_connection(*at, ssl=self.trust(), server_hostname=name, limit=2**22)
        shown = f"[{at[0]}]" if ":" in at[0] else at[0]
        return self._agent(reader, writer, f"{shown}:{at[1]}".encode())

    async def tunnelled(self, proxy: tuple[str, int], url: str) -> Agent:
        """Through CONNECT at a forward proxy."""
        reader, writer = await asyncio.open_connection(*proxy, limit=2**22)
        authority = url.removeprefix("https://").encode()
        writer.write(b"CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (authority, authority))
        said = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
        assert b" 200 " in said, said
        await writer.start_tls(self.trust(), server_hostname=authority.rpartition(b":")[0].strip(b"[]").decode())
        return self._agent(reader, writer, authority)

    def _agent(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, authority: bytes) -> Agent:
        assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "h2"
        agent = Agent(reader, writer, client=True)
        agent.authority = authority
        agent.start()
        return agent


@dataclass
class On:
    """A recorder (`on`: Recorded) or a replay (Staged) with a way in; its agents are closed at the end."""

    desk: Desk
    way: Callable[[], Any]
    on: Any
    agents: list[Agent] = field(default_factory=list)

    async def agent(self) -> Agent:
        self.agents.append(await self.way())
        return self.agents[-1]

    async def ask(self, *asked: Ask) -> list[Heard]:
        agent = await self.agent()
        return [await agent.ask(one) for one in asked]


@asynccontextmanager
async def recorded(store: Store, site: Site, **more: Any) -> AsyncIterator[On]:
    desk, forward = site.desk, site.forward
    if not (store.path / "ca").exists():
        desk.lend(store)
    ca = desk.files.ca if site.protocol == "h2" else None
    spec = EnvSpec(name="app", upstream=site.url, ca=ca, tls=not forward, host=site.host)
    ways = {"forward": ("127.0.0.1", 0)} if forward else {}
    async with recording(store, says(b""), **{"envs": (spec,), **ways, **more}) as on:

        async def way() -> Agent:
            if forward:
                return await desk.tunnelled(_address(on.recorder.forward), site.url)
            return await desk.agent(on.recorder.addresses.listeners["app"].bound, site.host)

        made = On(desk, way, on)
        try:
            yield made
        finally:
            for agent in made.agents:
                agent.close()


@asynccontextmanager
async def replayed(store: Store, site: Site, **more: Any) -> AsyncIterator[On]:
    """The replay's front before its origin, as in `replay`. The environment is gone."""
    desk, forward = site.desk, site.forward
    async with replaying(store, **more) as staged:
        watch = Watch(miss=staged.misses.append, fault=lambda where, error: staged.faults.append(error))
        options = ReplayOptions(forward=("127.0.0.1", 0) if forward else None)
        front = ReplayFront(staged.stage, staged.origin, watch, options, Guard())
        await front.start()
        try:
            await front.listen_forward(("127.0.0.1", 1), None)
            doors = Doors(staged.origin, lambda: front)
            listener = await doors.listen(
                "app", site.url, host=site.host, port=0, port_episode=None, advertise=None, options=EnvOptions(tls=True)
            )

            async def way() -> Agent:
                if forward:
                    return await desk.tunnelled(_address(front.forward), site.url)
                return await desk.agent(listener.bound, site.host)

            made = On(desk, way, staged)
            yield made
            for agent in made.agents:
                agent.close()
        finally:
            await front.stop()
        assert staged.faults == []


async def both(store: Store, site: Site, *asked: Ask) -> tuple[list[Heard], Any]:
    """Asks the same on one connection in recording and in replay, and compares: (answers, exchanges)."""
    async with recorded(store, site) as on:
        live = await on.ask(*asked)
        exchanges = await on.on.exchanges(count=len(asked))
    async with replayed(store, site) as again:
        for one, heard in zip(await again.ask(*asked), live, strict=True):
            assert one.said == heard.said
        receipt = again.on.receipt()
        assert receipt["reproduced"] is True, receipt
    return live, exchanges


def _address(url: str) -> tuple[str, int]:
    host, _, port = url.removeprefix("http://").rpartition(":")
    return host.strip("[]"), int(port)


__all__ = ["WAYS", "Agent", "Ask", "Desk", "Heard", "On", "Pairs", "Say", "Site", "both", "recorded", "replayed"]
