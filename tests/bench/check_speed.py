"""How long `check` takes, and how much memory, over recordings of growing length.

    python -m tests.bench.check_speed                  100,000 exchanges in 1,000 episodes, then 200,000 in 2,000
    python -m tests.bench.check_speed 100              the same with 100 and 200 episodes
    python -m tests.bench.check_speed 40 lanes         another shape: see `SHAPES`

A tenth of the requests are writes, each with a snapshot after it; 50 tasks, so that every episode has siblings. The
recording is made in simulated time and stored as the recorder stores it; then `check` judges it in a process of its
own. What counts is `cpu`: seconds of both processes, whatever else the machine does.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from replayproxy.core.values import EpisodeState, Run
from replayproxy.storage import open_store
from replayproxy.storage.writer import Writer
from tests.detect.bench import RUN, Agent, Bench

EXCHANGES, TASKS = 100, 50


def agent(seed: int, exchanges: int = EXCHANGES) -> Agent:
    """So many requests, the same for every episode of a task: a fifth of them writes."""
    chance = random.Random(seed)
    made: list[str] = []
    for number in range(exchanges):
        if number % 10 == 3:
            body = {"stage": "lead", "owner": f"agent-{seed}", "amount": number * 10 + seed}
            _, told = yield "POST", "/deals", {**body, "notes": f"{'a note about it ' * 8}{chance.random():.12f}"}
            made.append(told["id"])
        elif number % 10 == 7:
            yield "PATCH", f"/deals/{chance.choice(made)}", {"stage": "won", "amount": chance.randrange(1000)}
        elif number % 10 == 9:
            yield "GET", "/deals", None
        else:
            yield "GET", f"/deals/{chance.choice(made) if made else 'D-1'}", None


def episode(bench: Bench, number: int, where: Any, *, lanes: int = 1, **more: Any) -> dict[str, Any]:
    """One episode's plan: its requests are dealt out to so many lanes, which overlap."""
    task, share = number % TASKS, EXCHANGES // lanes
    agents = {f"lane-{n}": (lambda n=n: agent(task * lanes + n, share)) for n in range(lanes)}
    return {"name": f"e{number}", "deployment": where, "task": f"t{task}", "seed": task, "agents": agents, **more}


def instances(bench: Bench, episodes: int, flush: Callable[[], None], *, count: int = 8, lanes: int = 1) -> None:
    """So many instances at once, one episode after another on each."""

    def plans(instance: int) -> Iterator[dict[str, Any]]:
        where = bench.deployment(f"i{instance}")
        for number in range(instance, episodes, count):
            flush()
            yield episode(bench, number, where, lanes=lanes)

    for instance in range(count):
        bench.in_turn(plans(instance))
    bench.run()


def crowd(bench: Bench, episodes: int, flush: Callable[[], None]) -> None:
    """64 episodes at once on one instance, then the next 64 on a fresh one: whoever lists sees what all have made."""
    for first in range(0, episodes, 64):
        where = bench.deployment(f"i{first}")
        where.reset("t", 1)
        for number in range(first, min(first + 64, episodes)):
            bench.episode(**episode(bench, number, where, reset=False))
        bench.run()
        flush()


type Shape = Callable[[Bench, int, Callable[[], None]], None]

SHAPES: dict[str, Shape] = {
    "instances": instances,
    "turns": lambda *given: instances(*given, count=1),  # all on one instance, one after another
    "lanes": lambda *given: instances(*given, count=1, lanes=8),  # the same, with eight lanes that overlap
    "crowd": crowd,
}


def record(path: Path, episodes: int, shape: str = "instances") -> int:
    """Stores a recording of so many episodes; gives the number of exchanges."""
    with open_store(path, create=True) as store:
        writer = store.writer()
        run = writer.open_run(replace(RUN, key=0, name="r"))
        bench, kept = Bench(seed=episodes), [0, 0]

        def flush() -> None:
            kept[0] += len(bench.traces)
            kept[1] += _store(writer, run, bench)

        SHAPES[shape](bench, episodes, flush)
        flush()
        writer.update_run(replace(run, closed_wall=run.opened_wall + 1))
        writer.close()
    assert kept[0] == episodes
    return kept[1]


def _store(writer: Writer, run: Run, bench: Bench) -> int:
    """Writes the episodes that have ended, and forgets them; gives the number of their exchanges."""
    count = 0
    writer.put_nodes(bench.nodes)
    bench.nodes.clear()
    for trace in bench.traces:
        opened = writer.open_episode(replace(trace.episode, key=0, run_key=run.key, state=EpisodeState.OPEN))
        for exchange in trace.exchanges:
            writer.put_exchange(opened.key, exchange)
        for snapshot in trace.snapshots:
            writer.put_snapshot(opened.key, snapshot)
        writer.seal(replace(opened, ended=trace.episode.ended, ended_wall=trace.episode.ended_wall)).result()
        count += len(trace.exchanges)
    bench.traces.clear()
    return count


def measure(path: Path) -> dict[str, Any]:
    """Seconds, most memory in MB, and what came out, of `check` in a process of its own."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    before, began = used.ru_utime + used.ru_stime, time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "replayproxy", "check", "r", "--store", str(path), "--json"],
        capture_output=True, check=False,
    )  # fmt: skip
    seconds = time.monotonic() - began
    told = json.loads(done.stdout)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "seconds": round(seconds, 1), "cpu": round(used.ru_utime + used.ru_stime - before, 1),
        "peak_mb": round(used.ru_maxrss / 1024), "exit": done.returncode, "findings": len(told["findings"]),
        "episodes": len(told["verdicts"]),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("episodes", type=int, nargs="?", default=1000)
    parser.add_argument("shape", nargs="?", choices=SHAPES, default="instances")
    given = parser.parse_args()
    before: float | None = None
    for count in (given.episodes, 2 * given.episodes):
        with tempfile.TemporaryDirectory() as folder:
            exchanges = record(Path(folder) / "store", count, given.shape)
            found = measure(Path(folder) / "store")
        ratio = "" if before is None else f"   {found['cpu'] / before:.2f} times the cpu"
        before = found["cpu"]
        print(f"{given.shape}: {exchanges:,} exchanges in {count:,} episodes: {found}{ratio}", flush=True)


if __name__ == "__main__":
    main()
