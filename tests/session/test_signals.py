"""SIGINT and SIGTERM of `record` and `replay`: the first ends, the second gives up, and the same one twice is one."""

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


async def test_what_ended_at_once_does_not_die_of_the_same_signal_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    far(monkeypatch)
    with Signals(lambda: None).installed() as made:
        made.take(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGINT) is not signal.SIG_IGN


async def test_what_ended_later_hears_signals_again() -> None:
    with Signals(lambda: None).installed() as made:
        made.take(signal.SIGTERM)
        made.began -= 3600
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
