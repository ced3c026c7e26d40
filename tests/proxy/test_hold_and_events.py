"""Answers that pass as they come, and answers that are held."""

from __future__ import annotations

import asyncio

import pytest

from replayproxy.core.values import Exchange, Outcome
from tests.proxy.wire import Peer, Wire, says

GET = b"GET /rp/e1/a HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST /rp/e1/a HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def body(exchange: Exchange) -> bytes | None:
    return exchange.response.body.inline if exchange.response and exchange.response.body else None


async def test_an_event_stream_passes_event_by_event(w: Wire) -> None:
    turns = [asyncio.Event() for _ in range(3)]

    async def answerer(peer: Peer, request: bytes) -> None:
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for turn in turns:
            await turn.wait()
            await peer.send(b"9\r\ndata: x\n\n\r\n")
        await peer.send(b"0\r\n\r\n")

    _, _, agent = await w.between(answerer)
    await agent.send(POST)
    await agent.read_head()
    for turn in turns:
        turn.set()
        assert await agent.read(14) == b"9\r\ndata: x\n\n\r\n"
    assert await agent.read(5) == b"0\r\n\r\n"
    exchange = await w.scribe.exchange()
    assert body(exchange) == b"data: x\n\n" * 3
    assert exchange.response is not None
    assert exchange.response.body is not None
    times = [chunk.at for chunk in exchange.response.body.chunks]
    assert len(times) == 3
    assert times == sorted(times)
    assert w.scribe.held == []


async def test_a_chunked_answer_to_a_write_waits_for_its_end_up_to_64_kib(w: Wire) -> None:
    more = asyncio.Event()

    async def answerer(peer: Peer, request: bytes) -> None:
        await peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        await more.wait()
        if b"long" in request:
            await peer.send(b"11170\r\n" + b"x" * 70000 + b"\r\n")
            await peer.reader.read(1)
        await peer.send(b"1\r\nb\r\n0\r\n\r\n")

    _, listener, agent = await w.between(answerer)
    await agent.send(POST)
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(agent.reader.read(1), 0.05)
    more.set()
    assert (await agent.read_message()).endswith(b"\r\n\r\n2\r\nab\r\n0\r\n\r\n")
    assert [exchange.outcome for exchange in w.scribe.held] == [Outcome.ANSWERED]
    other = await w.agent(listener)
    await other.send(POST.replace(b"hi", b"lo").replace(b"/a", b"/long"))
    await other.read_head()
    assert (await other.read(70000)).endswith(b"x" * 1000), "too long to be held back: it passes before its end"


async def test_a_held_answer_arrives_after_the_hold_and_says_how_long_it_waited(w: Wire) -> None:
    go = asyncio.Event()

    async def hold(exchange: Exchange) -> None:
        assert body(exchange) == b"ok"
        assert exchange.request.body is not None
        assert exchange.request.body.inline == b"hi"
        await go.wait()

    w.scribe.hold_for = hold
    _, _, agent = await w.between(says(OK))
    await agent.send(POST)
    await w.scribe.until(lambda: "upstream-connected" in w.scribe.kinds())
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(agent.reader.read(1), 0.05)
    go.set()
    assert await agent.read_message() == OK
    exchange = await w.scribe.exchange()
    assert exchange.held_ns >= 40_000_000
    times = exchange.times
    assert times.c_out is not None
    assert times.up_end is not None
    assert times.c_out - times.up_end >= exchange.held_ns


async def test_an_agent_that_leaves_while_its_answer_is_held_is_gone(w: Wire) -> None:
    go = asyncio.Event()

    async def hold(exchange: Exchange) -> None:
        await go.wait()

    w.scribe.hold_for = hold
    _, _, agent = await w.between(says(OK))
    await agent.send(POST)
    await asyncio.sleep(0.05)
    agent.close()
    await w.scribe.until(lambda: "agent-closed" in w.scribe.kinds())
    go.set()
    exchange = await w.scribe.exchange()
    assert (exchange.outcome, body(exchange)) == (Outcome.CLIENT_GONE, b"ok")
    assert exchange.times.c_out is None
    assert w.scribe.faults == []
