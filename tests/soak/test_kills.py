from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from replayproxy.storage.verify import verify
from tests.soak.kills import rounds, stopped
from tests.soak.kit import environment, recorder, size

pytestmark = pytest.mark.timeout(size(3600, 300))


def test_what_was_acknowledged_or_ended_100_ms_ago_outlives_a_kill(tmp_path: Path) -> None:
    """Ten rounds; `make soak` has 100."""
    assert rounds(tmp_path, size(100, 10)) == []


def test_a_writer_that_is_stopped_behind_its_write_hinders_no_reader_and_loses_nothing(
    tmp_path: Path,
) -> None:
    assert stopped(tmp_path / "s") == []
    assert verify(tmp_path / "s").damaged == []


def _lives(pid: int) -> bool:
    """A process that nobody has fetched yet is as dead as any."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.e2e
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent is gone")
async def test_a_worker_that_stands_still_does_not_outlive_a_recorder_that_is_killed(tmp_path: Path) -> None:
    with environment() as port:
        async with recorder(tmp_path, port, "--workers", "2", "--judge", "off") as one:
            workers = [int(pid) for pid in Path(f"/proc/{one.pid}/task/{one.pid}/children").read_text().split()]
            assert len(workers) == 2
            try:
                os.kill(workers[0], signal.SIGSTOP)
                one.process.kill()
                async with asyncio.timeout(20):
                    while any(map(_lives, workers)):
                        await asyncio.sleep(0.02)
            finally:
                for pid in filter(_lives, workers):
                    os.kill(pid, signal.SIGKILL)


@pytest.mark.e2e
def test_a_worker_whose_recorder_was_gone_before_it_began_ends_at_once() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "replayproxy.proxy.worker", "8", "9", "1"], stdin=subprocess.DEVNULL, check=False
    )
    assert done.returncode == 70
