"""Sends the canaries: a recorder over a store that is thrown away, and each client as a process of its own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from replayproxy.core.values import UNATTRIBUTED, Exchange
from replayproxy.errors import UnknownAddress
from replayproxy.proxy.ca import Authority
from replayproxy.serve.control import OpenRequest
from replayproxy.session.camera import Plan
from replayproxy.session.canary_clients import JOBS, Client, Way
from replayproxy.session.canary_find import Found
from replayproxy.session.canary_process import Ended, ended
from replayproxy.session.canary_standin import HOST, StandIn, canary_in, page_of, path_of, standin
from replayproxy.session.proxied import ca_variables, episode_proxy, proxy_variables
from replayproxy.session.record_options import RecordOptions
from replayproxy.session.recorder import Recorder
from replayproxy.session.wiring import EnvSpec
from replayproxy.storage import Reader, open_store

PLAIN, SECURE, HTTP2 = "standin", "standin-tls", "standin-h2"


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Where canaries go. `bases`: the base URL of each way; `environ`: what a child of `record` finds, and `proxied`
    what one of `record --forward` does. `proxy` and `key_hash` are for clients that take them as flags."""

    bases: Mapping[Way, str]
    environ: Mapping[str, str]
    proxied: Mapping[str, str]
    proxy: str
    key_hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """`ended` None: it was not tried, because no time was left (or not enough), or because the client is not there."""

    id: str
    client: Client
    way: Way
    found: Found | None
    ended: Ended | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """`kept`: {canary: (whether in its episode, the exchange) of each that the store holds}; `arrived`: how often each
    came to the stand-in, by whatever way."""

    kept: Mapping[str, Sequence[tuple[bool, Exchange]]]
    arrived: Mapping[str, int]


async def through_a_recorder(
    folder: Path, wanted: Sequence[tuple[Client, Way]], found: Mapping[str, Found], seconds: float
) -> tuple[list[Sent], Seen]:
    """What was sent, and what was seen of it. Raises Problem or OSError when nothing can be sent."""
    with open_store(folder / "store", create=True) as store:
        authority = Authority(store.path / "ca")
        async with standin(lambda: authority.server_context([HOST])) as target:
            options = _options(store.path, target, authority)
            writer = store.writer()
            recorder = Recorder(options, store, writer, lambda line: None)
            try:
                await recorder.start()
                world = await _world(recorder, target, authority)
                sent = await _all(world, wanted, found, folder, seconds)
                await recorder.stop(asyncio.get_running_loop().time() + 2.0)
            finally:
                await recorder.abandon()
                writer.close()
            return sent, Seen(kept=_kept(store.reader()), arrived=dict(target.arrived))


def _options(store: Path, target: StandIn, authority: Authority) -> RecordOptions:
    """A plain listener, one over TLS and one over HTTP/2, and a forward proxy."""
    plain = EnvSpec(name=PLAIN, upstream=target.plain)
    secure = EnvSpec(name=SECURE, upstream=target.secure, tls=True, ca=authority.certificate)
    http2 = replace(secure, name=HTTP2, upstream=target.http2)
    return RecordOptions(
        store=store, run="doctor", envs=(plain, secure, http2), plan=Plan(when=()), log_every=0.0, forward=(HOST, 0)
    )


async def _world(recorder: Recorder, target: StandIn, authority: Authority) -> World:
    """The addresses and variables that a harness would be given, in one episode for each style."""
    opened = recorder.episodes.open
    by_path = (await opened(OpenRequest(episode="path", url_style="path"), ""))["urls"]
    by_port = (await opened(OpenRequest(episode="port", url_style="port"), ""))["urls"]
    await opened(OpenRequest(episode="forward"), "")
    bases: dict[Way, str] = {
        ("append", "http"): by_path[PLAIN], ("append", "https"): by_path[SECURE], ("append", "h2"): by_path[HTTP2],
        ("append", "ws"): by_path[PLAIN], ("append", "wss"): by_path[SECURE],
        ("resolve", "http"): by_path[PLAIN], ("port", "http"): by_port[PLAIN],
        ("forward", "http"): target.plain, ("forward", "https"): target.secure, ("forward", "h2"): target.http2,
        ("forward", "ws"): target.plain, ("forward", "wss"): target.secure,
    }  # fmt: skip
    # Without the system's roots, which no canary needs: some clients read them all, several times.
    environ = {**os.environ, **ca_variables(str(authority.certificate))}
    proxied = environ | proxy_variables(episode_proxy(recorder.forward, "forward"), os.environ)
    return World(
        bases=bases, environ=environ, proxied=proxied, proxy=recorder.forward, key_hash=authority.key_hash
    )  # fmt: skip


