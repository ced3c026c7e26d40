"""A finding that is handed on: one archive that one command opens, and what is written beside it."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from replayproxy.session.trials import keep as keep_trials
from replayproxy.session.trials import trial
from replayproxy.storage import open_store
from tests.cli.conftest import Call
from tests.cli.test_check_known import nightly, stale
from tests.detect import kept
from tests.detect.kept import keep

REDACTED = {"secrets": {"kept": False, "key": "k", "tables": []}}


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "store"
    monkeypatch.setenv("REPLAYPROXY_STORE", str(place))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(kept, "RUN", replace(kept.RUN, config=REDACTED))
    with open_store(place, create=True) as store:
        keep(store, stale(2), "stale")
        keep(store, nightly(), "nightly")
    return place


def test_a_stranger_opens_it_with_one_command(
    call: Call, found: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call("check", "nightly")
    here = call("show", "F1").text.splitlines()
    told = call("export", "F1", "--out", "F1.replay")
    assert told.code == 0
    assert sorted(path.name for path in tmp_path.glob("F1.*")) == ["F1.md", "F1.replay", "F1.sh"]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shutil.copy(tmp_path / "F1.replay", elsewhere)
    shutil.rmtree(found)
    monkeypatch.chdir(elsewhere)
    there = call("show", "F1.replay").text.splitlines()
    evidence = [line for line in here if "[" in line]
    assert evidence
    assert [line for line in there if "[" in line] == evidence
    assert [line for line in there if line.startswith("  compare")] == [
        line for line in here if line.startswith("  compare")
    ]
    number = call("show", "F1.replay", "--json").json["id"]
    assert f"reproduce   replayproxy import F1.replay && replayproxy reproduce {number} --env " in " ".join(there)
    refused = call("reproduce", "F1.replay", "--env", "app=http://127.0.0.1:1")
    assert (refused.code, "replayproxy import F1.replay" in refused.err) == (2, True)
    assert call("show", "F1.replay/F1", "--curl").text.startswith("# write  nightly/")
    assert "the reference (7 of 10 starts)" in call("show", "F1.replay", "--state").text
    assert call("blame", "F1.replay/F1").text.startswith("written by nightly/")
    assert call("show", "F1.replay", "--json").json["kind"] == "state-bleed"


def test_it_holds_the_episodes_that_it_names_and_nothing_else(call: Call, found: Path) -> None:
    document = call("check", "nightly", "--json").json["findings"][0]
    call("export", "F1", "--format", "archive", "--out", "F1.replay")
    named = {w["address"].partition("#")[0].partition("/")[2] for w in document["exchanges"]}
    listed = call("ls", "F1.replay", "--json").json["episodes"]
    assert {one["episode"] for one in listed} == named
    assert {one["verdict"] for one in listed} <= {"poisoned", "clean"}
    assert call("ls", "F1.replay").text.count("F1 state-bleed") == 1


def test_it_comes_into_a_store_with_its_finding_and_its_trials(call: Call, found: Path, tmp_path: Path) -> None:
    call("check", "stale")
    finding = call("show", "F1", "--json").json
    with open_store(found) as store:
        run = store.reader().run("stale")
        told = "alone 5/5"
        keep_trials(store, run.key, [trial(finding["id"], "reproduce", wall=1, k=5, n=5, told=told, confirmed=True)])
    call("export", "F1", "--out", "F1.replay")
    assert "  last        alone 5/5" in call("show", "F1.replay").text
    other = ("--store", str(tmp_path / "other"))
    assert call("import", "F1.replay", *other).code == 0
    assert call("fsck", *other).code == 0
    assert call("show", finding["id"], *other, "--json").json["id"] == finding["id"]
    assert call("check", "stale", *other, "--json").json["findings"][0]["id"] == finding["id"]


def test_what_is_beside_it_can_be_read_and_run(call: Call, found: Path, tmp_path: Path) -> None:
    call("check", "stale")
    call("export", "F1")
    text = (tmp_path / "F1.md").read_text()
    assert text.startswith("# stale-read, proven\n")
    assert "replayproxy show F1.replay\n" in text
    assert "replayproxy blame 'F1.replay/stale/e0#3' '/stage'" in text
    script = (tmp_path / "F1.sh").read_text()
    assert script.startswith("#!/bin/sh\n# /deals/D-1 was at least")
    assert script.count("\ncurl ") == 2
    assert subprocess.run(["sh", "-n", "F1.sh"], check=False, cwd=tmp_path).returncode == 0


def test_nothing_is_replaced_and_nothing_half_written(call: Call, found: Path, tmp_path: Path) -> None:
    call("check", "stale")
    (tmp_path / "F1.sh").write_text("mine")
    told = call("export", "F1")
    assert (told.code, told.err.count("\n")) == (2, 1)
    assert sorted(path.name for path in tmp_path.glob("F1*")) == ["F1.sh"]
    assert (tmp_path / "F1.sh").read_text() == "mine"


def test_a_run_with_its_secrets_is_not_handed_on(
    call: Call, found: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "RUN", replace(kept.RUN, config={"secrets": {"kept": True}}))
    with open_store(found) as store:
        keep(store, stale(1), "raw")
    call("check", "raw")
    told = call("export", "F1")
    assert told.code == 2
    assert "recorded with its secrets" in told.err
    assert list(tmp_path.glob("F1*")) == []


def test_wrong_words_are_one_line_and_exit_2(call: Call, found: Path) -> None:
    call("check", "stale")
    for words in (["F1", "--format", "har"], ["stale"], ["F1", "F2", "--format", "archive"], ["F9"]):
        told = call("export", *words)
        assert (told.code, told.out, told.err.count("\n")) == (2, b"", 1), words


def test_an_ordinary_archive_alone_is_still_its_run(call: Call, found: Path) -> None:
    call("check", "stale")
    call("export", "stale", "--format", "archive", "--out", "all.replay")
    assert call("show", "all.replay").text.startswith("stale ")
    assert call("show", "all.replay/F1").text.startswith("all.replay/F1  STALE READ")
