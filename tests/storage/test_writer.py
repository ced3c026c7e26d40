from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from replayproxy.core.values import UNATTRIBUTED, Episode, EpisodeState, Event, Run, Snapshot
from replayproxy.errors import StoreTrouble, WrongUsage
from replayproxy.storage import Store, Writer, committer
from replayproxy.storage.batch import Batch
from replayproxy.storage.environment import Environment
from replayproxy.testing import episode, exchange, run, snapshot


@pytest.fixture
def writer(store: Store) -> Any:
    made = store.writer()
    yield made
    made.close()


def opened(writer: Writer, name: str = "r", rollout: str = "e") -> tuple[Run, Episode]:
    made = writer.open_run(run(name), append=True)
    return made, writer.open_episode(episode(rollout, run_key=made.key))


def test_a_run_is_there_when_open_run_returns(store: Store, writer: Writer) -> None:
    made = writer.open_run(run("r", meta={"step": 2**70}))
    assert store.reader().run("r") == made
    assert made.key > 0


def test_a_name_that_is_taken_is_refused(writer: Writer) -> None:
    made, _ = opened(writer)
    with pytest.raises(WrongUsage, match="a run named 'r' exists already"):
        writer.open_run(run("r"))
    assert writer.open_run(run("r"), append=True) == made
    with pytest.raises(WrongUsage, match="an episode named 'e' exists already"):
        writer.open_episode(episode("e", run_key=made.key))
    writer.flush().result(5)
    with pytest.raises(WrongUsage, match="an episode named 'e' exists already"):
        writer.open_episode(episode("e", run_key=made.key))


@pytest.mark.parametrize("name", ["", ".", "a/b", "a b", "x" * 201])
def test_a_name_that_is_none_is_refused(writer: Writer, name: str) -> None:
    made = writer.open_run(run("r"))
    with pytest.raises(WrongUsage, match="cannot name"):
        writer.open_run(run(name))
    with pytest.raises(WrongUsage, match="cannot name"):
        writer.open_episode(episode(name, run_key=made.key))


def test_what_is_put_is_there_after_a_flush(store: Store, writer: Writer) -> None:
    made, rollout = opened(writer)
    sent = exchange("POST", "/deals", sent={"a": 1}, body=b"z" * 700_000, at_ms=5)
    shot = snapshot(0, None, after=sent)
    seen = Event(at=7, wall=8, kind="mark", detail={"step": 3})
    writer.put_exchange(rollout.key, sent)
    writer.put_snapshot(rollout.key, shot)
    writer.put_event(rollout.key, seen)
    writer.flush().result(5)
    trace = store.reader().trace(made, store.reader().episode(made, "e"))
    assert trace.exchanges[0].response is not None
    assert trace.exchanges[0].response.body is not None
    assert trace.exchanges[0].response.body.inline == b"z" * 700_000
    assert trace.exchanges[0].request == sent.request
    assert trace.snapshots == [replace(shot, after_seq=1)]
    assert trace.events == [seen]


def test_what_is_put_is_there_within_a_moment_without_a_flush(store: Store, writer: Writer) -> None:
    _, rollout = opened(writer)
    writer.flush().result(5)
    seen = threading.Event()
    tell = Batch.tell

    class Told(Batch):
        def tell(self) -> None:
            tell(self)
            seen.set()

    committer_batch, committer.Batch = committer.Batch, Told  # type: ignore[misc]
    try:
        writer.put_exchange(rollout.key, exchange())
        assert seen.wait(5)
    finally:
        committer.Batch = committer_batch  # type: ignore[misc]
    assert store.reader().count(rollout) == 1


def test_a_seal_counts_and_is_what_a_reader_sees(store: Store, writer: Writer) -> None:
    made, rollout = opened(writer)
    for at in range(3):
        writer.put_exchange(rollout.key, exchange(at_ms=at))
    writer.put_snapshot(rollout.key, snapshot(0, None))
    sealed = writer.seal(replace(rollout, reward=0.5, ended_by="end")).result(5)
    assert sealed.state is EpisodeState.SEALED
    assert sealed.seal is not None
    assert (sealed.seal.exchanges, sealed.seal.snapshots) == (3, 1)
    assert store.reader().episode(made, "e") == sealed


def test_a_sealed_episode_with_a_fault_is_incomplete(store: Store, writer: Writer) -> None:
    made, rollout = opened(writer)
    sealed = writer.seal(replace(rollout, faults=("queue full",))).result(5)
    assert sealed.state is EpisodeState.INCOMPLETE
    assert store.reader().episode(made, "e") == sealed


