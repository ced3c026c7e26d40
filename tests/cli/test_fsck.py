from __future__ import annotations

import os
from pathlib import Path

import pytest

from replayproxy.storage import open_store
from replayproxy.storage.layout import FORMAT, exchange_key
from replayproxy.testing import exchange
from tests.cli.conftest import Call


def test_a_whole_store_is_exit_0_with_an_incomplete_episode_too(call: Call, recorded: Path) -> None:
    for name in ("fsck", "verify"):
        told = call(name)
        assert told.code == 0
        assert told.text.startswith(f"{recorded}: whole   read 2 runs, 3 episodes, 6 exchanges, 3 snapshots")
    assert call("fsck", "--json").json["damaged"] == []


def test_a_damaged_record_is_named_and_exit_4(call: Call, recorded: Path) -> None:
    with open_store(recorded) as store, store.env.writing() as txn:
        reader = store.reader()
        rollout = reader.episode(reader.run("nightly"), "a")
        key = exchange_key(rollout.key, exchange(at_ms=6100).order)
        raw = txn.get(key, db=store.env.dbs["exchanges"])
        txn.put(key, raw[:40] + bytes((raw[40] ^ 8,)) + raw[41:], db=store.env.dbs["exchanges"])
    told = call("fsck")
    assert told.code == 4
    assert told.text.splitlines()[0].startswith(f"{recorded}: DAMAGED   1 place")
    assert told.text.splitlines()[2].split(None, 2) == ["exchange", "nightly/a#2", "its checksum does not fit"]
    assert call("fsck", "--json").json["damaged"] == [
        {"kind": "exchange", "address": "nightly/a#2", "why": "its checksum does not fit"}
    ]
    shown = call("show", "nightly/a#2")
    assert shown.code == 4
    assert "nightly/a#2" in shown.err
    assert shown.err.endswith("-> replayproxy fsck\n")


def test_a_cut_store_is_exit_4_everywhere(call: Call, recorded: Path) -> None:
    os.truncate(recorded / "data.mdb", 5000)
    for command in (["fsck"], ["ls"], ["show", "latest"], ["rm", "nightly"]):
        told = call(*command)
        assert told.code == 4, command
        assert "is cut" in told.text + told.err


def test_a_newer_store_is_one_line_and_exit_4(call: Call, recorded: Path) -> None:
    with open_store(recorded) as store, store.env.writing() as txn:
        txn.put(b"format", (FORMAT + 1).to_bytes(4, "big"), db=store.env.dbs["meta"])
    for command in ("fsck", "ls"):
        told = call(command)
        assert (told.code, told.out) == (4, b"")
        assert "was written by a newer replayproxy" in told.err
        assert told.err.count("\n") == 1


@pytest.mark.parametrize("as_json", [True, False])
def test_a_missing_store_is_exit_2(call: Call, tmp_path: Path, as_json: bool) -> None:
    assert call("fsck", "--store", str(tmp_path), *["--json"] * as_json).code == 2
