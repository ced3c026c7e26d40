"""A recorded state is written back and read; what does not take is told, and through the store nothing is lost."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from replayproxy.core import prolly
from replayproxy.core.values import Episode, Run, Snapshot, SnapshotStatus
from replayproxy.state import CannotRestore, Reading, RestoreFailed, StateUnreadable
from replayproxy.state.capture import Capture
from replayproxy.state.loader import Loaded, load
from replayproxy.state.restore import read_root, restore
from replayproxy.storage import Store


class World:
    """Keeps rows; `take` says what a restore makes of what it is given."""

    atomic, scope = True, "instance"
    can_restore = True

    def __init__(self, take: Callable[[Any], Any] = dict) -> None:
        self.rows: Any = {"t": {"1": {"n": 1}}}
        self.closed = 0
        self._take = take

    def capture(self) -> Reading:
        return Reading(rows=self.rows)

    def restore(self, rows: Any) -> None:
        self.rows = self._take(rows)

    def close(self) -> None:
        self.closed += 1


class Nodes(dict[bytes, bytes]):
    def tree(self, rows: Any) -> bytes:
        tree = prolly.build(rows)
        self.update(tree.nodes)
        return tree.root


WANTED = {"t": {"1": {"n": 2}, "2": {"n": 3}}}


async def test_what_is_read_back_is_given() -> None:
    nodes, world = Nodes(), World()
    wanted = nodes.tree(WANTED)
    found = await restore(Loaded.of("crm", lambda: world), wanted, nodes.__getitem__, save=nodes.update)
    assert found == wanted
    assert world.rows == WANTED
    assert world.closed == 2


async def test_a_restore_that_does_nothing_is_seen() -> None:
    nodes, world = Nodes(), World(take=lambda rows: {"t": {"1": {"n": 1}}})
    wanted = nodes.tree(WANTED)
    found = await restore(Loaded.of("crm", lambda: world), wanted, nodes.__getitem__, save=nodes.update)
    assert found != wanted
    assert [(c.table, c.key) for c in prolly.diff(wanted, found, nodes.__getitem__)] == [("t", "1"), ("t", "2")]


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (RestoreFailed("no table x"), RestoreFailed, "snapshot crm: no table x"),
        (CannotRestore("answered 405"), CannotRestore, "snapshot crm: answered 405"),
        (ZeroDivisionError("oops"), RestoreFailed, "snapshot crm: ZeroDivisionError: oops"),
    ],
)
async def test_what_a_provider_raises_names_the_snapshot(error: Exception, kind: type[Exception], words: str) -> None:
    def fail(_: Any) -> Any:
        raise error

    nodes = Nodes()
    with pytest.raises(kind, match=words):
        await restore(Loaded.of("crm", lambda: World(fail)), nodes.tree(WANTED), nodes.__getitem__, save=nodes.update)


async def test_a_provider_that_cannot_write_is_not_asked_to() -> None:
    nodes, world = Nodes(), World()
    world.can_restore = False
    with pytest.raises(CannotRestore):
        await restore(Loaded.of("crm", lambda: world), nodes.tree(WANTED), nodes.__getitem__, save=nodes.update)
    assert world.rows == {"t": {"1": {"n": 1}}}


async def test_a_restore_that_hangs_ends_at_the_limit() -> None:
    free, nodes = threading.Event(), Nodes()
    hanging = Loaded.of("crm", lambda: World(lambda rows: free.wait(10)))
    with pytest.raises(RestoreFailed, match="did not end in"):
        await restore(hanging, nodes.tree(WANTED), nodes.__getitem__, save=nodes.update, limit=0.05)
    free.set()


async def test_a_state_that_cannot_be_read_back_is_told() -> None:
    with pytest.raises(StateUnreadable, match="snapshot crm: there is no database"):
        await read_root(load("crm", "sqlite:/no/such/file.db"), save=lambda nodes: None)


def files(root: Path) -> list[Any]:
    return sorted((p.name, p.read_bytes(), p.stat().st_mtime_ns) for p in root.iterdir())


async def test_a_state_comes_back_through_the_store(store: Store, tmp_path: Path) -> None:
    path, root = tmp_path / "crm.db", tmp_path / "files"
    root.mkdir()
    (root / "big").write_bytes(os.urandom(300_000))
    (root / "small").write_text("x")
    os.utime(root / "small", ns=(5, 5))
    with closing(sqlite3.connect(path)) as live:
        live.execute("CREATE TABLE words (word TEXT PRIMARY KEY, raw BLOB)")
        live.executemany("INSERT INTO words VALUES (?, ?)", [(f"w{n * 7 % 500}", bytes([n % 256])) for n in range(500)])
        live.commit()
        before = live.execute("SELECT * FROM words").fetchall(), files(root)

        writer = store.writer()
        run = writer.open_run(Run(key=0, name="r", opened_wall=0))
        episode = writer.open_episode(Episode(key=0, run_key=run.key, name="e"))
        specs = [load("crm", f"sqlite:{path}"), load("files", f"dir:{root}")]
        capture = Capture(specs, save=writer.put_nodes, now=time.monotonic_ns, wall=time.time_ns)
        for n, name in enumerate(capture.names()):
            writer.put_snapshot(episode.key, await capture.take(name, when="start", n=n, mode="hold"))
        capture.close()
        await asyncio.wrap_future(writer.flush())

        live.executescript("DELETE FROM words; INSERT INTO words VALUES ('other', NULL)")
        (root / "big").unlink()
        (root / "small").write_text("changed")

        reader = store.reader()
        shots: list[Snapshot] = reader.snapshots(episode)
        for loaded, shot in zip(specs, shots, strict=True):
            assert shot.status is SnapshotStatus.TAKEN, shot.reason
            assert shot.root is not None
            found = await restore(loaded, shot.root, reader.node, save=writer.put_nodes, aside=shot.aside)
            assert found == shot.root
        assert (live.execute("SELECT * FROM words").fetchall(), files(root)) == before
        writer.close()
