"""How much two proxy processes carry, against one: `record --workers 1` and `record --workers 2` in turns.

    python -m tests.bench.workers                      5 pairs of 8 s each, 32 connections
    python -m tests.bench.workers --pairs 3 --seconds 4 --connections 64
    python -m tests.bench.workers --counts 1,2,4       other numbers of workers

Environment (nginx) and load (wrk) share the machine with the recorder, none of them bound to a core, so a ratio is
bounded by the processors that are left: what each part used is printed beside it. `by processor time` is arithmetic
from that, for a machine with nothing else to do: as many requests as the processors have time for, no process of Python
using more than one of them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.bench.contenders import recorder
from tests.bench.load import wrk
from tests.bench.machine import busy_seconds, cpu_seconds, family, own_cpu_seconds
from tests.bench.upstream import upstream


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    workers: int
    rate: float
    parts: tuple[float, ...]  # processors used by the recorder's processes, the first one first
    environment: float
    load: float
    machine: float

    @property
    def free(self) -> float:
        """Requests per second that the machine's processors would have time for."""
        whole = (sum(self.parts) + self.environment + self.load) / self.rate
        busiest = max(self.parts) / self.rate
        return min((os.cpu_count() or 1) / whole, 1 / busiest)


def once(folder: Path, workers: int, connections: int, seconds: float, more: list[str]) -> Run:
    """Raises RuntimeError where an answer was not recorded, or went wrong."""
    summary = folder / "summary.json"
    record = recorder("--workers", str(workers), "--summary", str(summary), *more, core=None)
    with upstream(folder / "environment", core=None) as up, record(folder, up.plain) as one:
        wrk(f"{one.url}/deals/42", connections=connections, seconds=1, core=None)  # the first find cold caches
        pids = family(one.pid)
        before = [cpu_seconds(pid, alone=True) for pid in pids]
        its, all_before, load_before = up.cpu_seconds(), busy_seconds(), own_cpu_seconds()
        began = time.monotonic()
        seen = wrk(f"{one.url}/deals/42", connections=connections, seconds=seconds, core=None)
        took = time.monotonic() - began
        parts = tuple((cpu_seconds(pid, alone=True) - was) / took for pid, was in zip(pids, before, strict=True))
        loaded = (own_cpu_seconds() - load_before) / took
        theirs, whole = (up.cpu_seconds() - its) / took, (busy_seconds() - all_before) / took
    recorded = json.loads(summary.read_text())["recording"]["exchanges"]
    if seen.errors or seen.not_2xx or recorded < seen.requests:
        raise RuntimeError(f"{seen}, {recorded} exchanges recorded")
    return Run(
        workers=workers, rate=seen.requests / took, parts=parts, environment=theirs, load=loaded, machine=whole
    )  # fmt: skip


def told(run: Run) -> str:
    parts = " + ".join(f"{part:.2f}" for part in run.parts)
    return (
        f"  workers {run.workers}   {run.rate:7.0f} requests/s   processors: recorder {parts}, "
        f"environment {run.environment:.2f}, load {run.load:.2f}, whole machine {run.machine:.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--counts", default="1,2")
    parser.add_argument("more", nargs="*", help="options for record, behind --")
    given = parser.parse_args()
    counts = [int(word) for word in given.counts.split(",")]
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.2f} before anything was started", flush=True)
    runs: dict[int, list[Run]] = {count: [] for count in counts}
    for pair in range(given.pairs):
        for count in counts if pair % 2 == 0 else reversed(counts):
            with tempfile.TemporaryDirectory() as folder:
                run = once(Path(folder), count, given.connections, given.seconds, given.more)
            runs[count].append(run)
            print(told(run), flush=True)
    base = runs[counts[0]]
    for count in counts[1:]:
        ratios = sorted(b.rate / a.rate for a, b in zip(base, runs[count], strict=True))
        print(
            f"{count} workers against {counts[0]}: {statistics.median(ratios):.2f} times "
            f"(median of {len(ratios)} pairs, {ratios[0]:.2f} to {ratios[-1]:.2f})"
        )
        free = sorted(b.free / a.free for a, b in zip(base, runs[count], strict=True))
        print(f"  by processor time alone: {statistics.median(free):.2f} times ({free[0]:.2f} to {free[-1]:.2f})")
    for count in counts:
        each = statistics.median(sum(run.parts) / run.rate for run in runs[count]) * 1e6
        whole = statistics.median(run.machine / run.rate for run in runs[count]) * 1e6
        print(f"{count} workers: {each:.0f} us of recorder per request, {whole:.0f} us of the machine")


if __name__ == "__main__":
    main()
