"""Measures, and writes docs/performance.md.    python -m tests.bench [GROUP ..] [--rounds N] [--seconds S] [--page DIR]

Groups: see GROUPS. Without any: all of them. `--large`: the sizes that
take long to make (a million exchanges). Rows are printed as they are measured, one JSON document a line.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.bench import growth, recording_speed, replay_speed, workers
from tests.bench.machine import describe
from tests.bench.page import ROWS, write
from tests.bench.rounds import Row
from tests.bench.upstream import upstream

GROUPS = ("record", "snapshots", "replay", "opening", "memory", "diff", "check", "size", "workers", "starting")


def measure(group: str, folder: Path, *, rounds: int, seconds: float, large: bool) -> Iterator[Row]:
    if group == "record":
        with upstream(folder / "environment") as up:
            yield from recording_speed.beside_mitmdump(up, folder, rounds, seconds, recording_speed.LOADS)
    elif group == "snapshots":
        for rows in (1_000, 10_000):
            yield from recording_speed.with_snapshots(folder, rows, rounds, seconds)
    elif group == "replay":
        yield from replay_speed.beside_others(folder, rounds, min(seconds, 2))
    elif group == "opening":
        yield from growth.opening(folder, (10_000, 1_000_000) if large else (10_000, 100_000), rounds)
    elif group == "memory":
        with upstream(folder / "environment") as up:
            yield from growth.memory_of_recording(
                folder, f"{up.plain}", (10_000, 1_000_000) if large else (10_000, 50_000)
            )  # fmt: skip
    elif group == "diff":
        yield from growth.diffing(folder, (10_000, 100_000), max(1, rounds // 2))
    elif group == "check":
        yield from growth.checking(folder, (1000, 2000) if large else (100, 200))
    elif group == "size":
        yield from growth.storing(folder / "size", 20_000)
    elif group == "workers":
        yield from two_workers(folder, rounds)
    else:
        yield from growth.starting(rounds)


def two_workers(folder: Path, rounds: int) -> Iterator[Row]:
    """One and two proxy processes, in turns."""
    for number in range(1, rounds + 1):
        for count in (1, 2):
            home = folder / f"workers-{number}-{count}"
            home.mkdir()
            run = workers.once(home, count, connections=32, seconds=6.0, more=[])
            yield {"group": "workers", "name": str(count), "round": number, "rate": round(run.rate, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=", ".join(GROUPS))
    parser.add_argument("--rounds", type=int, default=5, help="turns of each program (%(default)s)")
    parser.add_argument("--seconds", type=float, default=3, help="of load in a turn (%(default)s)")
    parser.add_argument(
        "--large", action="store_true", help="a million exchanges for memory and opening, 200,000 for check"
    )
    parser.add_argument("--page", type=Path, help="write performance.md, its rows and its plot into this folder")
    given = parser.parse_args()
    unknown = [group for group in given.groups if group not in GROUPS]
    if unknown:
        parser.error(f"{unknown[0]} is none of {', '.join(GROUPS)}")
    rows: list[Row] = [{"group": "machine", "name": "machine", **describe()}]
    print(json.dumps(rows[0]), flush=True)
    for group in given.groups or GROUPS:
        # A group's machine is noted with it: it may be another day, or another load.
        with tempfile.TemporaryDirectory(prefix="replayproxy-bench-") as folder:
            for row in measure(group, Path(folder), rounds=given.rounds, seconds=given.seconds, large=given.large):
                rows.append(row)
                print(json.dumps(row), flush=True)
    if given.page is not None:
        write(rows, given.page)
        print(f"wrote {given.page / 'performance.md'} and {given.page / ROWS}", file=sys.stderr)


if __name__ == "__main__":
    main()
