"""Frees what `rm` has marked: deletes it, and the blobs and dictionaries that nothing leads to any more, and writes the
file anew.

Nobody writes meanwhile (`locks.alone`); readers may read. It may be killed at any instant: each transaction leaves a
whole store in which nothing that is listed is missing, and the next call goes on. The new file takes the place of the
old one by one rename. Readers that were there before keep the old file, and its space, until they end.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import lmdb

from replayproxy.core.values import EpisodeState
from replayproxy.errors import StoreTrouble
from replayproxy.storage import cold, environment, locks
from replayproxy.storage.dictionaries import numbers
from replayproxy.storage.environment import Environment
from replayproxy.storage.frame import Broken
from replayproxy.storage.layout import (
    COPY_FILE,
    DATA_FILE,
    META_LAST_CHECK,
    META_LAST_DICTIONARY,
    META_PURGE,
    dictionary_key,
    u64,
)
from replayproxy.storage.reach import Reach
from replayproxy.storage.retiring import retire
from replayproxy.storage.scans import keys_under, under
from replayproxy.storage.verify import verify

AT_ONCE = 2000
"""Records deleted by one transaction."""

SPARE = 0.05
"""Share of a file that may be free before it is worth writing anew."""

type Progress = Callable[[str], None]


@dataclass(slots=True, kw_only=True)
class Freed:
    """What was deleted, by kind, and the data file's size. `short`: why it could not be written anew, or empty."""

    count: Counter[str] = field(default_factory=Counter)
    before: int = 0
    after: int = 0
    short: str = ""


def collect(directory: Path, *, tell: Progress = lambda _: None) -> Freed:
    """See the module. StoreTrouble when somebody writes, and when the store is damaged: then nothing is changed."""
    env = environment.acquire(directory.resolve(), create=False)
    try:
        if env.readonly:
            raise StoreTrouble(f"{env.path} is read-only")
        with locks.alone(env.path):
            (env.path / COPY_FILE).unlink(missing_ok=True)
            tell("reading every record")
            _refuse_damaged(env)
            freed = Freed(before=_size(env.path))
            try:
                upto = _to_purge(env)
                tell("deleting what is marked as removed")
                _removed(env, freed.count)
                if upto is not None:
                    retire(env, upto)
                tell("looking for bodies and states that nothing leads to")
                _blobs(env, freed.count)
                tell("writing the file anew")
                freed.short = _rewritten(env, always=upto is not None)
            except (lmdb.Error, OSError) as error:
                raise StoreTrouble(f"{env.path} cannot be written: {error}", hint="free space, and gc again") from error
            freed.after = _size(env.path)
            return freed
    finally:
        environment.release(env)


def _size(directory: Path) -> int:
    return (directory / DATA_FILE).stat().st_size


def _refuse_damaged(env: Environment) -> None:
    # A damaged record does not say which bodies it leads to, and those would be deleted. One that is marked as removed
    # is deleted itself: what leads on from what is kept is known without it.
    damaged = [one for one in verify(env.path).damaged if "removed" not in one]
    if damaged and all(one["kind"] in ("blob", "dictionary") for one in damaged):
        reach = _reach(env)
        damaged = [one for one in damaged if _is_needed(one, reach)]
    if damaged:
        first = damaged[0]
        raise StoreTrouble(
            f"{env.path} is damaged ({first['kind']} {first['address']}: {first['why']}), and gc would make it worse",
            hint="replayproxy fsck; rm what it names, and merge the store into a new one",
        )


def _is_needed(damage: dict[str, str], reach: Reach) -> bool:
    address = bytes.fromhex(damage["address"])
    if damage["kind"] == "blob":
        return address in reach.blobs
    return len(address) != 4 or int.from_bytes(address, "big") in reach.dictionaries


