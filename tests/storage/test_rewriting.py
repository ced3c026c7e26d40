"""The file that `gc` writes anew, and what it says of removed text that may still be in it."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from replayproxy.storage import environment, gc, open_store, rewriting
from replayproxy.storage.gc import collect
from replayproxy.storage.layout import META_PURGE, u64
from replayproxy.storage.verify import verify
from tests.storage.gc_kit import content, fill, fill_more, remove

OWN = random.Random("021").randbytes(30_000)[100:200]
"""Of a body of r0/e2."""


@pytest.fixture(autouse=True)
def spare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Free pages alone are no reason to write a file anew."""
    monkeypatch.setattr(rewriting, "SPARE", 1)


def purge(path: Path) -> bytes | None:
    with open_store(path) as store, store.env.reading() as txn:
        found: bytes | None = txn.get(META_PURGE, db=store.env.dbs["meta"])
        return found


def put_purge(path: Path, entry: bytes) -> None:
    with open_store(path) as store, store.env.changing() as txn:
        txn.put(META_PURGE, entry, db=store.env.dbs["meta"])


def ended(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gc that is ended before its last step."""

    def end(*_: object, **__: object) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(gc, "rewritten", end)
        collect(path)


def test_a_copy_of_a_store_in_which_a_gc_was_ended_is_purged_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "s")
    remove(tmp_path / "s", "r0")
    ended(tmp_path / "s", monkeypatch)
    kept = content(tmp_path / "s")
    shutil.copytree(tmp_path / "s", tmp_path / "copy")
    assert OWN in (tmp_path / "copy/data.mdb").read_bytes()
    collect(tmp_path / "copy")
    assert OWN not in (tmp_path / "copy/data.mdb").read_bytes()
    assert content(tmp_path / "copy") == kept


def test_the_new_file_says_that_nothing_is_left_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "s")
    remove(tmp_path / "s", "r0")
    ended(tmp_path / "s", monkeypatch)
    assert purge(tmp_path / "s") == bytes(4)
    collect(tmp_path / "s")
    assert purge(tmp_path / "s") is None
    assert verify(tmp_path / "s").damaged == []
    after = (tmp_path / "s/data.mdb").read_bytes()
    collect(tmp_path / "s")
    assert (tmp_path / "s/data.mdb").read_bytes() == after
    fill_more(tmp_path / "s")
    assert verify(tmp_path / "s").damaged == []
    assert len(content(tmp_path / "s")) == 9


def test_an_entry_of_an_earlier_version_is_followed_whichever_file_it_names(tmp_path: Path) -> None:
    fill(tmp_path / "s")
    put_purge(tmp_path / "s", u64(1) + bytes(4))
    before = (tmp_path / "s/data.mdb").stat().st_ino
    collect(tmp_path / "s")
    assert (tmp_path / "s/data.mdb").stat().st_ino != before
    assert purge(tmp_path / "s") is None


def test_a_file_that_is_larger_than_the_smallest_map_is_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "s")
    remove(tmp_path / "s", "r0")
    monkeypatch.setattr(environment, "MAP_SIZES", (1 << 36, 1 << 16))
    assert collect(tmp_path / "s").short == ""
    assert (tmp_path / "s/data.mdb").stat().st_size > 1 << 16
    assert purge(tmp_path / "s") is None


LIMITED = """
import resource, signal, sys
from pathlib import Path
from replayproxy.storage import open_store
from replayproxy.storage.rewriting import rewritten
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
with open_store(Path(sys.argv[1])) as store:
    print(rewritten(store.env, always=True, purged=True))
"""


def test_a_limit_that_the_disk_does_not_tell_of_leaves_the_old_file(tmp_path: Path) -> None:
    """A quota, as well as one on the size of files."""
    fill(tmp_path / "s")
    put_purge(tmp_path / "s", bytes(4))
    before = (tmp_path / "s/data.mdb").read_bytes()
    told = subprocess.run(
        [sys.executable, "-c", LIMITED, os.fspath(tmp_path / "s")], capture_output=True, text=True, check=True
    )
    assert "data.mdb.gc cannot be written: " in told.stdout
    assert (tmp_path / "s/data.mdb").read_bytes() == before
    assert not (tmp_path / "s/data.mdb.gc").exists()
