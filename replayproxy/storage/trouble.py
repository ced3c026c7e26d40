"""What is said of a store that does not take what is written to it, and what its user can do."""

from __future__ import annotations

import errno
from pathlib import Path

import lmdb

from replayproxy.errors import StoreTrouble

_REFUSED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})

# LMDB calls a write that ends early, as on a disk that gets full, an I/O error.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})

_PANIC = {True: "stop, and go on with --append", False: "run it again"}


class StoreFull(StoreTrouble):
    """There was no room for what was to be written; what was there before is whole."""


def not_written(path: Path, error: BaseException, *, again: bool = False) -> StoreTrouble:
    """`again`: it is a recorder's, which goes on trying by itself."""
    if isinstance(error, StoreTrouble):
        return error
    if isinstance(error, lmdb.PanicError):
        # The root of a commit failed on its way to the disk: LMDB lets this process write nothing any more.
        return StoreTrouble(f"{path} cannot be written: {why(error)}", hint=_PANIC[again])
    advice = f"{_advice(error)}; it is tried again" if again else _advice(error)
    kind = StoreFull if _is_full(error) else StoreTrouble
    return kind(f"{path} cannot be written: {why(error)}", hint=advice)


def why(error: BaseException) -> str:
    """In the system's own words; the path is named beside it."""
    return (error.strerror or str(error)).lower() if isinstance(error, OSError) else str(error)


def _is_full(error: BaseException) -> bool:
    code = error.errno if isinstance(error, OSError) else getattr(error, "code", None)
    return code in _FULL or isinstance(error, lmdb.DiskError | lmdb.MapFullError)


def _advice(error: BaseException) -> str:
    if isinstance(error, lmdb.MapFullError):
        return "raise ulimit -v, or record into another --store"
    refused = isinstance(error, OSError) and error.errno in _REFUSED
    if refused or isinstance(error, lmdb.ReadonlyError) or "Read-only file system" in str(error):
        return "make it writable again"
    return "free space"
