"""A writer that has written enough learns a dictionary: what is stored stays what it was, in a quarter of the room."""

from __future__ import annotations

import io
import os
import random
import string
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from replayproxy.core.redact import Redactor
from replayproxy.core.values import Episode, Exchange
from replayproxy.errors import DamagedRecord
from replayproxy.storage import Store, Writer, learning, open_store
from replayproxy.storage.archive import ArchiveWriter, open_archive
from replayproxy.storage.dictionaries import numbers, open_dictionary
from replayproxy.storage.frame import dictionary_of
from replayproxy.storage.gc import collect
from replayproxy.storage.inspection import Scan
from replayproxy.storage.intake import Intake
from replayproxy.storage.layout import FORMAT, dictionary_key
from replayproxy.storage.packing import Packer
from replayproxy.storage.reader import Reader
from replayproxy.storage.unpacking import unpack
from replayproxy.storage.verify import verify
from replayproxy.testing import episode, exchange, run

WORDS = "renewal pilot invoice budget legal review contract security audit champion demo pricing".split()  # noqa: SIM905


def deal(dice: random.Random, n: int, more: str = "") -> bytes:
    notes = " ".join(dice.choice(WORDS) for _ in range(20))
    return (
        f'{{"id":"deal_{dice.getrandbits(64):016x}","number":{n},"stage":"{dice.choice(WORDS)}","notes":"{notes}",'
        f'"owner":{{"name":"Ada","email":"ada@acme.example"}}{more}}}'
    ).encode()


def traffic(count: int, seed: int = 1, begin: int = 0) -> Iterator[Exchange]:
    dice = random.Random(seed)
    for n in range(begin, begin + count):
        yield exchange(
            "GET", f"/api/deals/{n}", body=deal(dice, n), at_ms=n, headers={"Content-Type": "application/json"}
        )


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "FIRST", 300)


def learned(writer: Writer) -> None:
    """Waits until a dictionary that is being made is in use, or was not taken."""
    learner = writer._queue._learner
    deadline = time.monotonic() + 20
    while learner._training is not None:
        assert time.monotonic() < deadline
        writer.flush().result(5)
        time.sleep(0.01)


def put(writer: Writer, where: Episode, listed: list[Exchange]) -> None:
    for n in range(0, len(listed), 50):
        for one in listed[n : n + 50]:
            writer.put_exchange(where.key, one)
        writer.flush().result(5)


def filled(path: Path, listed: list[Exchange], then: list[Exchange], redactor: Redactor | None = None) -> None:
    with open_store(path, create=True) as store:
        writer = store.writer(redactor=redactor)
        made = writer.open_run(run("r"))
        a = writer.open_episode(episode("a", run_key=made.key))
        put(writer, a, listed)
        learned(writer)
        b = writer.open_episode(episode("b", run_key=made.key))
        put(writer, b, then)
        writer.seal(a).result(5)
        writer.seal(b).result(5)
        writer.close()


def named(store: Store) -> list[int]:
    """The dictionaries that the exchanges of a store name, in the order of their keys."""
    with store.env.reading() as txn, txn.cursor(store.env.dbs["exchanges"]) as cursor:
        return [dictionary_of(raw) for _, raw in cursor]


def dictionary(store: Store, number: int = 1) -> bytes:
    with store.env.reading() as txn:
        return open_dictionary(number, txn.get(dictionary_key(number), db=store.env.dbs["meta"]))


def read(reader: Reader, name: str) -> list[Exchange]:
    return [replace(one, seq=0) for one in reader.exchanges(reader.episode(reader.run("r"), name))]


def room(store: Store) -> int:
    with store.env.reading() as txn, txn.cursor(store.env.dbs["exchanges"]) as cursor:
        return sum(len(raw) for _, raw in cursor)


def test_after_enough_records_all_of_them_need_the_dictionary_and_say_what_they_said(tmp_path: Path) -> None:
    listed, then = list(traffic(400)), list(traffic(50, 2, 400))
    filled(tmp_path / "s", listed, then)
    with open_store(tmp_path / "s") as store:
        assert set(named(store)) == {1}
        assert room(store) < 450 * 300
        assert read(store.reader(), "a") == listed
        assert read(store.reader(), "b") == then
    report = verify(tmp_path / "s")
    assert report.damaged == []
    assert report.read["dictionaries"] == 1


