from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from replayproxy.core import prolly
from replayproxy.core.canonical import digest
from replayproxy.errors import StoreTrouble, UnknownAddress
from replayproxy.storage import open_store, scan
from replayproxy.storage.layout import episode_key, exchange_key, snapshot_key, trial_key, u64
from replayproxy.storage.verify import verify
from replayproxy.testing import episode, exchange, run, snapshot

STATE = prolly.build({"deals": {str(n): {"title": "x" * 50, "n": n} for n in range(300)}})
PIECE = digest(b"p" * 5000)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with open_store(tmp_path / "s", create=True) as store:
        writer = store.writer()
        made = writer.open_run(run("r"))
        rollout = writer.open_episode(episode("e", run_key=made.key))
        writer.open_episode(episode("left-open", run_key=made.key))
        writer.put_nodes(STATE.nodes)
        writer.put_snapshot(rollout.key, snapshot(0, STATE.root))
        for n in range(3):
            writer.put_exchange(rollout.key, exchange(at_ms=n, body=b"p" * 5000))
        writer.seal(rollout).result(5)
        writer.put_check(made.key, {"run": "r", "findings": []})
        writer.put_trial(made.key, {"finding": "race-1", "wall": 5})
        writer.close()
    return tmp_path / "s"


def change(path: Path, db: str, key: bytes, to: Callable[[bytes], bytes | None]) -> None:
    with open_store(path) as store, store.env.writing() as txn:
        new = to(txn.get(key, db=store.env.dbs[db]))
        if new is None:
            assert txn.delete(key, db=store.env.dbs[db])
        else:
            assert txn.put(key, new, db=store.env.dbs[db])


def flipped(raw: bytes) -> bytes:
    return raw[:-1] + bytes((raw[-1] ^ 1,))


def keys(path: Path) -> tuple[int, int]:
    with open_store(path) as store:
        made = store.reader().run("r")
        return made.key, store.reader().episode(made, "e").key


def places(path: Path) -> list[tuple[str, str]]:
    """Read in this process: what is damaged here is no danger to it."""
    found = [line["damaged"] for line in scan.lines(path) if "damaged" in line]
    return [(damage["kind"], damage["address"]) for damage in found]


def test_a_whole_store_is_whole_and_an_incomplete_episode_is_no_damage(path: Path) -> None:
    report = verify(path)
    assert report.damaged == []
    assert report.read["exchanges"] == 3
    assert report.read["episodes"] == 2
    assert report.read["blobs"] == 1 + len(STATE.nodes)


def test_a_store_that_is_being_written_is_whole(path: Path) -> None:
    with open_store(path) as store:
        writer = store.writer()
        rollout = writer.open_episode(episode("now", run_key=store.reader().run("r").key))
        for n in range(50):
            writer.put_exchange(rollout.key, exchange(at_ms=n, body=b"q" * 9000))
            if n % 10 == 0:
                writer.flush().result(5)
                assert [line for line in scan.lines(path) if "damaged" in line] == []
        writer.close()
    assert places(path) == []


def gone(_: bytes) -> None:
    return None


