"""`sqlite:` snapshots beside those who write: no copy is torn, and the environment's writes never fail."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

from replayproxy.core import prolly
from replayproxy.state import Changes, StateUnreadable
from replayproxy.state.growing import GrowingState
from tests.snapshots.sqlite_kit import SCHEMA, execute, provider, restored, state

WRITER = """
import sqlite3, sys
path, mode, sync, stop = sys.argv[1:]
connection = sqlite3.connect(path, timeout=0, isolation_level=None)
connection.execute(f"PRAGMA journal_mode = {mode}")
connection.execute(f"PRAGMA synchronous = {sync}")
print("ready", flush=True)
import os
n = 0
while not os.path.exists(stop):
    n += 1
    connection.execute("BEGIN")
    connection.execute("UPDATE account SET balance = balance - 1 WHERE id = 1")
    connection.execute("UPDATE account SET balance = balance + 1, pad = ? WHERE id = 900", (str(n) * 40,))
    connection.execute("COMMIT")
print(n, flush=True)
"""


@pytest.mark.parametrize(
    ("mode", "sync"),
    [
        ("DELETE", "FULL"),
        ("DELETE", "OFF"),
        ("PERSIST", "NORMAL"),
        ("TRUNCATE", "OFF"),
        ("WAL", "NORMAL"),
        ("MEMORY", "OFF"),
    ],
)
def test_a_writer_that_never_waits_never_fails_and_no_copy_is_torn(tmp_path: Path, mode: str, sync: str) -> None:
    path, stop = tmp_path / "bank.db", tmp_path / "stop"
    execute(path, "CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER, pad TEXT)")
    with closing(sqlite3.connect(path)) as made:
        made.executemany("INSERT INTO account VALUES (?, 100, 'x')", [(n,) for n in range(1, 1001)])
        made.commit()
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), mode, sync, str(stop)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    one, grown, roots = provider(path), GrowingState(), set()
    nodes: dict[bytes, bytes] = {}
    for _ in range(20):
        try:
            seen = grown.take(one.capture())
        except StateUnreadable as missed:
            # Transactions of a few microseconds without a pause may leave no room on a loaded machine.
            assert sync == "OFF"
            if "without a pause" not in str(missed) and "locked by a writer" not in str(missed):
                raise
            break
        nodes.update(seen.nodes)
        roots.add(seen.root)
        rows = prolly.rows(seen.root, nodes.__getitem__)["account"]
        assert sum(row["balance"] for row in rows.values()) == 100_000
    stop.touch()
    written, _ = process.communicate(timeout=10)
    assert process.returncode == 0, "a write of the environment failed"
    assert int(written) > 10
    assert len(roots) > 5 or sync == "OFF"
    one.close()


def test_the_state_before_an_unfinished_transaction_is_read(path: Path) -> None:
    before = prolly.build(state(path)).root
    with closing(sqlite3.connect(path, isolation_level=None)) as env:
        env.execute("PRAGMA cache_size = 5")
        env.execute("PRAGMA cache_spill = 1")
        env.execute("BEGIN IMMEDIATE")
        env.executemany("INSERT INTO notes VALUES (?, ?)", [("x" * 500, n) for n in range(2000)])
        assert path.with_name(path.name + "-journal").stat().st_size > 1000
        assert path.stat().st_size > 500_000
        assert prolly.build(state(path)).root == before
        env.execute("COMMIT")
    assert len(state(path)["notes"]) == 2008


def test_a_crashed_environment_leaves_a_state_that_can_be_read(path: Path) -> None:
    before = prolly.build(state(path)).root
    crash = """
import os, sqlite3, sys
env = sqlite3.connect(sys.argv[1], isolation_level=None)
env.execute("PRAGMA cache_size = 5")
env.execute("BEGIN")
env.executemany("INSERT INTO notes VALUES (?, ?)", [("x" * 500, n) for n in range(2000)])
os._exit(1)
"""
    assert subprocess.run([sys.executable, "-c", crash, str(path)], check=False).returncode == 1
    journal = path.with_name(path.name + "-journal")
    assert journal.exists()
    assert prolly.build(state(path)).root == before
    assert journal.exists(), "repairing the database is its environment's business"


def test_a_lock_of_our_own_process_survives_a_reading(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as env:
        env.execute("BEGIN IMMEDIATE")
        provider(path).capture()
        other = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('BEGIN IMMEDIATE')"
        found = subprocess.run([sys.executable, "-c", other, str(path)], capture_output=True, text=True, check=False)
        assert "database is locked" in found.stderr
        env.execute("ROLLBACK")


def test_a_database_that_is_replaced_is_read_anew(path: Path) -> None:
    one = provider(path)
    one.capture()
    other = path.with_name("other.db")
    execute(other, "CREATE TABLE t (id INTEGER PRIMARY KEY); INSERT INTO t VALUES (5)")
    os.replace(other, path)
    assert one.capture().rows == {"t": {"5": {"id": 5}}}


ENCODINGS = ["UTF-8", "UTF-16le", "UTF-16be"]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_every_encoding_of_text_is_read_and_restored(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "x.db"
    execute(path, f"PRAGMA encoding = '{encoding}'; {SCHEMA}")
    one, grown = provider(path), GrowingState()
    before = one.capture()
    grown.take(before)
    assert state(path)["notes"]["8"]["body"] == "é\0"
    execute(path, "UPDATE notes SET body = 'ö😀' WHERE n = 8")
    changed = one.capture()
    grown.take(changed)
    assert isinstance(changed.rows, Changes)
    assert [(row.key, row.after) for row in changed.rows.rows] == [("8", {"body": "ö😀", "n": 8})]
    restored(path, before)
    assert grown.take(one.capture()).root == prolly.build(cast("Any", before.rows)).root


@pytest.mark.parametrize("first", ENCODINGS)
@pytest.mark.parametrize("second", ENCODINGS)
def test_a_database_may_be_replaced_by_one_of_another_encoding(tmp_path: Path, first: str, second: str) -> None:
    path, other, table = tmp_path / "x.db", tmp_path / "y.db", "CREATE TABLE t (k PRIMARY KEY, v)"
    execute(path, f"PRAGMA encoding = '{first}'; {table}; INSERT INTO t VALUES ('a', 'ä'), ('b', 'b')")
    execute(other, f"PRAGMA encoding = '{second}'; {table}; INSERT INTO t VALUES ('a', 'ö'), ('c', 'c')")
    one, grown = provider(path), GrowingState()
    grown.take(one.capture())
    os.replace(other, path)
    assert grown.take(one.capture()).root == prolly.build(state(path)).root


def test_after_a_reading_that_failed_the_next_is_not_taken_for_unchanged(path: Path) -> None:
    one = provider(path)
    one.capture()
    sound = path.read_bytes()
    path.write_bytes(sound[:4096] + b"?" * (len(sound) - 4096))
    for _ in range(2):
        with pytest.raises(sqlite3.DatabaseError):
            one.capture()
    path.write_bytes(sound)
    assert one.capture().rows == state(path)
