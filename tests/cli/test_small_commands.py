"""client, addon and doctor, as they are called."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from replayproxy import client
from replayproxy.cli.main import run
from replayproxy.session.canary import Wanted
from replayproxy.session.diagnosis import Check, Diagnosis


def test_client_prints_the_file_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["client"]) == 0
    assert capsys.readouterr().out == Path(client.__file__).read_text()


def test_addon_prints_a_path_that_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["addon", "record"]) == 0
    path = Path(capsys.readouterr().out.strip())
    assert "standalone_record_addon" in path.read_text()
    assert len(path.read_text().splitlines()) <= 15


def test_an_unknown_addon_is_2_and_names_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["addon", "nonsense"]) == 2
    assert "there is record" in capsys.readouterr().err


def test_doctor_says_what_fails_and_what_can_be_shown(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["doctor", "--env", "app=http://127.0.0.1:1", "--clients", "none"]
    assert run(words) == 5
    out = capsys.readouterr().out
    assert out.startswith("FAIL  app at http://127.0.0.1:1 does not answer: connection refused")
    assert "With this wiring, once it is mended:\n      stale-read      from traffic only (no snapshot)\n" in out
    assert max(map(len, out.splitlines())) <= 100
    assert run([*words, "--json"]) == 5
    document = json.loads(capsys.readouterr().out)
    assert document["ok"] is False
    assert document["checks"][0]["level"] == "FAIL"


def test_doctor_says_that_what_cannot_be_read_is_not_counted(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--env", "app=http://127.0.0.1:1", "--snapshot", "app=sqlite:none.db", "--clients", "none"]
    assert run(["doctor", *words]) in (3, 5)
    out = capsys.readouterr().out
    assert "\nWith this wiring, once it is mended, but as if without what cannot be read (app):\n" in out


def test_the_command_that_doctor_ends_with_keeps_the_reset(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fine(options: object, asked: object) -> Diagnosis:
        return Diagnosis()

    monkeypatch.setattr("replayproxy.session.doctor.diagnose", fine)
    assert run(["doctor", "--env", "app=http://h:1", "--reset", "app=POST http://h:1/reset"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.endswith("--env app=http://h:1 --reset 'app=POST http://h:1/reset' --episode NAME -- COMMAND")


def test_doctor_ends_with_a_command_that_records_into_an_episode(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def fine(options: object, asked: object) -> Diagnosis:
        return Diagnosis()

    monkeypatch.setattr("replayproxy.session.doctor.diagnose", fine)
    assert run(["doctor", "--env", "app=http://h:1", "--snapshot", "app=sqlite:env.db"]) == 0
    told = "next: replayproxy record --env app=http://h:1 --snapshot app=sqlite:env.db --episode NAME -- COMMAND\n"
    assert capsys.readouterr().out.endswith(told)

    (tmp_path / "mine.toml").write_text('[env.app]\nurl = "http://h:1"\n')
    assert run(["doctor", "--config", str(tmp_path / "mine.toml")]) == 0
    out, err = capsys.readouterr()
    assert out.endswith("next: replayproxy record --episode NAME -- COMMAND\n")
    assert "mine.toml" in err


def test_doctor_breaks_long_lines_at_words_under_their_level(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def long(options: object, asked: Wanted) -> Diagnosis:
        assert asked.ways == {"curl": (("forward", "http"), ("forward", "https"))}
        assert asked.python == "py"
        text = "proxy variables: " + ", ".join(f"client-{n}/1.2.3" for n in range(12)) + ": would pass by -> trust_env"
        return Diagnosis(checks=[Check(level="FAIL", what="clients", text=text, exit=3)])

    monkeypatch.setattr("replayproxy.session.doctor.diagnose", long)
    assert run(["doctor", "--env", "app=http://h:1", "--clients", "curl:forward", "--python", "py"]) == 3
    first, second, third = capsys.readouterr().out.splitlines()[:3]
    assert first.startswith("FAIL  proxy variables: client-0/1.2.3, ")
    assert second.startswith("      client-")
    assert third.endswith("would pass by -> trust_env")
    assert max(map(len, (first, second, third))) <= 100


@pytest.mark.parametrize("there", [False, True])
def test_an_interpreter_that_is_none_is_refused_while_programs_are_asked(tmp_path: Path, there: bool) -> None:
    """The programs on PATH are asked at the same time; what is refused does not leave them half started."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("curl", "wget", "node", "mine"):
        (programs / name).write_text("#!/bin/sh\necho 1.2\n")
        (programs / name).chmod(0o755)
    named = str(programs / "mine") if there else str(tmp_path / "nowhere")
    told = subprocess.run(
        [sys.executable, "-m", "replayproxy", "doctor", "--env", "app=http://127.0.0.1:9", "--python", named],
        env={**os.environ, "PATH": f"{programs}:/bin"}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (told.returncode, told.stdout) == (2, "")
    assert told.stderr == f"replayproxy: --python {named}: it is no Python that runs -> the interpreter of the agent\n"


@pytest.mark.parametrize(
    "words",
    [
        (), ("--env", "app"), ("--env", "app=http://h", "--snapshot", "app=nonsense:x"),
        ("--env", "app=http://h", "--clients", "lynx"), ("--env", "app=http://h", "--clients", "curl:port"),
        ("--env", "app=http://h", "--clients", "requests", "--python", "/nowhere/python"),
    ],
)  # fmt: skip
def test_a_wrong_call_of_doctor_is_2(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", *words]) == 2
    assert capsys.readouterr().err.count("\n") == 1
