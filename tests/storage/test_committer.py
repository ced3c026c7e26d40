"""The writer's queue and its commits: when they begin, and what holds where they fail."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path

import lmdb
import pytest

from replayproxy.core.values import EpisodeState
from replayproxy.errors import StoreTrouble
from replayproxy.storage import Store, committer, open_store
from replayproxy.storage.batch import Batch
from replayproxy.testing import exchange
from tests.storage.test_writer import opened


def test_a_full_queue_waits_for_the_thread(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committer, "QUEUE_ITEMS", 10)
    writer = store.writer()
    _, rollout = opened(writer)
    for at in range(200):
        writer.put_exchange(rollout.key, exchange(at_ms=at))
    writer.close()
    assert store.reader().count(rollout) == 200


class Trouble:
    """Makes commits fail until told otherwise."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.on, self.tried = True, threading.Event()
        commit = Batch.commit

        def failing(batch: Batch) -> None:
            if self.on:
                self.tried.set()
                raise lmdb.Error("mdb_txn_commit: No space left on device")
            commit(batch)

        monkeypatch.setattr(Batch, "commit", failing)
        monkeypatch.setattr(committer, "RETRY_SECONDS", 0.01)


@pytest.mark.parametrize(("took", "waits"), [(0.0, 0.05), (0.03, 0.05), (0.06, 0.02), (0.5, -0.42)])
def test_a_commit_begins_early_enough_to_end_in_time(took: float, waits: float) -> None:
    assert committer.begins(100.0, took) == pytest.approx(100 + waits)


def test_what_waited_during_a_commit_does_not_wait_again_behind_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committer, "GROUP_SECONDS", 2.0)
    monkeypatch.setattr(committer, "DURABLE_SECONDS", 60.0)
    begun, go = threading.Event(), threading.Event()
    commit = Batch.commit

    def slow(batch: Batch) -> None:
        begun.set()
        go.wait(30)
        commit(batch)

    writer = store.writer()
    _, rollout = opened(writer)
    monkeypatch.setattr(Batch, "commit", slow)
    writer.put_exchange(rollout.key, exchange(at_ms=1))
    writer.flush()
    assert begun.wait(30)
    writer.put_exchange(rollout.key, exchange(at_ms=2))
    time.sleep(2.1)
    monkeypatch.setattr(Batch, "commit", commit)
    go.set()
    until = time.monotonic() + 1.9
    while writer._queue.count:
        assert time.monotonic() < until, "it waited as long as one that has just come"
        time.sleep(0.01)
    assert store.reader().count(rollout) == 2
    writer.close()


def test_a_failed_commit_keeps_its_batch_and_tries_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    trouble = Trouble(monkeypatch)
    writer = store.writer()
    made, rollout = opened(writer)
    writer.put_exchange(rollout.key, exchange())
    sealed = writer.seal(rollout)
    assert trouble.tried.wait(5)
    assert "No space left" in str(writer.failed)
    trouble.on = False
    assert sealed.result(5).seal is not None
    assert writer.failed is None
    assert store.reader().episode(made, "e").state is EpisodeState.SEALED
    writer.close()


def test_while_commits_fail_nobody_waits_for_ever(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    trouble = Trouble(monkeypatch)
    monkeypatch.setattr(committer, "GIVE_UP_SECONDS", 0.05)
    monkeypatch.setattr(committer, "QUEUE_ITEMS", 5)
    writer = store.writer()
    _, rollout = opened(writer)
    sealed = writer.flush()
    with pytest.raises(StoreTrouble, match=r"cannot be written: .*No space left"):
        sealed.result(5)
    with pytest.raises(StoreTrouble, match="cannot be written"):
        for at in range(10):
            writer.put_exchange(rollout.key, exchange(at_ms=at))
    assert not writer.room()
    with pytest.raises(StoreTrouble, match=r"cannot be written, [5-9] records are lost: .*No space left"):
        writer.close()
    assert trouble.on


def test_a_seal_behind_a_batch_that_fails_is_told_too_and_holds_once_there_is_room(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = store.writer()
    made, rollout = opened(writer)
    writer.flush().result(5)
    monkeypatch.setattr(committer, "GIVE_UP_SECONDS", 0.05)
    trouble = Trouble(monkeypatch)
    writer.put_exchange(rollout.key, exchange())
    assert trouble.tried.wait(5)
    with pytest.raises(StoreTrouble, match="No space left"):
        writer.seal(rollout).result(5)
    trouble.on = False
    writer.flush().result(5)
    assert store.reader().episode(made, "e").state is EpisodeState.SEALED
    writer.close()


def test_a_removed_directory_is_never_written_to_in_silence(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = store.writer()
    _, rollout = opened(writer)
    writer.flush().result(5)
    shutil.rmtree(store.path)
    writer.put_exchange(rollout.key, exchange())
    with pytest.raises(StoreTrouble, match="was removed or replaced"):
        writer.flush().result(5)
    with pytest.raises(StoreTrouble, match="was removed or replaced"):
        writer.close()


def test_a_replaced_directory_is_not_written_to(tmp_path: Path) -> None:
    store = open_store(tmp_path / "s", create=True)
    writer = store.writer()
    _, rollout = opened(writer)
    writer.flush().result(5)
    (tmp_path / "s").rename(tmp_path / "moved")
    other = open_store(tmp_path / "s", create=True)
    before = (tmp_path / "s" / "data.mdb").read_bytes()
    writer.put_exchange(rollout.key, exchange())
    with pytest.raises(StoreTrouble, match="removed or replaced"):
        writer.close()
    assert (tmp_path / "s" / "data.mdb").read_bytes() == before
    other.close()
    store.close()


def test_a_file_in_the_place_of_the_directory_is_a_replaced_one(store: Store) -> None:
    writer = store.writer()
    writer.flush().result(5)
    store.path.rename(store.path.with_name("moved"))
    store.path.write_text("")
    with pytest.raises(StoreTrouble, match="removed or replaced"):
        writer.flush().result(5)
    with pytest.raises(StoreTrouble, match="removed or replaced"):
        writer.close()


def test_a_directory_in_which_nothing_may_be_removed_any_more_keeps_no_writer_from_its_end(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    writer = store.writer()
    writer.flush().result(5)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", refused)
        writer.close()
    store.writer().close()
    assert list(store.path.glob("writer-*.lock")) == [], "the next recorder sweeps what it left"
