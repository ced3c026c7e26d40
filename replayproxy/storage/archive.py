"""The archive: chosen runs in one file, whose records are those of the store (without dictionaries: `frame.pressed`).

    file     magic, format u32, format of the records u32, frames; all numbers are big-endian
    frame    kind u8, length of key u16, length of value u32, key, value, checksum 16
    kinds    R run, E episode, B blob, X exchange, S snapshot, V event, C check, T trial,
             Z end: the number of frames, u64

A frame's checksum is BLAKE2b-128 over the checksum before it (at first: the head of the file) and the frame: each
record is checked by itself, and the last one speaks for the whole file. Keys are those of the store's databases, with
runs and episodes numbered anew from 1; nothing in the file is ever used as a path.

`open_archive` reads in place: the whole file is read and checked once, every record decoded, an index of keys is kept
(about 200 bytes a record), and a `Reader` works on it as on a store.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO

from replayproxy.core.shown import safe
from replayproxy.core.values import Run
from replayproxy.errors import DamagedRecord, StoreTrouble, UnknownAddress, WrongUsage
from replayproxy.storage import cold
from replayproxy.storage.dictionaries import NONE
from replayproxy.storage.frame import RECORD_FORMAT, Broken, why_record_too_large, why_too_large
from replayproxy.storage.inspection import RECORDS, Scan
from replayproxy.storage.layout import DATABASES, episode_name_key, u64

MAGIC = b"replayproxy archive\n"
ARCHIVE_FORMAT = 2
"""2 has trials besides; an archive of format 1 is read as one of 2 without any."""

END = b"Z"
KINDS = {b"R": "runs", b"E": "episodes", b"B": "blobs", b"X": "exchanges", b"S": "snapshots", b"V": "events",
         b"C": "checks", b"T": "trials"}  # fmt: skip
KEY_LENGTHS = {b"R": 8, b"E": 16, b"B": 32, b"X": 18, b"S": 12, b"V": 24, b"C": 8, b"T": 20}

RECORD_MOST = 256 * 1024 * 1024
"""Bytes of one record, packed or not: what claims more is refused before memory is taken for it."""

_FORMATS = struct.Struct(">II")
_FRAME = struct.Struct(">cHI")
_CHECK = 16
_SLICE = 1024 * 1024
_TELLING = 8  # bytes of the magic from which on a cut file is known for what it was


def is_archive(head: bytes) -> bool:
    """Whether a file that begins so is an archive, whole or not."""
    return head.startswith(MAGIC) or (len(head) >= _TELLING and MAGIC.startswith(head))


class ArchiveWriter:
    """Writes frames to a stream, one after the other; `end` makes the archive whole."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        head = MAGIC + _FORMATS.pack(ARCHIVE_FORMAT, RECORD_FORMAT)
        self._last = blake2b(head, digest_size=_CHECK).digest()
        self._out.write(head)
        self.frames = 0

    def put(self, kind: bytes, key: bytes, value: bytes) -> None:
        """Raises WrongUsage for a record that no archive takes."""
        if kind != END and (reason := _too_large(KINDS[kind], value)):
            raise WrongUsage(f"a record of {KINDS[kind]} does not go into an archive: {reason}")
        head = _FRAME.pack(kind, len(key), len(value))
        self._last = _chained(self._last, head, key, value)
        for part in (head, key, value, self._last):
            self._out.write(part)
        self.frames += 1

    def end(self) -> None:
        self.put(END, b"", u64(self.frames))
        self._out.flush()


def _too_large(db: str, raw: bytes) -> str | None:
    return why_too_large(raw, 1, RECORD_MOST) if db == "blobs" else why_record_too_large(raw, RECORD_MOST)


def _chained(last: bytes, *parts: bytes) -> bytes:
    hasher = blake2b(last, digest_size=_CHECK)
    for part in parts:
        hasher.update(part)
    return hasher.digest()


