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


async def test_the_answer_names_the_limit_and_the_option_that_sets_it() -> None:
    async with wire(upstream_timeout=0.1) as w:
        _, _, agent = await w.between(never)
        await agent.send(GET)
        said = "the environment did not begin to answer within 0.1 s (--upstream-timeout)"
        assert problem(await agent.read_to_end())["detail"] == said
        assert (await w.scribe.exchange()).error == said


async def never(peer: Peer, request: bytes) -> None:
    await peer.reader.read()


SILENT = {
    "an answer that is held back": (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello", 5),
    "an answer that is passed on": (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", 5
    ),
}  # fmt: skip


@pytest.mark.parametrize(("sent", "size"), SILENT.values(), ids=SILENT)
async def test_an_answer_that_stops_in_its_midst_is_given_up_and_what_came_is_passed_on(sent: bytes, size: int) -> None:
    async with wire(idle=0.2) as w:
        gone = asyncio.Event()

        async def answerer(peer: Peer, request: bytes) -> None:
            await peer.send(sent)
            await peer.reader.read()
            gone.set()

        _, _, agent = await w.between(answerer)
        await agent.send(GET)
        got = await agent.read_to_end()
        assert got.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"hello" in got
        await asyncio.wait_for(gone.wait(), 5)
        exchange = await w.scribe.exchange()
        assert (exchange.outcome, exchange.cut_at, exchange.closed_by_agent) == (Outcome.TIMED_OUT, size, False)
        assert exchange.error == "the environment sent nothing more of its answer for 0.2 s (--upstream-idle)"
        assert exchange.response is not None
        assert exchange.response.body is not None
        assert exchange.response.body.size == size
        assert w.scribe.faults == []


async def test_an_answer_that_keeps_coming_may_take_longer_than_the_limit_of_a_pause() -> None:
    async with wire(idle=0.4) as w:

        async def answerer(peer: Peer, request: bytes) -> None:
            await peer.send(OK[:-8])
            for at in range(8, 0, -1):
                await asyncio.sleep(0.1)
                await peer.send(OK[-at:][:1])

        _, _, agent = await w.between(answerer)
        assert await agent.ask(GET) == OK
        assert (await w.scribe.exchange()).outcome is Outcome.ANSWERED


async def test_a_pause_that_a_slow_agent_causes_is_not_the_environments() -> None:
    async with wire(idle=0.1) as w:
        size = 64 * 1024 * 1024

        async def answerer(peer: Peer, request: bytes) -> None:
            await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
            for _ in range(size // 1_048_576):
                await peer.send(b"x" * 1_048_576)

        _, _, agent = await w.between(answerer)
        await agent.send(GET)
        await asyncio.sleep(0.6)
        head = await agent.read_head()
        assert b"%d" % size in head
        left = size
        while left:
            left -= len(await agent.reader.read(1_048_576))
        assert (await w.scribe.exchange()).outcome is Outcome.ANSWERED