def test_nothing_goes_into_an_episode_behind_its_seal(writer: Writer) -> None:
    _, rollout = opened(writer)
    writer.seal(rollout)
    for put in (
        lambda: writer.put_exchange(rollout.key, exchange()),
        lambda: writer.put_snapshot(rollout.key, snapshot(0, None)),
        lambda: writer.seal(rollout),
    ):
        with pytest.raises(ValueError, match="not open in this writer"):
            put()


def test_a_seal_and_a_fault_stay_whatever_is_updated_later(store: Store, writer: Writer) -> None:
    made, rollout = opened(writer)
    writer.update_episode(replace(rollout, faults=("agent killed",)))
    sealed = writer.seal(rollout).result(5)
    writer.update_episode(replace(rollout, reward=1.0))
    writer.flush().result(5)
    seen = store.reader().episode(made, "e")
    assert (seen.seal, seen.faults, seen.reward) == (sealed.seal, ("agent killed",), 1.0)
    assert seen.state is EpisodeState.INCOMPLETE


def test_the_same_order_again_replaces_the_record(store: Store, writer: Writer) -> None:
    _, rollout = opened(writer)
    writer.put_exchange(rollout.key, exchange(at_ms=1, held_ns=0))
    writer.put_exchange(rollout.key, exchange(at_ms=1, held_ns=7))
    writer.flush().result(5)
    assert [one.held_ns for one in store.reader().exchanges(rollout)] == [7]


def test_what_cannot_be_stored_marks_its_episode_and_keeps_nothing_else_from_the_disk(
    store: Store, writer: Writer
) -> None:
    _made, rollout = opened(writer)
    writer.put_exchange(rollout.key, exchange(at_ms=1))
    writer.put_exchange(rollout.key, exchange(at_ms=2, error=object()))
    writer.put_exchange(rollout.key, exchange(at_ms=3))
    sealed = writer.seal(rollout).result(5)
    assert sealed.state is EpisodeState.INCOMPLETE
    assert sealed.faults == ("not stored: object cannot be stored",)
    assert store.reader().count(sealed) == 2
    assert writer.failed is None


def test_an_arrival_key_out_of_range_is_refused_at_once(writer: Writer) -> None:
    _, rollout = opened(writer)
    for order in ((-1, 0), (2**64, 0), (0, 2**16), (0, -1)):
        with pytest.raises(ValueError, match="no arrival key"):
            writer.put_exchange(rollout.key, replace(exchange(), order=order))


def test_updating_an_episode_that_is_not_there_fails_its_future_alone(store: Store, writer: Writer) -> None:
    made, rollout = opened(writer)
    writer.seal(rollout).result(5)
    with store.env.writing() as txn:
        txn.drop(store.env.dbs["episodes"], delete=False)
    other = writer.open_episode(episode("other", run_key=made.key))
    writer.update_episode(rollout)
    assert writer.seal(other).result(5).state is EpisodeState.SEALED


def test_equal_pieces_and_nodes_are_stored_once(store: Store, writer: Writer) -> None:
    _, rollout = opened(writer)
    for at in range(3):
        sink = writer.body_sink()
        sink.write(b"a" * 300_000)
        writer.put_exchange(rollout.key, exchange(body=sink.close(), at_ms=at))
    writer.put_nodes({b"k" * 32: b"node"})
    writer.put_nodes({b"k" * 32: b"node"})
    writer.flush().result(5)
    with store.env.reading() as txn:
        assert txn.stat(store.env.dbs["blobs"])["entries"] == 3


def test_the_unattributed_bucket_is_an_episode_of_its_own(store: Store, writer: Writer) -> None:
    made, _ = opened(writer)
    bucket = writer.open_episode(episode(UNATTRIBUTED, run_key=made.key))
    writer.put_exchange(bucket.key, exchange())
    writer.flush().result(5)
    reader = store.reader()
    assert [one.name for one in reader.episodes(made)] == ["e"]
    assert reader.count(reader.episode(made, UNATTRIBUTED)) == 1


def test_an_appended_run_goes_on_with_its_unattributed_bucket(store: Store) -> None:
    for at in range(2):
        writer = store.writer()
        made = writer.open_run(run("r"), append=True)
        bucket = writer.open_episode(episode(UNATTRIBUTED, run_key=made.key))
        with pytest.raises(WrongUsage, match="exists already"):
            writer.open_episode(episode(UNATTRIBUTED, run_key=made.key))
        writer.put_exchange(bucket.key, exchange(at_ms=at))
        sealed = writer.seal(bucket).result(5)
        writer.close()
        assert sealed.seal is not None
        assert sealed.seal.exchanges == at + 1
        assert len(store.reader().trace(made, store.reader().episode(made, UNATTRIBUTED)).exchanges) == at + 1


