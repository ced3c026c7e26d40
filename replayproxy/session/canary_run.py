"""Sends the canaries: a recorder over a store that is thrown away, and each client as a process of its own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from replayproxy.core.values import UNATTRIBUTED, Exchange
from replayproxy.errors import UnknownAddress
from replayproxy.serve.control import OpenRequest
from replayproxy.session.camera import Plan
from replayproxy.session.canary_clients import Client, Way
from replayproxy.session.canary_find import Found
from replayproxy.session.canary_process import Ended, ended
from replayproxy.session.canary_standin import StandIn, canary_in, page_of, path_of
from replayproxy.session.record_options import RecordOptions
from replayproxy.session.recorder import Recorder
from replayproxy.session.wiring import EnvSpec
from replayproxy.storage import Reader, open_store

ENV = "standin"


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Where canaries go. `bases`: the base URL of each way that this recorder has; `environ`: what a child finds."""

    bases: Mapping[Way, str]
    environ: Mapping[str, str]
    proxied: Mapping[str, str] = field(default_factory=dict)
    proxy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """`ended` None: it was not tried, for the reason in `why`, or because the client is not there."""

    id: str
    client: Client
    way: Way
    found: Found | None
    ended: Ended | None = None
    why: str = ""


type Kept = Mapping[str, list[tuple[bool, Exchange]]]


async def through_a_recorder(
    folder: Path, target: StandIn, wanted: Sequence[tuple[Client, Way]], found: Mapping[str, Found], seconds: float
) -> tuple[list[Sent], Kept]:
    """(what was sent, {canary: (whether in its episode, the exchange)})."""
    options = RecordOptions(
        store=folder / "store", run="doctor", envs=(EnvSpec(name=ENV, upstream=target.plain),), plan=Plan(when=()),
        log_every=0.0,
    )  # fmt: skip
    with open_store(options.store, create=True) as store:
        writer = store.writer()
        recorder = Recorder(options, store, writer, lambda line: None)
        try:
            await recorder.start()
            world = await _world(recorder, target)
            sent = await _all(world, wanted, found, folder, seconds)
            await recorder.stop(asyncio.get_running_loop().time() + 2.0)
        finally:
            await recorder.abandon()
            writer.close()
        return sent, _kept(store.reader())


async def _world(recorder: Recorder, target: StandIn) -> World:
    """The addresses that a harness would be given, in one episode for each style."""
    path = await recorder.episodes.open(OpenRequest(episode="path", url_style="path"), "")
    port = await recorder.episodes.open(OpenRequest(episode="port", url_style="port"), "")
    by_path, by_port = path["urls"][ENV], port["urls"][ENV]
    bases: dict[Way, str] = {
        ("append", "http"): by_path, ("resolve", "http"): by_path, ("port", "http"): by_port, ("append", "ws"): by_path,
    }  # fmt: skip
    return World(bases=bases, environ=dict(os.environ))


async def _all(
    world: World, wanted: Sequence[tuple[Client, Way]], found: Mapping[str, Found], folder: Path, seconds: float
) -> list[Sent]:
    """As many at once as there are processors: a client that waits for one would be taken for one that hangs."""
    places = asyncio.Semaphore(max(2, os.cpu_count() or 2))
    until = asyncio.get_running_loop().time() + seconds
    sending: list[Coroutine[Any, Any, Sent]] = []
    for client, way in wanted:
        if way in world.bases:
            row = Sent(id=f"c{len(sending)}", client=client, way=way, found=found.get(client.name))
            sending.append(_one(row, world, folder, places, until))
    return list(await asyncio.gather(*sending))


async def _one(row: Sent, world: World, folder: Path, places: asyncio.Semaphore, until: float) -> Sent:
    if row.found is None:
        return row
    async with places:
        left = until - asyncio.get_running_loop().time()
        if left <= 0:
            return replace(row, why=f"no time was left for it: --clients {row.client.name}")
        words = _words(row, world, folder)
        environ = world.proxied if row.way[0] == "forward" else world.environ
        environ = {name: value for name, value in environ.items() if name not in row.client.without}
        seconds = min(row.client.seconds, max(left, 1.0))
        return replace(row, ended=await ended(words, seconds=seconds, environ=environ))


def _words(row: Sent, world: World, folder: Path) -> list[str]:
    assert row.found is not None
    style, _ = row.way
    base, path = world.bases[row.way], path_of(row.id)
    resolves = style in ("resolve", "port")
    places = {
        "{base}": base, "{path}": path, "{url}": base + path, "{how}": "resolve" if resolves else "append",
        "{page}": base + (page_of(row.id) if resolves else path), "{proxy}": world.proxy,
        "{folder}": str(folder / row.id),
    }  # fmt: skip
    words = [row.found.program, *(_filled(word, places) for word in row.client.argv)]
    if "--headless" in words and os.geteuid() == 0:
        words.insert(1, "--no-sandbox")  # a browser refuses to start as root with one
    return words


def _filled(word: str, places: Mapping[str, str]) -> str:
    for place, value in places.items():
        word = word.replace(place, value)
    return word


def _kept(reader: Reader) -> dict[str, list[tuple[bool, Exchange]]]:
    kept: dict[str, list[tuple[bool, Exchange]]] = {}
    run = reader.run("doctor")
    episodes = list(reader.episodes(run))
    try:
        episodes.append(reader.episode(run, UNATTRIBUTED))
    except UnknownAddress:
        pass  # every canary was in its episode, or none came
    for episode in episodes:
        for exchange in reader.exchanges(episode):
            if (name := canary_in(exchange.request.target)) is not None:
                kept.setdefault(name, []).append((episode.name != UNATTRIBUTED, exchange))
    return kept