def test_fewer_records_make_none(tmp_path: Path) -> None:
    filled(tmp_path / "s", list(traffic(250)), [])
    with open_store(tmp_path / "s") as store:
        assert set(named(store)) == {0}


def test_the_next_writer_uses_it_from_its_first_record(tmp_path: Path) -> None:
    filled(tmp_path / "s", list(traffic(300)), [])
    with open_store(tmp_path / "s") as store:
        writer = store.writer(exclusive=False)
        again = writer.open_episode(episode("c", run_key=store.reader().run("r").key))
        put(writer, again, list(traffic(3, 5)))
        writer.close()
        assert named(store)[-3:] == [1, 1, 1]
        assert read(store.reader(), "c") == list(traffic(3, 5))


def test_traffic_of_another_kind_gets_another_and_what_was_written_keeps_its_own(tmp_path: Path) -> None:
    listed = list(traffic(300))
    other = [
        exchange("POST", f"/rpc?n={n}", body=f"<row of='ledger'><c>{n * 7919}</c></row>".encode() * 4, at_ms=n)
        for n in range(400)
    ]
    filled(tmp_path / "s", listed, [])
    with open_store(tmp_path / "s") as store:
        writer = store.writer()
        later = writer.open_episode(episode("c", run_key=store.reader().run("r").key))
        put(writer, later, other)
        learned(writer)
        put(writer, later, [replace(one, order=(one.order[0] + 10**12, 0)) for one in other[:5]])
        writer.close()
        assert set(named(store)[:300]) == {1}
        assert named(store)[-5:] == [2] * 5
        assert read(store.reader(), "a") == listed
        assert read(store.reader(), "c")[:400] == other


def test_one_that_saves_little_is_not_taken(tmp_path: Path) -> None:
    filled(tmp_path / "s", list(traffic(300)), [])
    with open_store(tmp_path / "s") as store:
        writer = store.writer()
        again = writer.open_episode(episode("c", run_key=store.reader().run("r").key))
        put(writer, again, list(traffic(310, 9)))
        learned(writer)
        writer.close()
        with store.env.reading() as txn:
            assert numbers(txn, store.env.dbs["meta"]) == [1]


def test_a_store_of_format_1_is_read_and_gets_the_present_one_with_its_next_writer(tmp_path: Path) -> None:
    filled(tmp_path / "s", list(traffic(5)), [])
    with open_store(tmp_path / "s") as store, store.env.writing() as txn:
        txn.put(b"format", (1).to_bytes(4, "big"), db=store.env.dbs["meta"])

    def form() -> int:
        with open_store(tmp_path / "s") as store, store.env.reading() as txn:
            return int.from_bytes(txn.get(b"format", db=store.env.dbs["meta"]), "big")

    with open_store(tmp_path / "s") as store:
        assert len(read(store.reader(), "a")) == 5
        assert form() == 1
        store.writer().close()
    assert form() == FORMAT


def damage(path: Path, to: Callable[[bytes], bytes] | None) -> None:
    with open_store(path) as store, store.env.writing() as txn:
        meta, key = store.env.dbs["meta"], dictionary_key(1)
        if to is None:
            txn.delete(key, db=meta)
        else:
            txn.put(key, to(txn.get(key, db=meta)), db=meta)


