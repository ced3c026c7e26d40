"""Frees what `rm` has marked: deletes it, and the blobs and dictionaries that nothing leads to any more, and writes the
file anew.

Nobody writes meanwhile (`locks.alone`); readers may read. It may be killed at any instant: each transaction leaves a
whole store in which nothing that is listed is missing, and the next call goes on. The new file takes the place of the
old one by one rename. Readers that were there before keep the old file, and its space, until they end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

import lmdb

from replayproxy.core.values import EpisodeState
from replayproxy.errors import StoreTrouble
from replayproxy.storage import cold, environment, locks
from replayproxy.storage.dictionaries import numbers
from replayproxy.storage.environment import Environment
from replayproxy.storage.frame import Broken, dictionary_of
from replayproxy.storage.layout import (
    COPY_FILE,
    DATA_FILE,
    META_LAST_CHECK,
    META_LAST_DICTIONARY,
    META_PURGE,
    dictionary_key,
)
from replayproxy.storage.reach import Reach
from replayproxy.storage.retiring import retire
from replayproxy.storage.rewriting import rewritten
from replayproxy.storage.scans import keys_under, under
from replayproxy.storage.trouble import StoreFull, not_written
from replayproxy.storage.verify import verify

AT_ONCE = 2000
"""Records deleted by one transaction."""

type Progress = Callable[[str], None]


@dataclass(slots=True, kw_only=True)
class Freed:
    """What was deleted, by kind, and the data file's size.

    `used`: why dictionaries that were made of it stay in use. `large`: why the file could not be written anew. Both are
    empty where there was room. `remains`: text of it may still be in the file.
    """

    count: Counter[str] = field(default_factory=Counter)
    before: int = 0
    after: int = 0
    used: str = ""
    large: str = ""
    remains: bool = False

    @property
    def short(self) -> str:
        """What there was no room for, or empty."""
        return "; ".join(filter(None, (self.used, self.large)))


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
                _free(env, freed, tell)
            except (lmdb.Error, OSError, StoreFull) as error:
                trouble = not_written(env.path, error)
                if isinstance(trouble, StoreFull):
                    trouble = StoreFull(trouble.what, hint=f"{trouble.hint}, and gc again")
                raise trouble from error
            freed.after = _size(env.path)
            return freed
    finally:
        environment.release(env)


def _free(env: Environment, freed: Freed, tell: Progress) -> None:
    # What needs the least space comes first, and makes room for what needs more.
    upto = _to_purge(env)
    tell("deleting what is marked as removed")
    _removed(env, freed.count)
    tell("looking for bodies and states that nothing leads to")
    _blobs(env, freed.count)
    tell("looking for dictionaries that were made of it")
    freed.used = _still_used(env, upto, freed.count)
    tell("writing the file anew")
    freed.large = rewritten(env, always=upto is not None, purged=not freed.used)
    freed.remains = upto is not None and bool(freed.short)


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
    """Up to which number dictionaries may hold what is marked as removed, or what a gc that did not come to its end had
    deleted; None where nothing was."""
    with env.reading() as txn:
        marked = any(True for _ in keys_under(txn, env.dbs["removed"], b""))
        pending = txn.get(META_PURGE, db=env.dbs["meta"])
        last = txn.get(META_LAST_DICTIONARY, db=env.dbs["meta"]) or bytes(4)
    if marked:
        _note(env, last)
        return int.from_bytes(last, "big")
    return None if pending is None else int.from_bytes(pending[-4:], "big")


def _note(env: Environment, last: bytes) -> None:
    with env.changing() as txn:
        txn.put(META_PURGE, last, db=env.dbs["meta"])


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


def _still_used(env: Environment, upto: int | None, count: Counter[str]) -> str:
    """Deletes the dictionaries that nothing needs any more; those up to that number are made such. Why it could not, or
    empty."""
    try:
        if upto is not None:
            # LMDB gives what one transaction freed to the next but one: without this one, the space of the bodies that
            # were deleted last is not there for the largest transaction of all.
            _note(env, upto.to_bytes(4, "big"))
            retire(env, upto)
        _dictionaries(env, count)
    except StoreFull as full:
        return f"there is no room to do without the dictionaries that were made of it ({full.what})"
    return ""


def _dictionaries(env: Environment, count: Counter[str]) -> None:
    with env.changing() as txn:
        live = {dictionary_of(raw) for _, raw in under(txn, env.dbs["exchanges"], b"")}
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
