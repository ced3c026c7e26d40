"""Blocking work in threads that end with nobody waiting for them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from replayproxy.state.reading import in_thread


async def test_the_result_or_the_error_of_the_work_is_given() -> None:
    assert await in_thread(lambda: threading.current_thread().name, 5) == "restore"
    with pytest.raises(ZeroDivisionError):
        await in_thread(lambda: 1 // 0, 5)


async def test_work_that_takes_too_long_is_left_alone() -> None:
    go = threading.Event()
    with pytest.raises(TimeoutError):
        await in_thread(lambda: go.wait(10), 0.02)
    go.set()
    await asyncio.sleep(0)


def test_a_provider_that_never_answers_does_not_keep_the_process() -> None:
    program = """
import asyncio, threading
from replayproxy.state.capture import Capture
from replayproxy.state.loader import Loaded

class Stuck:
    atomic = can_restore = True
    scope = "instance"
    def capture(self): threading.Event().wait()

async def main():
    capture = Capture([Loaded.of("crm", Stuck)], save=print, now=lambda: 1, wall=lambda: 1, limit=0.05)
    print((await capture.take("crm", when="start", n=0, mode="hold")).reason)
    capture.close()

asyncio.run(main())
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)
    assert (ended.returncode, ended.stdout) == (0, "no answer in 0.05 s\n"), ended.stderr
