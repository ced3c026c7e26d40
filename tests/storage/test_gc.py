"""`rm` marks, `gc` frees: what goes and what stays."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from replayproxy.core import prolly
from replayproxy.errors import StoreTrouble
from replayproxy.storage import locks, open_store, rewriting
from replayproxy.storage.gc import collect
from replayproxy.storage.intake import Intake
from replayproxy.storage.layout import COPY_FILE
from replayproxy.storage.verify import verify
from replayproxy.testing import episode, exchange, run
from tests.storage.gc_kit import content, fill, fill_more, remove, state


def test_what_was_removed_is_gone_and_all_else_is_as_it_was(tmp_path: Path) -> None:
    fill(tmp_path / "s")
    before, size = content(tmp_path / "s"), (tmp_path / "s/data.mdb").stat().st_size
    remove(tmp_path / "s", "r0", "r1/e2")
    freed = collect(tmp_path / "s")
    assert +freed.count >= Counter({"runs": 1, "episodes": 5, "exchanges": 15, "snapshots": 5, "checks": 1})
    assert freed.count["blobs"] > 5 * 2
    assert (freed.before, freed.after, freed.short) == (size, (tmp_path / "s/data.mdb").stat().st_size, "")
    assert freed.after < size * 0.7
    gone = {name for name in before if name.startswith("r0/")} | {"r1/e2"}
    assert content(tmp_path / "s") == {name: held for name, held in before.items() if name not in gone}
    report = verify(tmp_path / "s")
    assert report.damaged == []
    assert (report.read["runs"], report.read["episodes"], report.read["trials"]) == (2, 7, 2)
    assert not (tmp_path / "s" / COPY_FILE).exists()


def test_its_bytes_are_not_in_the_file_any_more(tmp_path: Path) -> None:
    with open_store(tmp_path / "s", create=True) as store:
        writer = store.writer()
        made = writer.open_run(run("r"))
        for name in ("kept", "gone"):
            rollout = writer.open_episode(episode(name, run_key=made.key))
            for at in range(30):
                body = f"{name}-{at}-".encode() + random.Random(name).randbytes(3_000)  # too random to be compressed
                writer.put_exchange(rollout.key, exchange(at_ms=at, body=body))
            writer.seal(rollout).result(9)
        writer.close()
    needle = random.Random("gone").randbytes(3_000)[100:200]
    assert needle in (tmp_path / "s/data.mdb").read_bytes()
    remove(tmp_path / "s", "r/gone")
    collect(tmp_path / "s")
    assert needle not in (tmp_path / "s/data.mdb").read_bytes()
    assert random.Random("kept").randbytes(3_000)[100:200] in (tmp_path / "s/data.mdb").read_bytes()


def test_where_nothing_was_removed_nothing_is_written(tmp_path: Path) -> None:
    fill(tmp_path / "s")
    collect(tmp_path / "s")
    first = (tmp_path / "s/data.mdb").read_bytes()
    assert +collect(tmp_path / "s").count == Counter()
    assert (tmp_path / "s/data.mdb").read_bytes() == first


def test_a_reference_of_a_check_is_kept_when_the_run_it_came_from_goes(tmp_path: Path) -> None:
    fill(tmp_path / "s", runs=2)
    root = state(0).root
    with open_store(tmp_path / "s") as store:
        writer, kept = store.writer(), store.reader().run("r1")
        writer.put_check(kept.key, {"run": "r1", "references": [{"root": root.hex()}], "note": "0" * 64})
        writer.close()
    remove(tmp_path / "s", "r0")
    collect(tmp_path / "s")
    with open_store(tmp_path / "s") as store:
        assert len(prolly.rows(root, store.reader().node)["deals"]) == 200


def test_the_last_check_goes_with_its_run(tmp_path: Path) -> None:
    fill(tmp_path / "s", runs=2)
    remove(tmp_path / "s", "r1")
    collect(tmp_path / "s")
    assert verify(tmp_path / "s").damaged == []
    with open_store(tmp_path / "s") as store:
        last = store.reader().last_check()
        assert last is not None
        assert last[0].name == "r0"


def test_while_somebody_writes_it_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    fill(tmp_path / "s")
    remove(tmp_path / "s", "r0")
    with open_store(tmp_path / "s") as store:
        before = (tmp_path / "s/data.mdb").read_bytes()
        recorder = store.writer()
        with pytest.raises(StoreTrouble, match=r"another recorder \(pid \d+\) is writing"):
            collect(tmp_path / "s")
        recorder.close()
        beside = store.writer(exclusive=False)
        with pytest.raises(StoreTrouble, match="another command is writing"):
            collect(tmp_path / "s")
        beside.close()
        taking = Intake(store)
        with pytest.raises(StoreTrouble, match="another command is writing"):
            collect(tmp_path / "s")
        del taking
    assert content(tmp_path / "s").keys() == {f"r{r}/e{e}" for r in (1, 2) for e in range(4)}
    assert len(before) == (tmp_path / "s/data.mdb").stat().st_size
    assert collect(tmp_path / "s").count["runs"] == 1


def test_nobody_begins_to_write_while_it_is_at_work(tmp_path: Path) -> None:
    fill(tmp_path / "s", runs=1)
    with open_store(tmp_path / "s") as store, locks.alone(store.path):
        with pytest.raises(StoreTrouble, match="gc is rewriting"):
            store.writer(exclusive=False)
        with pytest.raises(StoreTrouble, match="gc is rewriting"):
            Intake(store)
        with pytest.raises(StoreTrouble, match="another recorder"):
            store.writer()
    with open_store(tmp_path / "s") as store:
        store.writer().close()


def test_a_damaged_store_is_left_as_it_is(tmp_path: Path) -> None:
    fill(tmp_path / "s", runs=2)
    remove(tmp_path / "s", "r0")
    with open_store(tmp_path / "s") as store, store.env.writing() as txn, txn.cursor(store.env.dbs["exchanges"]) as at:
        assert at.last()
        at.put(at.key(), at.value()[:-1] + bytes((at.value()[-1] ^ 1,)))
    before = (tmp_path / "s/data.mdb").read_bytes()
    with pytest.raises(StoreTrouble, match=r"is damaged \(exchange r1/e3#3.* merge the store into a new one"):
        collect(tmp_path / "s")
    assert (tmp_path / "s/data.mdb").read_bytes() == before


def test_without_room_for_another_file_it_deletes_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "s")
    remove(tmp_path / "s", "r0", "r1")
    monkeypatch.setattr(rewriting.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 1000}))
    freed = collect(tmp_path / "s")
    assert freed.count["runs"] == 2
    assert "1,000 are free" in freed.short
    assert freed.after == freed.before
    assert verify(tmp_path / "s").damaged == []
    fill_more(tmp_path / "s")
    assert (tmp_path / "s/data.mdb").stat().st_size == freed.after, "what it freed is used again"
