from __future__ import annotations

import errno
import os
from pathlib import Path

import lmdb
import pytest

from replayproxy.errors import StoreTrouble
from replayproxy.storage import committer, open_store
from replayproxy.storage.batch import Batch
from replayproxy.storage.trouble import not_written
from replayproxy.testing import run

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
    panic = lmdb.PanicError("mdb_txn_begin: panic")
    told = str(not_written(AT, panic, again=True))
    assert told == "s cannot be written: mdb_txn_begin: panic -> stop, and go on with --append"
    assert str(not_written(AT, panic)) == "s cannot be written: mdb_txn_begin: panic -> run it again"


@pytest.mark.parametrize(("exclusive", "hint"), [(True, "stop, and go on with --append"), (False, "run it again")])
def test_only_a_recorder_is_told_to_go_on_with_append(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exclusive: bool, hint: str
) -> None:
    def panic(*_: object) -> None:
        raise lmdb.PanicError("mdb_txn_begin: panic")

    with open_store(tmp_path / "s", create=True) as store:
        writer = store.writer(exclusive=exclusive)
        made = writer.open_run(run("r"))
        with monkeypatch.context() as patch:
            patch.setattr(Batch, "commit", panic)
            patch.setattr(committer, "GIVE_UP_SECONDS", 0.0)
            with pytest.raises(StoreTrouble) as told:
                writer.put_check(made.key, {"findings": []}).result(9)
        assert told.value.hint == hint
        writer.close()


def test_what_says_so_itself_is_left_as_it_is() -> None:
    trouble = StoreTrouble("s was removed")
    assert not_written(AT, trouble, again=True) is trouble