def open_archive(path: Path) -> Archive:
    """Checks the whole file and gives it for reading. Close it afterwards.

    No such file is UnknownAddress, another kind of file WrongUsage; one that is cut, damaged or of a newer format is
    StoreTrouble.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        raise UnknownAddress(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from error
    try:
        archive = Archive(path, file)
        _vet(archive)
    except BaseException:
        file.close()
        raise
    return archive


def _vet(archive: Archive) -> None:
    """Checksums speak of accidents only: whoever made the file may have written anything under them."""
    with archive.reading() as txn:
        scan = Scan(archive, txn)
        for stage in RECORDS:
            for damage in scan.stages[stage]():
                raise archive.damaged(f"{damage['address']}: {damage['why']}")


class Archive:
    """An open archive: what `Reader` needs of an environment, read-only."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path = path
        self.dbs: Mapping[str, Any] = {name: name for name in DATABASES}
        self.dictionaries = NONE
        self._file = file
        self._at: dict[str, dict[bytes, tuple[int, int]]] = {name: {} for name in DATABASES}
        self._names: dict[str, dict[bytes, bytes]] = {"run-names": {}, "episode-names": {}}
        try:
            self._check_head()
            self._read_frames()
            self._index_names()
        except Broken as broken:
            raise self.damaged(broken) from broken
        except OSError as error:
            raise StoreTrouble(f"{path} cannot be read: {error.strerror or error}") from error
        self._keys = {name: sorted(self._at[name] | self._names.get(name, {})) for name in DATABASES}

    def damaged(self, why: object) -> DamagedRecord:
        return DamagedRecord(f"{self.path} is damaged: {why}", hint="copy or export it again")

    def _check_head(self) -> None:
        head = self._file.read(len(MAGIC) + _FORMATS.size)
        if not is_archive(head):
            raise WrongUsage(f"{self.path} is no archive of replayproxy")
        if len(head) < len(MAGIC) + _FORMATS.size:
            raise Broken(f"it is cut, {len(head)} bytes are there")
        own, records = _FORMATS.unpack_from(head, len(MAGIC))
        if own > ARCHIVE_FORMAT or records > RECORD_FORMAT:
            raise StoreTrouble(
                f"{self.path} was written by a newer replayproxy, or its head is damaged (format {own}, records"
                f" {records}; this one knows {ARCHIVE_FORMAT}, {RECORD_FORMAT})",
                hint="upgrade replayproxy",
            )
        if not 1 <= own <= ARCHIVE_FORMAT or not 1 <= records <= RECORD_FORMAT:
            raise Broken(f"its format numbers are {own} and {records}")
        self._last = blake2b(head, digest_size=_CHECK).digest()

    def _exactly(self, length: int) -> bytes:
        data = self._file.read(length)
        if len(data) != length:
            raise Broken(f"it is cut at byte {self._file.tell()}")
        return data

    def _read_frames(self) -> None:
        size = os.fstat(self._file.fileno()).st_size
        frames = 0
        while True:
            begun = self._file.tell()
            head = self._exactly(_FRAME.size)
            kind, key_length, length = _FRAME.unpack(head)
            if kind != END and KEY_LENGTHS.get(kind) != key_length:
                raise Broken(f"no frame begins at byte {begun}")
            if length > RECORD_MOST or begun + length > size:
                raise Broken(f"it is cut, or the frame at byte {begun} is damaged")
            key = self._exactly(key_length)
            at = self._file.tell()
            self._last = self._rest_of(head + key, length)
            if self._exactly(_CHECK) != self._last:
                raise Broken(f"the checksum of the frame at byte {begun} does not fit")
            if kind == END:
                self._check_end(at, length, frames)
                return
            known = self._at[KINDS[kind]]
            if key in known:
                raise Broken(f"the frame at byte {begun} repeats an earlier one")
            known[key] = at, length
            frames += 1

    def _rest_of(self, begun: bytes, length: int) -> bytes:
        hasher = blake2b(self._last, digest_size=_CHECK)
        hasher.update(begun)
        while length:
            part = self._exactly(min(length, _SLICE))
            hasher.update(part)
            length -= len(part)
        return hasher.digest()

    def _check_end(self, at: int, length: int, frames: int) -> None:
        if self._file.read(1):
            raise Broken("bytes follow its end")
        if length != 8 or self._value(at, length) != u64(frames):
            raise Broken("it does not hold as many records as its end says")

    def _index_names(self) -> None:
        """Names lead to numbers as in a store; they are made from the records."""
        for db, prefix, decode in (("runs", 0, _run_name), ("episodes", 8, _episode_name)):
            names = self._names["run-names" if db == "runs" else "episode-names"]
            for key, place in self._at[db].items():
                raw = self._value(*place)
                if reason := _too_large(db, raw):
                    raise Broken(f"a record of {db}: {reason}")
                try:
                    name = decode(key, raw)
                except (Broken, struct.error, UnicodeError) as error:
                    raise Broken(f"a record of {db} is unreadable: {error}") from error
                if name in names:
                    raise Broken(f"the name {safe(name[prefix:])} is in it twice")
                names[name] = key[prefix:]

    def _value(self, at: int, length: int) -> bytes:
        data = os.pread(self._file.fileno(), length, at)  # threads may read at once
        if len(data) != length:
            raise Broken(f"it is cut at byte {at + len(data)}")
        return data

    # What a reader asks of an environment

    @contextmanager
    def reading(self, *, buffers: bool = False) -> Iterator[Any]:
        """`buffers` is there for the likeness: what is read is bytes."""
        yield _Transaction(self)

    def is_writing(self, session: int) -> bool:
        """Nobody writes to an archive: an episode that was open in it is incomplete."""
        return False

    def keys(self, db: str) -> list[bytes]:
        """Every key of a database, in order."""
        return self._keys[db]

    def get(self, db: str, key: bytes) -> bytes | None:
        """What lies under a key; DamagedRecord when the file has changed since it was opened."""
        if db in self._names:
            return self._names[db].get(key)
        place = self._at[db].get(key)
        if place is None:
            return None
        try:
            raw = self._value(*place)
        except (Broken, OSError, ValueError) as error:
            raise self.damaged(error) from error
        if reason := _too_large(db, raw):
            raise self.damaged(reason)
        return raw

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _run_name(key: bytes, raw: bytes) -> bytes:
    run = cold.decode(Run, raw)
    if u64(run.key) != key:
        raise Broken("it lies under the key of another record")
    return run.name.encode()


def _episode_name(key: bytes, raw: bytes) -> bytes:
    episode, _ = cold.decode_episode(raw)
    if u64(episode.run_key) + u64(episode.key) != key:
        raise Broken("it lies under the key of another record")
    return episode_name_key(episode.run_key, episode.name)


class _Transaction:
    """What LMDB's read transaction is to a `Reader`."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive

    def get(self, key: bytes, *, db: str) -> bytes | None:
        return self._archive.get(db, key)

    def cursor(self, db: str) -> _Cursor:
        return _Cursor(self._archive, db)


class _Cursor:
    def __init__(self, archive: Archive, db: str) -> None:
        self._archive, self._db, self._from = archive, db, 0

    def __enter__(self) -> _Cursor:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def set_range(self, key: bytes) -> bool:
        keys = self._archive.keys(self._db)
        self._from = bisect_left(keys, key)
        return self._from < len(keys)

    def iternext(self, keys: bool = True, values: bool = True) -> Iterator[Any]:
        found = self._archive.keys(self._db)
        for at in range(self._from, len(found)):
            yield (found[at], self._archive.get(self._db, found[at])) if values else found[at]
