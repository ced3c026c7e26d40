"""Many requests at once and many episodes: all answered, all stored once and in order, in bounded space.

Figures are printed, and never judged here: the machine is shared. `make soak` runs it at full size.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from replayproxy.storage import open_store
from tests.needs import program
from tests.soak.kit import Agent, Recorder, environment, percentile, recorder, replayproxy, size

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

EPISODES = 64


async def test_closed_loop_each_request_is_answered_and_stored_once_and_in_order(tmp_path: Path) -> None:
    each = size(20_000, 2_000) // EPISODES + 1
    with environment() as port:
        async with recorder(tmp_path, port, "--undeclared", "accept") as one:

            async def agent(number: int) -> None:
                line = await Agent.connect(one.port)
                for n in range(each):
                    await line.ask(f"/rp/e{number}", f"/e{number}/{n}", b"%d" % n if n % 10 == 3 else b"")
                line.close()

            began = time.monotonic()
            await asyncio.gather(*(agent(number) for number in range(EPISODES)))
            took = time.monotonic() - began
            assert await one.stop() == 0, one.output.read_text()
    print(f"\n{EPISODES * each:,} requests, {EPISODES} episodes: {EPISODES * each / took:,.0f} a second, no error")
    assert replayproxy("fsck", "--store", str(tmp_path / "store")).returncode == 0
    reader = open_store(tmp_path / "store").reader()
    run = reader.run("r")
    episodes = {episode.name: episode for episode in reader.episodes(run)}
    assert set(episodes) == {f"e{number}" for number in range(EPISODES)}
    for name, episode in episodes.items():
        assert episode.state.value == "sealed"
        assert not episode.faults
        assert [e.request.target for e in reader.exchanges(episode)] == [f"/{name}/{n}".encode() for n in range(each)]


async def test_open_loop_beside_direct(tmp_path: Path) -> None:
    """200 requests a second through the recorder and, at the same time, as many past it."""
    seconds, rate = size(300, 20), 200
    with environment() as port:
        async with recorder(tmp_path, port, "--episode", "e1") as one:
            memory: list[float] = []

            async def watch() -> None:
                while True:
                    memory.append(one.private_mib())
                    await asyncio.sleep(1)

            watching = asyncio.create_task(watch())
            through, direct = await asyncio.gather(
                _open_loop(one.port, rate, seconds), _open_loop(port, rate, seconds)
            )  # fmt: skip
            watching.cancel()
            assert await one.stop() == 0, one.output.read_text()
    added = {share: (percentile(through, share) - percentile(direct, share)) * 1000 for share in (0.5, 0.99)}
    settled = memory[min(60, len(memory) // 2) :]
    print(
        f"\n{rate}/s for {seconds} s: added p50 {added[0.5]:.2f} ms (target 2), p99 {added[0.99]:.2f} ms (target 10);"
        f" direct p50 {percentile(direct, 0.5) * 1000:.2f} ms, p99 {percentile(direct, 0.99) * 1000:.2f} ms;"
        f" private memory {settled[0]:.1f} -> {settled[-1]:.1f} MiB"
    )  # fmt: skip
    assert len(through) == len(direct) == rate * seconds
    shown = json.loads(replayproxy("show", "r/e1", "--json", "--store", str(tmp_path / "store")).stdout)
    assert len(shown["exchanges"]) == rate * seconds
    assert settled[-1] - settled[0] < 16, "memory grows while the load is the same"


async def _open_loop(port: int, rate: int, seconds: int) -> list[float]:
    """Latencies in seconds from when each request was due, so that a stall is not hidden by the requests it kept."""
    began = time.monotonic() + 0.2
    idle: list[Agent] = []
    most = asyncio.Semaphore(256)  # connections: what waits for one is late, and counts so
    taken: list[float] = []

    async def one(number: int) -> None:
        due = began + number / rate
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        async with most:
            agent = idle.pop() if idle else await Agent.connect(port)
            await agent.ask("", f"/item/{number}")
            taken.append(time.monotonic() - due)
            idle.append(agent)

    for first in range(0, rate * seconds, rate):
        # A second's worth of tasks at a time.
        await asyncio.sleep(max(0.0, began + first / rate - 0.5 - time.monotonic()))
        tasks = [asyncio.create_task(one(number)) for number in range(first, first + rate)]
        if first == 0:
            every = tasks
        else:
            every += tasks
    await asyncio.gather(*every)
    for agent in idle:
        agent.close()
    return taken


READER = """
import sys, time
from pathlib import Path
from replayproxy.storage import open_store
reader = open_store(Path(sys.argv[1])).reader()
print("attached", flush=True)
while True:
    run = reader.run("r")
    for episode in reader.episodes(run):
        sum(1 for _ in reader.exchanges(episode))
    time.sleep(0.05)
