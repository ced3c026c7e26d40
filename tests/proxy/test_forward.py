"""The forward proxy between raw ends: what it changes on the wire, and where a request goes."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from typing import Any

import pytest

from replayproxy.core.hostlist import HostList
from replayproxy.core.values import Outcome
from replayproxy.proxy.forward import ForwardOptions, take_credentials, user_of
from replayproxy.proxy.listeners import EnvOptions, Listener
from replayproxy.proxy.routes import Upstream
from tests.proxy.wire import Environment, Peer, Wire, says, wire

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Names:
    def env_of(self, at: Upstream, target: bytes) -> str:
        return "app"

    def options_of(self, at: Upstream) -> EnvOptions:
        return EnvOptions()


class Forwarded:
    def __init__(self, w: Wire, listener: Listener, passed: list[str]) -> None:
        self.w, self.listener, self.passed = w, listener, passed

    async def agent(self) -> Peer:
        return await self.w.agent(self.listener)

    async def tunnel(self, authority: bytes, *more: bytes) -> Peer:
        agent = await self.agent()
        head = await agent.ask(b"CONNECT %s HTTP/1.1\r\nHost: %s\r\n%s\r\n" % (authority, authority, b"".join(more)))
        assert head.startswith(b"HTTP/1.1 200 "), head
        return agent


@pytest.fixture
async def forwarded() -> AsyncIterator[Any]:
    async with wire() as w:
        passed: list[str] = []

        async def make(**given: Any) -> Forwarded:
            options = ForwardOptions(naming=Names(), on_passed=passed.append, **given)
            return Forwarded(w, await w.engine.listen_forward(options), passed)

        yield make


def user(name: bytes) -> bytes:
    return b"Proxy-Authorization: Basic %s\r\n" % b64encode(name)


@pytest.mark.parametrize(
    ("plain", "name"),
    [(b"e1:x", "e1"), (b"e1", "e1"), (b"a:b:x", "a:b"), (b"caf%C3%A9:", "café"), (b":x", None)],
)  # fmt: skip
def test_the_user_ends_at_the_last_colon_and_is_percent_decoded(plain: bytes, name: str | None) -> None:
    assert user_of(b"Basic " + b64encode(plain)) == name


@pytest.mark.parametrize("value", [b"", b"Basic", b"Basic ***", b"Bearer abc", b"Digest username=x"])
def test_other_credentials_name_no_episode_and_go_no_further(value: bytes) -> None:
    assert take_credentials(((b"Proxy-Authorization", value), (b"A", b"1"))) == (((b"A", b"1"),), None)


@pytest.mark.parametrize("in_tunnel", [False, True])
async def test_nothing_changes_but_what_is_listed(forwarded: Any, *, in_tunnel: bool) -> None:
    answer = b'HTTP/1.1 203 Odd Reason\r\nX-B: 1\r\nx-b:  2\r\nAlt-Svc: h3=":1"\r\nLocation: /rp/e/next\r\n'
    answer += b"Set-Cookie: a=1; Path=/x\r\nContent-Length: 2\r\n\r\nok"
    f = await forwarded()
    environment: Environment = await f.w.environment(says(answer))
    authority = environment.authority
    agent = await (f.tunnel(authority) if in_tunnel else f.agent())
    origin = b"http://" + authority
    got = await agent.ask(
        b"POST %s/rp/e1//a%%2f?b HTTP/1.1\r\nX-A: 1\r\nHost: %s\r\nx-a:  2\r\nCookie: c=1\r\nProxy-Connection: x\r\n%s"
        b"Content-Length: 3\r\n\r\nabc" % (origin, authority, user(b"ep:x"))
    )
    assert got == answer.replace(b'Alt-Svc: h3=":1"\r\n', b"").replace(b"x-b:  2", b"x-b: 2")
    (seen,) = environment.requests
    assert seen == (
        b"POST /rp/e1//a%%2f?b HTTP/1.1\r\nX-A: 1\r\nHost: %s\r\nx-a: 2\r\nCookie: c=1\r\nContent-Length: 3\r\n\r\nabc"
        % authority
    )
    exchange = await f.w.scribe.exchange()
    assert exchange.request.target == b"/rp/e1//a%2f?b", "in forward mode a path is never a mark"
    assert exchange.carrier == "proxy-user"
    assert exchange.response is not None
    assert (b"Alt-Svc", b'h3=":1"') in exchange.response.fields


async def test_the_user_of_a_tunnel_counts_for_all_that_comes_through_it(forwarded: Any) -> None:
    f = await forwarded()
    environment = await f.w.environment(says(OK))
    one = await f.tunnel(environment.authority, user(b"e1:x"))
    other = await f.tunnel(environment.authority, user(b"e2:x"))
    for agent in (one, other, one):
        await agent.ask(b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
    await f.w.scribe.exchange(3)
    names = [ticket.attribution.episode.name for ticket in f.w.scribe.tickets]
    assert names == ["e1", "e2", "e1"]


async def test_a_header_is_a_stronger_carrier_than_the_user(forwarded: Any) -> None:
    f = await forwarded()
    environment = await f.w.environment(says(OK))
    agent = await f.tunnel(environment.authority, user(b"weak:x"))
    await agent.ask(b"GET /a HTTP/1.1\r\nHost: x\r\nX-Replay-Episode: strong\r\n\r\n")
    exchange = await f.w.scribe.exchange()
    assert exchange.carrier == "header"
    assert b"strong" not in environment.requests[0]


@pytest.mark.parametrize("in_tunnel", [False, True])
async def test_a_host_that_is_not_there_is_an_exchange_that_was_refused(forwarded: Any, *, in_tunnel: bool) -> None:
    f = await forwarded()
    environment = await f.w.environment(says(OK))
    authority = environment.authority
    await environment.stop()
    agent = await (f.tunnel(authority) if in_tunnel else f.agent())
    got = await agent.ask(b"GET http://%s/a HTTP/1.1\r\nHost: %s\r\n\r\n" % (authority, authority))
    assert got.startswith(b"HTTP/1.1 502 ")
    assert (await f.w.scribe.exchange()).outcome is Outcome.REFUSED


async def test_a_request_to_the_proxy_itself_does_not_run_in_a_circle(forwarded: Any) -> None:
    f = await forwarded()
    agent = await f.agent()
    own = f.listener.url.encode()
    got = await agent.ask(b"GET %s/a HTTP/1.1\r\nHost: %s\r\n\r\n" % (own, own[7:]))
    assert got.startswith(b"HTTP/1.1 400 ")
    assert b"the proxy's own" in got
    asks = await f.agent()
    await asks.send(b"HEAD %s/a HTTP/1.1\r\nHost: %s\r\n\r\n" % (own, own[7:]))
    head, _, content = (await asks.read_to_end()).partition(b"\r\n\r\n")
    assert (head[:13], content) == (b"HTTP/1.1 400 ", b"")
    assert f.w.scribe.exchanges == []


@pytest.mark.parametrize("said", [b"SSH-2.0-OpenSSH_9.2\r\n", bytes.fromhex("001d00010100"), b"\x05\x01\x00"])
async def test_what_is_no_http_in_a_tunnel_is_told_so(forwarded: Any, said: bytes) -> None:
    f = await forwarded()
    environment = await f.w.environment(says(OK))
    agent = await f.tunnel(environment.authority)
    await agent.send(said)
    assert (await agent.read_to_end()).startswith(b"HTTP/1.1 400 ")
    assert environment.connections == 0
    await f.w.scribe.until(lambda: "unreadable-request" in f.w.scribe.kinds())


async def test_what_passes_in_a_tunnel_passes_as_it_is(forwarded: Any) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.read(100))[::-1])

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    f = await forwarded(passes=HostList.parse([f"127.0.0.1:{port}"]))
    agent = await f.tunnel(b"127.0.0.1:%d" % port)
    await agent.send(b"\x00\x01no http")
    assert await agent.read(9) == b"ptth on\x01\x00"
    assert f.passed == [f"127.0.0.1:{port}"]
    assert f.w.scribe.tickets == []
    server.close()
