"""An environment to which no connection comes about: who is told what, and what is recorded."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest

from replayproxy.core.values import Outcome
from replayproxy.proxy.scribe import UPSTREAM_REFUSED
from tests.proxy.test_stream import GET, OK, POST, problem
from tests.proxy.wire import Peer, says, wire


@pytest.fixture
def full() -> Iterator[int]:
    """The port of a listener whose queue is full: the system lets whoever comes next wait."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen(0)
    port = listening.getsockname()[1]
    waiting = []
    for _ in range(4):
        one = socket.socket()
        one.setblocking(False)
        one.connect_ex(("127.0.0.1", port))
        waiting.append(one)
    yield port
    for each in (*waiting, listening):
        each.close()


SAID = "no connection to the environment within 0.2 s (--upstream-connect)"


@pytest.mark.parametrize("request_bytes", [GET, POST])
async def test_a_connection_that_takes_too_long_is_a_504_of_ours_that_names_the_limit(
    full: int, request_bytes: bytes
) -> None:
    async with wire(connect=0.2) as w:
        w.scribe.urls["app"] = f"http://127.0.0.1:{full}"
        agent = await w.agent(await w.engine.listen("app", w.scribe.urls["app"]))
        await agent.send(request_bytes)
        got = await agent.read_to_end()
        assert got.startswith(b"HTTP/1.1 504 Gateway Timeout\r\n")
        told = problem(got)
        assert (told["answered_by"], told["outcome"], told["detail"]) == ("replayproxy", "timed-out", SAID)
        exchange = await w.scribe.exchange()
        assert (exchange.outcome, exchange.response, exchange.error) == (Outcome.TIMED_OUT, None, SAID)
        assert exchange.times.fwd is None, "nothing of it can have had an effect"
        assert [detail["error"] for _, kind, detail, _ in w.scribe.events if kind == UPSTREAM_REFUSED] == [SAID]
        assert w.scribe.faults == []


async def test_tls_that_does_not_come_about_counts_as_connecting() -> None:
    async with wire(connect=0.3) as w:

        async def silent(peer: Peer, request: bytes) -> None:
            await peer.reader.read()

        environment = await w.environment(silent)
        url = w.scribe.urls["app"] = environment.url.replace("http:", "https:")
        agent = await w.agent(await w.engine.listen("app", url))
        await agent.send(GET)
        got = await agent.read_to_end()
        assert got.startswith(b"HTTP/1.1 504 ")
        assert problem(got)["detail"] == SAID.replace("0.2", "0.3")
        exchange = await w.scribe.exchange()
        assert (exchange.outcome, exchange.times.fwd) == (Outcome.TIMED_OUT, None)
        assert w.scribe.faults == []


async def test_who_refuses_after_one_that_was_too_slow_is_told_as_refused(full: int) -> None:
    async with wire(connect=0.2) as w:
        environment = await w.environment(says(OK))
        await environment.stop()
        listener = await w.engine.listen("app", "dynamic")
        w.scribe.urls["app"] = f"http://127.0.0.1:{full}"
        agent = await w.agent(listener)
        await agent.send(GET)
        assert (await agent.read_to_end()).startswith(b"HTTP/1.1 504 ")
        w.scribe.urls["app"] = environment.url
        agent = await w.agent(listener)
        await agent.send(GET)
        assert (await agent.read_to_end()).startswith(b"HTTP/1.1 502 ")
        assert (await w.scribe.exchange(2)).outcome is Outcome.REFUSED


async def test_a_connection_that_is_there_lives_longer_than_the_limit() -> None:
    async with wire(connect=0.1) as w:
        environment, _, agent = await w.between(says(OK))
        assert await agent.ask(GET) == OK
        await asyncio.sleep(0.25)
        assert await agent.ask(GET) == OK
        assert environment.connections == 1
