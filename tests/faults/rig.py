"""Records one cell of the matrix through the real recorder, and has it judged by the real `check`."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import aiohttp

from replayproxy.core.values import Run, Trace
from replayproxy.detect.judge import Judgement
from replayproxy.session import secrecy
from replayproxy.session.check import check
from replayproxy.session.check_document import Demands
from replayproxy.session.look import Stores
from replayproxy.session.record_options import RecordOptions
from replayproxy.session.recorder import Recorder
from replayproxy.session.wiring import EnvSpec
from replayproxy.state.loader import Loaded
from replayproxy.storage import open_store
from tests.faults.agents import Api
from tests.faults.ledger import Ledger
from tests.faults.matrix import Plan


class World(Protocol):
    """An environment under test: `workers` instances of it."""

    ledgers: list[Ledger]
    urls: list[str]
    state: str  # the path under which `http:` snapshots read it; "": none
    snapshots: tuple[Loaded, ...]  # what is read otherwise

    async def reset(self, worker: int, task: str, seed: int, mark: str) -> None: ...

    async def lane(self, api: Api, rng: random.Random, script: str) -> None: ...

    async def before(self, api: Api, rng: random.Random, script: str) -> None: ...

    async def settle(self) -> None: ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A cell as it was recorded: the run with its traces, what the detectors said, what the injectors did."""

    plan: Plan
    run: Run
    traces: Sequence[Trace]
    nodes: dict[bytes, bytes]
    judgement: Judgement
    unnamed: Judgement | None  # the same without the named reference
    ledgers: Sequence[Ledger]
    seconds: float
    judged: float


@asynccontextmanager
async def recorder(store: Path, run: str, snapshots: tuple[Loaded, ...]) -> AsyncIterator[Recorder]:
    """A recorder with one environment whose address comes with each episode."""
    options = RecordOptions(
        store=store, run=run, envs=(EnvSpec(name="app", upstream="dynamic"),), snapshots=snapshots, log_every=0.0
    )
    with open_store(store, create=True) as opened:
        writer = opened.writer(redactor=secrecy.for_recording(store, keep=False, rules=()))
        try:
            running = Recorder(options, opened, writer, lambda line: None)
            await running.start()
            yield running
            await running.stop(None)
            assert not running.recording.tally.faults, running.recording.tally.faults
        finally:
            writer.close()


async def record(plan: Plan, world: World, store: Path, seed: int) -> None:
    """All episodes of a cell: workers side by side, each with an instance of its own, on which they come in turn."""
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(recorder(store, plan.name, world.snapshots))
        http = await stack.enter_async_context(aiohttp.ClientSession())
        todo = iter(range(plan.episodes))

        async def work(worker: int) -> None:
            for number in todo:
                await _episode(plan, world, http, running.control, worker, number, seed)

        async with asyncio.TaskGroup() as group:
            for worker in range(plan.workers):
                group.create_task(work(worker))
        await world.settle()


async def _episode(
    plan: Plan, world: World, http: aiohttp.ClientSession, control: str, worker: int, number: int, seed: int
) -> None:
    # Two tasks in turn, so that starts and answers have siblings; the fault cells of one task have more of them.
    seeded = seed + (number // plan.workers % 2 if plan.row in ("b", "d", "clean") else 0)
    name, task, url = f"e{number:03d}", f"t-{plan.script}", world.urls[worker]
    await world.reset(worker, task, seeded, f"{name}~~0")
    asked: dict[str, Any] = {
        "episode": name, "task": task, "seed": seeded, "attempt": number, "envs": {"app": url},
        "instance": {"app": f"i{worker}"},
    }  # fmt: skip
    if world.state:
        asked["snapshots"] = {"app": f"http:{url}{world.state}"}
    async with http.post(f"{control}/v1/episodes", json=asked) as answer:
        opened = await answer.json()
        assert answer.status == 201, opened
    pause = random.Random(f"{seed}/{number}/pause")
    lanes = [
        Api(http=http, url=opened["urls"]["app"], episode=name, lane=f"l{lane}", rng=pause, pause=0.004 * (lane > 0))
        for lane in range(plan.lanes)
    ]
    await world.before(lanes[0], random.Random(f"{task}/{seeded}/before"), plan.script)
    async with asyncio.TaskGroup() as group:
        for lane, api in enumerate(lanes):
            group.create_task(world.lane(api, random.Random(f"{task}/{seeded}/{lane}"), plan.script))
    async with http.post(f"{control}/v1/episodes/{name}/end", json={"reward": 0.0}) as answer:
        assert answer.status == 200, await answer.text()


def judged(plan: Plan, world: World, store: Path, took: float) -> Recorded:
    """What `check` says of the recording, and the recording itself, read into memory."""
    began = time.perf_counter()
    stores = Stores(paths=[store])
    try:
        named = f"{plan.name}/e000" if plan.named else None
        unnamed = check(stores, [plan.name], Demands(), now=time.time_ns())[0].judgement if named else None
        found = check(stores, [plan.name], Demands(reference=named), now=time.time_ns())[0].judgement
        ended = time.perf_counter()
        reader = stores.reader
        run = reader.run(plan.name)
        traces = [reader.trace(run, episode) for episode in reader.episodes(run) if episode.name in found.words]
        nodes = _nodes(reader, traces)
    finally:
        stores.close()
    return Recorded(
        plan=plan, run=run, traces=traces, nodes=nodes, judgement=found, unnamed=unnamed, ledgers=world.ledgers,
        seconds=took, judged=ended - began,
    )  # fmt: skip


def _nodes(reader: Any, traces: Sequence[Trace]) -> dict[bytes, bytes]:
    """The states of a run as they lie in the store, for judging it again without one."""
    from replayproxy.core import prolly

    found: dict[bytes, bytes] = {}

    def load(address: bytes) -> bytes:
        if address not in found:
            found[address] = reader.node(address)
        return found[address]

    for root in {snapshot.root for trace in traces for snapshot in trace.snapshots if snapshot.root is not None}:
        for _ in prolly.rows(root, load):
            pass
    return found
