from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from replayproxy.storage import open_store
from replayproxy.testing import run
from tests.cli.conftest import Call


def test_it_says_what_it_took_and_what_the_store_there_holds(call: Call, recorded: Path, tmp_path: Path) -> None:
    into = tmp_path / "all"
    told = call("merge", str(recorded), "--into", str(into), "--json")
    assert (told.code, told.json["runs"], told.json["renamed"]) == (0, ["older", "nightly"], {})
    listed = call("ls", "nightly", "--store", str(into), "--json").json
    assert listed == call("ls", "nightly", "--store", str(recorded), "--json").json
    again = call("merge", str(recorded), "--into", str(into))
    assert again.code == 0
    assert again.text.startswith(f"{into}: took nothing new\n")
    assert "left out: 1 x checks that are there already\n" in again.text
    assert "again" not in again.text
    assert call("fsck", "--store", str(into)).code == 0


def test_a_run_that_has_another_s_name_is_told(
    call: Call, recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPLAYPROXY_NODE", "gpu-7")
    with open_store(tmp_path / "other", create=True) as store:
        writer = store.writer()
        writer.open_run(run("nightly", opened_wall=77))
        writer.close()
    told = call("merge", str(recorded), str(tmp_path / "other"), "--into", str(tmp_path / "all"))
    assert "nightly is called nightly@gpu-7 here" in told.text
    nodes = {one["run"]: one["node"] for one in call("ls", "--store", str(tmp_path / "all"), "--json").json["runs"]}
    assert nodes["nightly@gpu-7"] == "gpu-7"
    assert nodes["nightly"] not in (None, "gpu-7")


def test_what_cannot_be_merged_is_one_line(call: Call, recorded: Path, tmp_path: Path) -> None:
    for arguments, code in (
        ((str(tmp_path / "missing"), "--into", str(tmp_path / "all")), 2),
        ((str(recorded), "--into", str(recorded)), 2),
        ((str(recorded),), 2),
    ):
        told = call("merge", *arguments)
        assert told.code == code
        assert told.err.count("\n") == 1
    shutil.copytree(recorded, tmp_path / "cut")
    with (tmp_path / "cut" / "data.mdb").open("r+b") as data:
        data.truncate(8192)
    assert call("merge", str(recorded), str(tmp_path / "cut"), "--into", str(tmp_path / "all")).code == 4
    assert not (tmp_path / "all").exists()


def test_of_a_store_made_for_a_merge_that_is_refused_nothing_stays(call: Call, recorded: Path, tmp_path: Path) -> None:
    with open_store(recorded) as store:
        writer = store.writer()
        told = call("merge", str(recorded), "--into", str(tmp_path / "new" / "all"))
        writer.close()
    assert (told.code, told.err.count("\n")) == (4, 1)
    assert "is being written to" in told.err
    assert not (tmp_path / "new").exists()


def test_a_store_that_was_there_stays_when_a_merge_is_refused(call: Call, recorded: Path, tmp_path: Path) -> None:
    into = tmp_path / "all"
    with open_store(into, create=True):
        pass
    assert call("merge", str(into), "--into", str(into)).code == 2
    assert call("ls", "--store", str(into)).code == 0
