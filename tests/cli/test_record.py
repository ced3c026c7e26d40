from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from replayproxy.cli import record as module
from replayproxy.cli.main import run
from replayproxy.errors import WorldTrouble
from replayproxy.session.record_options import RecordOptions

ENV = ("--env", "app=http://127.0.0.1:1")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("REPLAYPROXY_STORE", "REPLAYPROXY_CONFIG", "REPLAYPROXY_TOKEN"):
        monkeypatch.delenv(name, raising=False)


def parsed(*words: str, monkeypatch: pytest.MonkeyPatch) -> tuple[RecordOptions, tuple[str, ...]]:
    """What a call comes to, without recording."""
    seen: list[tuple[RecordOptions, tuple[str, ...]]] = []

    def catch(options: RecordOptions, command: tuple[str, ...], as_json: bool) -> None:
        seen.append((options, command))

    monkeypatch.setattr(module, "_run", catch)
    assert run(["record", *words]) == 130
    return seen[0]


def test_what_follows_the_double_dash_is_the_command_with_all_its_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    _, command = parsed(*ENV, "--", "agent", "--env", "x", "--json", "-h", monkeypatch=monkeypatch)
    assert command == ("agent", "--env", "x", "--json", "-h")


def test_the_store_is_the_flag_s_then_the_variable_s_then_the_file_s(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parsed(*ENV, monkeypatch=monkeypatch)[0].store == Path(".replayproxy")
    Path("replayproxy.toml").write_text('store = "file"')
    assert parsed(*ENV, monkeypatch=monkeypatch)[0].store == Path("file")
    monkeypatch.setenv("REPLAYPROXY_STORE", "variable")
    assert parsed(*ENV, monkeypatch=monkeypatch)[0].store == Path("variable")
    assert parsed(*ENV, "--store", "flag", monkeypatch=monkeypatch)[0].store == Path("flag")


@pytest.mark.parametrize(
    "words",
    [
        (), ("--env", "app"), (*ENV, "--run", "a/b"), (*ENV, "--episode", ".."), (*ENV, "--workers", "0"),
        (*ENV, "--workers", "x"), (*ENV, "--forward", "x"), (*ENV, "--pass", "h"), (*ENV, "--nonsense"),
        (*ENV, "--config", "none.toml"), (*ENV, "--summary", "/nowhere/x"), (*ENV, "--store", "a", "--store", "b"),
    ],
    ids=lambda words: " ".join(words) or "nothing",
)  # fmt: skip
def test_a_wrong_call_is_2_with_one_line_and_makes_no_store(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["record", *words, "--", "true"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("replayproxy: ")
    assert err.count("\n") == 1
    assert not Path(".replayproxy").exists()


def test_a_port_as_the_host_of_the_file_is_a_wrong_call_too(capsys: pytest.CaptureFixture[str]) -> None:
    Path("replayproxy.toml").write_text("listen = 8101")
    assert run(["record", *ENV, "--", "true"]) == 2
    assert "a port goes into --env NAME=URL,listen=" in capsys.readouterr().err


def test_an_error_is_the_one_json_document_and_in_the_summary(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unreachable(*_: object) -> None:
        raise WorldTrouble("environment app cannot be reached", hint="start it first")

    monkeypatch.setattr(module, "_run", unreachable)
    assert run(["record", *ENV, "--summary", "sum.json", "--json"], as_json=True) == 5
    told = json.loads(capsys.readouterr().out)
    assert (told["exit"], told["title"], told["hint"]) == (5, "trouble with the world", "start it first")
    summary = json.loads(Path("sum.json").read_text())
    assert (summary["command_exit"], summary["exit"]) == (None, 5)
    assert summary["recording"]["exchanges"] == 0
    assert "cannot be reached" in summary["error"]


def test_a_second_interrupt_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_run", lambda *_: None)
    assert run(["record", *ENV]) == 130


@pytest.mark.e2e
def test_with_json_stdout_is_one_document_and_the_child_speaks_on_stderr(tmp_path: Path) -> None:
    server = (
        "import http.server, sys, threading, os, subprocess\n"
        "s = http.server.HTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler)\n"
        "threading.Thread(target=s.serve_forever, daemon=True).start()\n"
        "agent = \"import os, urllib.request as u; u.urlopen(os.environ['REPLAYPROXY_URL_APP']); print('speaks')\"\n"
        "sys.exit(subprocess.call([sys.executable, '-m', 'replayproxy', 'record', '--env',"
        " f'app=http://127.0.0.1:{s.server_port}', '--episode', 'e', '--run', 'r', '--json', '--summary', 'sum.json',"
        " '--', sys.executable, '-c', agent]))\n"
    )
    ran = subprocess.run([sys.executable, "-c", server], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    document = json.loads(ran.stdout)
    assert (document["runs"], document["episodes"], document["exchanges"]) == (["r"], 1, 1)
    assert "speaks" in ran.stderr
    assert "recorded r: WHOLE" in ran.stderr
    summary = json.loads((tmp_path / "sum.json").read_text())
    assert (summary["command_exit"], summary["exit"], summary["recording"]) == (0, 0, document)