def _to_purge(env: Environment) -> int | None:
    """Up to which number dictionaries may hold what is marked as removed, or what a gc that was ended had deleted; None
    where nothing was."""
    meta, inode = env.dbs["meta"], u64((env.path / DATA_FILE).stat().st_ino)
    with env.reading() as txn:
        marked = any(True for _ in keys_under(txn, env.dbs["removed"], b""))
        pending = bytes(txn.get(META_PURGE, db=meta) or b"")
        last = bytes(txn.get(META_LAST_DICTIONARY, db=meta) or bytes(4))
    if marked:
        with env.changing() as txn:
            txn.put(META_PURGE, inode + last, db=meta)
        return int.from_bytes(last, "big")
    return int.from_bytes(pending[8:], "big") if pending[:8] == inode else None


# What is marked


def _removed(env: Environment, count: Counter[str]) -> None:
    with env.reading() as txn:
        marks = list(keys_under(txn, env.dbs["removed"], b""))
    for mark in sorted(marks, key=len, reverse=True):
        if len(mark) == 16:
            _episode(env, mark, count)
        else:
            _run(env, mark, count)


def _run(env: Environment, run: bytes, count: Counter[str]) -> None:
    with env.reading() as txn:
        episodes = list(keys_under(txn, env.dbs["episodes"], run))
    for key in episodes:
        _episode(env, key, count)
    for db in ("trials", "episode-names"):
        _all_under(env, db, run)
    with env.changing() as txn:
        if txn.get(META_LAST_CHECK, db=env.dbs["meta"]) == run:
            txn.delete(META_LAST_CHECK, db=env.dbs["meta"])
        count["checks"] += txn.delete(run, db=env.dbs["checks"])
        count["runs"] += txn.delete(run, db=env.dbs["runs"])
        if "machines" in env.dbs:
            txn.delete(run, db=env.dbs["machines"])
        txn.delete(run, db=env.dbs["removed"])


def _episode(env: Environment, key: bytes, count: Counter[str]) -> None:
    """Its seal goes first: a sealed episode without its records would be damage to whoever looks after a kill."""
    dbs = env.dbs
    with env.changing() as txn:
        raw = txn.get(key, db=dbs["episodes"])
        if raw is not None:
            with suppress(Broken):  # a damaged record seals nothing
                stored, session = cold.decode_episode(raw)
                if stored.seal is not None:
                    unsealed = replace(stored, seal=None, state=EpisodeState.INCOMPLETE)
                    txn.put(key, cold.encode_episode(unsealed, session), db=dbs["episodes"])
    for db in ("exchanges", "snapshots", "events"):
        count[db] += _all_under(env, db, key[8:])
    with env.changing() as txn:
        count["episodes"] += txn.delete(key, db=dbs["episodes"])
        txn.delete(key, db=dbs["removed"])


def _all_under(env: Environment, db: str, prefix: bytes) -> int:
    if db not in env.dbs:
        return 0
    deleted = 0
    while True:
        with env.changing() as txn:
            keys = list(islice(keys_under(txn, env.dbs[db], prefix), AT_ONCE))
            for key in keys:
                txn.delete(key, db=env.dbs[db])
        deleted += len(keys)
        if len(keys) < AT_ONCE:
            return deleted


# What nothing leads to


def _blobs(env: Environment, count: Counter[str]) -> None:
    reach, start = _reach(env), b""
    _dictionaries(env, reach.dictionaries, count)
    while True:
        with env.changing() as txn:
            with txn.cursor(env.dbs["blobs"]) as cursor:
                found = cursor.set_range(start)
                keys = list(islice(cursor.iternext(keys=True, values=False), AT_ONCE)) if found else []
            for key in keys:
                if key not in reach.blobs:
                    count["blobs"] += txn.delete(key, db=env.dbs["blobs"])
        if len(keys) < AT_ONCE:
            return
        start = keys[-1] + b"\0"


def _dictionaries(env: Environment, live: set[int], count: Counter[str]) -> None:
    with env.changing() as txn:
        for number in numbers(txn, env.dbs["meta"]):
            if number not in live:
                count["dictionaries"] += txn.delete(dictionary_key(number), db=env.dbs["meta"])


