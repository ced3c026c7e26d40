"""The file that `gc` writes anew, and what it says of removed text that may still be in it."""

from __future__ import annotations

import importlib
import os
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from replayproxy.storage import environment, gc, open_store, rewriting
from replayproxy.storage.gc import collect
from replayproxy.storage.layout import META_PURGE, u64
from replayproxy.storage.verify import verify
from replayproxy.testing import episode, exchange, run
from tests.storage.gc_kit import content, fill, fill_more, remove

OWN = random.Random("021").randbytes(30_000)[100:200]
"""Of a body of r0/e2."""


@pytest.fixture(autouse=True)
def spare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Free pages alone are no reason to write a file anew."""
    monkeypatch.setattr(rewriting, "SPARE", 1)


MARKER = b"Quastenflosser"


def interleaved(path: Path) -> None:
    """Episodes to keep and to remove in turn, a commit each; none of their bodies can be compressed."""
    dice = random.Random(5)
    with open_store(path, create=True) as store:
        writer = store.writer()
        made = {name: writer.open_run(run(name)) for name in ("keep", "drop")}
        for e in range(60):
            name, least, most = ("drop", 3000, 3900) if e % 2 else ("keep", 2000, 2900)
            rollout = writer.open_episode(episode(f"e{e}", run_key=made[name].key))
            for n in range(5):
                noise = dice.randbytes(dice.randint(least, most))
                writer.put_exchange(rollout.key, exchange(at_ms=n, body=noise + (MARKER if e % 2 else b"")))
            writer.seal(rollout).result(9)
        writer.close()


def unused(path: Path) -> Iterator[bytes]:
    """All that no record, no key and no page's head takes of the file, as the pages themselves tell it."""
    lmdb_verify: Any = importlib.import_module("lmdb.verify")
    raw, size = (path / "data.mdb").read_bytes(), {}

    class Sizes(lmdb_verify._Verifier):  # type: ignore[misc]
        def _bigdata(self, ctx: Any, pgno: int, i: int, buf: bytes, at: int, length: int, want_bytes: bool) -> Any:
            size[int.from_bytes(buf[at : at + 8], "little")] = length
            return super()._bigdata(ctx, pgno, i, buf, at, length, want_bytes)

    with (path / "data.mdb").open("rb") as data:
        pages = Sizes(data, len(raw))
        assert pages.verify() == []
    number = 2
    while number < pages.next_pgno:
        start = number * pages.psize
        head = [int.from_bytes(raw[start + at : start + at + 2], "little") for at in range(8, 16, 2)]
        pad, flags, lower, upper = head
        if not pages.live[number]:
            yield raw[start : start + pages.psize]
        elif flags & lmdb_verify.P_OVERFLOW:
            number += lower - 1
            yield raw[start + 16 + size[number - lower + 1] : (number + 1) * pages.psize]
        else:
            yield bytes([pad & 255, pad >> 8]) + raw[start + lower : start + upper]
            yield b"".join(behind_nodes(raw[start : start + pages.psize], lower, leaf=bool(flags & lmdb_verify.P_LEAF)))
        number += 1


def behind_nodes(page: bytes, lower: int, *, leaf: bool) -> Iterator[bytes]:
    """A node of an odd size has a byte behind it."""
    for at in range(16, lower, 2):
        (node,) = struct.unpack_from("<H", page, at)
        data, flags, key = struct.unpack_from("<IHH", page, node)
        end = node + 8 + key + ((8 if flags & 1 else data) if leaf else 0)
        yield page[end : end + end % 2]


def test_no_byte_of_a_longer_body_stays_behind_a_shorter_one(tmp_path: Path) -> None:
    """LMDB puts pages into buffers that held others, and clears none."""
    interleaved(tmp_path / "s")
    remove(tmp_path / "s", "drop")
    kept = content(tmp_path / "s")
    assert any(MARKER in one for one in unused(tmp_path / "s"))
    assert not collect(tmp_path / "s").remains
    assert MARKER not in (tmp_path / "s/data.mdb").read_bytes()
    assert content(tmp_path / "s") == kept
    assert verify(tmp_path / "s").damaged == []


def test_all_that_nothing_takes_of_the_new_file_is_zero(tmp_path: Path) -> None:
    interleaved(tmp_path / "s")
    remove(tmp_path / "s", "drop")
    assert b"".join(unused(tmp_path / "s")).strip(b"\0")
    collect(tmp_path / "s")
    left = list(unused(tmp_path / "s"))
    assert sum(len(one) for one in left) > 50_000, "it looks where there was something"
    assert b"".join(left).strip(b"\0") == b""


def test_no_name_that_is_gone_leads_from_page_to_page(tmp_path: Path) -> None:
    """The first key of a page stands in the page above, too, and stays there when its record is deleted."""
    names = [f"r{n:03}{'' if n % 4 else '-gone'}{'x' * 180}" for n in range(200)]
    with open_store(tmp_path / "s", create=True) as store:
        writer = store.writer()
        for name in names:
            writer.open_run(run(name))
        writer.close()
    remove(tmp_path / "s", *(name for name in names if "-gone" in name))
    collect(tmp_path / "s")
    assert b"-gone" not in (tmp_path / "s/data.mdb").read_bytes()
    with open_store(tmp_path / "s") as store:
        assert [one.name for one in store.reader().runs()] == [name for name in names if "-gone" not in name]


@pytest.mark.parametrize("at_once", [1, 100_000])
def test_the_new_file_is_committed_piece_by_piece_and_counts_no_further_than_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    """LMDB would take the numbers of its free pages for later ones than its last transaction's."""
    monkeypatch.setattr(rewriting, "AT_ONCE", at_once)
    interleaved(tmp_path / "s")
    remove(tmp_path / "s", "drop")
    kept = content(tmp_path / "s")
    collect(tmp_path / "s")
    assert MARKER not in (tmp_path / "s/data.mdb").read_bytes()
    assert content(tmp_path / "s") == kept
    assert verify(tmp_path / "s").damaged == []
    for _ in range(3):
        remove(tmp_path / "s", *list(content(tmp_path / "s"))[:1])
        collect(tmp_path / "s")
    fill_more(tmp_path / "s")
    assert len(content(tmp_path / "s")) == len(kept) - 3 + 1
    assert verify(tmp_path / "s").damaged == []


def test_a_database_that_a_later_version_added_stays(tmp_path: Path) -> None:
    fill(tmp_path / "s")
    with open_store(tmp_path / "s") as store, store.env.writing() as txn:
        txn.put(b"key", b"value", db=store.env.env.open_db(b"later", txn=txn))
    remove(tmp_path / "s", "r0")
    before = (tmp_path / "s/data.mdb").stat().st_ino
    collect(tmp_path / "s")
    assert (tmp_path / "s/data.mdb").stat().st_ino != before
    with open_store(tmp_path / "s") as store, store.env.writing() as txn:
        assert txn.get(b"key", db=store.env.env.open_db(b"later", txn=txn, create=False)) == b"value"


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
