from __future__ import annotations

import errno
import os
from pathlib import Path

import lmdb
import pytest

from replayproxy.errors import StoreTrouble
from replayproxy.storage.trouble import not_written

AT = Path("s")


def _of(number: int) -> OSError:
    return OSError(number, os.strerror(number), "s/data.mdb")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (_of(errno.ENOSPC), "s cannot be written: no space left on device -> free space"),
        (_of(errno.EACCES), "s cannot be written: permission denied -> make it writable again"),
        (_of(errno.EROFS), "s cannot be written: read-only file system -> make it writable again"),
        (lmdb.Error("Read-only file system"), "s cannot be written: Read-only file system -> make it writable again"),
        (lmdb.MapFullError("full"), "s cannot be written: full -> raise ulimit -v, or record into another --store"),
    ],
)
def test_what_to_do_depends_on_what_is_wrong(error: Exception, told: str) -> None:
    assert str(not_written(AT, error)) == told
    assert str(not_written(AT, error, again=True)) == f"{told}; it is tried again"


def test_where_trying_again_is_of_no_use_nobody_says_that_it_is_done() -> None:
    told = str(not_written(AT, lmdb.PanicError("mdb_txn_begin: panic"), again=True))
    assert told == "s cannot be written: mdb_txn_begin: panic -> stop, and go on with --append"


def test_what_says_so_itself_is_left_as_it_is() -> None:
    trouble = StoreTrouble("s was removed")
    assert not_written(AT, trouble, again=True) is trouble
