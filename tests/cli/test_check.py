from __future__ import annotations

import re
from pathlib import Path

import pytest

from replayproxy.cli.check_text import report
from replayproxy.storage import open_store
from tests.cli.conftest import Call
from tests.detect.bench import Bench, Deployment, script
from tests.detect.kept import keep

PATCH = script(("GET", "/deals/D-1"), ("PATCH", "/deals/D-1", {"stage": "won"}), ("GET", "/deals/D-1"))


@pytest.fixture
def judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with a clean run and one whose cache is stale."""
    place = tmp_path / "store"
    monkeypatch.setenv("REPLAYPROXY_STORE", str(place))
    with open_store(place, create=True) as store:
        for name, faults in (("good", ()), ("bad", ("stale",))):
            bench = Bench(2)
            deployment = bench.deployment("i", *faults)
            bench.in_turn(
                iter([{"name": f"e{n}", "deployment": deployment, "agents": {"main": PATCH}} for n in range(3)])
            )
            keep(store, bench, name)
    return place


def test_the_verdict_comes_first_and_the_next_command_last(call: Call, judged: Path) -> None:
    told = call("check", "bad")
    lines = told.text.splitlines()
    assert told.code == 1
    assert re.fullmatch(r"bad: FAIL   3 proven findings   3 of 3 episodes judged, for \d of 6 kinds", lines[0])
    assert lines[1].startswith("failure rate 100 % [43.9, 100.0] = 3 poisoned + 0 lost")
    assert lines[1].endswith("of 3; budget 5 %: above it")
    assert "clean 0  suspect 0  poisoned 3  unknown 0" in lines
    assert any(line.startswith("F1  proven  stale-read  e0 +2  /stage") for line in lines)
    assert lines[-3] == "next    replayproxy show F1"
    assert lines[-2].startswith("        replayproxy re")
    assert lines[-2].count("--env app=URL") == 1
    assert lines[-1] == "        replayproxy mask bad"


def test_the_worst_is_found_in_the_list(call: Call, judged: Path) -> None:
    """Of the findings of one fault only the first has a line."""
    told = call("check", "bad", "--json").json
    worst = {"kind": "stale-read", "exchange": "bad/e1#2", "episodes": 2}
    assert not any(line.startswith("F2 ") for line in report(told))
    for number, named in (("F1", "F1 stale-read, "), ("F2", "F2 stale-read (listed with F1), ")):
        lines = report({**told, "worst": {"number": number, **worst}})
        assert f"worst   {named}2 episodes, one exchange: bad/e1#2" in lines


def test_a_clean_run_passes_and_says_in_how_many_episodes_each_kind_could_be_looked_for(
    call: Call, judged: Path
) -> None:
    told = call("check", "good")
    assert told.code == 0
    first = told.text.splitlines()[0]
    assert re.fullmatch(r"good: PASS   no findings   3 of 3 episodes judged, for \d of 6 kinds", first)
    assert "stale-read" in told.text
    assert "0 of 3" in told.text


def test_json_is_one_document_and_nothing_else(call: Call, judged: Path) -> None:
    told = call("check", "bad", "--json")
    assert told.code == 1
    assert set(told.json) >= {"run", "findings", "verdicts", "coverage", "failure_rate", "interval"}
    assert told.json["verdicts"] == {"e0": "poisoned", "e1": "poisoned", "e2": "poisoned"}


def test_a_finding_of_the_last_check_can_be_shown(call: Call, judged: Path) -> None:
    call("check", "bad")
    told = call("show", "F2")
    assert told.code == 0
    assert told.text.splitlines()[0].startswith("F2  STALE READ (RYW)  PROVEN")
    assert "bad/e1#3" in told.text


@pytest.mark.parametrize(
    "words",
    [("show", "F1"), ("export", "F1", "--out", "F1.replay"), ("reproduce", "F1", "--env", "app=http://[::1]:9")],
)
def test_a_number_that_the_last_check_does_not_have_is_refused(
    call: Call, judged: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """An earlier check's finding of that number is of another run: sent again, it would overwrite state for nothing."""
    monkeypatch.chdir(judged.parent)
    id_of_first = call("check", "bad", "--json").json["findings"][0]["id"]
    call("check", "good")
    told = call(*words)
    assert (told.code, told.text) == (2, "")
    assert "no finding F1: the last check, of run good, has 0" in told.err
    assert f"F1 of run bad is {id_of_first}" in told.err
    assert told.err.count("\n") == 1
    assert not Path("F1.replay").exists()
    named = call("show", id_of_first)
    assert (named.code, named.text.split()[1:3]) == (0, ["STALE", "READ"])