@pytest.mark.parametrize(
    ("to", "why", "kinds"),
    [
        (None, "it needs dictionary 1, which is missing", [("exchange", "r/a"), ("exchange", "r/b")]),
        (
            lambda raw: raw[:-1] + bytes((raw[-1] ^ 1,)),
            "it needs dictionary 1, which is damaged: its checksum does not fit",
            [("dictionary", "00000001"), ("exchange", "r/a"), ("exchange", "r/b")],
        ),
    ],
)
def test_a_lost_or_damaged_dictionary_is_told_once_an_episode(
    tmp_path: Path, to: Callable[[bytes], bytes] | None, why: str, kinds: list[tuple[str, str]]
) -> None:
    filled(tmp_path / "s", list(traffic(300)), list(traffic(2, 2)))
    damage(tmp_path / "s", to)
    with open_store(tmp_path / "s") as store, pytest.raises(DamagedRecord, match=why):
        read(store.reader(), "a")
    found = verify(tmp_path / "s").damaged
    assert [(one["kind"], one["address"]) for one in found] == kinds
    assert found[-2]["why"].startswith("300 of its exchanges need dictionary 1, which is ")


def test_an_archive_needs_no_dictionary_and_holds_nothing_of_other_episodes(tmp_path: Path) -> None:
    then = [exchange("GET", "/b", body=b'{"only":"in b"}', at_ms=n) for n in range(3)]
    filled(tmp_path / "s", list(traffic(300)), then)
    with open_store(tmp_path / "s") as store:
        reader, out = store.reader(), io.BytesIO()
        one = reader.run("r")
        archive = ArchiveWriter(out)
        Packer(archive).run(reader, one, [reader.episode(one, "b")], whole=False)
        archive.end()
        assert b"renewal" in dictionary(store)
        assert b"renewal" not in out.getvalue()
    (tmp_path / "b.replay").write_bytes(out.getvalue())
    with open_archive(tmp_path / "b.replay") as opened:
        assert read(Reader(opened), "b") == then
        with open_store(tmp_path / "other", create=True) as other:
            intake = Intake(other)
            unpack(opened, intake)
            intake.publish()
            assert read(other.reader(), "b") == then
            assert set(named(other)) == {0}
        with open_store(tmp_path / "s") as home:
            intake = Intake(home)
            unpack(opened, intake, name="again")
            intake.publish()
            assert set(named(home)) == {1}
    for store_ in ("s", "other"):
        assert verify(tmp_path / store_).damaged == []


def test_a_dictionary_holds_no_secret(tmp_path: Path) -> None:
    dice = random.Random(3)

    def secret(length: int = 24) -> str:
        return "".join(dice.choice(string.ascii_letters + string.digits) for _ in range(length))

    shared, own = [secret(), secret()], [secret() for _ in range(320)]
    listed = [
        exchange(
            "POST", f"/login?api_key={shared[0]}&n={n}", sent=f'{{"user":"ada","password":"{own[n]}"}}'.encode(),
            body=deal(dice, n, f',"access_token":"{own[n]}x","seen":"{shared[1]}"'), at_ms=n,
            request_headers={"Authorization": f"Bearer {shared[1]}", "Content-Type": "application/json"},
            headers={"Set-Cookie": f"session={own[n]}y; Path=/", "Content-Type": "application/json"},
        )
        for n in range(320)
    ]  # fmt: skip
    filled(tmp_path / "s", listed, [], Redactor(b"k" * 32))
    with open_store(tmp_path / "s") as store:
        found = dictionary(store)
        assert set(named(store)) == {1}
    assert b"rp-secret-" in found  # it was trained on them, with tokens in their place
    pieces = [one[at : at + 8].encode() for one in (*shared, *own) for at in range(len(one) - 7)]
    assert [piece for piece in pieces if piece in found] == []
    everything = b"".join(file.read_bytes() for file in (tmp_path / "s").iterdir() if file.is_file())
    assert [piece for piece in (s.encode() for s in (*shared, *own)) if piece in everything] == []


def test_where_secrets_are_kept_none_is_made(tmp_path: Path) -> None:
    filled(tmp_path / "s", list(traffic(320)), [], Redactor(None))
    with open_store(tmp_path / "s") as store:
        assert set(named(store)) == {0}


