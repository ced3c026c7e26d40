"""Every exit code, and one clear line on stderr for everything that a user can get wrong."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Lab, free_port

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

ONE = [
    sys.executable,
    "-c",
    "import os, urllib.request as u; u.urlopen(os.environ['REPLAYPROXY_URL_APP'] + '/counter')",
]
OTHER = [
    sys.executable,
    "-c",
    (
        "import os, urllib.request as u, urllib.error as e\n"
        "try: u.urlopen(os.environ['REPLAYPROXY_URL_APP'] + '/other')\n"
        "except e.HTTPError: pass"
    ),
]
NONE = [sys.executable, "-c", "pass"]


def one_line(err: str) -> bool:
    """Whether an error is told in one line that begins with our name."""
    return sum(line.startswith("replayproxy:") for line in err.splitlines()) == 1


WRONG_RECORDS = {
    "no environment": [],
    "no URL": ["--env", "app"],
    "bad environment name": ["--env", "2app=http://127.0.0.1:1"],
    "two names, one variable": ["--env", "a-b=http://127.0.0.1:1", "--env", "a_b=http://127.0.0.1:1"],
    "bad scheme": ["--env", "app=ftp://127.0.0.1:1"],
    "bad run name": ["--env", "app=http://127.0.0.1:1", "--run", "a/b"],
    "reserved run name": ["--env", "app=http://127.0.0.1:1", "--run", "latest"],
    "bad episode name": ["--env", "app=http://127.0.0.1:1", "--episode", "a b"],
    "bad snapshot spec": ["--env", "app=http://127.0.0.1:1", "--snapshot", "app=nonsense:x"],
    "snapshot of no file": ["--env", "app=http://127.0.0.1:1", "--snapshot", "app=sqlite:"],
    "bad snapshot mode": ["--env", "app=http://127.0.0.1:1", "--snapshot-mode", "hold:soon"],
    "bad reset": ["--env", "app=http://127.0.0.1:1", "--reset", "app=nonsense"],
    "reset of nobody": ["--env", "app=http://127.0.0.1:1", "--reset", "crm=POST http://127.0.0.1:1/r"],
    "bad meta": ["--env", "app=http://127.0.0.1:1", "--meta", "novalue"],
    "config not there": ["--env", "app=http://127.0.0.1:1", "--config", "not-there.toml"],
    "unknown option": ["--env", "app=http://127.0.0.1:1", "--nonsense"],
}


@pytest.mark.parametrize("words", WRONG_RECORDS.values(), ids=WRONG_RECORDS.keys())
def test_a_wrong_call_of_record_is_2_and_makes_nothing(lab: Lab, words: list[str]) -> None:
    ran = lab.run("record", *words, "--", *NONE)
    assert ran.code == 2, ran.err
    assert one_line(ran.err), ran.err
    assert not (lab.store / "data.mdb").exists()


@pytest.mark.parametrize(
    "words",
    [("replay", "nope/e"), ("redrive", "nope/e"), ("diff", "nope/a", "nope/b"), ("check", "nope"), ("ls", "nope"),
     ("show", "nope/e"), ("show", "F9"), ("replay", "a/b/c/d")],
    ids=" ".join,
)  # fmt: skip
def test_an_unknown_address_is_2(lab: Lab, words: tuple[str, ...]) -> None:
    url = lab.toy()
    assert lab.run("record", "--env", f"app={url}", "--run", "r", "--episode", "e", "--", *ONE).code == 0
    ran = lab.run(*words)
    assert ran.code == 2, ran.err
    assert one_line(ran.err), ran.err


def test_a_store_that_is_not_there_is_2(lab: Lab) -> None:
    for words in (("ls",), ("replay", "r/e"), ("check", "r"), ("fsck",)):
        ran = lab.run(*words)
        assert ran.code == 2, (words, ran.err)
        assert one_line(ran.err), ran.err
    assert not lab.store.exists()


def test_with_json_an_error_is_one_document_on_stdout(lab: Lab) -> None:
    ran = lab.run("ls", "nope", "--json")
    assert ran.code == 2
    assert ran.json["title"]
    assert ran.json["detail"]


def test_a_replay_is_0_then_1_for_a_miss_and_3_when_nothing_was_served(lab: Lab) -> None:
    url = lab.toy()
    assert lab.run("record", "--env", f"app={url}", "--run", "r", "--episode", "e", "--", *ONE).code == 0
    assert lab.run("replay", "r/e", "--", *ONE).code == 0
    assert lab.run("replay", "r/e", "--", *OTHER).code == 1
    assert lab.run("replay", "r/e", "--", *NONE).code == 3


def test_a_recording_without_an_exchange_is_3(lab: Lab) -> None:
    url = lab.toy()
    ran = lab.run("record", "--env", f"app={url}", "--run", "r", "--episode", "e", "--json", "--", *NONE)
    assert ran.code == 3, ran.err
    assert ran.json["exchanges"] == 0


def test_a_run_that_is_there_is_2_unless_appended_to(lab: Lab) -> None:
    url = lab.toy()
    words = ("record", "--env", f"app={url}", "--run", "r")
    assert lab.run(*words, "--episode", "e1", "--", *ONE).code == 0
    again = lab.run(*words, "--episode", "e2", "--", *ONE)
    assert again.code == 2
    assert "--append" in again.err
    assert lab.run(*words, "--append", "--episode", "e2", "--", *ONE).code == 0
    assert [row["episode"] for row in lab.run("ls", "r", "--json").json["episodes"]] == ["e1", "e2"]


def test_an_environment_that_cannot_be_reached_is_5(lab: Lab) -> None:
    ran = lab.run("record", "--env", f"app=http://127.0.0.1:{free_port()}", "--", *NONE)
    assert ran.code == 5, ran.err
    assert one_line(ran.err), ran.err


def test_a_taken_port_is_5(lab: Lab) -> None:
    url = lab.toy()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = lab.run("record", "--env", f"app={url},listen={port}", "--episode", "e", "--", *NONE)
    assert ran.code == 5, ran.err
    assert one_line(ran.err), ran.err
    assert str(port) in ran.err


def test_a_childs_exit_code_passes_through(lab: Lab) -> None:
    url = lab.toy()
    fails = [sys.executable, "-c", ("import os, urllib.request as u, sys\n"
             "u.urlopen(os.environ['REPLAYPROXY_URL_APP'] + '/counter'); sys.exit(7)")]  # fmt: skip
    killed = [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]
    words = ("record", "--env", f"app={url}", "--episode", "e")
    assert lab.run(*words, "--run", "r1", "--", *fails).code == 7
    assert lab.run(*words, "--run", "r2", "--", *killed).code == 128 + 9
    assert lab.run(*words, "--run", "r3", "--", "no-such-program-anywhere").code == 127
    plain = lab.path / "not-executable"
    plain.write_text("text")
    assert lab.run(*words, "--run", "r4", "--", str(plain)).code == 126
    assert lab.run("replay", "r1/e", "--", *fails).code == 7


def test_a_second_recorder_on_one_store_is_4(lab: Lab) -> None:
    url = lab.toy()
    ready = lab.path / "ready.json"
    first = subprocess.Popen(
        [sys.executable, "-m", "replayproxy", "record", "--store", str(lab.store), "--env", f"app={url}", "--run", "a",
         "--ready-file", str(ready)],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        wait_for(ready)
        second = lab.run("record", "--env", f"app={url}", "--run", "b", "--", *NONE)
        assert second.code == 4, second.err
        assert one_line(second.err), second.err
        assert str(first.pid) in second.err
    finally:
        first.send_signal(signal.SIGINT)
        _, err = first.communicate(timeout=20)
    assert "Traceback" not in err


def test_a_second_signal_is_130_with_its_document_and_its_summary_and_without_a_traceback(lab: Lab) -> None:
    url = lab.toy()
    ready, summary = lab.path / "ready.json", lab.path / "summary.json"
    recorder = subprocess.Popen(
        [sys.executable, "-m", "replayproxy", "record", "--store", str(lab.store), "--env", f"app={url}", "--run", "a",
         "--episode", "e", "--ready-file", str(ready), "--summary", str(summary), "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    host, _, port = wait_for(ready)["envs"]["app"].removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port))) as agent:  # half a request: the first signal gives it time
        agent.sendall(b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nabc")
        time.sleep(0.3)
        recorder.send_signal(signal.SIGINT)
        time.sleep(0.3)
        recorder.send_signal(signal.SIGINT)
        out, err = recorder.communicate(timeout=20)
    assert recorder.returncode == 130
    assert (json.loads(out)["exit"], json.loads(summary.read_text())["exit"]) == (130, 130)
    assert "Traceback" not in err
    assert one_line(err)


@pytest.mark.parametrize(("number", "times"), [(signal.SIGINT, 1), (signal.SIGTERM, 1), (signal.SIGTERM, 2)])
def test_a_signal_seals_and_the_code_tells_the_outcome(lab: Lab, number: signal.Signals, times: int) -> None:
    """Also where it comes twice at once: `timeout` signals the process, and then its group."""
    url = lab.toy()
    ready, summary = lab.path / "ready.json", lab.path / "summary.json"
    recorder = subprocess.Popen(
        [sys.executable, "-m", "replayproxy", "record", "--store", str(lab.store), "--env", f"app={url}", "--run", "a",
         "--episode", "e", "--ready-file", str(ready), "--summary", str(summary)],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    told = wait_for(ready)
    assert told["pid"] == recorder.pid
    assert (ready.stat().st_mode & 0o777) == 0o600
    subprocess.run(ONE, env={**os.environ, "REPLAYPROXY_URL_APP": told["envs"]["app"]}, check=True)
    began = time.monotonic()
    for _ in range(times):
        recorder.send_signal(number)
        time.sleep(0.01)
    _, err = recorder.communicate(timeout=20)
    assert time.monotonic() - began < 8
    assert recorder.returncode == 0, err
    said = json.loads(summary.read_text())
    assert said["exit"] == 0
    assert said["recording"]["exchanges"] == 1
    assert lab.run("show", "a/e", "--json").json["state"] == "sealed"


def test_a_killed_recorder_leaves_an_incomplete_episode_that_can_be_looked_at_and_not_judged(lab: Lab) -> None:
    url = lab.toy()
    ready = lab.path / "ready.json"
    recorder = subprocess.Popen(
        [sys.executable, "-m", "replayproxy", "record", "--store", str(lab.store), "--env", f"app={url}", "--run", "a",
         "--episode", "e", "--ready-file", str(ready)],
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    told = wait_for(ready)
    subprocess.run(ONE, env={**os.environ, "REPLAYPROXY_URL_APP": told["envs"]["app"]}, check=True)
    time.sleep(0.3)  # an exchange is durable within 100 ms of its end
    recorder.kill()
    recorder.wait(10)
    shown = lab.run("show", "a/e", "--json")
    assert shown.code == 0
    assert shown.json["state"] == "incomplete"
    assert len(shown.json["exchanges"]) == 1
    assert lab.run("ls", "a").code == 0
    assert lab.run("fsck").code == 0
    for words in (("replay", "a/e", "--", *ONE), ("redrive", "a/e", "--env", f"app={url}"), ("diff", "a/e", "a/e"),
                  ("check", "a")):  # fmt: skip
        ran = lab.run(*words)
        assert ran.code == 3, (words, ran.err)
    # The dead recorder's lock stands in nobody's way.
    assert lab.run("record", "--env", f"app={url}", "--run", "b", "--episode", "e", "--", *ONE).code == 0


def test_damage_is_4(lab: Lab) -> None:
    url = lab.toy()
    assert lab.run("record", "--env", f"app={url}", "--run", "r", "--episode", "e", "--", *ONE).code == 0
    data = lab.store / "data.mdb"
    size = data.stat().st_size
    with data.open("r+b") as out:
        out.truncate(size // 8192 * 4096)  # pages that are used: the last one alone may be one that nothing needs
    for words in (("ls",), ("fsck",), ("replay", "r/e")):
        ran = lab.run(*words)
        assert ran.code == 4, (words, ran.err)


def wait_for(ready: Path) -> Any:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if ready.exists():
            return json.loads(ready.read_text())
        time.sleep(0.05)
    raise AssertionError("the recorder never got ready")
