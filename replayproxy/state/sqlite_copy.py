"""The bytes of a SQLite database at one instant, without ever making a write of its environment fail.

In WAL mode readers and writers do not meet. In rollback-journal mode a reader's lock, however short, makes a write
of an environment that does not wait fail with `database is locked`; so there the file is read without any lock, and
what was read counts only if no transaction passed meanwhile:

- no journal before and after, nobody who may write to the file, and the same change counter, size and time: the file
  was at rest. (A connection that locks the file for as long as it lives keeps a journal file of no content too; then
  the lock says nothing);
- the same journal before and after: one transaction is under way (or its process has died). The file, then the
  journal were copied, and SQLite itself rolls the copy back: the state before that transaction.

Where transactions follow each other faster than the file can be read, or one that has no journal file is not done,
for all of `PATIENCE` seconds, there is no copy: a snapshot that is missing is better than an environment that fails
because it was looked at, and than one of rows that were never committed.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
import time
from contextlib import closing
from enum import Enum, auto
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from replayproxy.state.provider import StateUnreadable
from replayproxy.state.sqlite_lock import is_being_written

MAGIC = b"SQLite format 3\x00"
PATIENCE = 3.0
BUSY = 5.0
TICK = 20_000_000
"""Nanoseconds within which two writes may leave a file with one time: the clock of file times stands that long."""


class _Token(NamedTuple):
    device: int
    inode: int
    size: int
    modified: int
    counter: int


class _Missed(Enum):
    """Why there is no copy this time."""

    LOCKED = auto()  # by a transaction without a journal file
    WRITTEN = auto()


class SqliteCopy:
    """Copies of one database file. Not for two threads at a time."""

    def __init__(self, path: Path) -> None:
        self._given = path
        self._follow_links()
        self._seen: _Token | None = None  # of the copy given last, where any write since would have changed it
        self._given_last: bytes | None = None  # in rollback mode
        self._wal: tuple[int, sqlite3.Connection] | None = None  # inode, connection
        self._version: int | None = None

    def take(self) -> bytes | bytearray | None:
        """The database as bytes that can be deserialized; None when it is what was given last.

        Raises StateUnreadable, sqlite3.Error, OSError.
        """
        self._follow_links()
        until = time.monotonic() + PATIENCE
        pause, locked = 0.0, True
        while True:
            found = _kept_open(self._path)
            if found is None:
                self._forget()
                return b""  # a database to which nothing was ever written is an empty file
            header = os.pread(found, 100, 0)
            if not header.startswith(MAGIC):
                raise StateUnreadable(f"{self._path} is no SQLite database")
            if header[18:20] == b"\x02\x02":
                return self._from_wal(os.fstat(found).st_ino)
            self._wal = None
            whole = self._at_rest(found)
            if not isinstance(whole, _Missed):
                last, self._given_last = self._given_last, whole if whole is not None else self._given_last
                return None if whole == last else whole
            locked = locked and whole is _Missed.LOCKED
            if time.monotonic() > until:
                raise self._missed(locked)
            time.sleep(pause)
            pause = min(0.001, pause + 0.00002)

    def _follow_links(self) -> None:
        """SQLite keeps its journal beside the file that a link leads to, under that file's name."""
        self._path = Path(os.path.realpath(self._given))  # a circle of links is left to who opens it
        self._journal = self._path.with_name(self._path.name + "-journal")

    def close(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._seen = self._version = self._given_last = None
        if self._wal is not None:
            self._wal[1].close()
            self._wal = None

    def _missed(self, locked: bool) -> StateUnreadable:
        if locked:
            return StateUnreadable(
                f"{self._path} was locked by a writer without a journal file for {PATIENCE:g} s",
                hint="in the environment: shorter transactions, or PRAGMA journal_mode = WAL (not MEMORY or OFF)",
            )
        return StateUnreadable(
            f"{self._path} was written without a pause for {PATIENCE:g} s",
            hint="PRAGMA journal_mode = WAL in the environment lets it be read meanwhile",
        )

    def _at_rest(self, file: int) -> bytes | _Missed | None:
        """The copy; None for unchanged."""
        now = time.time_ns()
        journal = self._journal_mark()
        token = _token(file)
        if not journal and token == self._seen:
            return None
        if journal is None and is_being_written(file):
            return _Missed.LOCKED
        whole = _read(file)
        rest = self._read_journal() if journal else b""
        after = self._journal_mark()
        if (after or None) != (journal or None):
            return _Missed.WRITTEN
        if journal:
            # What a later reading finds at rest may be this very file with the transaction done: it is not `seen`.
            self._seen = None
            return _rolled_back(whole, rest)
        # The lock first: a transaction that has given it up has left its mark in the token.
        if after is None and is_being_written(file):
            return _Missed.LOCKED
        if _token(file) != token:
            return _Missed.WRITTEN
        self._seen = token if now - token.modified > TICK else None
        return whole

    def _journal_mark(self) -> bytes | None:
        """What tells this transaction's journal from others; empty when it is of none, None when there is no file."""
        try:
            with self._journal.open("rb") as journal:
                head = journal.read(28)
                inode = os.fstat(journal.fileno()).st_ino
        except FileNotFoundError:
            return None
        # A journal that is kept between transactions is emptied, or its head is overwritten with zeros. The number
        # of records (bytes 8 to 12) is filled in later; the nonce behind it is random in each.
        return b"" if not head.strip(b"\0") else b"%d:%b%b" % (inode, head[:8], head[12:])

    def _read_journal(self) -> bytes:
        try:
            return self._journal.read_bytes()
        except FileNotFoundError:
            return b""

    def _from_wal(self, inode: int) -> bytes | bytearray | None:
        self._seen = self._given_last = None
        if self._wal is None or self._wal[0] != inode:
            self._forget()
            self._wal = inode, _connect(self._path)
        connection = self._wal[1]
        version: int = connection.execute("PRAGMA data_version").fetchone()[0]
        if version == self._version:
            return None
        whole = connection.serialize()
        # Asked again: a commit between the two would otherwise be missed by the next reading.
        self._version = version if connection.execute("PRAGMA data_version").fetchone()[0] == version else None
        return _without_wal(whole)


# Closing a file drops all POSIX locks that its process holds on it. Should the environment run in our own process,
# those are its locks: so a database's file, once opened, stays open until it has been deleted.
_open_files: dict[tuple[int, int], int] = {}


def _kept_open(path: Path) -> int | None:
    """A descriptor of the file now at `path`; None when it is empty. Raises StateUnreadable."""
    try:
        found = path.stat()
    except FileNotFoundError:
        raise StateUnreadable(f"there is no database {path}") from None
    except OSError as error:
        raise StateUnreadable(f"{path}: {error.strerror}") from error
    if found.st_size == 0:
        return None
    if not path.is_file():
        raise StateUnreadable(f"{path} is no file")
    key = (found.st_dev, found.st_ino)
    if key not in _open_files:
        for old in [old for old, opened in _open_files.items() if not os.fstat(opened).st_nlink]:
            os.close(_open_files.pop(old))
        try:
            opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise StateUnreadable(f"{path}: {error.strerror}") from error
        status = os.fstat(opened)
        key = (status.st_dev, status.st_ino)
        if _open_files.setdefault(key, opened) != opened:
            os.close(opened)
    return _open_files[key]


def _token(file: int) -> _Token:
    status = os.fstat(file)
    counter = int.from_bytes(os.pread(file, 4, 24), "big")
    return _Token(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, counter)


def _read(file: int) -> bytes:
    parts = []
    at = 0
    while part := os.pread(file, 1 << 26, at):
        parts.append(part)
        at += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _rolled_back(whole: bytes, journal: bytes) -> bytes:
    """The copy without the transaction that its journal tells of."""
    with tempfile.TemporaryDirectory(prefix="replayproxy-") as folder:
        path = Path(folder) / "copy.db"
        path.write_bytes(whole)
        path.with_name("copy.db-journal").write_bytes(journal)
        with closing(sqlite3.connect(path)) as connection:
            return connection.serialize()


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(
        f"file:{quote(str(path))}?mode=ro", uri=True, timeout=BUSY, isolation_level=None, check_same_thread=False
    )


def _without_wal(whole: bytes) -> bytes | bytearray:
    """A copy in memory has no WAL beside it: its header must not ask for one."""
    if whole[18:20] != b"\x02\x02":
        return whole
    changed = bytearray(whole)  # one copy: each takes a tenth of the time of a whole reading
    changed[18:20] = b"\x01\x01"
    return changed
