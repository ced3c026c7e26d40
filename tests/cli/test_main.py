"""How an error becomes an exit code, and what is said about it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest

from replayproxy.cli import main as cli_main
from replayproxy.cli.main import COMMANDS, run
from replayproxy.errors import (
    CannotJudge,
    DamagedRecord,
    Exit,
    Problem,
    StoreTrouble,
    UnknownAddress,
    WorldTrouble,
    WrongUsage,
    worst,
)

ROOT = Path(__file__).parents[2]


@pytest.fixture
def raising(monkeypatch: pytest.MonkeyPatch):
    """A command `boom` that raises what it is given."""

    def put(error: BaseException) -> None:
        @click.command()
        @click.option("--json", "as_json", is_flag=True)
        def boom(as_json: bool) -> None:
            raise error

        monkeypatch.setattr(cli_main.cli, "get_command", lambda ctx, name: boom)

    return put


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (WrongUsage("w"), 2), (UnknownAddress("u"), 2), (CannotJudge("c"), 3), (StoreTrouble("s"), 4),
        (DamagedRecord("d"), 4), (WorldTrouble("o"), 5), (Problem("p"), 70), (RuntimeError("ours"), 70),
        (KeyboardInterrupt(), 130),
    ],
)  # fmt: skip
def test_every_error_has_its_exit_code(
    raising, capsys: pytest.CaptureFixture[str], error: BaseException, code: int
) -> None:
    raising(error)
    assert run(["boom"]) == code
    told = capsys.readouterr()
    assert told.out == ""
    assert "Traceback" not in told.err


@pytest.mark.parametrize("words", [["record", "--env", "app=http://127.0.0.1:9", "--", "true"], ["check", "r"]])
def test_a_current_directory_that_is_gone_is_one_line_and_exit_2(tmp_path: Path, words: list[str]) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    leave = "import os, sys; os.rmdir(os.getcwd()); from replayproxy.__main__ import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", leave, *words], cwd=gone, capture_output=True, text=True, check=False
    )  # fmt: skip
    told = "replayproxy: the current directory has been removed -> cd to one that is there\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", told)


def entry(tmp_path: Path, *words: str, as_module: bool) -> subprocess.CompletedProcess[str]:
    """The program, interrupted while it imports click."""
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt")
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, name = scripts["replayproxy"].partition(":")
    how = ["-m", "replayproxy"] if as_module else ["-c", f"from {module} import {name}; {name}()"]
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    return subprocess.run([sys.executable, *how, *words], capture_output=True, text=True, env=environ, check=False)


@pytest.mark.parametrize("as_module", [True, False])
@pytest.mark.parametrize("as_json", [True, False])
def test_an_interrupt_while_modules_are_imported_is_told_as_any_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], as_module: bool, as_json: bool
) -> None:
    assert cli_main.interrupted(as_json) == 130
    told = capsys.readouterr()
    done = entry(tmp_path, "ls", *["--json"] * as_json, "--", "--json", as_module=as_module)
    assert (done.returncode, done.stdout, done.stderr) == (130, told.out, told.err)


TWICE = """
import os, signal, sys, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
import click, replayproxy.cli.main as m

@click.command()
def boom():
    try:
        exec("os.kill(os.getpid(), signal.SIGINT); time.sleep(600)")
    finally:
        told, m._tell = m._tell, lambda *a: (told(*a), os.kill(os.getpid(), signal.SIGINT))[0]

m.cli.get_command = lambda ctx, name: boom
"""
"""A command that is interrupted while a text is executed, and when that has been told, with a thread that stays."""


@pytest.mark.parametrize("how", ["from replayproxy.__main__ import main; main()", "m.main()"])
def test_an_interrupt_ends_with_130_and_not_by_the_signal_whatever_else_comes(tmp_path: Path, how: str) -> None:
    (tmp_path / "twice.py").write_text(f"{TWICE}{how}\n")
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "twice", "boom"], env=environ, capture_output=True, text=True, timeout=60, check=False
    )  # fmt: skip
    told = "replayproxy: interrupted: nothing more was waited for\n"
    assert (done.returncode, done.stdout, done.stderr.lstrip()) == (130, "", told)


def test_nothing_is_imported_before_an_interrupt_is_caught() -> None:
    """What Python has not imported when it starts, and the entry point does not either."""
    watch = (
        "import sys; before = set(sys.modules); import replayproxy.__main__; print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-S", "-c", watch], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == ["__future__", "replayproxy", "replayproxy.__main__"]


def test_our_own_fault_leaves_a_report(raising, capsys: pytest.CaptureFixture[str]) -> None:
    raising(RuntimeError("the reason"))
    assert run(["boom"]) == Exit.OURS
    line = capsys.readouterr().err.strip()
    report = Path(line.rsplit(" ", 1)[1])
    assert "the reason" in line
    assert "RuntimeError: the reason" in report.read_text()
    report.unlink()


def test_a_problem_is_one_line_with_what_to_do(raising, capsys: pytest.CaptureFixture[str]) -> None:
    raising(WrongUsage("what\nis wrong", hint="do this"))
    assert run(["boom"]) == 2
    assert capsys.readouterr().err == "replayproxy: what is wrong -> do this\n"


def test_with_json_it_is_also_one_document(raising, capsys: pytest.CaptureFixture[str]) -> None:
    raising(WorldTrouble("down", hint="start it"))
    assert run(["boom", "--json"], as_json=True) == 5
    document = json.loads(capsys.readouterr().out)
    assert (document["title"], document["detail"], document["exit"]) == ("trouble with the world", "down", 5)


@pytest.mark.parametrize(
    ("codes", "code"),
    [((0, 1, 3), 3), ((1, 5, 3), 5), ((5, 4), 4), ((4, 70), 70), ((0, 0), 0), ((), 0), ((1, 0), 1), ((0, 7), 7)],
)
def test_where_several_codes_apply_the_strongest_wins(codes: tuple[int, ...], code: int) -> None:
    assert worst(*codes) == code


def test_an_unknown_command_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["nonsense"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(("words", "named"), [((), "record"), (("provider",), "check")])
def test_a_call_without_a_command_is_2_and_shows_the_help_as_it_is(
    words: tuple[str, ...], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*words, "--help"]) == 0
    help_page = capsys.readouterr().out
    assert f"\n  {named} " in help_page
    assert run([*words]) == 2
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", help_page)


def test_a_wrong_call_names_the_help_of_its_own_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diff", "only-one"]) == 2
    assert capsys.readouterr().err.rstrip().endswith("-> replayproxy diff --help")


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([name, "--help"]) == 0
    assert len(capsys.readouterr().out) > 100
