"""Copies of a SQLite file, taken without a lock: of one instant, or none."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from replayproxy.state import StateUnreadable, sqlite_copy
from replayproxy.state.sqlite_copy import SqliteCopy


@pytest.fixture
def env(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(tmp_path / "x.db", isolation_level=None, timeout=0)) as live:
        live.execute("CREATE TABLE t (n)")
        yield live


def rows(whole: bytes | None) -> list[Any]:
    assert whole is not None
    with closing(sqlite3.connect(":memory:")) as copy:
        copy.deserialize(whole)
        return copy.execute("SELECT n FROM t").fetchall()


@pytest.mark.parametrize("mode", ["DELETE", "TRUNCATE", "PERSIST", "MEMORY", "WAL"])
def test_each_commit_is_in_the_next_copy_and_nothing_is_copied_twice(
    env: sqlite3.Connection, tmp_path: Path, mode: str
) -> None:
    env.execute(f"PRAGMA journal_mode = {mode}")
    copies = SqliteCopy(tmp_path / "x.db")
    for number in range(5):
        env.execute("INSERT INTO t VALUES (?)", (number,))
        assert rows(copies.take()) == [(n,) for n in range(number + 1)]
        assert copies.take() is None
    copies.close()


def test_no_lock_is_held_that_could_stop_a_writer(
    env: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = sqlite_copy._read

    def slowly(file: int) -> bytes:
        env.execute("INSERT INTO t VALUES (1)")  # a whole transaction while we read: it succeeds, and we read again
        monkeypatch.setattr(sqlite_copy, "_read", read)
        return read(file)

    monkeypatch.setattr(sqlite_copy, "_read", slowly)
    assert rows(SqliteCopy(tmp_path / "x.db").take()) == [(1,)]


def test_without_a_pause_there_is_no_copy(
    env: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = sqlite_copy._read

    def written(file: int) -> bytes:
        env.execute("INSERT INTO t VALUES (1)")
        return read(file)

    monkeypatch.setattr(sqlite_copy, "_read", written)
    monkeypatch.setattr(sqlite_copy, "PATIENCE", 0.05)
    with pytest.raises(StateUnreadable, match="written without a pause"):
        SqliteCopy(tmp_path / "x.db").take()


def test_a_copy_of_a_transaction_under_way_is_the_state_before_it(env: sqlite3.Connection, tmp_path: Path) -> None:
    copies = SqliteCopy(tmp_path / "x.db")
    env.execute("INSERT INTO t VALUES (1)")
    env.execute("BEGIN IMMEDIATE")
    env.execute("INSERT INTO t VALUES (2)")
    assert rows(copies.take()) == [(1,)]
    env.execute("COMMIT")
    assert rows(copies.take()) == [(1,), (2,)]


def test_a_database_that_turns_to_wal_and_back_is_followed(env: sqlite3.Connection, tmp_path: Path) -> None:
    copies = SqliteCopy(tmp_path / "x.db")
    env.execute("INSERT INTO t VALUES (1)")
    assert rows(copies.take()) == [(1,)]
    env.execute("PRAGMA journal_mode = WAL")
    env.execute("INSERT INTO t VALUES (2)")
    assert rows(copies.take()) == [(1,), (2,)]
    copies.close()
    env.execute("PRAGMA journal_mode = DELETE")
    env.execute("INSERT INTO t VALUES (3)")
    assert rows(copies.take()) == [(1,), (2,), (3,)]


def test_files_stay_open_only_until_they_are_deleted(tmp_path: Path) -> None:
    def held() -> int:
        return sum(str(tmp_path) in os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.exists())

    path = tmp_path / "x.db"
    for _ in range(5):
        path.unlink(missing_ok=True)
        with closing(sqlite3.connect(path)) as live:
            live.execute("CREATE TABLE t (n)")
        copies = SqliteCopy(path)
        assert rows(copies.take()) == []
        copies.close()
    assert held() <= 2


def spill(env: sqlite3.Connection) -> None:
    """A transaction that is not done, and is written to the file all the same: a small cache is soon full."""
    env.execute("PRAGMA cache_size = 5")
    env.execute("BEGIN")
    env.execute("UPDATE t SET n = 'new' || n")


def filled(path: Path) -> list[Any]:
    many = [(f"{n}" + "much" * 200,) for n in range(200)]
    with closing(sqlite3.connect(path)) as live:
        live.execute("CREATE TABLE IF NOT EXISTS t (n)")
        live.executemany("INSERT INTO t VALUES (?)", many)
        live.commit()
    return many


def test_behind_a_link_too_a_transaction_under_way_is_not_read(env: sqlite3.Connection, tmp_path: Path) -> None:
    before = filled(tmp_path / "x.db")
    link = tmp_path / "links" / "y.db"
    link.parent.mkdir()
    link.symlink_to(Path("..") / "x.db")
    copies = SqliteCopy(link)
    spill(env)
    assert b"new199" not in (tmp_path / "x.db").read_bytes()
    assert b"new0much" in (tmp_path / "x.db").read_bytes()
    assert rows(copies.take()) == before
    env.execute("COMMIT")
    assert rows(copies.take()) == [("new" + text,) for (text,) in before]


def test_a_link_that_comes_to_lead_elsewhere_is_followed(env: sqlite3.Connection, tmp_path: Path) -> None:
    link, other = tmp_path / "y.db", tmp_path / "z.db"
    link.symlink_to(tmp_path / "x.db")
    copies = SqliteCopy(link)
    assert rows(copies.take()) == []
    before = filled(other)
    link.unlink()
    link.symlink_to(other)
    with closing(sqlite3.connect(other, isolation_level=None)) as live:
        spill(live)
        assert rows(copies.take()) == before
    link.unlink()
    link.symlink_to(link)
    with pytest.raises(StateUnreadable):
        copies.take()


WITHOUT_JOURNAL = """
import sqlite3, sys
env = sqlite3.connect(sys.argv[1], isolation_level=None)
env.execute(f"PRAGMA journal_mode = {sys.argv[2]}")
env.execute("PRAGMA cache_size = 5")
env.execute("BEGIN")
env.execute("UPDATE t SET n = 'new' || n")
print("spilled", flush=True)
sys.stdin.readline()
env.execute("COMMIT")
print("done", flush=True)
"""


@pytest.fixture(params=["MEMORY", "OFF"])
def unjournaled(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    """Another process, amid a transaction of which the file has a part."""
    filled(tmp_path / "x.db")
    process = subprocess.Popen(
        [sys.executable, "-c", WITHOUT_JOURNAL, str(tmp_path / "x.db"), request.param],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "spilled\n"
    assert b"new0much" in (tmp_path / "x.db").read_bytes()
    yield process
    process.communicate(timeout=10)


def test_rows_not_committed_are_not_read_where_no_journal_file_tells_of_them(
    unjournaled: subprocess.Popen[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_copy, "PATIENCE", 0.05)
    with pytest.raises(StateUnreadable, match=r"locked by a writer without a journal file .*WAL"):
        SqliteCopy(tmp_path / "x.db").take()


def test_a_transaction_without_a_journal_file_is_waited_for(
    unjournaled: subprocess.Popen[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answers = sqlite_copy.is_being_written, []

    def until_it_has_waited(file: int) -> bool:
        answers.append(asked(file))
        if len(answers) == 5:
            assert (unjournaled.stdin, unjournaled.stdout) != (None, None)
            print(file=unjournaled.stdin, flush=True)
            assert unjournaled.stdout is not None
            unjournaled.stdout.readline()
        return answers[-1]

    monkeypatch.setattr(sqlite_copy, "PATIENCE", 60)
    monkeypatch.setattr(sqlite_copy, "is_being_written", until_it_has_waited)
    whole = SqliteCopy(tmp_path / "x.db").take()
    assert {text[:3] for (text,) in rows(whole)} == {"new"}
    assert answers[:5] == [True] * 5


def test_a_transaction_without_a_journal_file_that_begins_while_the_file_is_read_is_seen(
    env: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path / "x.db")
    env.execute("PRAGMA journal_mode = MEMORY")
    read = sqlite_copy._read

    def meanwhile(file: int) -> bytes:
        modified = os.fstat(file)
        if not env.in_transaction:
            spill(env)
        os.utime(tmp_path / "x.db", ns=(modified.st_atime_ns, modified.st_mtime_ns))  # a clock that stands
        return read(file)

    monkeypatch.setattr(sqlite_copy, "PATIENCE", 0.05)
    monkeypatch.setattr(sqlite_copy, "_read", meanwhile)
    with pytest.raises(StateUnreadable):
        SqliteCopy(tmp_path / "x.db").take()
    env.execute("ROLLBACK")


@pytest.mark.parametrize("mode", ["DELETE", "TRUNCATE", "PERSIST"])
def test_an_environment_that_locks_the_file_for_good_is_read(
    env: sqlite3.Connection, tmp_path: Path, mode: str
) -> None:
    env.execute("PRAGMA locking_mode = EXCLUSIVE")
    env.execute(f"PRAGMA journal_mode = {mode}")
    copies = SqliteCopy(tmp_path / "x.db")
    for number in range(20):
        env.execute("INSERT INTO t VALUES (?)", (number,))
        assert len(rows(copies.take())) == number + 1
        assert copies.take() is None
    env.executemany("INSERT INTO t VALUES (?)", [(f"{n}" + "much" * 200,) for n in range(200)])
    before = env.execute("SELECT n FROM t").fetchall()
    spill(env)
    assert rows(SqliteCopy(tmp_path / "x.db").take()) == before
    env.execute("ROLLBACK")


def test_a_write_that_leaves_the_files_time_as_it_was_is_not_missed(env: sqlite3.Connection, tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    env.execute("PRAGMA locking_mode = EXCLUSIVE")  # the change counter is raised once, not with each commit
    at = time.time_ns() + 10**9  # as of a write that was a moment ago
    copies = SqliteCopy(path)
    env.execute("INSERT INTO t VALUES (0)")
    for number in range(5):
        env.execute("UPDATE t SET n = ?", (number,))
        os.utime(path, ns=(at, at))
        assert rows(copies.take()) == [(number,)]


def test_an_old_file_is_not_read_twice(
    env: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.db"
    at = time.time_ns() - 10**9
    os.utime(path, ns=(at, at))
    copies = SqliteCopy(path)
    assert rows(copies.take()) == []
    monkeypatch.delattr(sqlite_copy, "_read")
    assert copies.take() is None
