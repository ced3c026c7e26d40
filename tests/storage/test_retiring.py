"""A dictionary holds pieces of the records that it was made of: when some of those are removed, `gc` puts another in
its place, and no byte of the file tells of them."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from replayproxy.core.values import Exchange
from replayproxy.errors import DamagedRecord
from replayproxy.storage import gc, learning, open_store, retiring
from replayproxy.storage.dictionaries import numbers
from replayproxy.storage.environment import Environment
from replayproxy.storage.frame import dictionary_of
from replayproxy.storage.gc import collect
from replayproxy.storage.layout import dictionary_key
from replayproxy.storage.reader import Reader
from replayproxy.storage.verify import verify
from replayproxy.testing import episode, exchange, run
from tests.storage.gc_kit import remove
from tests.storage.test_learning import deal, learned, put

WORD = b"Hieronymus-Quastenflosser-4711"
OTHER = b"Balthasar-Beutelratte-0815"
CLEAN: Mapping[str, Any] = {"secrets": {"kept": False}}


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "FIRST", 300)


def traffic(count: int, word: bytes, seed: int) -> list[Exchange]:
    dice = random.Random(seed)
    more = f',"who":"{word.decode()}"'
    return [
        exchange("GET", f"/api/deals/{n}", body=deal(dice, n, more), at_ms=n,
                 headers={"Content-Type": "application/json"})
        for n in range(count)
    ]  # fmt: skip


def fill(path: Path, runs: Mapping[str, tuple[list[Exchange], Mapping[str, Any]]]) -> None:
    """One writer writes them all: its dictionary is made of the first of them, or of several."""
    with open_store(path, create=True) as store:
        writer = store.writer()
        for name, (listed, config) in runs.items():
            made = writer.open_run(replace(run(name), config=config))
            rollout = writer.open_episode(episode("e", run_key=made.key))
            put(writer, rollout, listed)
            learned(writer)
            writer.seal(rollout).result(5)
        writer.close()


def named(path: Path) -> set[int]:
    with open_store(path) as store, store.env.reading() as txn, txn.cursor(store.env.dbs["exchanges"]) as cursor:
        return {dictionary_of(raw) for _, raw in cursor}


def dictionaries(path: Path) -> dict[int, bytes]:
    with open_store(path) as store, store.env.reading() as txn:
        meta = store.env.dbs["meta"]
        return {number: bytes(txn.get(dictionary_key(number), db=meta)) for number in numbers(txn, meta)}


def read(path: Path, name: str) -> list[Exchange]:
    with open_store(path) as store:
        reader = store.reader()
        return [replace(one, seq=0) for one in reader.exchanges(reader.resolve(f"{name}/e").episode)]


def test_a_word_of_a_removed_run_is_nowhere_in_the_file(tmp_path: Path) -> None:
    path, left = tmp_path / "s", traffic(400, b"somebody", 2)
    fill(path, {"gone": (traffic(320, WORD, 1), CLEAN), "left": (left, CLEAN)})
    assert WORD in b"".join(dictionaries(path).values())
    before = dictionaries(path)
    remove(path, "gone")
    collect(path)
    assert WORD not in (path / "data.mdb").read_bytes()
    made = dictionaries(path)
    assert (set(made) & set(before), len(made)) == (set(), 1), "another one, made of what is left"
    assert named(path) == set(made)
    assert read(path, "left") == left
    assert verify(path).damaged == []


def test_the_file_is_smaller_than_before(tmp_path: Path) -> None:
    path = tmp_path / "s"
    fill(path, {"gone": (traffic(320, WORD, 1), CLEAN), "left": (traffic(1500, b"somebody", 2), CLEAN)})
    remove(path, "gone")
    freed = collect(path)
    assert freed.after < freed.before


def test_of_what_keeps_its_secrets_none_is_made(tmp_path: Path) -> None:
    path, kept = tmp_path / "s", traffic(400, OTHER, 2)
    fill(path, {"gone": (traffic(320, WORD, 1), CLEAN), "kept": (kept, {"secrets": {"kept": True}})})
    remove(path, "gone")
    collect(path)
    assert WORD not in (path / "data.mdb").read_bytes()
    assert (dictionaries(path), named(path)) == ({}, {0})
    assert read(path, "kept") == kept


def test_one_that_would_save_less_than_it_takes_is_not_made(tmp_path: Path) -> None:
    path, left = tmp_path / "s", traffic(30, b"somebody", 2)
    fill(path, {"gone": (traffic(320, WORD, 1), CLEAN), "left": (left, CLEAN)})
    remove(path, "gone")
    collect(path)
    assert (dictionaries(path), named(path)) == ({}, {0})
    assert read(path, "left") == left


AMONG = "among the records"
STEPS = ("_removed", "_blobs", "retire", AMONG, "_dictionaries", "rewritten")


@pytest.mark.parametrize("where", STEPS)
def test_ended_at_any_step_the_next_one_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    path, left = tmp_path / "s", traffic(400, b"somebody", 2)
    fill(path, {"gone": (traffic(320, WORD, 1), CLEAN), "left": (left, CLEAN)})
    remove(path, "gone")
    real, turns = retiring.pressed, 0

    def ended(*given: Any, **_: Any) -> Any:
        nonlocal turns
        turns += 1
        if turns == 100 or where != AMONG:
            raise KeyboardInterrupt
        return real(*given)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(*((retiring, "pressed") if where == AMONG else (gc, where)), ended)
        collect(path)
    assert verify(path).damaged == []
    assert read(path, "left") == left
    collect(path)
    assert WORD not in (path / "data.mdb").read_bytes()
    assert (len(dictionaries(path)), named(path)) == (1, set(dictionaries(path)))
    assert read(path, "left") == left
    assert verify(path).damaged == []
    after = (path / "data.mdb").read_bytes()
    collect(path)
    assert (path / "data.mdb").read_bytes() == after, "there is nothing more to do"


def test_who_opened_the_store_before_reads_what_it_holds_already(tmp_path: Path) -> None:
    path = tmp_path / "s"
    fill(path, {"left": (traffic(320, b"somebody", 2), CLEAN)})
    (number,) = dictionaries(path)
    with open_store(path) as store:
        with store.env.changing() as txn:
            txn.delete(dictionary_key(number), db=store.env.dbs["meta"])
        reader = store.reader()
        assert len(list(reader.exchanges(reader.resolve("left/e").episode))) == 320


LIMITED = """
import json, resource, signal, sys
from pathlib import Path
from replayproxy.storage import learning
from replayproxy.storage.gc import collect
learning.FIRST = 300
path, most = Path(sys.argv[1]), int(sys.argv[2])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
freed = collect(path)
print(json.dumps({"count": freed.count, "short": freed.short, "used": freed.used, "remains": freed.remains}))
"""


SLACK = 16 * 4096


def limited(path: Path) -> Any:
    """What a gc tells on a disk that is nearly full: the data file may grow by a few pages."""
    most = (path / "data.mdb").stat().st_size + SLACK
    command = [sys.executable, "-c", LIMITED, str(path), str(most)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def with_bodies(count: int, size: int) -> list[Exchange]:
    dice = random.Random(3)
    return [exchange("GET", f"/file/{n}", body=dice.randbytes(size), at_ms=1000 + n) for n in range(count)]


def test_without_room_for_other_dictionaries_the_bodies_go_and_the_next_one_does_the_rest(tmp_path: Path) -> None:
    path, left = tmp_path / "s", traffic(3000, b"somebody", 2)
    fill(path, {"gone": (traffic(320, WORD, 1) + with_bodies(3, 20_000), CLEAN), "left": (left, CLEAN)})
    remove(path, "gone")
    size, before = (path / "data.mdb").stat().st_size, named(path)
    for blobs in (3, 0):
        told = limited(path)
        assert told["count"].get("blobs", 0) == blobs
        assert "no room to do without the dictionaries" in told["short"]
        assert told["remains"]
        assert verify(path).read.get("blobs", 0) == 0
        assert verify(path).damaged == []
        assert named(path) == before, "what is left needs the old ones still"
        assert (path / "data.mdb").stat().st_size < size, "it is written anew all the same"
        assert read(path, "left") == left
    assert WORD in b"".join(dictionaries(path).values())
    assert not collect(path).remains
    assert WORD not in (path / "data.mdb").read_bytes()
    assert read(path, "left") == left
    after = (path / "data.mdb").read_bytes()
    collect(path)
    assert (path / "data.mdb").read_bytes() == after, "there is nothing more to do"


@pytest.mark.parametrize("kept", [False, True], ids=["with another one", "with none"])
def test_the_room_of_the_bodies_that_it_deletes_is_enough_to_do_without(tmp_path: Path, kept: bool) -> None:
    path, left = tmp_path / "s", traffic(1500, b"somebody", 2)
    gone = traffic(320, WORD, 1) + with_bodies(16, 200_000)
    fill(path, {"gone": (gone, CLEAN), "left": (left, {"secrets": {"kept": kept}})})
    remove(path, "gone")
    told = limited(path)
    assert (told["short"], told["remains"], told["count"]["blobs"]) == ("", False, 16)
    assert len(dictionaries(path)) == (0 if kept else 1)
    assert WORD not in (path / "data.mdb").read_bytes()
    assert read(path, "left") == left


@pytest.mark.parametrize("how", ["one by one", "one", "all"])
def test_who_holds_records_reads_them_with_a_dictionary_that_was_learned_and_deleted_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    path = tmp_path / "s"
    fill(path, {"left": (traffic(320, b"somebody", 2), CLEAN)})
    monkeypatch.setattr(Environment, "know_dictionaries", lambda env: None)  # opened before there was any
    with open_store(path) as store:
        reader = store.reader()
        found = reader.resolve("left/e")
        assert found.episode is not None
        real = Reader._exchange

        def deleted(*given: Any) -> Exchange:
            with store.env.changing() as txn:
                for number in numbers(txn, store.env.dbs["meta"]):
                    txn.delete(dictionary_key(number), db=store.env.dbs["meta"])
            return real(*given)

        monkeypatch.setattr(Reader, "_exchange", deleted)
        if how == "one by one":
            assert len(list(reader.exchanges(found.episode))) == 320
        elif how == "one":
            assert reader.exchange(found.episode, 1).seq == 1
        else:
            assert len(reader.trace(found.run, found.episode).exchanges) == 320


def lose_pages(path: Path, number: int) -> None:
    """Damages where the pages of a dictionary are said to lie, by one bit."""
    key, data = dictionary_key(number), path / "data.mdb"
    raw = bytearray(data.read_bytes())
    at = raw.find(key)
    while at >= 0:
        at += len(key)
        if 2 <= int.from_bytes(raw[at : at + 8], "little") < len(raw) // 4096:
            raw[at + 5] ^= 0x10
        at = raw.find(key, at)
    data.write_bytes(raw)


def test_damaged_pages_of_a_dictionary_damage_the_records_that_need_it_and_no_more(tmp_path: Path) -> None:
    path = tmp_path / "s"
    fill(path, {"old": (traffic(400, b"somebody", 2), CLEAN)})
    (number,) = dictionaries(path)
    lose_pages(path, number)
    with open_store(path) as store:
        assert [one.name for one in store.reader().runs()] == ["old"]
    with pytest.raises(DamagedRecord, match=rf"old/e#1 in .* needs dictionary {number}, which cannot be read: .*fsck"):
        read(path, "old")
    new = traffic(5, OTHER, 3)
    fill(path, {"new": (new, CLEAN)})
    assert read(path, "new") == new, "what is recorded now does without it"
    damaged = verify(path).damaged
    assert any("MDB_PAGE_NOTFOUND" in one["why"] for one in damaged)
    # LMDB reads nothing more in a transaction that met such a page: fsck's other stages go on in another.
    assert not any("BadTxn" in one["why"] for one in damaged)
    assert [one["address"] for one in damaged if one["kind"] == "exchange"] == ["old/e"]
