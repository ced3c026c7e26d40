from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from replayproxy.session.canary_process import KEPT, ended


async def test_a_program_s_end_is_its_code_and_its_words() -> None:
    done = await ended((sys.executable, "-c", "import sys; print('out'); sys.exit('first\\nlast  \\n')"), seconds=20)
    assert (done.code, done.out, done.last_words) == (1, "out\n", "last")


async def test_what_hangs_ends_with_all_it_started(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    script = f"sleep 60 & echo $! > {told}; wait"
    began = time.monotonic()
    done = await ended(("/bin/sh", "-c", script), seconds=0.7)
    assert (done.code, done.last_words) == (None, "no end within 0.7 s")
    assert time.monotonic() - began < 10
    await asyncio.sleep(0.1)
    grandchild = Path("/proc") / told.read_text().strip() / "stat"
    # Where nobody reaps orphans it stays as a zombie, which is as dead.
    assert not grandchild.exists() or grandchild.read_text().rpartition(")")[2].split()[0] == "Z"


async def test_what_leaves_its_output_open_behind_it_is_not_waited_for() -> None:
    began = time.monotonic()
    done = await ended(("/bin/sh", "-c", "sleep 60 & exit 3"), seconds=2.0)
    assert done.code == 3
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("leaving", ["sleep 60", "setsid sleep 60"])
async def test_no_pipe_stays_open_whoever_holds_its_other_end(tmp_path: Path, leaving: str) -> None:
    before = os.listdir("/proc/self/fd")
    done = await ended(("/bin/sh", "-c", f"{leaving} & echo $! > {tmp_path}/pid; exit 3"), seconds=0.5)
    assert done.code == 3
    await asyncio.sleep(0)
    assert len(os.listdir("/proc/self/fd")) == len(before)
    with suppress(ProcessLookupError):  # the first ended with its group
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


async def test_much_output_is_read_and_only_its_end_kept() -> None:
    code = f"import sys\nsys.stdout.write('x' * {KEPT * 5} + 'end')"
    done = await ended((sys.executable, "-c", code), seconds=20)
    assert done.code == 0
    assert len(done.out) == KEPT
    assert done.out.endswith("end")


async def test_what_cannot_be_started_says_so() -> None:
    done = await ended(("/nowhere/at/all",), seconds=1)
    assert done.code is None
    assert done.last_words.startswith("it could not be started: ")


async def test_its_variables_are_the_given_ones_alone() -> None:
    done = await ended(
        (sys.executable, "-S", "-c", "import os; print(sorted(os.environ))"), seconds=20, environ={"A": "1"}
    )
    assert "'A'" in done.out
    assert "HOME" not in done.out
