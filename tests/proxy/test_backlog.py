"""Requests behind one that is still being answered: bounded, in order, and nobody else waits."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from replayproxy.proxy import backlog
from tests.proxy.wire import Peer, Wire, says

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
ASK = b"GET /rp/e1/%d HTTP/1.1\r\nHost: x\r\nX-Pad: " + b"p" * 8000 + b"\r\n\r\n"
LIMIT = 128 * 1024


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "BACKLOG_LIMIT", LIMIT)


class Slow:
    """Answers nothing until it may."""

    def __init__(self) -> None:
        self.may = asyncio.Event()

    async def __call__(self, peer: Peer, request: bytes) -> None:
        await self.may.wait()
        await peer.send(OK)


def kept(w: Wire) -> int:
    """Bytes that wait in the proxy's HTTP/1 layers."""
    import gc

    from replayproxy.proxy.layers import AgentHttp1

    return max(len(one.buf) for one in gc.get_objects() if type(one) is AgentHttp1 and one.stream_id)


async def test_an_agent_that_sends_on_and_on_is_held_back_and_loses_nothing(w: Wire) -> None:
    slow = Slow()
    environment, listener, agent = await w.between(slow)
    count = 1000
    sending = asyncio.ensure_future(agent.send(b"".join(ASK % n for n in range(count))))
    other = await w.agent(listener)
    await w.scribe.until(lambda: w.scribe.tickets)
    await asyncio.sleep(0.5)
    assert not sending.done(), "8 MB do not fit in the buffers of the network"
    assert LIMIT < kept(w) < 4 * LIMIT
    slow.may.set()
    assert await other.ask(ASK % 1) == OK, "nobody else waits"
    for _ in range(60):
        assert await agent.read(len(OK)) == OK
    asked = [one.split(b" ")[1] for one in environment.requests if b"/1 " not in one][:59]
    assert asked == [b"/%d" % n for n in range(60) if n != 1][: len(asked)]
    sending.cancel()
    with suppress(asyncio.CancelledError):
        await sending


async def test_a_few_requests_at_once_are_answered_in_their_order(w: Wire) -> None:
    environment, _, agent = await w.between(says(OK))
    await agent.send(b"".join(ASK % n for n in range(100)))
    for _ in range(100):
        assert await agent.read(len(OK)) == OK
    assert [one.split(b" ")[1] for one in environment.requests] == [b"/%d" % n for n in range(100)]
    assert backlog._full == {}


async def test_one_that_leaves_while_it_is_held_back_is_forgotten(w: Wire) -> None:
    slow = Slow()
    _, listener, agent = await w.between(slow)
    sending = asyncio.ensure_future(agent.send(b"".join(ASK % n for n in range(1000))))
    await w.scribe.until(lambda: w.scribe.tickets)
    await asyncio.sleep(0.3)
    assert backlog._full
    sending.cancel()
    agent.abort()
    slow.may.set()
    other = await w.agent(listener)
    assert await other.ask(ASK % 1) == OK
    async with asyncio.timeout(5):
        while backlog._full:
            await asyncio.sleep(0.02)
