"""Opening a store's LMDB environment safely: shared in a process, refused when cut or too new, never rewritten.

LMDB must not be opened twice by one process, nor used across a fork; a file shorter than its newest meta page says
ends the process with SIGBUS. All three are prevented here.
"""

from __future__ import annotations

import importlib
import os
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import lmdb

from replayproxy.errors import StoreTrouble
from replayproxy.storage import locks
from replayproxy.storage.dictionaries import Dictionaries, numbers
from replayproxy.storage.frame import PLAIN, NoDictionary, Press
from replayproxy.storage.layout import DATA_FILE, DATABASES, FORMAT, LATER, META_FORMAT, dictionary_key
from replayproxy.storage.trouble import not_written

MAP_SIZES = (1 << 40, 1 << 36, 1 << 32)
"""Address space asked for, largest first: it costs nothing on disk, and cannot grow while others have it open."""

_META = struct.Struct("=II QQ 48s48s QQ")  # magic, version, address, map size, two databases, last page, transaction
_META_AT = 16
_MAGIC = 0xBEEFC0DE
_PAGE_SIZE_AT = struct.Struct("=I")


def why_not_whole(directory: Path) -> str | None:
    """Why the data file may not be mapped; None when its length fits its newest meta page."""
    path = directory / DATA_FILE
    with path.open("rb") as data:
        size = os.fstat(data.fileno()).st_size
        try:
            wanted = _wanted(data)
        except _Odd as odd:
            return str(odd).format(path=path, size=size)
    return f"{path} is cut: {size} bytes, it must have {wanted}" if wanted > size else None


class _Odd(Exception):
    """What is wrong with the first two pages: a template with `path` and `size`."""


@dataclass(slots=True)
class Meta:
    """One of the two meta pages of a data file: `at` its bytes begin; the newer one says what the file holds."""

    at: int
    members: tuple[Any, ...]

    @property
    def txn(self) -> int:
        return int(self.members[7])

    @property
    def last_page(self) -> int:
        return int(self.members[6])

    def packed(self, *, txn: int) -> bytes:
        return _META.pack(*self.members[:7], txn)


def metas(data: BinaryIO) -> tuple[int, list[Meta]]:
    """The size of a page, and both meta pages as they lie in the file. Raises _Odd."""
    first = data.read(_META_AT + _META.size)
    if len(first) < _META_AT + _META.size:
        raise _Odd("{path} is cut: {size} bytes")
    found = [Meta(_META_AT, _META.unpack_from(first, _META_AT))]
    page = int(_PAGE_SIZE_AT.unpack_from(found[0].members[4])[0])
    if found[0].members[0] != _MAGIC or not 512 <= page <= 65536:
        raise _Odd("{path} is no LMDB file, or its first page is damaged")
    data.seek(page)
    second = data.read(_META_AT + _META.size)
    if len(second) < _META_AT + _META.size:
        raise _Odd("{path} is cut: {size} bytes")
    found.append(Meta(page + _META_AT, _META.unpack_from(second, _META_AT)))
    if found[1].members[0] != _MAGIC:
        raise _Odd("the second page of {path} is damaged")
    return page, found


def _wanted(data: BinaryIO) -> int:
    page, found = metas(data)
    return (max(found, key=lambda meta: meta.txn).last_page + 1) * page


