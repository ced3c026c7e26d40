"""`gc` that is killed, has no room, or finds a file that was cut."""

from __future__ import annotations

import errno
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from replayproxy.core.canonical import digest
from replayproxy.errors import StoreTrouble
from replayproxy.storage import gc, open_store, rewriting
from replayproxy.storage.environment import Environment
from replayproxy.storage.gc import collect
from replayproxy.storage.layout import u64
from replayproxy.storage.verify import verify
from tests.storage.gc_kit import COLLECT, SHARED, content, fill, remove


def _damage(path: Path, db: str, key: bytes) -> None:
    """Turns a bit of the first record whose key begins so."""
    with open_store(path) as store, store.env.writing() as txn, txn.cursor(store.env.dbs[db]) as at:
        assert at.set_range(key)
        assert at.key().startswith(key)
        at.put(at.key(), at.value()[:-1] + bytes((at.value()[-1] ^ 1,)))


def _keys(path: Path, address: str) -> tuple[bytes, bytes]:
    """Of its run, and of its episode."""
    with open_store(path) as store:
        found = store.reader().resolve(address)
        assert found.episode is not None
        return u64(found.run.key), u64(found.episode.key)


OF_RUN = ("runs", "checks", "trials", "machines")
OF_EPISODE = ("episodes", "exchanges", "snapshots", "blobs")


@pytest.mark.parametrize(
    ("removed", "db"), [*(("r1", db) for db in OF_RUN + OF_EPISODE), *(("r1/e2", db) for db in OF_EPISODE)]
)
def test_what_is_damaged_and_removed_is_freed(tmp_path: Path, db: str, removed: str) -> None:
    path = tmp_path / "s"
    fill(path)
    kept = {name: held for name, held in content(path).items() if not f"{name}/".startswith(f"{removed}/")}
    run, episode = _keys(path, "r1/e2")
    if db == "blobs":
        own = random.Random("121").randbytes(30_000)
        key = digest(own)
    else:
        key = {"episodes": run + episode, "exchanges": episode, "snapshots": episode}.get(db, run)
    remove(path, removed)
    _damage(path, db, key)
    assert all("removed" in one or one["kind"] == "blob" for one in verify(path).damaged)
    assert verify(path).damaged
    collect(path)
    assert verify(path).damaged == []
    assert content(path) == kept


def test_a_damaged_body_that_something_kept_shares_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s"
    fill(path)
    remove(path, "r1")
    _damage(path, "blobs", digest(SHARED[: 256 * 1024]))
    before = (path / "data.mdb").read_bytes()
    with pytest.raises(StoreTrouble, match=r"is damaged \(blob "):
        collect(path)
    assert (path / "data.mdb").read_bytes() == before


@pytest.mark.parametrize("turn", range(5))
def test_killed_at_any_instant_it_leaves_a_whole_store_and_the_next_one_goes_on(tmp_path: Path, turn: int) -> None:
    killed_gc(tmp_path / "s", turn)


def killed_gc(path: Path, turn: int) -> None:
    """Kills it at a random instant behind one of its five steps; called with more turns by the soak."""
    rng = random.Random(turn)
    fill(path)
    before = content(path)
    remove(path, "r1", "r2/e0")
    kept = {name: held for name, held in before.items() if not name.startswith("r1/") and name != "r2/e0"}
    child = subprocess.Popen([sys.executable, "-c", COLLECT, str(path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    for _ in range(1 + turn % 5):
        child.stdout.readline()
    time.sleep(rng.random() * 0.05)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    assert verify(path).damaged == []
    assert content(path) == kept
    collect(path)
    assert content(path) == kept
    report = verify(path)
    assert report.damaged == []
    assert (report.read["runs"], report.read["episodes"]) == (2, 7)
    assert sorted(p.name for p in path.iterdir()) == [
        ".gitignore", "data.mdb", "lock.mdb", "recorder.lock", "writers.lock",
    ]  # fmt: skip


def test_a_file_that_only_lacks_unused_pages_is_filled_up_and_another_one_refused(tmp_path: Path) -> None:
    """As after a kill between a commit and the filling up: LMDB need not write the last pages that it freed again."""
    fill(tmp_path / "s", runs=2, episodes=1)
    remove(tmp_path / "s", "r0", "r1")
    with open_store(tmp_path / "s") as opened:
        pages = opened.env.env.info()["last_pgno"] + 1
    mended = 0
    data = tmp_path / "s/data.mdb"
    for lost in range(1, 200):
        with data.open("r+b") as file:
            file.truncate((pages - lost) * 4096)
        try:
            open_store(tmp_path / "s").close()
        except StoreTrouble as trouble:
            refused = str(trouble)
            break
        mended += 1
        assert data.stat().st_size == pages * 4096
        assert verify(tmp_path / "s").damaged == []
    assert "is cut" in refused
    assert data.stat().st_size == (pages - lost) * 4096, "what is refused is left as it is"
    assert mended > 0


def test_ended_between_the_episodes_of_a_run_and_their_names_the_next_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "s", runs=2)
    remove(tmp_path / "s", "r0")

    def ended(env: Environment, db: str, prefix: bytes) -> int:
        if db == "episode-names":
            raise KeyboardInterrupt
        return real(env, db, prefix)

    real = gc._all_under
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(gc, "_all_under", ended)
        collect(tmp_path / "s")
    assert verify(tmp_path / "s").damaged == []
    assert collect(tmp_path / "s").count["runs"] == 1
    assert verify(tmp_path / "s").damaged == []


def test_on_a_disk_without_a_single_free_block_it_deletes_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it deletes first may be what it needs: pages that the file has free already."""
    fill(tmp_path / "s")
    remove(tmp_path / "s", "r0")

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("replayproxy.storage.locks.os.pwrite", full)
    monkeypatch.setattr(rewriting.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 0}))
    assert collect(tmp_path / "s").count["runs"] == 1
    with open_store(tmp_path / "s") as store, pytest.raises(StoreTrouble, match="no space left on device"):
        store.writer()


def test_the_new_file_belongs_to_whom_the_old_one_belonged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "s")
    remove(tmp_path / "s", "r0")
    data = tmp_path / "s/data.mdb"
    data.chmod(0o660)
    given: list[tuple[int, int]] = []
    monkeypatch.setattr(rewriting.os, "fchown", lambda _, user, group: given.append((user, group)))
    before = data.stat()
    collect(tmp_path / "s")
    after = data.stat()
    assert after.st_ino != before.st_ino
    assert after.st_mode == before.st_mode
    assert given == [(before.st_uid, before.st_gid)]
