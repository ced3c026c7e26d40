"""`record` whole, in this process: the real proxy and control API, a small environment in the same loop."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from replayproxy.session.record import Recorded, record
from replayproxy.session.record_options import RecordOptions
from replayproxy.session.wiring import EnvSpec


class Environment:
    """Counts, and says what it saw; `/slow` waits until it is let go, `/events` streams until the agent leaves."""

    def __init__(self) -> None:
        self.counter = 0
        self.seen: list[tuple[str, str]] = []
        self.go_on = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.seen.append((request.method, request.raw_path))
        if request.path == "/slow":
            await self.go_on.wait()
        if request.path == "/events":
            stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await stream.prepare(request)
            await stream.write(b"data: 1\n\n")
            await self.go_on.wait()
            return stream
        if request.path == "/state":
            return web.json_response({"counter": {"1": {"value": self.counter}}})
        self.counter += request.method == "POST"
        return web.json_response({"counter": self.counter, "path": request.raw_path})


@pytest.fixture
async def world() -> AsyncIterator[tuple[Environment, str]]:
    environment = Environment()
    runner = web.ServerRunner(web.Server(environment.answer), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
    yield environment, f"http://127.0.0.1:{port}"
    environment.go_on.set()
    await runner.cleanup()


def options(tmp_path: Path, url: str, **given: Any) -> RecordOptions:
    wired = {"store": tmp_path / "store", "run": "r", "envs": (EnvSpec(name="app", upstream=url),), "log_every": 0.0}
    return RecordOptions(**{**wired, **given})


def python(code: str) -> list[str]:
    lead = "import json, os, sys, urllib.request\nURL = os.environ['REPLAYPROXY_URL_APP']\n"
    lead += "def get(url): return json.load(urllib.request.urlopen(url))\n"
    return [sys.executable, "-c", lead + code]


async def run(made: RecordOptions, code: str | None = None, **given: Any) -> tuple[Recorded, list[str]]:
    said: list[str] = []
    command = given.pop("command", python(code) if code is not None else ())
    return await record(made, command, say=said.append, **given), said


async def appeared(path: Path) -> Any:
    async with asyncio.timeout(20):
        while not path.exists() or not path.read_text():
            await asyncio.sleep(0.01)
    return json.loads(path.read_text())