@dataclass(slots=True)
class Environment:
    """One open LMDB environment. `identity` is (device, inode) of its directory and of its data file."""

    path: Path
    env: lmdb.Environment
    dbs: dict[str, Any]
    readonly: bool
    identity: tuple[int, ...]
    pid: int
    users: int = 0
    dictionaries: Dictionaries = field(init=False)

    def __post_init__(self) -> None:
        self.dictionaries = Dictionaries(self._dictionary)

    def _dictionary(self, number: int) -> bytes | None:
        with self.reading() as txn:
            try:
                raw: bytes | None = txn.get(dictionary_key(number), db=self.dbs["meta"])
            except lmdb.Error as error:  # the record that needs it is told of, not the store
                raise NoDictionary(number, f"cannot be read: {error}") from error
        return raw

    def know_dictionaries(self) -> None:
        """Reads all there are: `gc` may take one out of use while somebody still holds a record that needs it.
        Damage is told of where it is met."""
        with suppress(StoreTrouble):
            with self.reading() as txn:
                there = numbers(txn, self.dbs["meta"])
            self.dictionaries.know(there)

    def press(self) -> Press:
        """What new records are compressed with: the newest dictionary that is whole, if there is any."""
        with self.reading() as txn:
            there = numbers(txn, self.dbs["meta"])
        for number in reversed(there):
            try:
                return self.dictionaries.press(number)
            except NoDictionary:
                continue  # what is damaged is told of where it is needed, and by fsck
        return PLAIN

    def check_process(self) -> None:
        if self.pid != os.getpid():
            raise StoreTrouble(f"{self.path} was opened before this process was forked", hint="fork before opening it")

    @contextmanager
    def reading(self, *, buffers: bool = False) -> Iterator[Any]:
        """A read transaction; whatever LMDB finds wrong becomes StoreTrouble."""
        self.check_process()
        try:
            txn: Any = self.env.begin(buffers=True) if buffers else self.env.begin()
            with txn:
                yield txn
        except lmdb.Error as error:
            raise StoreTrouble(f"{self.path} cannot be read: {error}", hint="replayproxy fsck") from error

    @contextmanager
    def writing(self) -> Iterator[Any]:
        """A write transaction, committed at the end; LMDB's errors come as they are."""
        self.check_process()
        with self.env.begin(write=True) as txn:
            # Asked once nobody else can write: `gc` puts another file here while it holds this same transaction.
            if self.moved():
                raise StoreTrouble(f"{self.path} was removed or replaced while it was open", hint="run it again")
            yield txn

    @contextmanager
    def changing(self) -> Iterator[Any]:
        """`writing`, with LMDB's errors as StoreTrouble: for the short changes that are not queued."""
        try:
            with self.writing() as txn:
                yield txn
            self.fill_up()
        except (lmdb.Error, OSError) as error:
            raise not_written(self.path, error) from error

    def is_writing(self, session: int) -> bool:
        """Whether the writer of that number still lives."""
        return locks.is_writing(self.path, session)

    def forget_the_dead(self) -> None:
        """Frees what readers that were killed still hold: old pages would never be used again."""
        self.env.reader_check()

    def complete(self) -> None:
        """Makes of an earlier version's store one of this. For writers: reading changes no byte."""
        missing = LATER - set(self.dbs)
        with self.reading() as txn:
            known = int.from_bytes(txn.get(META_FORMAT, db=self.dbs["meta"]) or b"", "big")
        if not missing and known >= FORMAT:
            return
        # In a transaction that asks whether the file is still the store: one commit into a file that `gc` has replaced,
        # and the lock file that both share would make an empty store of the new one.
        with self.changing() as txn:
            made = {name: self.env.open_db(name.encode(), txn=txn) for name in missing}
            txn.put(META_FORMAT, max(known, FORMAT).to_bytes(4, "big"), db=self.dbs["meta"])
        self.dbs.update(made)

    def moved(self) -> bool:
        """Whether the directory was removed or replaced: commits would go on, successfully, into nothing."""
        try:
            return identity_of(self.path) != self.identity
        except (FileNotFoundError, NotADirectoryError):
            return True

    def fill_up(self) -> None:
        """Makes the file as long as its meta page says. LMDB need not write the last pages that it freed again."""
        page = self.env.stat()["psize"]
        wanted = (self.env.info()["last_pgno"] + 1) * page
        path = self.path / DATA_FILE
        if path.stat().st_size < wanted:
            os.truncate(path, wanted)


def identity_of(directory: Path) -> tuple[int, ...]:
    own, data = directory.stat(), (directory / DATA_FILE).stat()
    return own.st_dev, own.st_ino, data.st_dev, data.st_ino


_open: dict[tuple[int, ...], Environment] = {}
_guard = threading.Lock()


def acquire(directory: Path, *, create: bool) -> Environment:
    """The environment of a directory, shared with whoever has it open in this process. Give it back to `release`."""
    with _guard:
        if (directory / DATA_FILE).exists():
            shared = _open.get(identity_of(directory))
            if shared is not None:
                shared.check_process()
                shared.users += 1
                return shared
            _refuse_rewritten(directory)
            _refuse_cut(directory)
        opened = _opened(directory, create=create)
        opened.know_dictionaries()
        opened.users = 1
        _open[opened.identity] = opened
        return opened


def open_paths() -> list[Path]:
    """The stores that this process has open."""
    return [environment.path for environment in _open.values()]


def release(environment: Environment) -> None:
    with _guard:
        environment.users -= 1
        if environment.users == 0 and environment.pid == os.getpid():
            _open.pop(environment.identity, None)
            environment.env.close()


def _refuse_rewritten(directory: Path) -> None:
    # LMDB would take the lock file, which both share, for its own alone and make it anew under whoever uses it.
    own = identity_of(directory)[:2]
    if any(known[:2] == own for known in _open):
        raise StoreTrouble(f"{directory} was replaced while this process read it", hint="run it again")


def _refuse_cut(directory: Path) -> None:
    # A recorder may be between its commit and the filling up of the file: ask again before refusing.
    for wait in (0.02, 0.1, None):
        reason = why_not_whole(directory)
        if reason is None:
            return
        if wait is not None:
            time.sleep(wait)
    if _filled_up(directory):
        return
    raise StoreTrouble(f"{reason}: the store is damaged", hint="restore it from a copy")


