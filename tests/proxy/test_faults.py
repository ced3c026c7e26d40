"""What `--chaos` does on the wire, and what the recording says of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from replayproxy.core.chaos import Fault
from replayproxy.core.values import Exchange, Outcome
from tests.proxy.test_stream import GET, OK, POST, problem
from tests.proxy.wire import Wire, says, wire

BODY = b"0123456789"
WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n" + BODY
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n"
    b"4\r\n0123\r\n6\r\n456789\r\n0\r\nX-T: 1\r\n\r\n"
)


@pytest.fixture
async def faulty() -> AsyncIterator[tuple[Wire, list[Fault]]]:
    """Every request gets the first of these faults that is left."""
    faults: list[Fault] = []
    async with wire() as w:
        arrive = w.scribe.arrive

        def with_fault(*args: object, **kwargs: object) -> object:
            ticket = arrive(*args, **kwargs)  # type: ignore[arg-type]
            w.scribe.tickets.pop()
            w.scribe.tickets.append(replace(ticket, fault=faults.pop(0) if faults else None))
            return w.scribe.tickets[-1]

        w.scribe.arrive = with_fault  # type: ignore[assignment,method-assign]
        yield w, faults
        assert [(where, repr(error)) for _, where, error in w.scribe.faults] == []


type Faulty = tuple[Wire, list[Fault]]


def body_of(exchange: Exchange) -> bytes | None:
    assert exchange.response is not None
    assert exchange.response.body is not None
    return exchange.response.body.inline


@pytest.mark.parametrize("request_bytes", [GET, POST])
async def test_a_status_is_answered_by_the_proxy_and_recorded_as_its_own(faulty: Faulty, request_bytes: bytes) -> None:
    w, faults = faulty
    environment, listener, agent = await w.between(says(OK))
    faults.append(Fault("status", 503, "status 503 20%"))
    await agent.send(request_bytes)
    got = await agent.read_to_end()
    assert got.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
    told = problem(got)
    assert (told["answered_by"], told["outcome"]) == ("replayproxy", "local")
    exchange = await w.scribe.exchange()
    assert exchange.outcome is Outcome.LOCAL
    assert exchange.injected == "status 503 (--chaos 'status 503 20%')"
    assert exchange.response is not None
    assert exchange.response.status == 503
    assert got.endswith(b"\r\n\r\n" + (body_of(exchange) or b""))
    assert exchange.request.body is not None
    assert request_bytes.endswith(exchange.request.body.inline or b"")
    assert (exchange.times.fwd, environment.requests, w.scribe.held) == (None, [], [])
    assert await (await w.agent(listener)).ask(GET) == OK


@pytest.mark.parametrize("request_bytes", [GET, POST])
async def test_a_reset_ends_the_connection_and_the_environment_never_hears_of_it(
    faulty: Faulty, request_bytes: bytes
) -> None:
    w, faults = faulty
    environment, listener, agent = await w.between(says(OK))
    faults.append(Fault("reset", 0, "reset"))
    await agent.send(request_bytes)
    with pytest.raises(ConnectionResetError):
        await asyncio.wait_for(agent.reader.read(1), 5)
    exchange = await w.scribe.exchange()
    assert (exchange.outcome, exchange.response, exchange.injected) == (
        Outcome.LOCAL, None, "reset (--chaos 'reset')"
    )  # fmt: skip
    assert exchange.request.body is not None
    assert request_bytes.endswith(exchange.request.body.inline or b"")
    assert environment.requests == []
    assert await (await w.agent(listener)).ask(GET) == OK


async def test_latency_comes_before_the_environment_is_asked_and_is_not_its_own(faulty: Faulty) -> None:
    w, faults = faulty
    _, _, agent = await w.between(says(OK))
    faults.append(Fault("latency", 0.2, "latency 200ms"))
    began = time.monotonic()
    assert await agent.ask(POST) == OK
    assert time.monotonic() - began >= 0.2
    exchange = await w.scribe.exchange()
    times = exchange.times
    assert (exchange.outcome, exchange.injected) == (Outcome.ANSWERED, "latency 0.2s (--chaos 'latency 200ms')")
    assert times.c_in is not None
    assert times.fwd is not None
    assert times.fwd - times.c_in >= 190_000_000
    assert times.up_end is not None
    assert times.up_end - times.fwd < 150_000_000


async def test_an_agent_that_leaves_while_it_is_kept_waiting_is_gone(faulty: Faulty) -> None:
    w, faults = faulty
    environment, _, agent = await w.between(says(OK))
    faults.append(Fault("latency", 0.3, "latency 300ms"))
    await agent.send(GET)
    await asyncio.sleep(0.05)
    agent.abort()
    exchange = await w.scribe.exchange()
    assert exchange.outcome is Outcome.CLIENT_GONE
    assert environment.requests == []


@pytest.mark.parametrize(("answer", "kept"), [(WHOLE, b"\r\n\r\n0123"), (CHUNKED, b"\r\n\r\n4\r\n0123\r\n")])
async def test_a_truncated_answer_ends_after_so_many_bytes_and_is_kept_whole(
    faulty: Faulty, answer: bytes, kept: bytes
) -> None:
    w, faults = faulty
    environment, listener, agent = await w.between(says(answer))
    faults.append(Fault("truncate", 4, "truncate 4"))
    await agent.send(GET)
    got = await agent.read_to_end()
    assert got.startswith(b"HTTP/1.1 200 OK\r\n")
    assert got.endswith(kept)
    exchange = await w.scribe.exchange()
    assert (exchange.outcome, exchange.injected) == (Outcome.ANSWERED, "truncate 4 (--chaos 'truncate 4')")
    assert body_of(exchange) == BODY
    assert len(environment.requests) == 1
    assert (await (await w.agent(listener)).ask(GET)).endswith(answer[-4:])


async def test_an_answer_that_is_no_longer_than_that_passes_whole_and_nothing_was_injected(faulty: Faulty) -> None:
    w, faults = faulty
    _, _, agent = await w.between(says(WHOLE))
    faults.append(Fault("truncate", 10, "truncate 10"))
    assert await agent.ask(GET) == WHOLE
    assert await agent.ask(GET) == WHOLE
    assert (await w.scribe.exchange()).injected == ""


async def test_a_status_that_answers_a_head_has_no_body(faulty: Faulty) -> None:
    w, faults = faulty
    _, _, agent = await w.between(says(OK))
    faults.append(Fault("status", 503, "status 503"))
    await agent.send(GET.replace(b"GET", b"HEAD", 1))
    got = await agent.read_to_end()
    assert got.startswith(b"HTTP/1.1 503 ")
    assert got.endswith(b"\r\n\r\n")
    assert (body_of(await w.scribe.exchange()), got.count(b"\r\n\r\n")) == (b"", 1)


@pytest.mark.parametrize("head", [b"", b"Transfer-Encoding: chunked\r\n"], ids=["whole", "streamed"])
async def test_what_latency_held_beyond_the_end_of_its_episode_is_not_sent(faulty: Faulty, head: bytes) -> None:
    w, faults = faulty
    environment, listener, agent = await w.between(says(OK))
    faults.append(Fault("latency", 0.4, "latency 400ms"))
    await agent.send(POST if not head else b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9000000\r\n\r\n")
    await asyncio.sleep(0.1)
    assert w.engine.release(lambda ticket: True) == 1
    exchange = await w.scribe.exchange()
    assert (exchange.outcome, exchange.times.fwd) == (Outcome.OPEN_AT_END, None)
    assert await agent.read_to_end() == b""
    assert environment.requests == []
    assert await (await w.agent(listener)).ask(GET) == OK