"""


async def test_many_episodes_with_readers_attached(tmp_path: Path) -> None:
    """Opened by the control API, used and ended; many open at once; the file grows by what was written."""
    episodes, at_once, each = size(2_000, 200), size(500, 50), 4
    with environment() as port:
        async with recorder(tmp_path, port, "--judge", "off") as one:
            readers = [
                subprocess.Popen([sys.executable, "-c", READER, str(tmp_path / "store")], stdout=subprocess.PIPE)
                for _ in range(2)
            ]
            for reader in readers:
                assert reader.stdout is not None
                assert reader.stdout.readline() == b"attached\n"
            gate, still = asyncio.Semaphore(at_once), asyncio.Barrier(at_once)
            try:
                await asyncio.gather(*(_episode(one, number, each, gate, still, at_once) for number in range(episodes)))
            finally:
                codes = [reader.poll() for reader in readers]
                for reader in readers:
                    reader.kill()
                    reader.communicate()
            assert await one.stop() == 0, one.output.read_text()
    assert codes == [None, None], "a reader ended"
    store = tmp_path / "store"
    told = json.loads(replayproxy("ls", "--json", "--store", str(store)).stdout)
    assert [run["episodes"] for run in told["runs"]] == [episodes]
    data = sum(path.stat().st_blocks * 512 for path in store.rglob("*") if path.is_file())
    asked = episodes * each
    print(
        f"\n{episodes:,} episodes, {at_once} at once: {data / asked:,.0f} bytes on disk an exchange, readers attached"
    )
    # Old pages are kept for whoever reads them, and used again: without that the file would hold each commit's copies.
    assert data < asked * 20_000 + 4 * 2**20


async def _episode(
    one: Recorder, number: int, each: int, gate: asyncio.Semaphore, still: asyncio.Barrier, at_once: int
) -> None:  # fmt: skip
    async with gate:
        await _control(one, "POST", "/v1/episodes", {"episode": f"e{number}"})
        agent = await Agent.connect(one.port)
        for n in range(each):
            await agent.ask(f"/rp/e{number}", f"/e{number}/{n}")
        if number < at_once:
            await still.wait()  # so many are open now
        agent.close()
        ended = await _control(one, "POST", f"/v1/episodes/e{number}/end", {})
        assert ended["state"] == "sealed"


async def _control(one: Recorder, method: str, path: str, body: Any) -> Any:
    asked = urllib.request.Request(
        one.control + path, json.dumps(body).encode(), {"Content-Type": "application/json"}, method=method
    )  # fmt: skip
    return json.loads(await asyncio.to_thread(lambda: urllib.request.urlopen(asked, timeout=60).read()))


@pytest.fixture
def slow_disk(tmp_path: Path) -> dict[str, str]:
    """The environment of a process whose every sync takes 200 ms longer."""
    shim = tmp_path / "slow.so"
    source = Path(__file__).with_name("slow_sync.c")
    subprocess.run([program("cc", "gcc"), "-shared", "-fPIC", "-o", str(shim), str(source), "-ldl"], check=True)
    return {"LD_PRELOAD": str(shim), "SLOW_SYNC_MS": "200"}


async def test_a_slow_disk_does_not_slow_the_agents(tmp_path: Path, slow_disk: dict[str, str]) -> None:
    """The queue takes what the disk does not: a request that waited for a commit would take 200 ms and more."""
    count = size(3_000, 300)
    with environment() as port:
        async with recorder(tmp_path, port, "--episode", "e1", environ=slow_disk) as one:
            agent = await Agent.connect(one.port)
            taken = []
            for n in range(count):
                began = time.monotonic()
                await agent.ask("", f"/item/{n}")
                taken.append(time.monotonic() - began)
            agent.close()
            began = time.monotonic()
            assert await one.stop() == 0, one.output.read_text()
            stopping = time.monotonic() - began
    print(f"\nsync + 200 ms: p50 {percentile(taken, 0.5) * 1000:.1f} ms, p99 {percentile(taken, 0.99) * 1000:.1f} ms")
    assert stopping > 0.2, "the disk was not slow"
    assert percentile(taken, 0.5) < 0.1
    shown = json.loads(replayproxy("show", "r/e1", "--json", "--store", str(tmp_path / "store")).stdout)
    assert len(shown["exchanges"]) == count


@pytest.mark.parametrize("policy", ["hold", "pass"])
async def test_a_full_queue_holds_the_traffic_or_costs_the_episode(
    tmp_path: Path, slow_disk: dict[str, str], policy: str
) -> None:
    """More than the queue takes (64 MiB) while each sync is slow. Never lost unseen, either way."""
    environ = {**slow_disk, "SLOW_SYNC_MS": "700"}
    chance = random.Random(7)
    blocks = [chance.randbytes(1 << 20) for _ in range(8)]
    with environment() as port:
        async with recorder(tmp_path, port, "--episode", "e1", "--when-full", policy, environ=environ) as one:

            async def agent(number: int) -> None:
                line = await Agent.connect(one.port)
                for n in range(12):
                    await line.ask("", f"/big/{number}/{n}", blocks[(number + n) % 8][n:])
                line.close()

            await asyncio.gather(*(agent(number) for number in range(8)))
            code = await one.stop()
    told = one.output.read_text()
    shown = json.loads(replayproxy("show", "r/e1", "--json", "--store", str(tmp_path / "store")).stdout)
    if policy == "hold":
        assert (code, shown["state"], len(shown["exchanges"])) == (0, "sealed", 96), told
    else:
        # 4: the store, slow as it is, had not answered either when the recorder stopped.
        assert (code in (3, 4), shown["state"]) == (True, "incomplete"), told
        assert len(shown["exchanges"]) < 96
        assert "queue full" in told
