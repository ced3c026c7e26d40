"""The last step of `gc`: every record in a new data file, which takes the place of the old one by one rename.

Record by record, since a copy of pages is one of what was deleted, too: LMDB clears neither what a value leaves of its
last page, nor the gaps of the others, and the keys that lead from page to page may be those of records that are gone.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import lmdb

from replayproxy.errors import StoreTrouble
from replayproxy.storage import environment
from replayproxy.storage.environment import Environment
from replayproxy.storage.layout import COPY_FILE, DATA_FILE, META_PURGE
from replayproxy.storage.trouble import StoreFull, not_written

SPARE = 0.05
"""Share of a file that may be free before it is worth writing anew."""

AT_ONCE = 32 << 20
"""Bytes of records that are committed to the new file together: LMDB holds them in memory until then."""

_ROOM = 1 << 20
"""Bytes that the map of a new file has for what its records do not need."""


def rewritten(env: Environment, *, always: bool, purged: bool) -> str:
    """Why the file was not written anew though it should be; empty: it was, or there was no reason.

    `always`: removed text may lie in its free pages. `purged`: it lies nowhere else, and the new file says so.
    """
    try:
        return _rewritten(env, always, purged)
    except (lmdb.Error, OSError) as error:
        trouble = not_written(env.path / COPY_FILE, error)
        if isinstance(trouble, StoreFull):
            return trouble.what
        raise trouble from error


def _rewritten(env: Environment, always: bool, purged: bool) -> str:
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
                forgot = purged and txn.get(META_PURGE, db=env.dbs["meta"]) is not None
                _copied(env, txn, copy, purged=purged)
                _continue(out, env.env.info()["last_txnid"])
                out.flush()
                os.fsync(out.fileno())
            _refuse_unlike(env, txn, copy, less=forgot)
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


def _databases(env: Environment, txn: Any) -> dict[bytes, Any]:
    """Those of a later version with the same format, too."""
    with txn.cursor() as cursor:
        names = list(cursor.iternext(keys=True, values=False))
    return {name: env.env.open_db(name, txn=txn, create=False) for name in names}


def _used(env: Environment, txn: Any) -> int:
    stats = [txn.stat(db) for db in _databases(env, txn).values()] + [env.env.stat()]
    return 2 + sum(int(one["branch_pages"] + one["leaf_pages"] + one["overflow_pages"]) for one in stats)


def _copied(env: Environment, txn: Any, copy: Path, *, purged: bool) -> None:
    """Writes all records into the empty file `copy`; `purged`: but for the entry that says what is left to purge.

    No buffer of this LMDB environment has ever held anything else: it clears new ones (`meminit`), and uses them again.
    """
    most = env.env.info()["last_txnid"]
    # A page of a larger size than the old file's may be nearly half empty behind a value.
    room = max(environment.MAP_SIZES[-1], 2 * env.env.stat()["psize"] * env.env.info()["last_pgno"] + _ROOM)
    names, records = list(_databases(env, txn)), _records(env, txn, purged)
    with lmdb.open(os.fspath(copy), subdir=False, lock=False, sync=False, meminit=True, max_dbs=len(names),
                   map_size=room) as made:  # fmt: skip
        done, more = 0, True
        while more:
            with made.begin(write=True) as there:
                dbs = {name: made.open_db(name, txn=there) for name in names}
                # `_continue` gives the last one the old file's number, and none may have a greater: where there were
                # so few, the last takes what is left, and LMDB writes out what it does not hold.
                more = _batch(there, dbs, records, AT_ONCE if done + 2 <= most else None)
            done += 1


def _records(env: Environment, txn: Any, purged: bool) -> Iterator[tuple[bytes, bytes, bytes]]:
    """The database, key and value of each, as they are sorted."""
    for name, db in _databases(env, txn).items():
        with txn.cursor(db) as cursor:
            for key, value in cursor:
                if not (purged and name == b"meta" and key == META_PURGE):
                    yield name, key, value


def _batch(there: Any, dbs: dict[bytes, Any], records: Iterator[tuple[bytes, bytes, bytes]], most: int | None) -> bool:
    """Writes that many bytes, or all there are. Whether there may be more."""
    size = 0
    for name, key, value in records:
        there.put(key, value, append=True, db=dbs[name])
        size += len(key) + len(value)
        if most is not None and size >= most:
            return True
    return False


def _continue(out: BinaryIO, txn: int) -> None:
    """Numbers the copy's last transaction as the old file's last.

    LMDB counts from 1 in it, and takes from the lock file, which the processes that read the old file share with those
    of the new one, which of the two meta pages is the newer: by the wrong parity it would read the other one.
    """
    out.seek(0)
    page, both = environment.metas(out)
    newest = max(both, key=lambda meta: meta.txn)
    (older,) = (meta for meta in both if meta is not newest)
    for place, meta, number in ((both[txn & 1], newest, txn), (both[1 - (txn & 1)], older, txn - 1)):
        out.seek(place.at)
        out.write(meta.packed(txn=number))
    # LMDB need not write the last pages that it freed again (`Environment.fill_up`).
    wanted = (newest.last_page + 1) * page
    if os.fstat(out.fileno()).st_size < wanted:
        out.truncate(wanted)


def _refuse_unlike(env: Environment, txn: Any, copy: Path, *, less: bool) -> None:
    """The copy must hold as many records of each kind before it takes the place of the store; `less`: but for one entry
    in `meta`."""
    with lmdb.open(os.fspath(copy), subdir=False, readonly=True, lock=False, max_dbs=len(env.dbs) + 8,
                   map_size=environment.MAP_SIZES[-1]) as made, made.begin() as there:  # fmt: skip
        for name, db in _databases(env, txn).items():
            wanted = txn.stat(db)["entries"] - (less and name == b"meta")
            found = there.stat(made.open_db(name, txn=there, create=False))["entries"]
            if wanted != found:
                told = f"{found} of {wanted} {name.decode(errors='replace')}"
                raise StoreTrouble(f"the copy of {env.path} holds {told}: it is left as it was")


def _synced(directory: Path) -> None:
    held = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(held)
    finally:
        os.close(held)
