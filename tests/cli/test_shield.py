"""In processes of their own: the signals would end the tests."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from replayproxy.storage import open_store

READ = """
import ctypes, os, sys
from pathlib import Path
from replayproxy.cli import ls, main
from replayproxy.storage import open_store

def cut(*arguments):
    store = open_store(Path(sys.argv[1]))
    if sys.argv[2] == "SIGBUS":
        os.truncate(store.path / "data.mdb", 8192)
        store.reader().runs()
    if sys.argv[2] == "SIGABRT":
        ctypes.CDLL(None).abort()
    store.close()
    os.kill(os.getpid(), 11)

main.run = cut
main.main(["ls", *sys.argv[3:]])
"""


@pytest.mark.parametrize("name", ["SIGBUS", "SIGABRT"])
@pytest.mark.parametrize("as_json", [False, True])
def test_a_signal_out_of_a_store_is_one_line_and_exit_4(recorded: Path, name: str, as_json: bool) -> None:
    arguments = [sys.executable, "-c", READ, str(recorded), name, *(["--json"] if as_json else [])]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 4
    assert done.stderr == f"replayproxy: {recorded} is damaged: reading it ended in {name} -> replayproxy fsck\n"
    if as_json:
        assert json.loads(done.stdout)["exit"] == 4


def test_without_a_store_a_signal_does_what_it_does(recorded: Path) -> None:
    done = subprocess.run([sys.executable, "-c", READ, str(recorded), "none"], capture_output=True, check=False)
    assert done.returncode == -signal.SIGSEGV
    assert done.stderr == b""
    with open_store(recorded) as store:
        assert store.reader().runs()
