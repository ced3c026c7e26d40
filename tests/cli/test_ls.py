from __future__ import annotations

from pathlib import Path

import pytest

from replayproxy.core.values import Seal
from replayproxy.storage import open_store
from replayproxy.testing import run
from tests.cli.conftest import Call
from tests.cli.test_check_known import nightly
from tests.detect.kept import keep


def test_runs_are_listed_the_latest_last(call: Call, recorded: Path) -> None:
    told = call("ls")
    assert told.code == 0
    head, older, nightly, last = told.text.splitlines()
    assert head.split() == ["RUN", "EPISODES", "EXCHANGES", "STATE", "VERDICTS", "OPENED"]
    assert older.split()[:3] == ["older", "0", "0"]
    assert nightly.split()[:3] == ["nightly", "2", "5"]
    assert "1 sealed, 1 incomplete, 1 unattributed" in nightly
    assert last == "2 runs        next: replayproxy ls RUN"


def test_the_runs_as_json(call: Call, recorded: Path) -> None:
    told = call("ls", "--json").json
    assert [(r["run"], r["episodes"]) for r in told["runs"]] == [("older", 0), ("nightly", 2)]
    assert told["runs"][1]["unattributed"] == 1


def test_the_episodes_of_a_run(call: Call, recorded: Path) -> None:
    for address in ("nightly", "latest"):
        told = call("ls", address)
        assert told.code == 0
        head, more, columns, a, b, last = told.text.splitlines()
        assert head == "nightly   2 episodes   clean 0  suspect 0  poisoned 1  unknown 1"
        assert more == "  step 398   UNATTRIBUTED 1 exchange"
        assert " ".join(columns.split()) == "EPISODE TASK SEED ATT EXCH WRITES REWARD TOOK STATE VERDICT WHY"
        assert " ".join(a.split()) == "a crm-7 7 1 5 2 1.00 40 s sealed poisoned F1 state-bleed /items/3/id"
        assert " ".join(b.split()) == "b - - - 0 0 - - incomplete unknown"
        assert last.endswith("next: replayproxy show nightly/EPISODE")


def test_the_episodes_as_json(call: Call, recorded: Path) -> None:
    told = call("ls", "nightly", "--json").json
    assert told["run"] == "nightly"
    assert told["unattributed"] == 1
    wanted = {"episode": "a", "task": "crm-7", "seed": 7, "attempt": 1, "state": "sealed", "exchanges": 5,
              "reward": 1.0, "verdict": "poisoned"}  # fmt: skip
    a, b = told["episodes"]
    assert {name: a[name] for name in wanted} == wanted
    assert (b["state"], b["verdict"], b["reward"], b["task"]) == ("incomplete", "unknown", None, None)


def test_an_incomplete_episode_is_no_failure_of_looking(call: Call, recorded: Path) -> None:
    assert call("ls", "nightly").code == 0
    assert call("show", "nightly/b").code == 0


def test_a_run_that_is_not_there_is_one_line_and_exit_2(call: Call, recorded: Path) -> None:
    told = call("ls", "nope")
    assert (told.code, told.out) == (2, b"")
    assert told.err == f"replayproxy: no run 'nope' in {recorded} -> replayproxy ls\n"
    assert call("ls", "nope", "--json").json["exit"] == 2
    assert call("ls", "nightly/a").code == 2


def test_a_store_that_is_not_there_is_exit_2(call: Call, tmp_path: Path) -> None:
    told = call("ls", "--store", str(tmp_path / "none"))
    assert (told.code, told.err.count("\n")) == (2, 1)
    assert not (tmp_path / "none").exists()


def test_several_stores_are_read_together(call: Call, recorded: Path, tmp_path: Path) -> None:
    with open_store(tmp_path / "other", create=True) as other:
        writer = other.writer()
        writer.open_run(run("elsewhere"))
        writer.open_run(run("older", opened_wall=2))
        writer.close()
    both = ("--store", str(recorded), "--store", str(tmp_path / "other"))
    assert [r["run"] for r in call("ls", *both, "--json").json["runs"]] == ["older", "older", "nightly", "elsewhere"]
    assert call("ls", "elsewhere", *both).code == 0
    told = call("ls", "older", *both)
    assert told.code == 2
    assert "in 2 of the stores" in told.err


