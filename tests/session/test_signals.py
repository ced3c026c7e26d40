"""SIGINT, SIGTERM and SIGHUP of `record` and `replay`: the first ends, the second gives up; twice the same is one."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from replayproxy.session import signals
from replayproxy.session.signals import Signals


def far(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is, all that a test sends comes at once."""
    monkeypatch.setattr(signals, "SAME_SECONDS", 3600.0)


@pytest.fixture(autouse=True)
def _no_nohup() -> None:
    """The tests themselves may run under `nohup`."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.mark.parametrize("number", signals.ENDING)
async def test_the_first_is_the_end_and_gives_nothing_up(number: int) -> None:
    given_up: list[bool] = []
    with Signals(lambda: given_up.append(True)).installed() as made:
        os.kill(os.getpid(), number)
        await asyncio.wait_for(made.came.wait(), 20)
    assert (made.number, given_up) == (number, [])


async def test_one_that_follows_at_once_is_the_same_and_a_later_one_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    far(monkeypatch)
    given_up = asyncio.Event()
    with Signals(given_up.set).installed() as made:
        made.take(signal.SIGINT)
        made.take(signal.SIGTERM)
        assert (made.number, given_up.is_set()) == (signal.SIGINT, False)
        made.began -= 3600
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(given_up.wait(), 20)


@pytest.mark.parametrize("first", signals.ENDING)
@pytest.mark.parametrize("later", [0.0, 3600.0])
async def test_once_it_is_over_nothing_that_comes_kills(first: int, later: float) -> None:
    """A second signal, of whatever number, may be on its way while the process leaves."""
    with Signals(lambda: None).installed() as made:
        made.take(first)
        made.began -= later
    for number in signals.ENDING:
        assert signal.getsignal(number) is signal.SIG_IGN
        os.kill(os.getpid(), number)


async def test_what_ended_by_itself_hears_signals_as_before() -> None:
    before = [signal.getsignal(number) for number in signals.ENDING]
    with Signals(lambda: None).installed():
        assert [signal.getsignal(number) for number in signals.ENDING] != before
    assert [signal.getsignal(number) for number in signals.ENDING] == [signal.default_int_handler, *before[1:]]


async def test_a_second_hang_up_gives_nothing_up() -> None:
    given_up: list[bool] = []
    with Signals(lambda: given_up.append(True)).installed() as made:
        made.take(signal.SIGTERM)
        made.began -= 3600
        made.take(signal.SIGHUP)
        assert not given_up
        made.take(signal.SIGTERM)
    assert given_up


async def test_under_nohup_a_hang_up_ends_nothing() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with Signals(lambda: None).installed() as made:
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    assert made.number is None
