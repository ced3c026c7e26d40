"""The archive on the disk: what goes in comes out, and whatever is not what was written is refused whole."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from replayproxy.core import prolly
from replayproxy.core.values import UNATTRIBUTED, Episode, Event, Exchange, Snapshot
from replayproxy.errors import DamagedRecord, Problem, StoreTrouble, UnknownAddress, WrongUsage
from replayproxy.storage import Reader, Store, open_store
from replayproxy.storage.archive import ARCHIVE_FORMAT, MAGIC, ArchiveWriter, open_archive
from replayproxy.storage.codec import bodies_of
from replayproxy.storage.intake import Intake
from replayproxy.storage.packing import Packer
from replayproxy.storage.unpacking import Unpacked, unpack
from replayproxy.storage.verify import verify
from replayproxy.testing import episode, exchange, run, snapshot
from tests.serve.talks import agent, talk
from tests.storage import strategies

STATE = {"deals": {str(n): {"stage": "lead", "text": "x" * 50} for n in range(300)}}


def filled(path: Path) -> Path:
    """A run with a sealed and an open episode, large bodies, snapshots, events, a check, and unattributed traffic."""
    with open_store(path, create=True) as store:
        writer = store.writer()
        made = writer.open_run(run("nightly", snapshots={"app": "sqlite:app.db"}, meta={"k": 2**70}))
        a = writer.open_episode(episode("a", run_key=made.key, task="t", seed=7))
        tree = prolly.build(STATE)
        writer.put_nodes(tree.nodes)
        for at in range(3):
            writer.put_exchange(a.key, exchange("POST", f"/x{at}", sent=b"s" * 9000, body=b"b" * 300_000, at_ms=at))
        writer.put_exchange(a.key, talk(*(agent("m" * 5000) for _ in range(3)), at_ms=3))
        writer.put_snapshot(a.key, snapshot(0, tree.root, when="start", rows=300))
        writer.put_event(a.key, Event(at=5, wall=6, kind="mark", detail={"step": 1}))
        writer.seal(a).result(5)
        b = writer.open_episode(episode("b", run_key=made.key))
        writer.put_exchange(b.key, exchange())
        bucket = writer.open_episode(episode(UNATTRIBUTED, run_key=made.key))
        writer.put_exchange(bucket.key, exchange(carrier="no carrier"))
        writer.put_check(made.key, {"run": "nightly", "findings": [], "verdicts": {"a": "clean"}})
        for at in (7, 7, 6):
            writer.put_trial(made.key, {"finding": f"race-{at}", "wall": at, "k": 1, "n": 5})
        writer.close()
    return path


def everything(reader: Reader, name: str = "nightly") -> list[Any]:
    """A run's values without the numbers that a store gives."""
    one = reader.run(name)
    listed: list[Any] = [one.meta, one.snapshots, one.envs, reader.check(one), reader.trials(one)]
    for e in [*reader.episodes(one), reader.episode(one, UNATTRIBUTED)]:
        held = [(x, [b"".join(reader.pieces(b)) for b in bodies(x)]) for x in reader.exchanges(e)]
        shots = [(s, prolly.rows(s.root, reader.node) if s.root else None) for s in reader.snapshots(e)]
        listed += [(e.name, e.task, e.seed, e.state, e.seal), held, shots, reader.events(e)]
    return listed


def bodies(exchange: Exchange) -> list[Any]:
    return [body for _, body in bodies_of(exchange)]


def packed(path: Path, name: str = "nightly") -> bytes:
    out = io.BytesIO()
    with open_store(path) as store:
        reader = store.reader()
        one = reader.run(name)
        archive = ArchiveWriter(out)
        episodes = [*reader.episodes(one)]
        try:
            episodes.append(reader.episode(one, UNATTRIBUTED))
        except UnknownAddress:
            pass
        Packer(archive).run(reader, one, episodes, whole=True)
        archive.end()
    return out.getvalue()


def taken(archive: Path, store: Path, **more: Any) -> Unpacked:
    with open_archive(archive) as opened, open_store(store, create=True) as target:
        intake = Intake(target)
        told = unpack(opened, intake, **more)
        intake.publish()
    return told


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "n.replay"
    path.write_bytes(packed(filled(tmp_path / "source")))
    return path