def _reach(env: Environment) -> Reach:
    """What the records lead to that are not marked as removed: memory holds the addresses of all blobs."""
    with env.reading() as txn:
        marks = set(keys_under(txn, env.dbs["removed"], b""))
        gone = {key[8:] for key in keys_under(txn, env.dbs["episodes"], b"") if key in marks or key[:8] in marks}
        reach = Reach(txn, env.dbs, env.dictionaries)
        for key, raw in under(txn, env.dbs["exchanges"], b""):
            if key[:8] not in gone:
                reach.exchange(key, raw)
        for key, raw in under(txn, env.dbs["snapshots"], b""):
            if key[:8] not in gone:
                reach.snapshot(raw)
        for db in ("checks", "trials"):
            for key, raw in under(txn, env.dbs[db], b"") if db in env.dbs else ():
                if key[:8] not in marks:
                    reach.document(raw)
    return reach


# The file


def _rewritten(env: Environment, *, always: bool) -> str:
    """Why the file was not written anew though it should be; empty: it was, or there was no reason. `always`: removed
    text may lie in its free pages."""
    # The write transaction keeps whoever waits for one out until the new file is there; they ask then whether it is
    # still theirs (`Environment.writing`).
    with env.writing() as txn:
        page, used = env.env.stat()["psize"], _used(env, txn)
        held = env.env.info()["last_pgno"] + 1
        if not always and held - used <= max(16, held * SPARE):
            return ""
        room = shutil.disk_usage(env.path).free
        if room < used * page:
            return f"the smaller file of {used * page:,} bytes has to be written beside it, and {room:,} are free"
        copy = env.path / COPY_FILE
        try:
            with os.fdopen(os.open(copy, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "r+b") as out:
                _owned_alike(env.path / DATA_FILE, out)
                env.env.copyfd(out.fileno(), compact=True)
                _continue(out, env.env.info()["last_txnid"])
                out.flush()
                os.fsync(out.fileno())
            _refuse_unlike(env, txn, copy)
            copy.replace(env.path / DATA_FILE)
        finally:
            copy.unlink(missing_ok=True)
        _synced(env.path)
    return ""


def _owned_alike(old: Path, out: BinaryIO) -> None:
    # Others may share the store, by their group or as its owner: root's gc must not take it from them.
    had = old.stat()
    with suppress(PermissionError):
        os.fchown(out.fileno(), had.st_uid, had.st_gid)
    os.fchmod(out.fileno(), stat.S_IMODE(had.st_mode))


def _used(env: Environment, txn: Any) -> int:
    stats = [txn.stat(db) for db in env.dbs.values()] + [env.env.stat()]
    return 2 + sum(int(one["branch_pages"] + one["leaf_pages"] + one["overflow_pages"]) for one in stats)


def _continue(out: BinaryIO, txn: int) -> None:
    """Numbers the copy's only transaction as the old file's last.

    LMDB numbers it 1, and takes from the lock file, which the processes that read the old file share with those of the
    new one, which of the two meta pages is the newer: of an even number it would read the empty one.
    """
    out.seek(0)
    _, both = environment.metas(out)
    newest = max(both, key=lambda meta: meta.txn)
    (empty,) = (meta for meta in both if meta is not newest)
    for place, meta, number in ((both[txn & 1], newest, txn), (both[1 - (txn & 1)], empty, txn - 1)):
        out.seek(place.at)
        out.write(meta.packed(txn=number))


def _refuse_unlike(env: Environment, txn: Any, copy: Path) -> None:
    """The copy must hold as many records of each kind before it takes the place of the store."""
    with lmdb.open(os.fspath(copy), subdir=False, readonly=True, lock=False, max_dbs=len(env.dbs) + 8,
                   map_size=environment.MAP_SIZES[-1]) as made, made.begin() as there:  # fmt: skip
        for name, db in env.dbs.items():
            wanted, found = txn.stat(db)["entries"], there.stat(made.open_db(name.encode(), txn=there))["entries"]
            if wanted != found:
                raise StoreTrouble(f"the copy of {env.path} holds {found} of {wanted} {name}: it is left as it was")


def _synced(directory: Path) -> None:
    held = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(held)
    finally:
        os.close(held)
