"""The machine's wall clock is set while connections are open: nothing of the traffic, nor of its order, hangs on it."""

from __future__ import annotations

import time

import pytest

from replayproxy.core.values import Outcome
from tests.proxy.test_stream import GET, OK
from tests.proxy.wire import Peer, Wire, says

HOUR = 3600


@pytest.mark.parametrize("hours", [-5, 5])
async def test_a_clock_that_is_set_changes_neither_the_answers_nor_their_order(
    w: Wire, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    environment, listener, agent = await w.between(says(OK))
    assert await agent.ask(GET) == OK
    real, real_ns = time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: real() + hours * HOUR)
    monkeypatch.setattr(time, "time_ns", lambda: real_ns() + hours * HOUR * 10**9)
    assert await agent.ask(GET) == OK, "the connection that was open goes on"
    assert await (await w.agent(listener)).ask(GET) == OK
    assert environment.connections == 2
    exchanges = [await w.scribe.exchange(n) for n in (1, 2, 3)]
    assert [one.outcome for one in exchanges] == [Outcome.ANSWERED] * 3
    assert sorted(exchanges, key=lambda one: one.order) == exchanges
    moved = (exchanges[1].times.wall - exchanges[0].times.wall) / (HOUR * 1e9)
    assert abs(moved - hours) < 0.1, "the wall time is as it was read"
    for one in exchanges:
        t = one.times
        instants = [t.head, t.c_in, t.fwd, t.first, t.up_end, t.c_out]
        assert None not in instants
        assert instants == sorted(instants)  # type: ignore[type-var]
    assert w.scribe.faults == []


async def test_an_answer_under_way_when_the_clock_is_set_back_ends_as_it_would_have(
    w: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = time.time

    async def answerer(peer: Peer, request: bytes) -> None:
        await peer.send(OK[:-1])
        monkeypatch.setattr(time, "time", lambda: real() - HOUR)
        await peer.send(OK[-1:])

    _, _, agent = await w.between(answerer)
    assert await agent.ask(GET) == OK
    assert (await w.scribe.exchange()).outcome is Outcome.ANSWERED
