"""Exchanges that were lost sight of, and answers that do not begin."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from replayproxy.core.values import Outcome
from replayproxy.proxy import under_way
from replayproxy.proxy.live import Live
from tests.proxy.test_stream import GET, OK, POST, problem
from tests.proxy.wire import Peer, Wire, says, wire


async def test_an_exchange_that_nobody_ended_is_a_fault_and_is_handed_over(
    w: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(under_way, "LINGER", 0.05)
    original = Live.end
    lost = True

    def end(self: Live, outcome: Outcome, **facts: Any) -> None:
        if not lost:
            original(self, outcome, **facts)

    monkeypatch.setattr(Live, "end", end)
    _, _, agent = await w.between(says(OK))
    await agent.ask(POST)
    lost = False
    agent.close()
    exchange = await w.scribe.exchange()
    assert exchange.response is not None
    assert [where for _, where, _ in w.scribe.faults] == ["exchange"]


async def test_an_environment_that_does_not_begin_to_answer_is_a_504_of_ours() -> None:
    async with wire(upstream_timeout=0.1) as w:
        gone = asyncio.Event()

        async def answerer(peer: Peer, request: bytes) -> None:
            await peer.reader.read()
            gone.set()

        _, _, agent = await w.between(answerer)
        await agent.send(GET)
        got = await agent.read_to_end()
        assert got.startswith(b"HTTP/1.1 504 Gateway Timeout\r\n")
        assert problem(got)["outcome"] == "timed-out"
        await asyncio.wait_for(gone.wait(), 5)
        exchange = await w.scribe.exchange()
        assert (exchange.outcome, exchange.response) == (Outcome.TIMED_OUT, None)
        assert w.scribe.faults == []


async def test_an_answer_that_has_begun_may_take_its_time() -> None:
    async with wire(upstream_timeout=0.05) as w:

        async def answerer(peer: Peer, request: bytes) -> None:
            await peer.send(OK[:-1])
            await asyncio.sleep(0.15)
            await peer.send(OK[-1:])

        _, _, agent = await w.between(answerer)
        assert await agent.ask(GET) == OK
