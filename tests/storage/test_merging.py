from __future__ import annotations

import io
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from replayproxy.core import prolly
from replayproxy.core.canonical import digest
from replayproxy.core.values import UNATTRIBUTED, EpisodeState, Event, Run
from replayproxy.errors import DamagedRecord, StoreTrouble, WrongUsage
from replayproxy.storage import open_store
from replayproxy.storage.archive import ArchiveWriter
from replayproxy.storage.gc import collect
from replayproxy.storage.merging import Merged, Merger
from replayproxy.storage.packing import Packer
from replayproxy.storage.verify import verify
from replayproxy.testing import episode, exchange, run, snapshot

SHARED = random.Random(0).randbytes(20_000)
STATE = prolly.build({"deals": {str(n): {"title": "x" * 60} for n in range(200)}})


def record(path: Path, node: str, *names: str, episodes: int = 2, wall: int = 5, seal: bool = True) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REPLAYPROXY_NODE", node)
        with open_store(path, create=True) as store:
            writer = store.writer()
            for name in names:
                made = writer.open_run(run(name, opened_wall=wall), append=True)
                for n in range(episodes):
                    if store.reader().episodes(made)[n:]:
                        continue
                    rollout = writer.open_episode(episode(f"e{n}", run_key=made.key, opened=n))
                    writer.put_nodes(STATE.nodes)
                    writer.put_snapshot(rollout.key, snapshot(0, STATE.root))
                    writer.put_exchange(rollout.key, exchange(body=SHARED, at_ms=1))
                    writer.put_exchange(rollout.key, exchange(body=f"{node}{name}{n}".encode() * 900, at_ms=2))
                    if seal:
                        writer.seal(rollout).result(9)
                bucket = writer.open_episode(episode(UNATTRIBUTED, run_key=made.key))
                writer.seal(bucket).result(9)
                writer.put_check(made.key, {"run": made.name, "findings": []})
                writer.put_trial(made.key, {"finding": "race-1", "wall": 5})
            writer.close()


def merge(into: Path, *sources: Path) -> Merged:
    opened = [open_store(path) for path in sources]
    try:
        with open_store(into, create=True) as target:
            merger = Merger(target)
            for source in opened:
                merger.take(source)
            return merger.publish()
    finally:
        for source in opened:
            source.close()


def content(path: Path) -> dict[str, list[bytes]]:
    found = {}
    with open_store(path) as store:
        reader = store.reader()
        for one in reader.runs():
            for rollout in reader.episodes(one):
                trace = reader.trace(one, rollout, bodies=1 << 20)
                assert rollout.state is EpisodeState.SEALED
                assert prolly.rows(trace.snapshots[0].root or b"", reader.node)
                found[f"{one.name}/{rollout.name}"] = [
                    x.response.body.inline or b"" for x in trace.exchanges if x.response and x.response.body
                ]
    return found


def machine(path: Path, name: str) -> str:
    with open_store(path) as store:
        found = store.reader().machine(store.reader().run(name))
        return found.name if found else ""


def test_what_two_stores_hold_is_in_one_and_they_stay_as_they_are(tmp_path: Path) -> None:
    record(tmp_path / "a", "n1", "one", "two")
    record(tmp_path / "b", "n2", "three")
    before = [(tmp_path / name / "data.mdb").read_bytes() for name in "ab"]
    told = merge(tmp_path / "c", tmp_path / "a", tmp_path / "b")
    assert (told.runs, told.renamed) == (["one", "two", "three"], {})
    assert (told.count["runs"], told.count["exchanges"], told.count["checks"], told.count["trials"]) == (3, 12, 3, 3)
    assert content(tmp_path / "c") == content(tmp_path / "a") | content(tmp_path / "b")
    assert [(tmp_path / name / "data.mdb").read_bytes() for name in "ab"] == before
    assert verify(tmp_path / "c").damaged == []
    assert [machine(tmp_path / "c", name) for name in ("one", "three")] == ["n1", "n2"]


