"""Connections beside the exchanges, and reading no faster than the recorder writes."""

from __future__ import annotations

import asyncio
import time

import pytest

from replayproxy.proxy import connections
from tests.proxy.wire import Peer, Wire, says

GET = b"GET /rp/e1/a HTTP/1.1\r\nHost: x\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


async def test_connections_are_told_with_the_exchange_that_used_them(w: Wire) -> None:
    environment, listener, agent = await w.between(says(OK))
    await agent.ask(GET)
    await agent.ask(GET)
    agent.close()
    await w.scribe.until(lambda: {"agent-closed", "upstream-closed"} <= set(w.scribe.kinds()))
    assert sorted(w.scribe.kinds()) == ["agent-closed", "agent-connected", "upstream-closed", "upstream-connected"]
    first, second = w.scribe.tickets
    told = {kind: (ticket, detail) for ticket, kind, detail, _ in w.scribe.events}
    assert told["agent-connected"][0] == first
    assert told["agent-closed"][0] == second
    assert told["agent-connected"][1]["at"] == listener.origin[7:]
    assert told["upstream-connected"][1]["address"] == environment.url[7:]
    exchange = w.scribe.exchanges[0]
    assert told["agent-connected"][1]["connection"] == exchange.agent_connection
    assert told["upstream-connected"][1]["connection"] == exchange.env_connection


async def test_a_connection_without_a_request_is_told_without_an_exchange(w: Wire) -> None:
    environment, _, agent = await w.between(says(OK))
    agent.close()
    await w.scribe.until(lambda: "agent-closed" in w.scribe.kinds())
    assert [(ticket, kind) for ticket, kind, _, _ in w.scribe.events] == [
        (None, "agent-connected"),
        (None, "agent-closed"),
    ]
    assert environment.connections == 0, "connections to environments are made when they are needed"
    opened, closed = (at for _, _, _, at in w.scribe.events)
    assert opened <= closed


async def test_a_refused_upstream_is_told_with_its_reason(w: Wire) -> None:
    environment, _, agent = await w.between(says(OK))
    await environment.stop()
    await agent.ask(GET)
    told = {kind: detail for _, kind, detail, _ in w.scribe.events}
    assert told["upstream-refused"]["address"] == environment.url[7:]
    assert told["upstream-refused"]["error"]


async def test_while_the_recorder_is_behind_the_proxy_reads_no_more(w: Wire) -> None:
    size = 30_000_000
    sent = 0

    async def answerer(peer: Peer, request: bytes) -> None:
        nonlocal sent
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        while sent < size:
            await peer.send(b"x" * 100_000)
            sent += 100_000

    _, _, agent = await w.between(answerer)
    await agent.send(GET)
    await agent.read_head()
    await agent.read(1_000_000)
    w.scribe.has_room = False
    rest = asyncio.create_task(agent.read(size - 1_000_000))
    before = -1
    while before != sent:
        before = sent
        await asyncio.sleep(0.1)
    assert sent < size, "the environment was not slowed down"
    w.scribe.make_room()
    await rest
    exchange = await w.scribe.exchange()
    assert exchange.response is not None
    assert exchange.response.body is not None
    assert exchange.response.body.size == size


async def test_a_recorder_that_never_catches_up_stops_no_traffic(w: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "PATIENCE", 0.2)
    _, _, agent = await w.between(says(OK))
    w.scribe.has_room = False
    assert await agent.ask(GET) == OK
    assert await agent.ask(GET) == OK
    begun = time.monotonic()
    for _ in range(5):
        assert await agent.ask(GET) == OK
    assert time.monotonic() - begun < 5 * 0.2, "once is enough"
    assert [where for _, where, _ in w.scribe.faults] == ["back pressure"]
