"""Locks of SQLite, seen from beside it."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from replayproxy.state.sqlite_lock import is_being_written

OTHER = """
import sqlite3, sys
other = sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None)
for line in sys.stdin:
    print(other.execute(line).fetchall(), flush=True)
"""


class Other:
    """A connection of another process."""

    def __init__(self, path: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", OTHER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def execute(self, statement: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(statement, file=self._process.stdin, flush=True)
        assert self._process.stdout.readline()

    def close(self) -> None:
        self._process.communicate(timeout=10)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "x.db"
    made = sqlite3.connect(path)
    made.execute("CREATE TABLE t (n)")
    made.close()
    return path


@pytest.fixture
def file(path: Path) -> Iterator[int]:
    opened = os.open(path, os.O_RDONLY)
    yield opened
    os.close(opened)


@pytest.fixture
def other(path: Path) -> Iterator[Other]:
    process = Other(path)
    yield process
    process.close()


def test_only_the_lock_under_which_the_file_is_written_counts(file: int, other: Other) -> None:
    seen = []
    for statement in [
        "BEGIN",
        "SELECT * FROM t",
        "ROLLBACK",
        "BEGIN IMMEDIATE",
        "ROLLBACK",
        "BEGIN EXCLUSIVE",
        "ROLLBACK",
    ]:
        other.execute(statement)
        seen.append(is_being_written(file))
    assert seen == [False, False, False, False, False, True, False]


def test_to_ask_takes_no_lock(file: int, other: Other) -> None:
    for _ in range(3):
        assert not is_being_written(file)
        other.execute("BEGIN EXCLUSIVE")
        assert is_being_written(file)
        other.execute("COMMIT")


@pytest.mark.skipif(not hasattr(fcntl, "F_OFD_GETLK"), reason="the system has no locks of open files")
def test_a_writer_in_the_own_process_is_seen(path: Path, file: int) -> None:
    own = sqlite3.connect(path, isolation_level=None)
    own.execute("BEGIN EXCLUSIVE")
    assert is_being_written(file)
    own.execute("COMMIT")
    assert not is_being_written(file)
    own.close()


def test_what_cannot_be_asked_is_not_locked() -> None:
    reading, writing = os.pipe()
    os.close(writing)
    os.close(reading)
    assert not is_being_written(reading)
