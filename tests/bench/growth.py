"""What grows with the recording, and what must not: memory, opening a store, comparing two runs, starting."""

from __future__ import annotations

import http.client
import resource
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import batched, islice
from pathlib import Path
from urllib.parse import urlsplit

from replayproxy.storage import open_store
from tests.bench import check_speed, contenders, store_size
from tests.bench.contenders import BIN
from tests.bench.load import wrk
from tests.bench.machine import PROXY_CORE, pinned, private_mib
from tests.bench.recordings import Recording, make
from tests.bench.rounds import Row


def ran(command: Sequence[str], *, ok: tuple[int, ...] = (0,)) -> Row:
    """A command of ours, run to its end: seconds, CPU seconds, and most memory in MiB. Raises RuntimeError."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    done = subprocess.run(
        ["/usr/bin/env", "time", "-f", "%M", str(BIN / "replayproxy"), *command],
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.monotonic() - began
    if done.returncode not in ok:
        raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}: {done.stderr[-300:]}")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    return {
        "seconds": round(seconds, 3),
        "cpu_s": round(cpu, 3),
        "peak_mib": round(int(done.stderr.split()[-1]) / 1024, 1),
    }


def opening(folder: Path, sizes: Sequence[int], rounds: int) -> Iterator[Row]:
    """`ls` and `show` of one exchange in stores of so many exchanges, a thousand an episode; replay's memory, asked by
    eight rollouts at a time."""
    for size in sizes:
        made = make(folder / f"store-{size}", size // 1000, 1000)
        for number in range(1, rounds + 1):
            for name, command in {"ls": ["ls"], "show": ["show", "r/e3/500"]}.items():
                told = ran([*command, "--store", str(made.store)])
                yield {"group": "opening", "name": f"{name} of {size:,}", "round": number, **told}
        home = folder / f"replay-{size}"
        home.mkdir()
        with contenders.replay(home, str(made.folder)) as one:
            answered = asked_in_turn(one.url, as_rollouts(made, home / "rollouts"), most=ASKED)
            yield {
                "group": "memory",
                "name": f"replay of {size:,}",
                "round": 1,
                "private_mib": round(private_mib(one.pid), 1),
                "answered": answered,
            }


ASKED = 100_000
"""Requests that a replay of a large recording is looked at after."""


def as_rollouts(made: Recording, path: Path, at_once: int = 8) -> Path:
    """The requests of a recording as rollouts ask for them: each episode from its begin to its end, so many at once."""
    of: dict[str, list[str]] = defaultdict(list)
    for line in made.paths.open():
        of[line.split("/")[2]].append(line)
    with path.open("w") as out:
        for group in batched(of.values(), at_once):
            for lines in zip(*group, strict=True):
                out.writelines(lines)
    return path


def asked_in_turn(url: str, paths: Path, *, most: int) -> int:
    """Asks for the paths of a file, one after another, and says how many were answered: all, or so many."""
    where, count = urlsplit(url), 0
    line = http.client.HTTPConnection(where.hostname or "", where.port)
    with paths.open() as asked:
        for path in islice(asked, most):
            line.request("GET", path.strip())
            answer = line.getresponse()
            answer.read()
            if answer.status != 200:
                raise RuntimeError(f"{path.strip()}: {answer.status}")
            count += 1
    line.close()
    return count


def memory_of_recording(folder: Path, upstream: str, sizes: Sequence[int]) -> Iterator[Row]:
    """One recorder, looked at when it has recorded so many exchanges."""
    (folder / "growing").mkdir(parents=True)
    with contenders.recorder()(folder / "growing", upstream) as one:
        total = 0
        for size in sorted(sizes):
            while total < size:
                total += wrk(f"{one.url}/deals/1", seconds=5).requests
            yield {
                "group": "memory", "name": f"record of {size:,}", "round": 1, "recorded": total,
                "private_mib": round(private_mib(one.pid), 1),
            }  # fmt: skip


def diffing(folder: Path, sizes: Sequence[int], rounds: int) -> Iterator[Row]:
    """Two runs whose answers differ in a clock field only, fifty exchanges an episode."""
    for size in sizes:
        home = folder / f"diff-{size}"
        made = make(home, size // 50, 50)
        make(home, size // 50, 50, run="again", clock=1000)
        for number in range(1, rounds + 1):
            told = ran(["diff", "r", "again", "--store", str(made.store), "--json"], ok=(0, 1))
            yield {
                "group": "diff",
                "name": f"{size:,}",
                "round": number,
                **told,
                "pairs_per_s": round(size / told["seconds"]),
            }


def checking(folder: Path, episodes: Sequence[int]) -> Iterator[Row]:
    """`check` over recordings of so many episodes, a hundred exchanges each (see check_speed)."""
    for count in episodes:
        store = folder / f"check-{count}" / "store"
        store.parent.mkdir(parents=True)
        exchanges = check_speed.record(store, count)
        told = check_speed.measure(store)
        yield {
            "group": "check", "name": f"{exchanges:,}", "round": 1, "seconds": told["seconds"], "cpu_s": told["cpu"],
            "peak_mib": told["peak_mb"], "findings": told["findings"],
        }  # fmt: skip


def storing(folder: Path, exchanges: int) -> Iterator[Row]:
    """Bytes an exchange takes in the store and in mitmproxy's flow file: the same small JSON traffic."""
    flows = store_size.flow_file(exchanges, seed=7)
    folder.mkdir(exist_ok=True)
    with open_store(folder / "store", create=True) as store:
        store_size.record(store, exchanges, 1, 7)
        _, pages = store_size.used(store)
    for name, taken in (("flow file", flows), ("store", pages)):
        yield {
            "group": "size",
            "name": name,
            "round": 1,
            "exchanges": exchanges,
            "bytes_each": round(taken / exchanges, 1),
        }


def starting(rounds: int) -> Iterator[Row]:
    for number in range(1, rounds + 1):
        yield {"group": "starting", "name": "--help", "round": number, **ran(["--help"])}
        began = time.monotonic()
        subprocess.run([*pinned(PROXY_CORE), str(BIN / "python"), "-c", "import click"], check=True)
        yield {
            "group": "starting", "name": "python -c 'import click'", "round": number,
            "seconds": round(time.monotonic() - began, 3),
        }  # fmt: skip
