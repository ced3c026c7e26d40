"""Processes that take part of the work: what they do, and how they end."""

from __future__ import annotations

import math
import operator
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from replayproxy.core.treediff import ABSENT
from replayproxy.session.beside import PROGRAM, Crew, Lost, cores, crew


def idle() -> tuple[object, float]:
    """What a process that has nothing to prepare calls first."""
    return time.sleep, 0.0


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(holds: object, seconds: float = 20.0) -> bool:
    end = time.monotonic() + seconds
    while not holds():  # type: ignore[operator]
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def test_calls_are_done_in_other_processes_and_each_tells_its_own_result() -> None:
    with crew(2, *idle()) as made:
        asked = [made.submit(math.factorial, n) for n in range(20)]
        assert [one.result(30) for one in asked] == [math.factorial(n) for n in range(20)]
        assert made.submit(os.getpid).result(30) != os.getpid()
        assert made.submit(operator.itemgetter(0), [ABSENT]).result(30) is ABSENT  # what stands for nothing stays it
        pids = made.pids
        assert pids
    assert not any(lives(pid) for pid in pids)


def test_a_call_that_fails_there_is_lost_and_its_process_goes_on() -> None:
    with crew(1, *idle()) as made:
        before = made.submit(os.getpid).result(30)
        with pytest.raises(Lost, match="ZeroDivisionError"):
            made.submit(operator.truediv, 1, 0).result(30)
        assert made.submit(os.getpid).result(30) == before


def test_the_call_of_a_killed_process_is_lost_and_the_next_one_is_done_by_another() -> None:
    with crew(1, *idle()) as made:
        first = made.submit(os.getpid).result(30)
        asked = made.submit(time.sleep, 60)
        assert until(lambda: asked.running())
        os.kill(first, signal.SIGKILL)
        with pytest.raises(Lost, match="gone"):
            asked.result(30)
        assert made.submit(os.getpid).result(30) != first


def test_after_three_deaths_nothing_is_started_any_more() -> None:
    with crew(1, *idle()) as made:
        for _ in range(3):
            with pytest.raises(Lost, match="gone"):
                made.submit(os._exit, 1).result(30)
        with pytest.raises(Lost, match="no process is started"):
            made.submit(os.getpid).result(30)
        assert made.pids == []


def test_a_process_that_cannot_begin_loses_its_call() -> None:
    with crew(1, operator.truediv, 1, 0) as made, pytest.raises(Lost, match="ZeroDivisionError"):
        made.submit(os.getpid).result(30)


def test_an_interrupt_ends_every_process_at_once() -> None:
    pids: list[int] = []

    def interrupted() -> None:
        with crew(2, *idle()) as made:
            for one in [made.submit(os.getpid) for _ in range(2)]:
                one.result(30)
            asked = [made.submit(time.sleep, 600) for _ in range(6)]
            pids.extend(made.pids)
            assert until(lambda: asked[0].running())
            raise KeyboardInterrupt

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert time.monotonic() - began < 60
    assert pids
    assert not any(lives(pid) for pid in pids)


def test_processes_end_when_the_one_that_started_them_is_killed() -> None:
    script = (
        "import os, time; from replayproxy.session.beside import Crew\n"
        "made = Crew(1, time.sleep, 0); print(made.submit(os.getpid).result(30), flush=True); time.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert lives(child)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert until(lambda: not lives(child))


def test_a_directory_has_no_say_in_what_they_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pickle", "struct", "queue"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('the wrong one')")
    monkeypatch.chdir(tmp_path)
    with crew(1, *idle()) as made:
        assert made.submit(os.getcwd).result(30) == str(tmp_path)


def test_what_a_call_prints_does_not_speak_for_it(capfd: pytest.CaptureFixture[str]) -> None:
    with crew(1, *idle()) as made:
        assert made.submit(os.write, 1, b"loud\n").result(30) == 5
        assert made.submit(math.factorial, 3).result(30) == 6
    assert capfd.readouterr() == ("", "loud\n")


def test_what_speaks_before_a_process_begins_does_not_speak_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('welcome to this machine')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with crew(1, *idle()) as made:
        assert made.submit(math.factorial, 3).result(30) == 6
    assert capfd.readouterr() == ("", "welcome to this machine\n")


def test_an_answer_that_cannot_be_read_is_lost_with_its_process() -> None:
    unreadable = "type('X', (), {'__reduce__': lambda self: (__import__('operator').truediv, (1, 0))})()"
    with crew(1, *idle()) as made:
        first = made.submit(os.getpid).result(30)
        with pytest.raises(Lost, match="gone"):
            made.submit(eval, unreadable).result(30)
        assert not lives(first)
        assert made.submit(os.getpid).result(30) != first


def test_where_no_process_can_be_started_a_call_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> object:
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(subprocess, "Popen", refused)
    with crew(1, *idle()) as made:
        for _ in range(3):
            with pytest.raises(Lost, match="no more processes"):
                made.submit(os.getpid).result(30)
        with pytest.raises(Lost, match="no process is started any more"):
            made.submit(os.getpid).result(30)


def test_an_interrupt_while_the_last_call_is_waited_for_ends_every_process() -> None:
    pids: list[int] = []

    def interrupted() -> None:
        with crew(1, *idle()) as made:
            pids.append(made.submit(os.getpid).result(30))
            asked = made.submit(time.sleep, 600)
            assert until(asked.running)
            threading.Thread(target=interrupt).start()

    def interrupt() -> None:
        time.sleep(0.3)  # earlier, it would come within the block, which is as well
        os.kill(os.getpid(), signal.SIGINT)

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert time.monotonic() - began < 60
    assert not lives(pids[0])


@pytest.mark.parametrize("unread", [False, True])
def test_a_process_whose_asker_is_gone_ends_without_a_word(unread: bool) -> None:
    ours, its = socket.socketpair()
    with its:
        process = subprocess.Popen((*PROGRAM, str(its.fileno())), pass_fds=(its.fileno(),), stderr=subprocess.PIPE)
    asked = pickle.dumps((math.factorial, (3,)))
    ours.sendall(struct.pack(">Q", len(asked)) + asked)
    if unread:
        ours.recv(1)  # the rest of the answer stays where it is
    ours.close()
    _, said = process.communicate(timeout=30)
    assert (process.returncode, said) == (0, b"")


def test_cores_are_counted_also_where_the_system_does_not_say_which_are_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 3}, raising=False)
    assert cores() == 2
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 5)
    assert cores() == 5
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert cores() == 1


def test_a_dismissed_crew_leaves_no_thread() -> None:
    before = threading.active_count()
    made = Crew(2, *idle())
    made.submit(os.getpid).result(30)
    made.dismiss()
    assert threading.active_count() == before
