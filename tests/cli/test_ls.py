from __future__ import annotations

from pathlib import Path

from replayproxy.core.values import Seal
from replayproxy.storage import open_store
from replayproxy.testing import run
from tests.cli.conftest import Call


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
        head, columns, a, b, last = told.text.splitlines()
        assert head.startswith("nightly   2 episodes   clean 0  suspect 0  poisoned 1  unknown 1")
        assert head.endswith("UNATTRIBUTED 1 exchange")
        assert " ".join(columns.split()) == "EPISODE TASK SEED ATT EXCH REWARD TOOK STATE VERDICT WHY"
        assert " ".join(a.split()) == "a crm-7 7 1 5 1.00 40 s sealed poisoned F1 state-bleed"
        assert " ".join(b.split()) == "b - - - 0 - - incomplete unknown"
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
    assert [r["run"] for r in call("ls", *both, "--json").json["runs"]] == ["older", "nightly", "older", "elsewhere"]
    assert call("ls", "elsewhere", *both).code == 0
    told = call("ls", "older", *both)
    assert told.code == 2
    assert "in 2 of the stores" in told.err


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


def test_an_option_that_is_kept_for_later_says_so(call: Call, recorded: Path) -> None:
    for words in (("--where", "verdict=poisoned"), ("--sort", "reward"), ("--by", "task")):
        told = call("ls", "nightly", *words)
        assert told.code == 2
        assert f"{words[0]} comes with a later version" in told.err
