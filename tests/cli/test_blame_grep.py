"""`blame` and `grep` as they are called."""

from __future__ import annotations

from pathlib import Path

import pytest

from replayproxy.storage import open_store
from tests.cli.conftest import EVIL, Call
from tests.cli.test_check_known import nightly, stale
from tests.detect.kept import keep


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "store"
    monkeypatch.setenv("REPLAYPROXY_STORE", str(place))
    with open_store(place, create=True) as store:
        keep(store, stale(1), "stale")
        keep(store, nightly(), "nightly")
    return place


def test_blame_of_a_finding_names_the_write_that_it_names(call: Call, found: Path) -> None:
    document = call("check", "nightly", "--json").json
    writer = document["findings"][0]["exchanges"][0]["address"]
    told = call("blame", "F1")
    assert told.code == 0
    lines = told.text.splitlines()
    assert lines[0] == f"written by {writer}"
    assert lines[2].startswith(f"  ->  {writer}  POST /deals  201")
    assert lines[-1] == f"next  replayproxy show '{writer}'"
    assert call("blame", "F1", "--json").json["by"] == writer


def test_unknown_is_exit_3_and_a_wrong_question_exit_2(call: Call, recorded: Path) -> None:
    told = call("blame", "nightly/a#2", "/big")
    assert (told.code, told.text.splitlines()[0][:8]) == (3, "UNKNOWN:")
    assert call("blame", "nightly/a#2").code == 2
    assert call("blame", "nightly/a#2", "/nope").code == 2
    assert call("blame", "nightly/a#1", "/x").code == 2
    assert call("blame", "nightly/unattributed#1", "/x").code == 2


def test_grep_finds_targets_headers_bodies_and_rows(call: Call, recorded: Path) -> None:
    hits = call("grep", "nightly", "42", "--json").json["hits"]
    hits = [hit for hit in hits if "evil" not in hit["where"]]
    assert {(hit["address"], hit["where"]) for hit in hits} == {
        ("nightly/a#2", "request target"), ("nightly/a#2", "answer body"), ("nightly/a/s0", "state deals/42"),
        ("nightly/a/s1", "state deals/42"),
    }  # fmt: skip
    hit = next(hit for hit in hits if hit["where"] == "answer body")
    assert hit["snippet"][hit["at"] : hit["at"] + hit["length"]] == "42"
    assert call("grep", "nightly/a#2", "42", "--in", "answer").text.count("\n") == 1
    assert call("grep", "nightly/a/s1", "won").text.startswith("nightly/a/s1  state deals/42  ")


def test_grep_counts_on_stderr_and_none_is_exit_1(call: Call, recorded: Path) -> None:
    told = call("grep", "nightly", "nowhere-at-all")
    assert (told.code, told.out, told.err) == (1, b"", "'nowhere-at-all' is nowhere in nightly\n")
    assert call("grep", "nightly", "nowhere-at-all", "--json").json["hits"] == []
    assert call("grep", "nightly", "deals", "-m", "2").err == "2 places, and perhaps more\n"


def test_case_and_regular_expressions(call: Call, recorded: Path) -> None:
    assert call("grep", "nightly", "STAGE").code == 1
    assert call("grep", "nightly", "STAGE", "-i").code == 0
    assert call("grep", "nightly", r'"stage": ?"w[a-z]n"', "-E").code == 0
    assert call("grep", "nightly", "s.age").code == 1
    for wrong in ("(", "(a+)+$"):
        told = call("grep", "nightly", wrong, "-E")
        assert (told.code, told.err.count("\n")) == (2, 1)
    assert call("grep", "nightly", "").code == 2


def test_nothing_recorded_reaches_the_terminal_raw(call: Call, recorded: Path) -> None:
    told = call("grep", "nightly", "evil")
    assert told.code == 0
    assert "\x1b" not in told.text
    assert EVIL not in told.text
    assert "\\x1b]0;evil" in told.text


def test_a_compressed_body_is_looked_into_decoded(call: Call, recorded: Path) -> None:
    import gzip

    from replayproxy.testing import episode, exchange

    packed = gzip.compress(b'{"hidden": "needle"}')
    with open_store(recorded) as store:
        writer = store.writer()
        run = store.reader().run("nightly")
        made = writer.open_episode(episode("z", run_key=run.key))
        writer.put_exchange(made.key, exchange("GET", "/z", body=packed, headers={"Content-Encoding": "gzip"}))
        writer.seal(made).result(5)
        writer.close()
    assert call("grep", "nightly/z", "needle").text == 'nightly/z#1  answer body  {"hidden": "needle"}\n'


@pytest.mark.parametrize("text", ["(" * 5000, "a{99999999999999999999}", "[", "(?P<x>", "(a+)+$"])
def test_an_expression_that_is_none_or_never_ends_is_wrong_usage(call: Call, recorded: Path, text: str) -> None:
    told = call("grep", "nightly", text, "-E")
    assert told.code == 2
    assert len(told.err) < 400


@pytest.mark.parametrize("text", [r"\u00e9", r"\N{BULLET}", "(?u)é", "x\udcff", r"\bdeal\b"])
def test_an_expression_for_text_may_be_used(call: Call, recorded: Path, text: str) -> None:
    assert call("grep", "nightly", text, "-E").code in (0, 1)