def test_gc_leaves_no_dictionary_where_too_little_is_left_to_make_one_of(tmp_path: Path) -> None:
    then = list(traffic(3, 2))
    filled(tmp_path / "s", list(traffic(300)), then)

    def removed(name: str) -> list[int]:
        with open_store(tmp_path / "s") as store:
            writer, reader = store.writer(exclusive=False), store.reader()
            writer.remove(reader.run("r").key, reader.episode(reader.run("r"), name).key)
            writer.close()
        collect(tmp_path / "s")
        with open_store(tmp_path / "s") as store, store.env.reading() as txn:
            return numbers(txn, store.env.dbs["meta"])

    assert removed("a") == []
    with open_store(tmp_path / "s") as store:
        assert read(store.reader(), "b") == then
        assert set(named(store)) == {0}
    assert removed("b") == []
    assert verify(tmp_path / "s").damaged == []


def test_what_was_replaced_or_deleted_meanwhile_is_left_alone(tmp_path: Path) -> None:
    listed = list(traffic(310))
    filled(tmp_path / "s", listed, [])
    with open_store(tmp_path / "s") as store:
        exchanges = store.env.dbs["exchanges"]
        with store.env.writing() as txn, txn.cursor(exchanges) as cursor:
            pairs = [(bytes(key), bytes(raw)) for key, raw in cursor][:4]
            assert learning.put_anew(txn, exchanges, pairs) == 0  # they have a dictionary already
            plain = {key: learning.pressed(raw, store.env.dictionaries) for key, raw in pairs}
            for key in plain:
                txn.put(key, plain[key], db=exchanges)
            txn.delete(pairs[0][0], db=exchanges)
            txn.put(pairs[1][0], plain[pairs[2][0]], db=exchanges)
            assert learning.put_anew(txn, exchanges, pairs) == 2
            assert txn.get(pairs[0][0], db=exchanges) is None
            assert txn.get(pairs[1][0], db=exchanges) == plain[pairs[2][0]]
            assert txn.get(pairs[2][0], db=exchanges) == pairs[2][1]


def test_training_that_fails_leaves_records_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise learning.zstandard.ZstdError("too little")

    monkeypatch.setattr(learning.zstandard, "train_dictionary", fails)
    listed = list(traffic(320))
    filled(tmp_path / "s", listed, [])
    with open_store(tmp_path / "s") as store:
        assert set(named(store)) == {0}
        assert read(store.reader(), "a") == listed


def test_it_is_trained_in_a_thread_of_its_own_and_close_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    seen: list[str] = []
    train = learning.zstandard.train_dictionary

    def slow(*given: object, **more: object) -> object:
        seen.append(threading.current_thread().name)
        time.sleep(0.5)
        return train(*given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(learning.zstandard, "train_dictionary", slow)
    with open_store(tmp_path / "s", create=True) as store:
        writer = store.writer()
        a = writer.open_episode(episode("a", run_key=writer.open_run(run("r")).key))
        put(writer, a, list(traffic(320)))
        assert writer.flush().result(0.4) is None  # it goes on meanwhile
        writer.close()
        assert seen == ["replayproxy-dictionary"]
        assert not [one for one in threading.enumerate() if one.name == "replayproxy-dictionary"]
        with store.env.reading() as txn:
            assert numbers(txn, store.env.dbs["meta"]) == []
        assert os.getpid() == store.env.pid


COLLECT = """
import sys
from pathlib import Path
from replayproxy.storage.gc import collect
print(collect(Path(sys.argv[1])).count["dictionaries"])
"""


def test_a_scan_beside_gc_finds_no_damage_in_what_it_reads(tmp_path: Path) -> None:
    """It reads one moment: the dictionary is of that moment, too."""
    filled(tmp_path / "s", list(traffic(300)), [])
    with open_store(tmp_path / "s") as store:
        writer = store.writer(exclusive=False)
        writer.remove(store.reader().run("r").key)
        writer.close()
    with open_store(tmp_path / "s") as store, store.env.reading() as txn:
        scan = Scan(store.env, txn)
        assert [*scan.runs(), *scan.episodes()] == []
        done = subprocess.run([sys.executable, "-c", COLLECT, str(store.path)], capture_output=True, text=True)
        assert done.stdout == "1\n"
        assert list(scan.exchanges()) == []
        assert scan.read["exchanges"] == 300
