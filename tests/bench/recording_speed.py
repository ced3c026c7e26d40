"""What recording costs: throughput and CPU beside mitmdump, beside a bare proxy, with snapshots and without."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from tests.bench import contenders
from tests.bench.contenders import Running
from tests.bench.load import Load, wrk
from tests.bench.machine import LOAD_CORE, pinned
from tests.bench.rounds import Row, turns
from tests.bench.upstream import Upstream, free_port, wait_for

LOADS = ("small", "large", "events", "tls")
"""A JSON document of 600 bytes, one of 64 KiB, a stream of 20 events, the small one over TLS."""


def beside_mitmdump(up: Upstream, folder: Path, rounds: int, seconds: float, loads: tuple[str, ...]) -> Iterator[Row]:
    for kind in loads:
        base = {"events": up.events, "tls": up.tls}.get(kind, up.plain)
        path = "/large" if kind == "large" else "/deals/1"
        programs = {
            "bare": (contenders.bare, base),
            "mitmdump -q": (contenders.mitmdump(), base),
            "mitmdump -w": (contenders.mitmdump("-w", "{folder}/flows"), base),
            "replayproxy": (contenders.recorder(), f"{base},ca={up.certificate}" if kind == "tls" else base),
        }
        yield from turns(
            f"record {kind}", programs, lambda _, one, path=path: wrk(one.url + path, seconds=seconds), folder, rounds
        )  # fmt: skip


def with_snapshots(folder: Path, rows: int, rounds: int, seconds: float) -> Iterator[Row]:
    """One request in ten is a write; beside the load a second episode reads, on its own."""
    home = folder / f"state-{rows}"
    home.mkdir(parents=True)
    with _environment(home / "state.db", rows) as base:
        programs = {
            "without": (contenders.recorder(), base),
            "with": (contenders.recorder("--snapshot", f"app=sqlite:{home / 'state.db'}"), base),
        }
        others: list[Row] = []
        group = f"snapshots {rows:,} rows"

        def load(name: str, one: Running) -> Load:
            with ThreadPoolExecutor(1) as beside:
                other = beside.submit(wrk, f"{one.url}/rp/other/deals/2", connections=2, seconds=seconds)
                seen = wrk(f"{one.url}/rp/e1/deals/1", connections=8, seconds=seconds, write_every=10)
            others.append({"group": group, "name": f"{name}, other episode", **other.result().to_json()})
            return seen

        yield from turns(group, programs, load, folder, rounds)
        # The first turn of each only warmed it up.
        for number, row in enumerate(others[len(programs) :]):
            yield {**row, "round": number // len(programs) + 1}


@contextmanager
def _environment(path: Path, rows: int) -> Iterator[str]:
    with sqlite3.connect(path) as made:
        made.execute("PRAGMA journal_mode=WAL")
        made.execute("CREATE TABLE deals (id INTEGER PRIMARY KEY, stage TEXT, owner TEXT, amount INTEGER, notes TEXT)")
        made.executemany(
            "INSERT INTO deals VALUES (?, 'lead', 'ada', ?, ?)",
            [(n, n * 7, f"a note about deal {n} " * 8) for n in range(rows)],
        )
    made.close()
    port = free_port()
    process = subprocess.Popen(
        [*pinned(LOAD_CORE), sys.executable, "-m", "tests.bench.environment", str(port), str(path)]
    )  # fmt: skip
    try:
        wait_for(port, process=process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)