def test_removing_marks_and_frees_the_name(store: Store, writer: Writer) -> None:
    made, rollout = opened(writer)
    writer.seal(rollout).result(5)
    writer.remove(made.key, rollout.key)
    again = writer.open_episode(episode("other", run_key=made.key))
    writer.flush().result(5)
    reader = store.reader()
    assert [one.name for one in reader.episodes(made)] == ["other"]
    second = writer.open_episode(episode("e", run_key=made.key))
    writer.remove(made.key, rollout.key)  # again: the name is another's by now
    writer.flush().result(5)
    assert [one.key for one in reader.episodes(made)] == [again.key, second.key]
    assert reader.episode(made, "e").key == second.key
    writer.remove(made.key)
    writer.flush().result(5)
    assert reader.runs() == []
    assert writer.open_run(run("r")).key != made.key


def test_a_second_recorder_is_refused_and_names_the_first(store: Store, writer: Writer) -> None:
    with pytest.raises(StoreTrouble, match=r"another recorder \(pid \d+\) is writing to") as refused:
        store.writer()
    assert refused.value.exit == 4
    beside = store.writer(exclusive=False)
    assert beside.open_run(run("beside")).key not in (0, writer.open_run(run("r")).key)
    beside.close()
    writer.close()
    store.writer().close()


def test_an_open_episode_is_open_as_long_as_its_own_writer_lives(store: Store) -> None:
    first = store.writer(exclusive=False)
    made, _rollout = opened(first)
    first.flush().result(5)
    second = store.writer()
    assert store.reader().episode(made, "e").state is EpisodeState.OPEN
    first.close()
    assert store.reader().episode(made, "e").state is EpisodeState.INCOMPLETE
    second.close()


def test_everything_queued_is_on_disk_after_close(store: Store) -> None:
    writer = store.writer()
    _made, rollout = opened(writer)
    for at in range(500):
        writer.put_exchange(rollout.key, exchange(at_ms=at))
    writer.close()
    assert store.reader().count(rollout) == 500
    with pytest.raises(StoreTrouble, match="is closed"):
        writer.put_exchange(rollout.key, exchange())


def test_a_check_is_kept_for_its_run_and_as_the_last_one(store: Store, writer: Writer) -> None:
    one, _ = opened(writer, "one")
    two, _ = opened(writer, "two")
    for made, kind in ((one, "race"), (two, "stale-read")):
        writer.put_check(made.key, {"run": made.name, "findings": [{"id": "F1", "kind": kind}], "big": 2**80})
    writer.flush().result(5)
    reader = store.reader()
    assert reader.findings(one) == [{"id": "F1", "kind": "race"}]
    assert reader.last_check() == (two, {"run": "two", "findings": [{"id": "F1", "kind": "stale-read"}], "big": 2**80})


def test_keys_are_never_given_twice(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replayproxy.storage.numbers.AT_ONCE", 3)
    first, second = store.writer(), store.writer(exclusive=False)
    made = first.open_run(run("r"))
    keys = [w.open_episode(episode(f"{n}-{at}", run_key=made.key)).key
            for n in range(5) for at, w in enumerate((first, second))]  # fmt: skip
    assert len({made.key, *keys}) == 11
    first.close()
    second.close()


def test_the_file_is_never_shorter_than_lmdb_says(store: Store, writer: Writer) -> None:
    env: Environment = store.env
    _, _rollout = opened(writer)
    writer.flush().result(5)
    wanted = (env.env.info()["last_pgno"] + 1) * env.env.stat()["psize"]
    with (store.path / "data.mdb").open("r+b") as data:
        data.truncate(wanted - 4096)  # as when the last page was freed before it was ever written
        env.fill_up()
        assert data.seek(0, 2) == wanted


def test_snapshots_keep_their_numbers(store: Store, writer: Writer) -> None:
    _made, rollout = opened(writer)
    for n in (2, 10, 0, 1):
        writer.put_snapshot(rollout.key, snapshot(n, None))
    writer.flush().result(5)
    found: list[Snapshot] = store.reader().snapshots(rollout)
    assert [shot.n for shot in found] == [0, 1, 2, 10]