def test_runs_of_one_name_are_never_joined(tmp_path: Path) -> None:
    record(tmp_path / "a", "n1", "batch")
    record(tmp_path / "b", "n2", "batch")
    told = merge(tmp_path / "c", tmp_path / "a", tmp_path / "b")
    assert told.runs == ["batch", "batch@n2"]
    assert told.renamed == {"batch@n2": "batch"}
    assert told.left["the check of batch@n2 (run `replayproxy check` again)"] == 1
    assert content(tmp_path / "c")["batch/e0"] != content(tmp_path / "c")["batch@n2/e0"]
    assert content(tmp_path / "c")["batch@n2/e0"] == content(tmp_path / "b")["batch/e0"]


def test_a_third_run_of_that_name_and_machine_is_refused_and_nothing_is_taken(tmp_path: Path) -> None:
    for at, name in enumerate("abd"):
        record(tmp_path / name, "n1", "batch", wall=at + 1)
    record(tmp_path / "b", "n1", "first")
    with pytest.raises(WrongUsage, match="is another than the one of that name"):
        merge(tmp_path / "c", tmp_path / "a", tmp_path / "b", tmp_path / "d")
    assert content(tmp_path / "c") == {}
    assert verify(tmp_path / "c").damaged == []
    collect(tmp_path / "c")
    assert "blobs" not in verify(tmp_path / "c").read


def test_done_again_it_takes_only_what_is_new(tmp_path: Path) -> None:
    record(tmp_path / "a", "n1", "batch")
    record(tmp_path / "b", "n2", "batch")
    merge(tmp_path / "c", tmp_path / "a", tmp_path / "b", tmp_path / "a")
    before = content(tmp_path / "c")
    again = merge(tmp_path / "c", tmp_path / "a", tmp_path / "b")
    assert (again.runs, +again.count) == ([], {})
    assert again.left["episodes that are there already"] == 6
    assert content(tmp_path / "c") == before
    record(tmp_path / "b", "n2", "batch", episodes=3)
    more = merge(tmp_path / "c", tmp_path / "a", tmp_path / "b")
    assert (more.runs, more.count["episodes"]) == ([], 1)
    assert content(tmp_path / "c").keys() == before.keys() | {"batch@n2/e2"}


def test_a_check_is_advised_until_the_run_has_one_of_all_that_it_holds(tmp_path: Path) -> None:
    def again() -> list[str]:
        told = merge(tmp_path / "c", tmp_path / "a", tmp_path / "b").left
        return [line.removeprefix("the check of batch@n2") for line in told if "batch@n2" in line]

    def check(*names: str) -> None:
        with open_store(tmp_path / "c") as store:
            writer = store.writer()
            writer.put_check(store.reader().run("batch@n2").key, {"verdicts": dict.fromkeys(names, "clean")})
            writer.close()

    advice, none_needed = [" (run `replayproxy check` again)"], [", which has one of its own here"]
    record(tmp_path / "a", "n1", "batch")
    record(tmp_path / "b", "n2", "batch")
    assert again() == advice
    assert again() == advice
    check("e0", "e1")
    assert again() == none_needed
    record(tmp_path / "b", "n2", "batch", episodes=3)
    assert again() == advice
    assert again() == advice
    check("e0", "e1", "e2")
    assert again() == none_needed


def test_what_was_removed_is_not_taken_along(tmp_path: Path) -> None:
    record(tmp_path / "a", "n1", "one", "two")
    with open_store(tmp_path / "a") as store:
        writer, reader = store.writer(), store.reader()
        writer.remove(reader.run("two").key)
        one = reader.run("one")
        writer.remove(one.key, reader.episode(one, "e1").key)
        writer.put_blob(digest(b"nobody's"), b"nobody's")
        writer.close()
    merge(tmp_path / "c", tmp_path / "a")
    assert content(tmp_path / "c").keys() == {"one/e0"}
    assert verify(tmp_path / "c").read["blobs"] == len(STATE.nodes) + 2


