"""Stores to be collected, and what they hold."""

from __future__ import annotations

import random
from pathlib import Path

from replayproxy.core import prolly
from replayproxy.core.values import EpisodeState
from replayproxy.storage import open_store
from replayproxy.storage.verify import verify
from replayproxy.testing import episode, exchange, run, snapshot

SHARED = random.Random(1).randbytes(300_000)


def state(n: int) -> prolly.Built:
    return prolly.build({"deals": {str(key): {"n": n * (key % 7 == n), "title": "x" * 60} for key in range(200)}})


def fill(path: Path, runs: int = 3, episodes: int = 4, exchanges: int = 3) -> None:
    """Every run has bodies and states of its own, and some that all of them share."""
    with open_store(path, create=True) as store:
        writer = store.writer()
        for r in range(runs):
            made = writer.open_run(run(f"r{r}"))
            built = state(r)
            writer.put_nodes(built.nodes)
            for e in range(episodes):
                rollout = writer.open_episode(episode(f"e{e}", run_key=made.key))
                writer.put_snapshot(rollout.key, snapshot(0, built.root))
                for n in range(exchanges):
                    own = random.Random(f"{r}{e}{n}").randbytes(30_000)
                    writer.put_exchange(rollout.key, exchange(at_ms=n, body=SHARED if n == 0 else own))
                writer.seal(rollout).result(9)
            writer.put_check(made.key, {"run": made.name, "findings": [], "references": []})
            writer.put_trial(made.key, {"finding": "race-1", "wall": 5})
        writer.close()


def remove(path: Path, *addresses: str) -> None:
    with open_store(path) as store:
        writer, reader = store.writer(exclusive=False), store.reader()
        for address in addresses:
            at = reader.resolve(address)
            writer.remove(at.run.key, at.episode.key if at.episode else None)
        writer.close()


def content(path: Path) -> dict[str, tuple[bytes, ...]]:
    """Everything that is listed, with all that belongs to it; any damage raises."""
    found = {}
    with open_store(path) as store:
        reader = store.reader()
        for one in reader.runs():
            reader.check(one)
            for rollout in reader.episodes(one):
                trace = reader.trace(one, rollout, bodies=1 << 30)
                bodies = [x.response.body.inline or b"" for x in trace.exchanges if x.response and x.response.body]
                states = [repr(sorted(prolly.rows(s.root, reader.node).items())).encode()
                          for s in trace.snapshots if s.root]  # fmt: skip
                assert rollout.state is EpisodeState.SEALED
                found[f"{one.name}/{rollout.name}"] = (*bodies, *states)
    return found


def blobs(path: Path) -> int:
    return verify(path).read["blobs"]


def fill_more(path: Path) -> None:
    with open_store(path) as store:
        writer = store.writer()
        made = writer.open_run(run("more"))
        rollout = writer.open_episode(episode("e", run_key=made.key))
        for n in range(5):
            writer.put_exchange(rollout.key, exchange(at_ms=n, body=random.randbytes(20_000)))
        writer.seal(rollout).result(9)
        writer.close()


COLLECT = """
import sys
from pathlib import Path
from replayproxy.storage import gc
gc.AT_ONCE = 3
gc.collect(Path(sys.argv[1]), tell=lambda what: print(what, flush=True))
"""
