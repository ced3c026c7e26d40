"""Writers that are killed at random instants, and one that is stopped between its write and its sync."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from replayproxy.core.values import EpisodeState
from replayproxy.storage import open_store
from replayproxy.storage.verify import verify

WRITE = """
import sys, threading, time
from pathlib import Path
from replayproxy.storage import open_store
from replayproxy.testing import episode, exchange, run
path, turn, waits = Path(sys.argv[1]), sys.argv[2], threading.Event()
if sys.argv[3:] == ["stop"]:
    # Stopped for ever where LMDB has written its pages and asked the disk to keep them. Its other thread waits for just
    # this commit then: were it in a transaction of its own, whoever opens the store would wait for it for ever.
    import os, signal
    from replayproxy.storage.environment import Environment
    filled = Environment.fill_up
    def fill_up(self):
        if waits.is_set() and threading.current_thread() is not threading.main_thread():
            print("stopped", flush=True)
            os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(3600)  # the signal may reach this thread later than it reaches the next transaction
        filled(self)
    Environment.fill_up = fill_up
writer = open_store(path, create=True).writer()
made = writer.open_run(run("r"), append=True)
n = 0
while True:
    name = f"{turn}-{n}"
    rollout = writer.open_episode(episode(name, run_key=made.key))
    for at in range(4):
        writer.put_exchange(rollout.key, exchange("POST", f"/{name}/{at}", sent=name.encode() * 900, at_ms=at))
        ended = time.monotonic_ns()
        if at == 2:
            print("put", name, ended, flush=True)  # durable 100 ms from now
            time.sleep(0.05 * (n % 4))
    sealed = writer.seal(rollout)
    waits.set() if n >= 3 else None
    sealed.result(30)
    waits.clear()
    print("sealed", name, time.monotonic_ns(), flush=True)
    n += 1
"""

DURABLE_NS = 100_000_000


def killed(path: Path, turn: int, rng: random.Random) -> list[str]:
    """One writer's life, ended by SIGKILL; what is wrong with the store afterwards."""
    child = subprocess.Popen([sys.executable, "-c", WRITE, str(path), str(turn)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    first = child.stdout.readline()
    time.sleep(rng.random() * 0.3)
    at = time.monotonic_ns()
    child.send_signal(signal.SIGKILL)
    return wrong(path, [first, *child.communicate()[0].splitlines()], at)


def stopped(path: Path) -> list[str]:
    """A writer that is stopped between its commit and what follows it, and killed there."""
    child = subprocess.Popen([sys.executable, "-c", WRITE, str(path), "9", "stop"], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    told = []
    while (line := child.stdout.readline()) and line != "stopped\n":
        told.append(line)
    _, status = os.waitpid(child.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    at = time.monotonic_ns()
    beside = wrong(path, told, 0)  # while it lies there stopped, others read
    with contextlib.suppress(ProcessLookupError):
        child.send_signal(signal.SIGKILL)
    told += child.communicate()[0].splitlines()
    return [*beside, *wrong(path, told, at)]


def wrong(path: Path, told: list[str], killed_at: int) -> list[str]:
    """What was acknowledged and is not there, and what is there and should not be. Instants are one clock's."""
    found: list[str] = []
    with open_store(path) as store:
        reader = store.reader()
        run = reader.run("r")
        there = {one.name: one for one in reader.episodes(run)}
        acknowledged = {line.split()[1] for line in told if line.startswith("sealed ")}
        for name, rollout in there.items():
            trace = reader.trace(run, rollout, bodies=1 << 20)
            targets = [one.request.target.decode() for one in trace.exchanges]
            if targets != [f"/{name}/{at}" for at in range(len(targets))]:
                found.append(f"{name} holds {targets}")
            if rollout.state is EpisodeState.SEALED and len(targets) != 4:
                found.append(f"{name} is sealed with {len(targets)} of 4 exchanges")
            if name in acknowledged and rollout.state is not EpisodeState.SEALED:
                found.append(f"{name} was acknowledged and is {rollout.state}")
            if killed_at and rollout.state is EpisodeState.OPEN:
                found.append(f"{name} seems to be open, and its writer is dead")
        found += [f"{name} was acknowledged and is gone" for name in acknowledged - set(there)]
        for words in (line.split() for line in told if line.startswith("put ")):
            name, due = words[1], int(words[2]) + DURABLE_NS
            lost = name not in there or reader.count(there[name]) < 3
            if killed_at and due < killed_at and lost:
                found.append(
                    f"{name}: an exchange ended {(killed_at - due) / 1e6 + 100:.0f} ms before the kill is gone"
                )
    return found


def rounds(folder: Path, count: int, seed: int = 0) -> list[str]:
    """So many lives of writers, ten on each store, and whether the stores are whole at the end: for `make soak`."""
    rng = random.Random(seed)
    found: list[str] = []
    for turn in range(count):
        path = folder / f"store{turn // 10}"
        found += killed(path, turn, rng)
        if turn % 10 == 9 or turn == count - 1:
            found += [str(damage) for damage in verify(path).damaged]
            with open_store(path) as store:
                store.writer().close()
    return found
