"""`command:` snapshots: programs of this test's own, run with and without a shell."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any, cast

import pytest

from replayproxy.errors import WrongUsage
from replayproxy.state import CannotRestore, KeepsAside, Provider, RestoreFailed, StateUnreadable
from replayproxy.state.conformance import conform
from replayproxy.state.loader import load

DEALS = b'{"deals": {"2": {"title": "b", "amount": 1.50}, "10": {"title": "a", "amount": 7}}, "notes": {}}'
PUT = "import sys; open(sys.argv[1], 'wb').write(sys.stdin.buffer.read())"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    (tmp_path / "put.py").write_text(PUT)
    path = tmp_path / "state of it.json"
    path.write_bytes(DEALS)
    return path


def put(state: Path) -> str:
    return f"{sys.executable} {state.parent / 'put.py'} '{state}'"


def provider(spec: str, **context: str) -> Provider:
    return load("crm", f"command:{spec}", context=context).provider


def test_it_meets_the_contract(state: Path) -> None:
    checks = conform(
        lambda: provider(f"cat '{state}',restore={put(state)}"),
        write=True,
        change=lambda: cast("None", state.write_bytes(DEALS.replace(b'"b"', b'"c"'))),
        broken=lambda: provider("cat /nowhere/at/all"),
    )
    assert [check for check in checks if check.outcome != "ok"] == []


def test_a_restore_gives_back_the_bytes_that_were_printed(state: Path) -> None:
    one = provider(f"cat '{state}',restore={put(state)}")
    reading = one.capture()
    state.write_bytes(b"{}")
    cast("KeepsAside", one).restore_whole(cast("Any", reading.rows), cast("Any", reading.aside))
    assert state.read_bytes() == DEALS


def test_anything_but_tables_is_one_document(tmp_path: Path) -> None:
    assert provider("echo '[1, 2.50]'").capture().rows == {"document": {"": [1, pytest.approx(2.5)]}}


def test_without_a_command_for_it_there_is_no_restore() -> None:
    one = provider("echo {}".replace("{}", "'{}'"))
    assert not one.can_restore
    with pytest.raises(CannotRestore, match="no command restores"):
        one.restore({})


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("echo never >&2; echo 'no such base' >&2; exit 3", "command sh ended with exit code 3: no such base"),
        ("echo 'at http://me:hidden@h/' >&2; exit 1", "http://me:.*@h/"),
        ("echo '{\"a\": 1'", "not JSON"),
        ("echo null", "null"),
        ("true", "not JSON"),
        ("kill -9 $$", "ended by signal 9"),
    ],
)
def test_what_is_no_state_is_never_an_empty_one(line: str, words: str, tmp_path: Path) -> None:
    script = tmp_path / "sh"
    script.write_text(line)
    with pytest.raises(StateUnreadable, match=words) as caught:
        provider(f"sh {script}").capture()
    assert "hidden" not in str(caught.value)


def test_a_program_that_is_not_there_is_named() -> None:
    with pytest.raises(StateUnreadable, match="command no-such-program-here cannot be run: No such file"):
        provider("no-such-program-here --x").capture()


def test_one_that_does_not_end_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    script = tmp_path / "slow.sh"
    script.write_text(f"(sleep 2; touch {mark}) & sleep 100")
    with pytest.raises(StateUnreadable, match=r"did not end in 0.2 s"):
        provider(f"sh {script},timeout=0.2").capture()
    time.sleep(2.2)
    assert not mark.exists()


def test_a_restore_that_fails_says_why(tmp_path: Path) -> None:
    script = tmp_path / "no.sh"
    script.write_text("cat > /dev/null; echo 'the base is in use' >&2; exit 2")
    one = provider(f"echo '{{\"t\": {{}}}}',restore=sh {script}")
    with pytest.raises(RestoreFailed, match="exit code 2: the base is in use"):
        one.restore({"t": {}})


NASTY = "a b'\"; touch pwned #$(touch pwned)`touch pwned`"


@pytest.mark.parametrize(
    ("line", "more"),
    [
        ("python -c 'import json, sys; print(json.dumps(sys.argv[1:]))' {task} x{task}", ""),
        ("python -c 'import json, sys; print(json.dumps(sys.argv[1:]))' {task} x{task}", ",shell=yes"),
        ('python -c \'import json, sys; print(json.dumps(sys.argv[1:]))\' "{task}" "x{task}"', ",shell=yes"),
        ('python -c \'import json, sys; print(json.dumps(["{task}", "x{task}"]))\'', ",shell=yes"),
        ("python -c 'import json, sys; print(json.dumps(sys.argv[1:]))' env:NASTY xenv:NASTY", "no"),
    ],
)
def test_a_value_never_becomes_a_word_or_a_command(
    line: str, more: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NASTY", NASTY)
    if more == "no":
        line, more = line.replace("xenv:NASTY", "x:env:NASTY"), ""
    one = provider(line.replace("python", sys.executable, 1) + more, task=NASTY)
    try:
        rows = one.capture().rows
        assert rows == {"document": {"": [NASTY, rows["document"][""][1]]}}  # type: ignore[index]
        assert rows["document"][""][1] in (f"x{NASTY}", f"x:{NASTY}")  # type: ignore[index]
    except StateUnreadable:
        pass  # in a program's own text a value may be a mistake, and is never run
    assert not Path("pwned").exists()


def test_what_would_make_a_value_part_of_a_program_is_refused() -> None:
    with pytest.raises(WrongUsage, match="after -c"):
        load("crm", "command:sh -c 'cat {episode}.json'")
    one = load("crm", "command:cat {episode}").bind({"episode": "--help"})
    with pytest.raises(StateUnreadable, match="would be an option"):
        _ = one.provider
    assert provider("cat {episode}.json", episode="e1").scope == "episode"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("cat 'x", "cannot be split"),
        (" ", "no command"),
        ("cat x,timeout=soon", "number of seconds"),
        ("cat x,timeout=nan", "number of seconds"),
        ("cat x,shell=maybe", "yes or no"),
        ("cat env:NOT_SET_HERE", "not set"),
    ],
)
def test_a_bad_spec_is_refused_in_one_line(spec: str, words: str) -> None:
    with pytest.raises(WrongUsage, match=words) as caught:
        load("crm", f"command:{spec}")
    assert "\n" not in str(caught.value)
