"""A terminal that is closed: `record` and `replay` end as at SIGTERM, and COMMAND with them."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.e2e.conftest import Lab

COMMAND = (
    "import os, signal, sys, time, urllib.request as u\n"
    "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    "u.urlopen(os.environ['REPLAYPROXY_URL_APP'] + '/counter').read()\n"
    "os.close(0); os.close(1); os.close(2)\n"  # so that nothing but a signal of ours ends it
    "open(sys.argv[1] + '.half', 'w').write(str(os.getpid())); os.rename(sys.argv[1] + '.half', sys.argv[1])\n"
    "while True: time.sleep(60)\n"
)


def hung_up(words: list[str], started: Path) -> tuple[int, int]:
    """(our exit code, COMMAND's process): the terminal is closed once COMMAND has asked."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests themselves may run under `nohup`
    command = [sys.executable, "-m", "replayproxy", *words, "--", sys.executable, "-c", COMMAND, str(started)]
    ours, theirs = pty.openpty()
    lead = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
    running = subprocess.Popen(
        [sys.executable, "-c", lead, *command], stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    try:
        until(started)
        os.close(ours)
        return running.wait(60), int(started.read_text())
    finally:
        running.kill()


def until(there: Path) -> None:
    deadline = time.monotonic() + 60
    while not there.exists():
        assert time.monotonic() < deadline, f"{there.name} never came"
        time.sleep(0.02)


def test_a_closed_terminal_seals_the_recording_and_ends_the_command(lab: Lab) -> None:
    summary = lab.path / "summary.json"
    record = ["record", "--store", str(lab.store), "--env", f"app={lab.toy()}", "--run", "a", "--episode", "e"]
    code, agent = hung_up([*record, "--summary", str(summary)], lab.path / "recorded")
    said = json.loads(summary.read_text())
    assert (code, said["exit"], said["recording"]["whole"]) == (128 + signal.SIGTERM, code, True)
    assert lab.run("show", "a/e", "--json").json["state"] == "sealed"
    with pytest.raises(ProcessLookupError):
        os.kill(agent, 0)

    code, agent = hung_up(
        ["replay", "--store", str(lab.store), "a", "--summary", str(summary)], lab.path / "replayed"
    )  # fmt: skip
    said = json.loads(summary.read_text())
    assert (code, said["exit"], said["receipt"]["reproduced"]) == (0, 0, True)
    with pytest.raises(ProcessLookupError):
        os.kill(agent, 0)
