"""Runs a sample environment, an agent under recording, and the same agent under replay with the environment gone."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from replayproxy.core.extractrule import extract_rules, secrets_of
from replayproxy.core.misses import Document
from replayproxy.core.replayer import Order
from replayproxy.core.values import Episode
from replayproxy.proxy.listeners import bind
from replayproxy.serve.doors import Door
from replayproxy.serve.identity import load_known
from replayproxy.serve.origin import Origin
from replayproxy.serve.ready import ready
from replayproxy.serve.resets import load_probes
from replayproxy.serve.stage import Stage
from replayproxy.session import secrecy
from replayproxy.session.dialect import RecordedDialect
from replayproxy.session.ready_rules import rule_tables
from replayproxy.session.record_options import RecordOptions
from replayproxy.session.recorder import Recorder
from replayproxy.session.wiring import EnvSpec
from replayproxy.storage import Reader, open_store

type Agent = Callable[[str], Awaitable[None]]


@asynccontextmanager
async def served(app: web.Application) -> AsyncIterator[str]:
    """The environment's URL while it runs."""
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
    yield f"http://127.0.0.1:{port}"
    await runner.cleanup()


def options(store: Path, url: str, rules: Sequence[str], own: Sequence[Any] = (), **given: Any) -> RecordOptions:
    wired: dict[str, Any] = {"store": store, "run": "r", "envs": (EnvSpec(name="app", upstream=url),), "log_every": 0.0}
    tables = (*own, *rule_tables(rules))
    return RecordOptions(**{**wired, "rules": tables, "secrets": secrets_of(extract_rules(tables)), **given})


async def record(made: RecordOptions, agent: Agent) -> Recorder:
    """The recorder, stopped, with everything sealed."""
    with open_store(made.store, create=True) as store:
        redactor = secrecy.for_recording(made.store, keep=made.keep_secrets, rules=made.secrets)
        writer = store.writer(redactor=redactor)
        recorder = Recorder(made, store, writer, lambda _: None)
        try:
            await recorder.start()
            await agent(recorder.addresses.plain_urls()["app"])
            await recorder.stop(None)
        finally:
            await recorder.abandon()
            writer.close()
    return recorder


@asynccontextmanager
async def replayed(store: Path, run: str = "r") -> AsyncIterator[tuple[str, Stage]]:
    """The run on stage behind a real socket: its URL, and the stage to ask for the receipt."""
    with open_store(store) as opened:
        reader: Reader = opened.reader()
        kept = reader.run(run)
        dialect = RecordedDialect(kept)
        stage = Stage(
            reader, kept, reader.episodes(kept), sole=False, order=Order.LANE, now=time.monotonic_ns,
            prepare=lambda entry: ready(entry, dialect.is_plain), redactor=secrecy.load(store, kept),
        )  # fmt: skip
        shown = secrecy.shown_as(stage.redactor)
        stage.known = load_known(reader, kept, stage.episodes, shown=shown, touched=stage.touched, rules=stage.rules)
        stage.probes = load_probes(reader, kept)
        origin = Origin(stage, dialect=dialect, now=time.monotonic_ns)
        sock = bind("127.0.0.1", 0)
        port = sock.getsockname()[1]
        await origin.listen(Door(env="app", origin=f"http://127.0.0.1:{port}", port=port), sock)
        try:
            yield f"http://127.0.0.1:{port}", stage
        finally:
            await origin.stop(grace=0.2)


async def replay(store: Path, agent: Agent) -> Document:
    async with replayed(store) as (url, stage):
        await agent(url)
        return stage.receipt()


def episodes(store: Path, run: str = "r") -> dict[str, list[Any]]:
    """Every episode by name, the bucket with them, and its exchanges."""
    with open_store(store) as opened:
        reader = opened.reader()
        kept = reader.run(run)
        named = {one.name: list(reader.exchanges(one)) for one in reader.episodes(kept)}
        try:
            named["unattributed"] = list(reader.exchanges(reader.episode(kept, "unattributed")))
        except Exception:
            named["unattributed"] = []
        return named


def episode(store: Path, name: str, run: str = "r") -> Episode:
    with open_store(store) as opened:
        reader = opened.reader()
        return reader.episode(reader.run(run), name)