def test_an_incomplete_episode_comes_along_as_that(tmp_path: Path) -> None:
    record(tmp_path / "a", "n1", "one", seal=False)
    merge(tmp_path / "c", tmp_path / "a")
    with open_store(tmp_path / "c") as store:
        states = {e.state for e in store.reader().episodes(store.reader().run("one"))}
    assert states == {EpisodeState.INCOMPLETE}


def test_a_store_that_is_written_to_or_damaged_or_the_same_is_refused(tmp_path: Path) -> None:
    record(tmp_path / "a", "n1", "one")
    with open_store(tmp_path / "a") as store:
        writer = store.writer()
        with pytest.raises(StoreTrouble, match="is being written to"):
            merge(tmp_path / "c", tmp_path / "a")
        writer.close()
    with pytest.raises(WrongUsage, match="into itself"):
        merge(tmp_path / "a", tmp_path / "a")
    for n, db in enumerate(("exchanges", "snapshots", "blobs")):
        shutil.copytree(tmp_path / "a", tmp_path / f"copy{n}")
        with (
            open_store(tmp_path / f"copy{n}") as store,
            store.env.writing() as txn,
            txn.cursor(store.env.dbs[db]) as at,
        ):
            assert at.first()
            at.put(at.key(), at.value()[:-1] + bytes((at.value()[-1] ^ 1,)))
        with pytest.raises(DamagedRecord):
            merge(tmp_path / "c", tmp_path / f"copy{n}")
    shutil.copytree(tmp_path / "a", tmp_path / "lost")
    with (
        open_store(tmp_path / "lost") as store,
        store.env.writing() as txn,
        txn.cursor(store.env.dbs["exchanges"]) as at,
    ):
        assert at.first()
        at.delete()
    with pytest.raises(DamagedRecord, match="it was sealed with 2 exchanges"):
        merge(tmp_path / "c", tmp_path / "lost")
    assert content(tmp_path / "c") == {}


def test_a_name_that_somebody_takes_meanwhile_leaves_all_as_it_was(tmp_path: Path) -> None:
    record(tmp_path / "a", "n1", "one", "two")
    with open_store(tmp_path / "a") as source, open_store(tmp_path / "c", create=True) as target:
        merger = Merger(target)
        merger.take(source)
        writer = target.writer()
        writer.open_run(replace(run("two"), key=0))
        writer.close()
        with pytest.raises(WrongUsage, match="made meanwhile"):
            merger.publish()
        listed: list[Run] = target.reader().runs()
        assert [one.name for one in listed] == ["two"]


@pytest.mark.parametrize("db", ["checks", "trials", "events", "machines", "runs", "episodes"])
def test_a_damaged_record_of_any_kind_is_named_and_nothing_is_taken(tmp_path: Path, db: str) -> None:
    record(tmp_path / "a", "n1", "one")
    with open_store(tmp_path / "a") as store:
        writer, reader = store.writer(), store.reader()
        writer.put_event(reader.episode(reader.run("one"), "e0").key, Event(at=1, wall=1, kind="note", detail={}))
        writer.close()
        with store.env.writing() as txn, txn.cursor(store.env.dbs[db]) as at:
            assert at.first()
            at.put(at.key(), at.value()[:-1] + bytes((at.value()[-1] ^ 1,)))
    with pytest.raises(DamagedRecord, match="checksum does not fit"):
        merge(tmp_path / "c", tmp_path / "a")
    assert content(tmp_path / "c") == {}
    with open_store(tmp_path / "a") as store, pytest.raises(DamagedRecord, match="checksum does not fit"):
        reader = store.reader()
        made = reader.run("one")
        reader.machine(made)
        Packer(ArchiveWriter(io.BytesIO())).run(reader, made, reader.episodes(made), whole=True)
