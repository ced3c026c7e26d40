"""How long `check` takes, and how much memory, over recordings of growing length.

    python tests/bench/check_speed.py            100,000 exchanges in 1,000 episodes, then 200,000 in 2,000
    python tests/bench/check_speed.py 100        the same with 100 and 200 episodes

Eight instances at once, one episode after another on each; 50 tasks, so that every episode has siblings; a tenth of
the exchanges are writes, each with a snapshot after it. The recording is made in simulated time and stored as the
recorder stores it; then `check` judges it in a process of its own.
"""

from __future__ import annotations

import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from replayproxy.core.values import EpisodeState
from replayproxy.storage import open_store
from tests.detect.bench import RUN, Agent, Bench

EXCHANGES, TASKS, INSTANCES = 100, 50, 8


def agent(seed: int) -> Agent:
    """A hundred requests, the same for every episode of a task: a tenth of them writes."""
    chance = random.Random(seed)
    made: list[str] = []
    for number in range(EXCHANGES):
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


def record(path: Path, episodes: int) -> int:
    """Stores a recording of so many episodes; gives the number of exchanges."""
    with open_store(path, create=True) as store:
        writer = store.writer()
        run = writer.open_run(replace(RUN, key=0, name="r"))
        count = 0
        bench = Bench(seed=episodes)
        kept = 0

        def flush() -> None:
            nonlocal count, kept
            for trace in bench.traces:
                opened = writer.open_episode(replace(trace.episode, key=0, run_key=run.key, state=EpisodeState.OPEN))
                for address, node in bench.nodes.items():
                    writer.put_nodes({address: node})
                bench.nodes.clear()
                for exchange in trace.exchanges:
                    writer.put_exchange(opened.key, exchange)
                for snapshot in trace.snapshots:
                    writer.put_snapshot(opened.key, snapshot)
                writer.seal(replace(opened, ended=trace.episode.ended, ended_wall=trace.episode.ended_wall)).result()
                count += len(trace.exchanges)
            kept += len(bench.traces)
            bench.traces.clear()

        def plans(instance: int) -> Iterator[dict[str, Any]]:
            where = bench.deployment(f"i{instance}")
            for number in range(instance, episodes, INSTANCES):
                flush()
                task = number % TASKS
                yield {
                    "name": f"e{number}", "deployment": where, "task": f"t{task}", "seed": task,
                    "agents": {"main": lambda task=task: agent(task)},
                }  # fmt: skip

        for instance in range(INSTANCES):
            bench.in_turn(plans(instance))
        bench.run()
        flush()
        writer.update_run(replace(run, closed_wall=run.opened_wall + 1))
        writer.close()
    assert kept == episodes
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
    episodes = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    before: float | None = None
    for count in (episodes, 2 * episodes):
        with tempfile.TemporaryDirectory() as folder:
            exchanges = record(Path(folder) / "store", count)
            found = measure(Path(folder) / "store")
        ratio = "" if before is None else f"   {found['seconds'] / before:.2f} times as long"
        before = found["seconds"]
        print(f"{exchanges:,} exchanges in {count:,} episodes: {found}{ratio}", flush=True)


if __name__ == "__main__":
    main()