async def _all(
    world: World, wanted: Sequence[tuple[Client, Way]], found: Mapping[str, Found], folder: Path, seconds: float
) -> list[Sent]:
    """As many at once as there are processors: a client that waits for one would be taken for one that hangs."""
    places = asyncio.Semaphore(max(2, os.cpu_count() or 2))
    until = asyncio.get_running_loop().time() + seconds
    rows = [
        Sent(id=f"c{n}", client=client, way=way, found=found.get(client.name))
        for n, (client, way) in enumerate(wanted)
    ]  # fmt: skip
    sent = await asyncio.gather(*(_together(batch, world, folder, places, until) for batch in _batches(rows)))
    return sorted((row for batch in sent for row in batch), key=_number)


def _number(row: Sent) -> int:
    return int(row.id.removeprefix("c"))


def _batches(rows: Sequence[Sent]) -> list[list[Sent]]:
    """What one process does: all of a client's that have the same variables, where it takes several."""
    batches: dict[tuple[str, ...], list[Sent]] = {}
    for row in rows:
        kind = str(row.way[0] == "forward") if JOBS in row.client.argv else row.id
        batches.setdefault((row.client.name, kind), []).append(row)
    return list(batches.values())


async def _together(
    batch: Sequence[Sent], world: World, folder: Path, places: asyncio.Semaphore, until: float
) -> Sequence[Sent]:
    first = batch[0]
    if first.found is None:
        return batch
    async with places:
        left = until - asyncio.get_running_loop().time()
        if left <= 0:
            return batch
        environ = world.proxied if first.way[0] == "forward" else world.environ
        environ = {name: value for name, value in environ.items() if name not in first.client.without}
        limit = first.client.seconds * len(batch)
        end = await ended(_words(batch, world, folder), seconds=min(limit, left), environ=environ)
    if end.code is None and left < limit:
        return batch  # it did not have its time
    return [replace(row, ended=_own_end(row, end)) for row in batch]


def _own_end(row: Sent, end: Ended) -> Ended:
    """Of one among several: what the process printed for it."""
    if JOBS not in row.client.argv:
        return end
    path = path_of(row.id)
    if path in end.out.split():
        return Ended(code=0)
    said = [rest for word, _, rest in (line.partition(" ") for line in end.err.splitlines()) if word == path]
    if said:
        return Ended(code=1, err=said[-1])
    return end if end.code != 0 else replace(end, code=1)


def _words(batch: Sequence[Sent], world: World, folder: Path) -> list[str]:
    row = batch[0]
    assert row.found is not None
    base, path, how = world.bases[row.way], path_of(row.id), _how(row)
    places = {
        "{base}": base, "{path}": path, "{url}": base + path, "{how}": how,
        "{page}": base + (page_of(row.id) if how == "resolve" else path), "{proxy}": world.proxy,
        "{folder}": str(folder / row.id), "{key-hash}": world.key_hash,
    }  # fmt: skip
    jobs = [f"{_how(one)} {world.bases[one.way]} {path_of(one.id)}" for one in batch]
    words = [row.found.program]
    for word in row.client.argv:
        words += jobs if word == JOBS else [_filled(word, places)]
    if "--headless" in words and os.geteuid() == 0:
        words.insert(1, "--no-sandbox")  # a browser refuses to start as root with one
    return words


def _how(row: Sent) -> str:
    return "resolve" if row.way[0] in ("resolve", "port") else "append"


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
