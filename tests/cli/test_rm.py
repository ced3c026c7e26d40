from __future__ import annotations

from pathlib import Path

import pytest

from replayproxy.storage import open_store
from replayproxy.testing import episode, run
from tests.cli.conftest import Call


def test_a_removed_episode_is_no_longer_listed_and_its_run_stays(call: Call, recorded: Path) -> None:
    told = call("rm", "nightly/a")
    assert (told.code, told.text) == (0, "removed nightly/a\n")
    assert [e["episode"] for e in call("ls", "nightly", "--json").json["episodes"]] == ["b"]
    assert call("show", "nightly/a").code == 2


def test_a_removed_run_is_no_longer_listed(call: Call, recorded: Path) -> None:
    assert call("rm", "nightly", "--json").json == {"removed": ["nightly"]}
    assert [r["run"] for r in call("ls", "--json").json["runs"]] == ["older"]
    assert call("ls", "latest", "--json").json["run"] == "older"


def test_nothing_is_removed_when_one_address_is_wrong(call: Call, recorded: Path) -> None:
    for wrong in ("nightly/nope", "nightly/a#1", "nightly/a/s0", "F1"):
        told = call("rm", "older", wrong)
        assert told.code == 2
        assert told.err.count("\n") == 1
    assert len(call("ls", "--json").json["runs"]) == 2


def test_what_was_removed_stays_in_the_file_and_is_whole(call: Call, recorded: Path) -> None:
    call("rm", "nightly", "older")
    assert call("fsck", "--json").json["damaged"] == []
    with open_store(recorded) as store, store.env.reading() as txn:
        assert txn.stat(store.env.dbs["exchanges"])["entries"] == 6


def test_removing_beside_a_recorder_is_allowed(call: Call, recorded: Path) -> None:
    with open_store(recorded) as store:
        recorder = store.writer()
        assert call("rm", "older").code == 0
        recorder.close()


@pytest.mark.parametrize("append", [False, True])
def test_what_is_being_recorded_is_not_removed(call: Call, recorded: Path, append: bool) -> None:
    with open_store(recorded) as store:
        recorder = store.writer()
        name = "nightly" if append else "fresh"
        made = recorder.open_run(run(name), append=append)
        recorder.open_episode(episode("going", run_key=made.key))
        recorder.seal(recorder.open_episode(episode("done", run_key=made.key))).result()
        for address in (name, f"{name}/going"):
            told = call("rm", "older", address)
            assert (told.code, told.text) == (4, "")
            assert (
                told.err
                == f"replayproxy: {address} is being written -> wait until its recorder has ended, or stop it\n"
            )
        assert call("rm", f"{name}/done", "older").code == 0
        recorder.close()
    assert call("rm", name).code == 0


def test_only_one_store_can_be_written_to(call: Call, recorded: Path) -> None:
    told = call("rm", "older", "--store", str(recorded), "--store", str(recorded))
    assert told.code == 2
    assert "only one --store" in told.err