def test_of_several_stores_each_run_is_listed_with_its_own(
    call: Call, recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(tmp_path / "an other", create=True) as other:
        writer = other.writer()
        writer.open_run(run("older", opened_wall=2))
        writer.close()
    monkeypatch.chdir(tmp_path)
    both = ("--store", "store", "--store", "an other", "--store", str(recorded))  # a store that is named twice is one
    head, first, second, nightly, last = call("ls", *both).text.splitlines()
    assert head.endswith("  STORE")
    assert [line.partition(") ")[2].strip() for line in (first, second, nightly)] == ["store", "'an other'", "store"]
    assert last == "3 runs        next: replayproxy ls --store STORE RUN"
    assert [one["store"] for one in call("ls", *both, "--json").json["runs"]] == ["store", "an other", "store"]
    assert call("ls", "--store", "an other", "older").code == 0
    assert "STORE" not in call("ls", "--store", "an other").text


def test_an_empty_store_says_what_to_do(call: Call, tmp_path: Path) -> None:
    open_store(tmp_path / "s", create=True).close()
    told = call("ls", "--store", str(tmp_path / "s"))
    assert told.text.startswith("no runs ")
    assert call("ls", "--store", str(tmp_path / "s"), "--json").json == {"runs": []}


def test_the_seal_of_an_episode_says_how_many_exchanges_it_has(call: Call, recorded: Path) -> None:
    with open_store(recorded) as store:
        reader = store.reader()
        seal = reader.episode(reader.run("nightly"), "a").seal
    assert isinstance(seal, Seal)
    assert seal.exchanges == call("ls", "nightly", "--json").json["episodes"][0]["exchanges"]


def test_episodes_are_filtered_sorted_and_counted_against_all(call: Call, nights: Path) -> None:
    call("check", "nightly")
    told = call("ls", "nightly", "--where", "verdict=poisoned meta.step>=388", "--sort", "-reward", "--json").json
    assert told["of"] == 40
    assert told["episodes"]
    assert {e["verdict"] for e in told["episodes"]} == {"poisoned"}
    assert all(e["meta"]["step"] >= 388 for e in told["episodes"])
    assert [e["reward"] for e in told["episodes"]] == sorted((e["reward"] for e in told["episodes"]), reverse=True)
    lines = call("ls", "nightly", "--where", "verdict=poisoned").text.splitlines()
    assert lines[0].startswith("nightly   40 episodes   clean ")
    assert lines[1] == "  image crm:old, crm:new   step 380-389"
    assert all("state-bleed from crm-" in line for line in lines[3:-1])
    assert lines[-1].startswith(f"{len(lines) - 4} of 40 episodes, checked ")
    assert max(map(len, lines)) <= 105


def test_a_filter_that_meets_nothing_is_no_failure(call: Call, nights: Path) -> None:
    told = call("ls", "nightly", "--where", "reward>7")
    assert told.code == 0
    assert told.text.splitlines()[-1].startswith("0 of 40 episodes")
    assert call("ls", "nightly", "--where", "reward>7", "--by", "task", "--json").json["groups"] == []


def test_writes_are_counted_by_the_check_and_before_it_by_reading(call: Call, nights: Path) -> None:
    before = [e["writes"] for e in call("ls", "nightly", "--json").json["episodes"]]
    call("check", "nightly")
    after = [e["writes"] for e in call("ls", "nightly", "--json").json["episodes"]]
    assert before == after == [1] * 40


def test_sums_by_a_field(call: Call, nights: Path) -> None:
    call("check", "nightly")
    told = call("ls", "nightly", "--by", "instance", "--json").json["groups"]
    assert [(g["value"], g["episodes"], g["poisoned"] > 0) for g in told] == [("pod-1", 28, False), ("pod-2", 12, True)]
    lines = call("ls", "nightly", "--by", "meta.step").text.splitlines()
    assert lines[2].split()[0] == "META.STEP"
    assert [line.split()[0] for line in lines[3:-1]] == [str(step) for step in range(380, 390)]
    assert max(map(len, lines)) <= 100
    assert call("ls", "nightly", "--by", "task", "--where", "verdict=poisoned").code == 0
    hours = call("ls", "nightly", "--by", "hour", "--json").json["groups"]
    assert [g["value"] for g in hours] == ["2023-11-14T22"]


def test_a_field_or_a_place_that_cannot_be_meant_is_one_line_and_exit_2(call: Call, nights: Path) -> None:
    for words, said in (
        (["nightly", "--where", "rewrd<1"], "did you mean 'reward'?"),
        (["nightly", "--sort", "luck"], "no field 'luck'"),
        (["nightly", "--by", "meta.nope"], "no field 'meta.nope'"), (["--where", "reward<1"], "name a run"),
        (["nightly", "--where", "reward"], "is no FIELD OP VALUE"),
    ):  # fmt: skip
        told = call("ls", *words)
        assert (told.code, told.out, told.err.count("\n")) == (2, b"", 1)
        assert said in told.err


@pytest.fixture
def nights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "nights"
    monkeypatch.setenv("REPLAYPROXY_STORE", str(place))
    with open_store(place, create=True) as store:
        keep(store, nightly(), "nightly")
    return place


def test_before_a_check_there_are_no_verdicts(call: Call, nights: Path) -> None:
    lines = call("ls", "nightly").text.splitlines()
    assert lines[0].startswith("nightly   40 episodes   not checked yet")
    assert "unknown" not in " ".join(lines)