def _filled_up(directory: Path) -> bool:
    """Mends the file of a writer that was killed between its commit and `fill_up`: only unused pages are missing.

    LMDB's verifier reads the file as bytes, so that a page beyond the end is no signal. Which pages are in use only its
    inside says (`verify` does not look into the values that have pages of their own).
    """
    try:
        # Of an import, or a gc, that is between the two, the file grows while this reads.
        with locks.alone(directory), (directory / DATA_FILE).open("r+b") as data:
            size = os.fstat(data.fileno()).st_size
            page, _ = metas(data)
            verifier = importlib.import_module("lmdb.verify")._Verifier(data, size)
            if verifier.verify() or any(verifier.live[size // page :]):
                return False
            data.seek(0)
            data.truncate(_wanted(data))
    except Exception:  # it cannot be read so far, or not be written: then it is what it looks like
        return False
    return True


def _opened(directory: Path, *, create: bool) -> Environment:
    readonly = not create and not _writable(directory)
    while True:
        identity = identity_of(directory) if (directory / DATA_FILE).exists() else ()
        env = _lmdb(directory, create=create, readonly=readonly)
        try:
            dbs = _databases(directory, env, create=create)
            found = identity_of(directory)
        except (lmdb.Error, OSError) as error:
            env.close()
            raise StoreTrouble(f"{directory} cannot be opened: {error}", hint="replayproxy fsck") from error
        except BaseException:
            env.close()
            raise
        if found == (identity or found):
            return Environment(path=directory, env=env, dbs=dbs, readonly=readonly, identity=found, pid=os.getpid())
        env.close()  # `gc` put another file there while this waited for it: what is mapped is the old one


def _writable(directory: Path) -> bool:
    return os.access(directory, os.W_OK) and os.access(directory / DATA_FILE, os.W_OK)


def _lmdb(directory: Path, *, create: bool, readonly: bool) -> lmdb.Environment:
    for size in MAP_SIZES:
        try:
            return lmdb.open(
                os.fspath(directory),
                map_size=size,
                max_dbs=len(DATABASES) + 8,
                max_readers=1024,
                create=create,
                readonly=readonly,
                lock=not readonly,
                mode=0o600,
            )
        except lmdb.MemoryError:
            continue  # this process may not have so much address space
        except lmdb.Error as error:
            raise StoreTrouble(f"{directory} cannot be opened: {error}", hint="replayproxy fsck") from error
    raise StoreTrouble(f"{directory} cannot be mapped: too little address space", hint="raise ulimit -v")


def _databases(directory: Path, env: lmdb.Environment, *, create: bool) -> dict[str, Any]:
    with env.begin() as txn:
        try:
            meta = env.open_db(b"meta", txn=txn, create=False)
            stored = txn.get(META_FORMAT, db=meta)
        except lmdb.NotFoundError:
            stored = None
    if stored is not None:
        _check_format(directory, stored)
        return _handles(env)
    if not create:
        raise StoreTrouble(f"{directory} holds no finished store", hint="record into it first")
    with env.begin(write=True) as txn:
        # Another process may have finished it meanwhile: all of this changes nothing then.
        dbs = {name: env.open_db(name.encode(), txn=txn) for name in DATABASES}
        txn.put(META_FORMAT, FORMAT.to_bytes(4, "big"), overwrite=False, db=dbs["meta"])
        _check_format(directory, txn.get(META_FORMAT, db=dbs["meta"]))
    return dbs


def _handles(env: lmdb.Environment) -> dict[str, Any]:
    if env.flags()["readonly"]:
        return _there(env, None)
    # A handle opened in a read transaction is gone with it. This write transaction changes nothing, so LMDB writes
    # nothing at its end, and the file's bytes and times stay (tested).
    with env.begin(write=True) as txn:
        return _there(env, txn)


def _there(env: lmdb.Environment, txn: Any) -> dict[str, Any]:
    found = {}
    for name in DATABASES:
        try:
            found[name] = env.open_db(name.encode(), txn=txn, create=False)
        except lmdb.NotFoundError:
            if name not in LATER:
                raise
    return found


class NewerFormat(StoreTrouble):
    """The store was written by a newer replayproxy: nothing can be said about its records."""


def _check_format(directory: Path, stored: bytes | None) -> None:
    found = int.from_bytes(stored or b"", "big")
    if found > FORMAT:
        raise NewerFormat(
            f"{directory} was written by a newer replayproxy (format {found}, this one knows {FORMAT})",
            hint="upgrade replayproxy",
        )
    if not 1 <= found <= FORMAT:
        raise StoreTrouble(f"{directory} has the unknown format number {found}", hint="replayproxy fsck")