def test_what_an_archive_gives_is_what_the_store_had(archive: Path, tmp_path: Path) -> None:
    with open_store(tmp_path / "source") as store:
        told = everything(store.reader())
    with open_archive(archive) as opened:
        assert [state[3] for state in everything(Reader(opened))[5::4]] == ["sealed", "incomplete", "incomplete"]
        assert everything(Reader(opened)) == told
    counted = taken(archive, tmp_path / "target")
    assert counted.runs == ("nightly",)
    assert counted.count["exchanges"] == 6
    assert not counted.left
    with open_store(tmp_path / "target") as store:
        assert everything(store.reader()) == told
    assert verify(tmp_path / "target").damaged == []


def test_records_are_moved_and_not_written_anew(archive: Path, tmp_path: Path) -> None:
    taken(archive, tmp_path / "target")
    found = []
    for path in (tmp_path / "source", tmp_path / "target"):
        with open_store(path) as store, store.env.reading() as txn:
            for db in ("exchanges", "snapshots", "events", "blobs", "checks", "trials"):
                found.append([bytes(value) for _, value in txn.cursor(store.env.dbs[db])])
    assert found[:6] == found[6:]
    assert all(found)


def test_the_same_run_gives_the_same_bytes_from_another_store(archive: Path, tmp_path: Path) -> None:
    filled_first = tmp_path / "target"
    with open_store(filled_first, create=True) as store:  # other numbers than in the source
        writer = store.writer()
        writer.open_run(run("other"))
        writer.close()
    taken(archive, filled_first)
    assert packed(filled_first) == archive.read_bytes()


