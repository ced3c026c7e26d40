"""`replayproxy provider check`: what holds of a provider, in text and JSON, and its exit code."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.conftest import Call

BROKEN = """
import itertools
from replayproxy.state import Reading

class Noisy:
    atomic = can_restore = False
    scope = "instance"
    count = itertools.count()
    def capture(self):
        return Reading(rows={"t": {"1": {"n": next(self.count)}}})
    def close(self):
        pass

def provider(spec):
    return Noisy()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with closing(sqlite3.connect(tmp_path / "crm.db")) as made:
        made.executescript("CREATE TABLE deals (id INTEGER PRIMARY KEY); INSERT INTO deals VALUES (1), (2)")
    return tmp_path / "crm.db"


def test_a_provider_that_holds_is_exit_0_and_nothing_is_written(call: Call, path: Path) -> None:
    before = path.read_bytes()
    told = call("provider", "check", f"crm=sqlite:{path}")
    assert told.code == 0
    head, *lines, last = told.text.splitlines()
    assert head == f"crm=sqlite:{path}: all 4 promises that were checked hold"
    assert sum(line.startswith("  ok ") for line in lines) == 4
    assert last.startswith("next: replayproxy provider check crm=.. --restore")
    assert path.read_bytes() == before


def test_restores_are_tried_when_they_are_asked_for(call: Call, path: Path) -> None:
    told = call("provider", "check", f"crm=sqlite:{path}", "--restore", "--json")
    assert told.code == 0
    assert told.json["conforms"] is True
    assert [one["outcome"] for one in told.json["checks"]].count("ok") == 7
    assert "writing the state of crm" in told.err
    with closing(sqlite3.connect(path)) as live:
        assert live.execute("SELECT count(*) FROM deals").fetchone() == (2,)


def test_a_broken_promise_is_exit_1_and_says_which_row(call: Call, tmp_path: Path) -> None:
    (tmp_path / "noisy.py").write_text(BROKEN)
    told = call("provider", "check", f"crm={tmp_path}/noisy.py:x")
    assert told.code == 1
    assert "2 of 4 promises broken" in told.text
    assert "1 row differs t/1: {'n': 0} | {'n': 1}" in told.text


def test_words_in_braces_can_be_given(call: Call, path: Path) -> None:
    named = f"crm=sqlite:{path.parent}/{{episode}}.db"
    assert call("provider", "check", named, "--with", "episode=crm").code == 0
    told = call("provider", "check", named)
    assert (told.code, told.text.count("{episode} is not known")) == (1, 1)


@pytest.mark.parametrize("arguments", [["crm"], ["crm=nope:x"], ["crm=dir:/tmp", "--with", "episode"], []])
def test_wrong_usage_is_exit_2_in_one_line(call: Call, arguments: list[str]) -> None:
    told = call("provider", "check", *arguments)
    assert told.code == 2
    assert told.err.count("\n") == 1
