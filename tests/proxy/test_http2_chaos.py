"""HTTP/2 agents that send garbage, too much, or leave: the proxy lives, and says what came of each."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from replayproxy.core.values import Outcome
from replayproxy.proxy.ca import Authority
from replayproxy.proxy.listeners import EnvOptions, Listener
from tests.proxy.h2_server import H2Agent, H2Environment
from tests.proxy.wire import Wire, wire
from tests.session.tls_server import make_tls_files


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("store") / "ca")


type Open = tuple[Wire, Listener, ssl.SSLContext]


@pytest.fixture
async def opened(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Open]:
    files = make_tls_files(tmp_path_factory.mktemp("tls"))
    async with wire(authority=authority) as w, H2Environment(files) as environment:
        w.scribe.urls["app"] = environment.url
        listener = await w.engine.listen("app", environment.url, options=EnvOptions(tls=True, ca=files.ca))
        yield w, listener, ssl.create_default_context(cafile=authority.certificate)
        assert w.scribe.faults == []


async def still_answers(opened: Open) -> None:
    _, listener, trust = opened
    async with H2Environment.agent(listener.bound, trust) as agent:
        assert (await agent.ask(b"GET", b"/rp/e1/ok")).body == b"/ok"


async def test_garbage_behind_the_preface_ends_its_connection_only(opened: Open) -> None:
    w, listener, trust = opened
    chance = random.Random(7)
    headers_on_stream_zero = bytes.fromhex("000001010500000000") + b"\x82"
    for garbage in (headers_on_stream_zero, *(chance.randbytes(300) for _ in range(5))):
        async with H2Environment.agent(listener.bound, trust) as agent:
            agent.send(garbage)
            with suppress(TimeoutError):
                await agent.read_to_end(0.2)
    await w.scribe.until(lambda: "unreadable-request" in w.scribe.kinds())
    await still_answers(opened)


async def test_garbage_in_place_of_tls_ends_its_connection_only(opened: Open) -> None:
    w, listener, _ = opened
    chance = random.Random(7)
    for _ in range(10):
        peer = await w.agent(listener)
        await peer.send(b"\x16\x03\x01" + chance.randbytes(300))
        peer.close()
    await still_answers(opened)


async def test_a_bomb_of_headers_is_refused(opened: Open) -> None:
    _, listener, trust = opened
    async with H2Environment.agent(listener.bound, trust) as agent:
        got = await agent.ask(b"GET", b"/rp/e1/a", [(b"x%d" % number, b"y" * 1000) for number in range(200)])
    assert (got.status, got.was_reset) == (None, True)
    await still_answers(opened)


@pytest.mark.parametrize(("method", "path", "outcome"), [
    (b"POST", b"/upload", Outcome.HALF_SENT), (b"GET", b"/silence", Outcome.CLIENT_GONE),
])  # fmt: skip
@pytest.mark.parametrize("by_reset", [True, False])
async def test_an_agent_that_leaves_is_told_from_one_that_stays(
    opened: Open, method: bytes, path: bytes, outcome: Outcome, *, by_reset: bool
) -> None:
    w, listener, trust = opened
    async with H2Environment.agent(listener.bound, trust) as agent:
        stream = begin(agent, method, b"/rp/e1" + path)
        await w.scribe.until(lambda: "upstream-connected" in w.scribe.kinds())
        await asyncio.sleep(0.2)
        if by_reset:
            agent.reset(stream)
            await w.scribe.exchange()
    exchange = await w.scribe.exchange()
    assert (exchange.outcome, exchange.closed_by_agent) == (outcome, True)
    assert exchange.request.body is not None
    assert exchange.request.body.inline == (b"part" if method == b"POST" else b"")
    await still_answers(opened)


def begin(agent: H2Agent, method: bytes, path: bytes) -> int:
    """A GET that is whole, or a POST that is not."""
    return agent.begin(method, path, None if method == b"GET" else b"part")