def test_a_taken_name_is_refused_and_another_one_taken(archive: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    taken(archive, target)
    before = packed(target)
    with pytest.raises(WrongUsage, match="a run named 'nightly' exists already"):
        taken(archive, target)
    assert packed(target) == before
    told = taken(archive, target, name="again")
    assert told.runs == ("again",)
    assert "the check that was saved" in next(iter(told.left))
    with open_store(target) as store:
        assert [one.name for one in store.reader().runs()] == ["nightly", "again"]
        assert everything(store.reader(), "again")[5:] == everything(store.reader())[5:]
    with pytest.raises(WrongUsage, match="an episode named 'nightly/a' exists already"):
        taken(archive, target, append=True)
    assert verify(target).damaged == []


def test_nothing_is_seen_of_an_import_that_was_cut_off(archive: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    with open_archive(archive) as opened, open_store(target, create=True) as store:
        intake = Intake(store)
        unpack(opened, intake)
        intake._commit()  # all of it is in the store; then the process dies
        assert store.reader().runs() == []
        with pytest.raises(UnknownAddress):
            store.reader().run("nightly")
    assert verify(target).damaged == []
    assert taken(archive, target).runs == ("nightly",)


def test_two_imports_at_once_give_one_run(archive: Path, tmp_path: Path) -> None:
    with open_archive(archive) as opened, open_store(tmp_path / "target", create=True) as store:
        one, two = Intake(store), Intake(store)
        unpack(opened, one)
        unpack(opened, two)
        two.publish()
        with pytest.raises(WrongUsage, match="was made meanwhile"):
            one.publish()
        assert len(store.reader().runs()) == 1
    assert verify(tmp_path / "target").damaged == []


def refused(path: Path) -> Problem:
    with pytest.raises(Problem) as trouble:
        open_archive(path).close()
    assert "\n" not in str(trouble.value)
    return trouble.value


def test_an_archive_that_is_cut_anywhere_is_refused(archive: Path, tmp_path: Path) -> None:
    whole, cut = archive.read_bytes(), tmp_path / "cut.replay"
    places = {0, 1, 10, len(MAGIC), len(MAGIC) + 3, len(MAGIC) + 8, len(MAGIC) + 9, len(whole) - 1, len(whole) - 16}
    chance = random.Random(1)
    for at in sorted(places | {chance.randrange(len(whole)) for _ in range(60)}):
        cut.write_bytes(whole[:at])
        trouble = refused(cut)
        assert isinstance(trouble, StoreTrouble) == (at >= 8), f"cut at {at}"


def test_every_flipped_bit_is_seen(archive: Path, tmp_path: Path) -> None:
    whole, flipped = archive.read_bytes(), tmp_path / "flipped.replay"
    chance = random.Random(2)
    for at in [*range(60), *(chance.randrange(len(whole)) for _ in range(200))]:
        damaged = bytearray(whole)
        damaged[at] ^= 1 << chance.randrange(8)
        flipped.write_bytes(damaged)
        assert isinstance(refused(flipped), WrongUsage if at < len(MAGIC) else StoreTrouble), f"flipped at {at}"


def test_bytes_behind_the_end_are_refused(archive: Path) -> None:
    archive.write_bytes(archive.read_bytes() + b"\0")
    assert "bytes follow its end" in str(refused(archive))


def test_a_newer_archive_asks_for_a_newer_program(archive: Path) -> None:
    data = bytearray(archive.read_bytes())
    data[len(MAGIC) + 3] = ARCHIVE_FORMAT + 1
    archive.write_bytes(data)
    assert "upgrade replayproxy" in str(refused(archive))


def test_another_file_is_no_archive(tmp_path: Path) -> None:
    path = tmp_path / "x.replay"
    for content in (b"", b"\x89PNG\r\n\x1a\n" + b"\0" * 50, b"{" * 10_000):
        path.write_bytes(content)
        assert isinstance(refused(path), WrongUsage)
    assert isinstance(refused(tmp_path), UnknownAddress)
    assert isinstance(refused(tmp_path / "none.replay"), UnknownAddress)


def test_an_empty_archive_holds_no_run(tmp_path: Path) -> None:
    path = tmp_path / "x.replay"
    with path.open("wb") as out:
        ArchiveWriter(out).end()
    with open_archive(path) as opened:
        assert Reader(opened).runs() == []


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(strategies.exchanges, max_size=4, unique_by=lambda e: e.order), strategies.episodes)
def test_any_exchange_comes_out_as_it_went_in(
    tmp_path_factory: pytest.TempPathFactory, exchanges: list[Exchange], of: Episode
) -> None:
    path = tmp_path_factory.mktemp("any") / "x.replay"
    with open_store(path.parent / "s", create=True) as store:
        told = _recorded(store, exchanges, of)
        with path.open("wb") as out:
            archive = ArchiveWriter(out)
            reader = store.reader()
            Packer(archive).run(reader, reader.run("r"), reader.episodes(reader.run("r")), whole=True)
            archive.end()
    taken(path, path.parent / "t")
    with open_store(path.parent / "t") as store:
        reader = store.reader()
        (found,) = reader.episodes(reader.run("r"))
        assert (list(reader.exchanges(found)), found.seal, found.meta) == (told, found.seal, of.meta)


def _recorded(store: Store, exchanges: list[Exchange], of: Episode) -> list[Exchange]:
    from dataclasses import replace

    writer = store.writer()
    made = writer.open_run(run("r"))
    kept = writer.open_episode(replace(of, run_key=made.key, name="e", faults=(), seal=None))
    for one in exchanges:
        # Bodies that lie apart under addresses nobody has would be damage, and are refused at export.
        whole = replace(one.request, body=_held(one.request.body))
        answer = one.response and replace(one.response, body=_held(one.response.body))
        writer.put_exchange(kept.key, replace(one, request=whole, response=answer))
    sealed = writer.seal(kept).result(5)
    writer.close()
    return list(store.reader().exchanges(sealed))


def _held(body: Any) -> Any:
    return None if body is None or body.inline is None or body.pieces else body


def test_a_damaged_recording_is_not_exported(tmp_path: Path) -> None:
    path = filled(tmp_path / "s")
    with open_store(path) as store, store.env.writing() as txn:
        blobs = store.env.dbs["blobs"]
        address = next(iter(txn.cursor(blobs)))[0]
        txn.delete(bytes(address), db=blobs)
    with pytest.raises(DamagedRecord, match=r"nightly/a.* is damaged: a piece of it is missing"):
        packed(path)


def test_a_snapshot_brings_its_whole_state(archive: Path) -> None:
    with open_archive(archive) as opened:
        reader = Reader(opened)
        shot: Snapshot = reader.snapshots(reader.episode(reader.run("nightly"), "a"))[0]
        assert shot.root is not None
        assert prolly.rows(shot.root, reader.node) == STATE