def test_every_damage_is_listed(path: Path) -> None:
    r, e = keys(path)
    order = exchange(at_ms=1).order
    cases: list[tuple[str, bytes, Callable[[bytes], bytes | None], list[tuple[str, str]]]] = [
        ("exchanges", exchange_key(e, order), flipped, [("exchange", "r/e#2")]),
        ("exchanges", exchange_key(e, order), gone, [("seal", "r/e")]),
        ("snapshots", snapshot_key(e, 0), flipped, [("snapshot", "r/e/s0")]),
        ("snapshots", snapshot_key(e, 0), gone, [("seal", "r/e")]),
        ("blobs", PIECE, flipped, [("blob", PIECE.hex())]),
        ("blobs", PIECE, gone, [("body", "r/e#1"), ("body", "r/e#2"), ("body", "r/e#3")]),
        ("blobs", STATE.root, gone, [("snapshot", "r/e/s0")]),
        ("runs", u64(r), flipped, [("run", f"run {r}")]),
        (
            "runs",
            u64(r),
            gone,
            [
                ("name", "r"),
                ("episode", f"run {r}/e"),
                ("episode", f"run {r}/left-open"),
                ("trial", f"a trial of run {r}"),
                ("machine", f"the machine of run {r}"),
            ],
        ),
        ("run-names", b"r", gone, [("name", "r")]),
        ("episodes", episode_key(r, e), flipped, [("episode", f"r/episode {e}")]),
        ("episodes", episode_key(r, e), gone, [("name", "r/e"), ("episode", f"episode {e}")]),
        ("episode-names", u64(r) + b"e", gone, [("name", "r/e")]),
        ("trials", trial_key(r, 5, 0), flipped, [("trial", "a trial of r")]),
        ("machines", u64(r), flipped, [("machine", "the machine of r")]),
        ("checks", u64(r), flipped, [("check", "r")]),
        ("checks", u64(r), gone, [("check", "r")]),
    ]
    wrong = []
    for n, (db, key, to, expected) in enumerate(cases):
        copy = path.parent / f"copy{n}"
        shutil.copytree(path, copy)
        change(copy, db, key, to)
        found = places(copy)
        # A changed record changes its seal's chain only where its checksum is touched, which `flipped` does not.
        if found != expected:
            wrong.append((db, to.__name__, found, expected))
    assert wrong == []


def test_all_of_several_damages_are_listed(path: Path) -> None:
    _, e = keys(path)
    for n in (0, 2):
        change(path, "exchanges", exchange_key(e, exchange(at_ms=n).order), flipped)
    change(path, "blobs", STATE.root, flipped)
    assert places(path) == [
        ("exchange", "r/e#1"), ("exchange", "r/e#3"), ("snapshot", "r/e/s0"), ("blob", STATE.root.hex()),
    ]  # fmt: skip


def test_a_cut_file_is_one_damage_and_no_crash(path: Path) -> None:
    os.truncate(path / "data.mdb", (path / "data.mdb").stat().st_size // 2)
    (damage,) = verify(path).damaged
    assert damage["kind"] == "file"
    assert "is cut" in damage["why"]


def test_a_newer_format_is_trouble_and_no_damage(path: Path) -> None:
    change(path, "meta", b"format", lambda _: (99).to_bytes(4, "big"))
    with pytest.raises(StoreTrouble, match="written by a newer replayproxy"):
        verify(path)


def test_a_missing_store_is_an_unknown_address(tmp_path: Path) -> None:
    with pytest.raises(UnknownAddress):
        verify(tmp_path)


@pytest.mark.parametrize("kind", ["page of zeros", "page of noise", "one bit"])
def test_damage_anywhere_in_the_file_is_reported_and_ends_nothing_here(path: Path, kind: str) -> None:
    """Beyond the two meta pages, in pages that are in use; reading some of them ends the process that reads."""
    rng = random.Random(kind)
    used = pages_in_use(path)
    whole = (path / "data.mdb").read_bytes()
    missed: list[tuple[int, Any]] = []
    for n in range(3):
        page = rng.choice(used)
        copy = path.parent / f"copy{n}"
        shutil.copytree(path, copy)
        data = bytearray(whole)
        if kind == "one bit":
            # In the page's head, where every bit means something; not the last of the number of records, which is
            # counted by twos, nor the mark of free room: neither loses anything.
            at = rng.choice([0, 1, 2, 10, 12, 13])
            data[page * 4096 + at] ^= 2 << rng.randrange(7)
        else:
            data[page * 4096 : (page + 1) * 4096] = bytes(4096) if "zeros" in kind else rng.randbytes(4096)
        if bytes(data) == whole:
            continue
        (copy / "data.mdb").write_bytes(data)
        if not verify(copy).damaged:
            missed.append((page, data[page * 4096 : page * 4096 + 16].hex()))
    assert missed == []


def pages_in_use(path: Path) -> list[int]:
    """Pages that hold records: found by writing the store anew, without its free pages."""
    import lmdb

    compact = path.parent / "compact"
    compact.mkdir()
    with lmdb.open(str(path), readonly=True, lock=False, max_dbs=16) as env:
        env.copy(str(compact), compact=True)
    shutil.copy(compact / "data.mdb", path / "data.mdb")
    return list(range(2, (path / "data.mdb").stat().st_size // 4096))
