"""Heads that never end, or never come: refused by name, and nobody else notices."""

from __future__ import annotations

import asyncio

import pytest

from replayproxy.core import bounds
from replayproxy.core.values import Outcome
from replayproxy.proxy.scribe import UNREADABLE_REQUEST
from tests.proxy.wire import Peer, Wire, says

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
ASK = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"
LIMIT = 64 * 1024


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "HEAD_LIMIT", LIMIT)


async def pour(peer: Peer, lead: bytes, more: bytes) -> bytes:
    """Sends without an end until the other side has had enough; what it said."""
    answer = asyncio.ensure_future(peer.read_to_end())
    await peer.send(lead)
    sent = 0
    while not answer.done() and sent < 64 * LIMIT:
        try:
            await peer.send(more * 100)
        except ConnectionError:
            break
        sent += 100 * len(more)
        await asyncio.sleep(0)
    assert sent < 64 * LIMIT, "it would have gone on for ever"
    return await answer


POURED = {
    "a request line": (b"GET /", b"a" * 100),
    "header lines": (b"GET / HTTP/1.1\r\nHost: x\r\n", b"X-More: " + b"y" * 90 + b"\r\n"),
    "a header value": (b"GET / HTTP/1.1\r\nX: ", b"y" * 100),
}


@pytest.mark.parametrize(("lead", "more"), POURED.values(), ids=POURED)
async def test_a_requests_head_without_an_end_is_refused_and_told(w: Wire, lead: bytes, more: bytes) -> None:
    environment, listener, agent = await w.between(says(OK))
    answer = await pour(agent, lead, more)
    assert not answer or answer.startswith(b"HTTP/1.1 431 ")
    await w.scribe.until(lambda: UNREADABLE_REQUEST in w.scribe.kinds())
    detail = next(detail for _, kind, detail, _ in w.scribe.events if kind == UNREADABLE_REQUEST)
    assert detail["why"] == f"the request's head is longer than {LIMIT} bytes"
    assert environment.requests == []
    assert await (await w.agent(listener)).ask(ASK) == OK


async def test_a_request_head_that_comes_too_slowly_is_refused(w: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "HEAD_SECONDS", 0.1)
    _, listener, agent = await w.between(says(OK))
    other = await w.agent(listener)
    assert await other.ask(ASK) == OK
    await agent.send(ASK[:9])
    await other.send(ASK[:9])
    await asyncio.sleep(0.05)
    assert await other.ask(ASK[9:]) == OK
    assert (await agent.read_to_end()).startswith(b"HTTP/1.1 408 ")
    await asyncio.sleep(0.1)
    assert await other.ask(ASK) == OK, "a connection that waits between requests is not late"


TRAILED = {
    "a chunk's first line": b"3;x=",
    "trailers": b"0\r\nX-T: ",
}


@pytest.mark.parametrize("lead", TRAILED.values(), ids=TRAILED)
async def test_a_request_body_whose_framing_never_ends_is_half_sent(w: Wire, lead: bytes) -> None:
    _, listener, agent = await w.between(says(OK))
    await pour(agent, b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + lead, b"y" * 100)
    exchange = await w.scribe.exchange()
    assert exchange.outcome is Outcome.HALF_SENT
    assert "longer than" in exchange.error
    assert await (await w.agent(listener)).ask(ASK) == OK


ENDLESS = {
    "a status line": b"HTTP/1.1 200 ",
    "header lines": b"HTTP/1.1 200 OK\r\nX: ",
    "a chunk's first line": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=",
    "trailers": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-T: ",
}


@pytest.mark.parametrize("lead", ENDLESS.values(), ids=ENDLESS)
async def test_an_answer_whose_head_or_framing_never_ends_is_no_answer(w: Wire, lead: bytes) -> None:
    async def answerer(peer: Peer, request: bytes) -> None:
        await pour(peer, lead, b"y" * 100)

    environment, listener, agent = await w.between(answerer)
    await agent.send(ASK)
    await agent.read_to_end()
    exchange = await w.scribe.exchange()
    assert exchange.outcome is Outcome.INVALID
    assert "longer than" in exchange.error
    environment._answerer = says(OK)
    assert await (await w.agent(listener)).ask(ASK) == OK
