from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from replayproxy.session import child
from replayproxy.session.child import NotStarted, filled, variables

URLS = {"crm": "http://127.0.0.1:8101/api", "my-cal": "https://h", "v6": "http://[::1]:9"}


def test_the_variables_are_upper_case_and_only_those_that_are_known() -> None:
    found = variables(control="http://c", run="r", token=None, urls=URLS, own={"crm": "CRM_URL", "v6": None})
    assert found == {
        "REPLAYPROXY_CONTROL": "http://c",
        "REPLAYPROXY_RUN": "r",
        "REPLAYPROXY_URL_CRM": "http://127.0.0.1:8101/api",
        "CRM_URL": "http://127.0.0.1:8101/api",
        "REPLAYPROXY_URL_MY_CAL": "https://h",
        "REPLAYPROXY_URL_V6": "http://[::1]:9",
    }


def test_placeholders_are_filled_in_and_other_braces_stay() -> None:
    command = [
        "agent",
        "--url={crm}/x",
        "{crm.host}:{crm.port}",
        "{my-cal.port}",
        "{v6.host}",
        "{other}",
        '{"a": 1}',
        "{}",
    ]
    assert filled(command, URLS) == [
        "agent", "--url=http://127.0.0.1:8101/api/x", "127.0.0.1:8101", "443", "::1", "{other}", '{"a": 1}', "{}",
    ]  # fmt: skip


async def run(*command: str, **environ: str) -> int:
    started = await child.start(command, environ, stdout_to_stderr=False)
    return await started.wait()


async def test_the_exit_code_and_the_variables_pass() -> None:
    assert await run("/bin/sh", "-c", "exit $CODE", CODE="7") == 7


async def test_a_child_killed_by_a_signal_is_128_plus_its_number() -> None:
    assert await run("/bin/sh", "-c", "kill -TERM $$") == 128 + signal.SIGTERM


async def test_a_command_that_is_not_there_is_127() -> None:
    with pytest.raises(NotStarted, match="command not found") as wrong:
        await run("/nowhere/agent")
    assert wrong.value.code == 127


async def test_a_command_that_is_not_executable_is_126(tmp_path: Path) -> None:
    plain = tmp_path / "agent"
    plain.write_text("x")
    with pytest.raises(NotStarted, match="not executable") as wrong:
        await run(str(plain))
    assert wrong.value.code == 126
    plain.chmod(0o755)
    with pytest.raises(NotStarted) as wrong:
        await run(str(plain))
    assert wrong.value.code == 126


async def test_what_else_keeps_it_from_starting_is_125() -> None:
    with pytest.raises(NotStarted) as wrong:
        await run("/bin/true", "a\0b")
    assert wrong.value.code == 125


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
async def test_a_child_that_ignores_signals_is_killed_in_the_end(sent: int) -> None:
    code = "import signal,sys,time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(60)"
    started = await child.start([sys.executable, "-c", code], {}, stdout_to_stderr=True)
    await started.stop(sent, 0.4)
    assert started.code in (128 + signal.SIGKILL, 128 + signal.SIGTERM)


async def test_a_child_that_has_ended_needs_no_stopping() -> None:
    started = await child.start(["/bin/true"], {}, stdout_to_stderr=False)
    assert await started.wait() == 0
    await started.stop(signal.SIGTERM, 0.1)
    assert started.code == 0
