"""The proposed commands run as they stand."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from replayproxy.cli.difftext import folds_of
from replayproxy.cli.hints import runnable
from replayproxy.cli.replay_text import receipt_lines
from replayproxy.core.comparison import Fold
from replayproxy.core.receipt import episode_receipt
from replayproxy.core.replayer import Replayer, Serve
from replayproxy.core.scriptbuild import build
from tests.cli.conftest import Call
from tests.serve.talks import agent, talk


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("exit 1     explain: replayproxy show r/e/2", "exit 1     explain: replayproxy show f.replay/r/e/2"),
        ("next: replayproxy show 'r/e#1'   --state", "next: replayproxy show 'f.replay/r/e#1'   --state"),
        (
            "next: replayproxy redrive r/e --env NAME=URL",
            "next: replayproxy import f.replay && replayproxy redrive r/e --env NAME=URL",
        ),
        (
            "replayproxy reproduce race-01 --env app=URL   replayproxy mask r",
            "replayproxy import f.replay && replayproxy reproduce race-01 --env app=URL   replayproxy mask f.replay/r",
        ),
        ("next: replayproxy reproduce F1 --env NAME=URL", "next: replayproxy import f.replay"),
        ("next    replayproxy check r", "next    replayproxy check f.replay/r"),
        ("next    replayproxy check runner", "next    replayproxy check runner"),
    ],
)
def test_a_run_of_an_archive_is_named_with_its_file(line: str, told: str) -> None:
    assert runnable(line, archives={"r": "f.replay"}) == told
    assert runnable(line, archives={"r": ""}) == line


def test_the_store_that_was_given_is_given_again() -> None:
    line = runnable("next     replayproxy show a/b/1   replayproxy diff a/b c/d", [Path("my store")])
    assert line == "next     replayproxy show --store 'my store' a/b/1   replayproxy diff --store 'my store' a/b c/d"


def _proposed(text: str) -> list[str]:
    """The arguments of the last proposed command."""
    return shlex.split(text.rstrip().rpartition("replayproxy ")[2].partition("   ")[0])


def test_what_show_and_diff_of_an_archive_propose_can_be_run(
    call: Call, recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("export", "nightly", "--format", "archive", "--out", "n.replay").code == 0
    monkeypatch.setenv("REPLAYPROXY_STORE", str(tmp_path / "nothing"))
    assert "replayproxy show 'n.replay/nightly/b#1'" in call("show", "n.replay/b").text
    assert "replayproxy diff n.replay/nightly OTHER" in call("check", "n.replay").text
    for words in (["show", "n.replay"], ["diff", "n.replay/a", "n.replay/nightly/b"]):
        told = call(*words)
        proposed = [word.replace("EPISODE", "b") for word in _proposed(told.text)]
        assert any(word.startswith("n.replay") for word in proposed), told.text
        assert call(*proposed).code in (0, 1, 3), proposed
    assert call("diff", "n.replay/a", "n.replay/b").text.startswith("n.replay/nightly/a..n.replay/nightly/b: ")
    refused = call("redrive", "n.replay/a", "--store", str(recorded), "--env", "crm=http://127.0.0.1:1")
    assert (refused.code, "-> replayproxy import n.replay" in refused.err) == (2, True)


def test_the_store_of_show_is_in_what_it_proposes(
    call: Call, recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPLAYPROXY_STORE", str(tmp_path / "nothing"))
    for words in (["show", "nightly/b"], ["ls", "nightly"], ["check", "nightly/b"]):
        told = call(*words, "--store", str(recorded))
        assert f" --store {recorded}" in told.text.splitlines()[-1], told.text


def test_a_conversation_is_not_proposed_for_a_redrive() -> None:
    player = Replayer(build([talk(agent("a"), seq=1)], run="r", episode="e"))
    serve = player.ask(player.script.identify("app", player.script.entries[0].exchange.request), "main")
    assert isinstance(serve, Serve)
    player.conversed(serve, exact=True)
    receipt = episode_receipt(player)
    assert receipt["reproduced"] is True
    assert receipt_lines(receipt, 0)[-1] == "exit 0     next: replayproxy check r"


def test_what_is_folded_under_a_root_is_counted_by_request() -> None:
    places = [Fold(template="GET /a", pointer=f"body/{n}", count=2, a=1, b=1, by="value") for n in range(3)]
    assert folds_of(places) == ["6 x GET /a"]
