"""A long WebSocket conversation is recorded and replayed, and neither process grows with it: 120 MiB here, 300 MiB in
`make large`."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import pytest

from tests.e2e.conftest import Lab

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

SIZE = 256 * 1024
COUNT = 600 if os.environ.get("REPLAYPROXY_LARGE") else 240  # each goes both ways
GROWTH = 64 * 1024  # KiB


def high_water(pid: int) -> int:
    """The most memory that a process has had so far, in KiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1])


@contextmanager
def running(lab: Lab, *words: str) -> Iterator[tuple[str, int]]:
    """A server command; (URL of `app`, process id)."""
    ready = lab.path / f"ready-{words[0]}.json"
    command = [sys.executable, "-m", "replayproxy", words[0], "--store", str(lab.store), *words[1:]]
    server = subprocess.Popen([*command, "--ready-file", str(ready)], stderr=subprocess.PIPE)
    try:
        deadline = time.monotonic() + 40
        while not ready.exists():
            assert server.poll() is None, server.communicate()[1]
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield json.loads(ready.read_text())["envs"]["app"], server.pid
    finally:
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=30)


async def flood(url: str, count: int) -> str:
    """Sends `count` messages, each of which is answered by one of the same size; a digest of what came."""
    seen = hashlib.sha256()
    async with aiohttp.ClientSession() as session, session.ws_connect(f"{url}/mirror", max_msg_size=0) as socket:
        for number in range(count):
            await socket.send_bytes(number.to_bytes(4, "big") * (SIZE // 4))
            seen.update(await socket.receive_bytes())
        await socket.close()
    return seen.hexdigest()


def grown(url: str, pid: int) -> tuple[str, int]:
    asyncio.run(flood(url, 8))
    before = high_water(pid)
    digest = asyncio.run(flood(url, COUNT))
    return digest, high_water(pid) - before


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="memory is read from /proc")
def test_memory_stays_flat_in_record_and_replay(lab: Lab) -> None:
    with running(lab, "record", "--env", f"app={lab.toy()}", "--run", "r", "--episode", "e") as (url, pid):
        digest, growth = grown(url, pid)
    assert growth < GROWTH
    lab.stop_all()
    with running(lab, "replay", "r/e") as (url, pid):
        again, growth = grown(url, pid)
    assert again == digest
    assert growth < GROWTH