def test_ls_shows_the_verdicts_of_the_last_check(call: Call, judged: Path) -> None:
    call("check", "bad")
    assert [row["verdict"] for row in call("ls", "bad", "--json").json["episodes"]] == ["poisoned"] * 3


def test_wrong_words_are_one_line_and_exit_2(call: Call, judged: Path) -> None:
    for words in (["--fail-on", "sure"], ["--require", "luck"], ["--max-failure-rate", "5"], ["--baseline", "x"]):
        told = call("check", "bad", *words)
        assert told.code == 2, words
        assert len(told.err.splitlines()) == 1
        assert told.out == b""
    assert call("check").code == 2
    assert call("check", "nope").code == 2


def test_the_options_decide_the_exit_code(call: Call, judged: Path) -> None:
    assert call("check", "bad", "--fail-on", "none", "--max-failure-rate", "1").code == 0
    assert call("check", "good", "--require", "race").code == 3
    assert call("check", "good", "--require", "stale-read,dirty-reset").code == 0


def test_where_no_start_is_the_reference_it_is_said_how_to_name_one(call: Call, judged: Path) -> None:
    with open_store(judged) as store:
        bench = Bench(2)
        deployment = bench.deployment("i")
        bench.in_turn(iter([{"name": f"e{n}", "deployment": deployment, "agents": {"main": PATCH}} for n in range(2)]))
        keep(store, bench, "few")
    note = "note    the right start is not known for 2 of 2 episodes -> --reference few/EPISODE"
    assert note in call("check", "few").text.splitlines()
    assert "--reference" not in call("check", "few", "--reference", "few/e0").text
    assert "--reference" not in call("check", "good").text


class Later(Deployment):
    """Answers a write, and commits it when the next request comes that writes."""

    due: tuple[str, str, object] | None = None

    def answer(self, now: int, method: str, path: str, body: object) -> object:
        if method == "GET":
            return super().answer(now, method, path, body)
        due, self.due = self.due, (method, path, body)
        if due is not None:
            super().answer(now, *due)
        row = self.tables[path.split("/")[1]].get(path.split("/")[2], {})
        return 200, {**row, **body} if isinstance(body, dict) else {}


def test_an_environment_that_commits_after_its_answer_does_not_pass(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each read is as the state then is, and each change comes while a write runs: without the order of the two there
    is nothing odd in it."""
    monkeypatch.setenv("REPLAYPROXY_STORE", str(tmp_path / "store"))
    agent = script(
        ("GET", "/deals/D-1"), ("PATCH", "/deals/D-1", {"owner": "eve"}), ("GET", "/deals/D-1"),
        ("PATCH", "/tickets/T-1", {"title": "printer"}), ("GET", "/deals/D-1"),
    )  # fmt: skip
    with open_store(tmp_path / "store", create=True) as store:
        for name, kind in (("good", Deployment), ("later", Later)):
            bench = Bench(2)
            plans = ({"name": f"e{n}", "deployment": bench.deployment(f"i{n}", kind=kind), "agents": {"main": agent}}
                     for n in range(3))  # fmt: skip
            bench.in_turn(plans)
            keep(store, bench, name)
    told = call("check", "later")
    assert told.code == 3
    assert told.text.splitlines()[0].startswith("later: NOT JUDGED   3 suspected findings")
    assert "an effect came after its answer" in " ".join(told.text.split())
    assert "clean 0  suspect 3  poisoned 0  unknown 0" in told.text
    assert call("check", "good").text.startswith("good: PASS   no findings")
