"""`gc` beside readers and writers: before it, meanwhile, and with the old file still open."""

from __future__ import annotations

import errno
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from replayproxy.errors import DamagedRecord, StoreTrouble, UnknownAddress
from replayproxy.storage import locks, open_store, rewriting
from replayproxy.storage.environment import Environment
from replayproxy.storage.gc import collect
from replayproxy.storage.verify import verify
from replayproxy.testing import episode, exchange, run
from tests.storage.gc_kit import COLLECT, content, fill, remove

READ = """
import sys
from pathlib import Path
from replayproxy.storage import open_store
store = open_store(Path(sys.argv[1]))
reader = store.reader()
made = reader.run("r2")
while sys.stdin.readline():
    print(sum(len(reader.trace(made, e).exchanges) for e in reader.episodes(made)), flush=True)
"""


def test_a_reader_that_was_there_reads_on_and_a_writer_that_comes_later_does_no_harm(tmp_path: Path) -> None:
    """They share LMDB's lock file, which says which of the two meta pages of either file is the newer."""
    fill(tmp_path / "s")
    remove(tmp_path / "s", "r0")
    reading = subprocess.Popen(
        [sys.executable, "-c", READ, str(tmp_path / "s")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert reading.stdin is not None
    assert reading.stdout is not None

    def read() -> str:
        assert reading.stdin is not None
        assert reading.stdout is not None
        reading.stdin.write("\n")
        reading.stdin.flush()
        return reading.stdout.readline()

    assert read() == "12\n"
    for turn in range(3):  # of both parities
        collect(tmp_path / "s")
        assert read() == "12\n"
        with open_store(tmp_path / "s") as store:
            writer = store.writer()
            made = writer.open_run(run(f"again{turn}"))
            for n in range(turn + 1):
                rollout = writer.open_episode(episode(f"e{n}", run_key=made.key))
                writer.put_exchange(rollout.key, exchange(body=random.randbytes(500_000)))
                writer.seal(rollout).result(9)
            writer.close()
        assert read() == "12\n"
        remove(tmp_path / "s", f"again{turn}")
    reading.stdin.close()
    assert reading.wait(9) == 0
    assert verify(tmp_path / "s").damaged == []
    assert content(tmp_path / "s").keys() == {f"r{r}/e{e}" for r in (1, 2) for e in range(4)}


def test_who_had_the_old_file_open_cannot_write_into_nothing(tmp_path: Path) -> None:
    fill(tmp_path / "s")
    remove(tmp_path / "s", "r0")
    with open_store(tmp_path / "s") as store:
        subprocess.run([sys.executable, "-c", COLLECT, str(tmp_path / "s")], check=True)
        with pytest.raises(StoreTrouble, match="removed or replaced while it was open"):
            store.writer()
        with pytest.raises(StoreTrouble, match="replaced while this process read it"):
            open_store(tmp_path / "s")
    with open_store(tmp_path / "s") as store:
        store.writer().close()


OPENED = """
import sys
from pathlib import Path
from replayproxy.storage import open_store
from replayproxy.testing import run
with open_store(Path(sys.argv[1])) as store:
    print("open", flush=True)
    if sys.stdin.readline():
        try:
            writer = store.writer()
            writer.open_run(run("late"))
            writer.close()
            print("written", flush=True)
        except Exception as error:
            print(error, flush=True)
        sys.stdin.readline()
"""


def opened(path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", OPENED, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def turn(child: subprocess.Popen[str]) -> str:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write("\n")
    child.stdin.flush()
    return child.stdout.readline()


def test_who_opens_the_store_while_the_file_is_written_anew_gets_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening waits for the transaction that `gc` holds, with the old file mapped already."""
    fill(tmp_path / "s")
    remove(tmp_path / "s", "r0")
    waiting: list[subprocess.Popen[str]] = []
    real = rewriting._refuse_unlike

    def copied(env: Environment, txn: object, copy: Path, *, less: bool) -> None:
        real(env, txn, copy, less=less)
        waiting.append(opened(tmp_path / "s"))
        deadline = time.monotonic() + 20
        while "data.mdb" not in Path(f"/proc/{waiting[0].pid}/maps").read_text():
            assert time.monotonic() < deadline
            time.sleep(0.01)

    monkeypatch.setattr(rewriting, "_refuse_unlike", copied)
    collect(tmp_path / "s")
    with waiting[0] as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "open\n"
        assert turn(child) == "written\n"
        turn(child)
    with open_store(tmp_path / "s") as store:
        assert [one.name for one in store.reader().runs()] == ["r1", "r2", "late"]
    assert verify(tmp_path / "s").damaged == []


def test_who_had_an_older_store_open_makes_no_empty_store_of_the_new_file(tmp_path: Path) -> None:
    """One commit into the old file, and the lock file that both share points to the empty meta page of the new one."""
    fill(tmp_path / "s")
    remove(tmp_path / "s", "r0")
    with open_store(tmp_path / "s") as store, store.env.writing() as txn:
        txn.drop(store.env.dbs["machines"])
    with opened(tmp_path / "s") as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "open\n"
        assert collect(tmp_path / "s").count["runs"] == 1
        assert "replaced while it was open" in turn(child)
        assert content(tmp_path / "s").keys() == {f"r{r}/e{e}" for r in (1, 2) for e in range(4)}
        turn(child)


def test_what_is_said_of_a_run_that_is_gone_meanwhile_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kept, it would be damage, and no `gc` would run any more."""
    fill(tmp_path / "s", runs=2)
    # The file stays: whoever has it open may write.
    monkeypatch.setattr(rewriting.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 0}))
    with open_store(tmp_path / "s") as store:
        gone = store.reader().run("r0")
        remove(tmp_path / "s", "r0")
        collect(tmp_path / "s")
        writer = store.writer(exclusive=False)
        for told in (writer.put_trial(gone.key, {"wall": 5}), writer.put_check(gone.key, {"findings": []})):
            with pytest.raises(UnknownAddress, match="removed meanwhile"):
                told.result(9)
        writer.close()
    assert verify(tmp_path / "s").damaged == []
    assert +collect(tmp_path / "s").count == Counter()


def test_a_disk_that_becomes_read_only_holds_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "s", runs=1, episodes=1)

    def refused(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr(locks.os, "ftruncate", refused)
        with locks.alone(tmp_path / "s"):
            pass
    with locks.alone(tmp_path / "s"):
        pass


def test_while_somebody_writes_a_short_file_is_not_made_longer(tmp_path: Path) -> None:
    """An import, or a gc, may be between its commit and that: the file grows while another one reads it."""
    fill(tmp_path / "s", runs=2, episodes=1)
    remove(tmp_path / "s", "r0", "r1")
    data = tmp_path / "s/data.mdb"
    whole = data.stat().st_size
    with data.open("r+b") as file:
        file.truncate(whole - 4096)
    held = locks.share(tmp_path / "s")
    with pytest.raises(StoreTrouble, match="is cut"):
        open_store(tmp_path / "s")
    assert data.stat().st_size == whole - 4096
    locks.drop(held)
    open_store(tmp_path / "s").close()
    assert data.stat().st_size == whole


def test_an_episode_that_goes_while_it_is_read_is_not_taken_for_a_shorter_one(tmp_path: Path) -> None:
    fill(tmp_path / "s", runs=2, episodes=1, exchanges=100)
    with open_store(tmp_path / "s") as store:
        reader = store.reader()
        made = reader.run("r0")
        (rollout,) = reader.episodes(made)
        reading = reader.exchanges(rollout)
        next(reading)
        remove(tmp_path / "s", "r0")
        collect(tmp_path / "s")
        with pytest.raises(UnknownAddress, match=r"e0 was removed from .* while it was read"):
            list(reading)
        with pytest.raises(UnknownAddress, match="while it was read"):
            reader.trace(made, rollout)


def test_a_sealed_episode_that_lacks_exchanges_is_damaged_for_whoever_reads_them_one_by_one(tmp_path: Path) -> None:
    fill(tmp_path / "s", runs=1, episodes=1)
    with open_store(tmp_path / "s") as store:
        with store.env.writing() as txn, txn.cursor(store.env.dbs["exchanges"]) as at:
            assert at.last()
            at.delete()
        reader = store.reader()
        with pytest.raises(DamagedRecord, match="sealed with 3 exchanges, 2 are there"):
            list(reader.exchanges(reader.episode(reader.run("r0"), "e0")))
