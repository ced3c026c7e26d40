"""Where everything lies in a store: its format number, its named databases and their keys.

All numbers in keys are big-endian and of fixed width, so that step 10 comes after step 2, and a scan of run 1 or of
its episode never meets run 10's. A key never holds a name except in the two name indexes, where the run's number
stands before the name.
"""

from __future__ import annotations

import struct

FORMAT = 2
"""Grows with every change of what bytes mean. A store with a greater one is refused, never guessed at; one with a
lesser one is read as it is, and gets this one with its next writer. 2 has records of format 2, and dictionaries."""

DATABASES = (
    "meta",  # name -> u32 or u64: format, next-key, session, last-check, last-dictionary; dictionaries
    "runs",  # run -> record
    "run-names",  # utf-8 -> run
    "episodes",  # run, episode -> record
    "episode-names",  # run, utf-8 -> episode
    "exchanges",  # episode, arrival in ns, worker -> record
    "snapshots",  # episode, n -> record
    "events",  # episode, ns, session, number -> record
    "blobs",  # content address -> compressed bytes: pieces of bodies, nodes of snapshot trees
    "checks",  # run -> record: the check document last saved
    "trials",  # run, wall clock in ns, number -> record: what came of sending a finding again
    "machines",  # run -> record: which machine recorded it, and its clock
    "removed",  # run, or run and episode -> wall clock in ns of the removal
)

LATER = frozenset({"trials", "machines"})
"""Databases that stores of this format did not have from the first: where one is missing it is empty."""

DATA_FILE = "data.mdb"
LOCK_FILE = "lock.mdb"
RECORDER_LOCK = "recorder.lock"
WRITERS_LOCK = "writers.lock"
COPY_FILE = "data.mdb.gc"
"""What `gc` writes before it takes the place of the data file; where one lies, a gc was cut off."""

META_FORMAT = b"format"
META_NEXT_KEY = b"next-key"
META_SESSION = b"session"
META_LAST_CHECK = b"last-check"
META_LAST_DICTIONARY = b"last-dictionary"
META_PURGE = b"purge"
"""While removed text may still lie in free pages, or in the dictionaries up to this number (u32; an earlier version put
8 bytes before it). Written before the first record is deleted; the file that is written anew is without it."""
META_DICTIONARY = b"dictionary"
"""Before the number of a dictionary. They lie in `meta` because a reader that opened the store before its first one has
that database at hand."""

INLINE_LIMIT = 4096
"""A body below this many bytes lies in its exchange's record."""

PIECE_SIZE = 256 * 1024
"""A larger body is cut into pieces of this many bytes, each stored once under its content address."""

_U32 = struct.Struct(">I")
_U64 = struct.Struct(">Q")
_PAIR = struct.Struct(">QQ")
_EXCHANGE = struct.Struct(">QQH")
_SNAPSHOT = struct.Struct(">QI")
_EVENT = struct.Struct(">QQIL")
_TRIAL = struct.Struct(">QQI")

U64_MAX = 2**64 - 1


def u64(number: int) -> bytes:
    return _U64.pack(number)


def number(raw: bytes) -> int:
    """The number that `u64` packed. Raises struct.error for any other length."""
    return int(_U64.unpack(raw)[0])


def episode_key(run: int, episode: int) -> bytes:
    return _PAIR.pack(run, episode)


def episode_name_key(run: int, name: str) -> bytes:
    return _U64.pack(run) + name.encode()


def exchange_key(episode: int, order: tuple[int, int]) -> bytes:
    return _EXCHANGE.pack(episode, *order)


def exchange_order(key: bytes) -> tuple[int, int]:
    """The arrival (ns, worker) in an exchange's key."""
    _, at, worker = _EXCHANGE.unpack(key)
    return at, worker


def dictionary_key(n: int) -> bytes:
    return META_DICTIONARY + _U32.pack(n)


def dictionary_number(key: bytes) -> int:
    """The number that `dictionary_key` packed. Raises struct.error for any other key."""
    return int(_U32.unpack(key[len(META_DICTIONARY) :])[0])


def snapshot_key(episode: int, n: int) -> bytes:
    return _SNAPSHOT.pack(episode, n)


def event_key(episode: int, at: int, session: int, count: int) -> bytes:
    return _EVENT.pack(episode, at, session & 0xFFFFFFFF, count & 0xFFFFFFFF)


def trial_key(run: int, wall: int, n: int) -> bytes:
    return _TRIAL.pack(run, wall, n)
