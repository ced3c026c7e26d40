"""The record add-on in a mitmproxy that is not ours."""

from __future__ import annotations

import asyncio
import time
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mitmproxy import exceptions, options
from mitmproxy.addons import core, next_layer, proxyserver, tlsconfig
from mitmproxy.master import Master

from replayproxy.core.values import Outcome
from replayproxy.proxy.standalone import standalone_addon
from tests.proxy.test_websocket import ACCEPT, UPGRADE, frame, read_frame
from tests.proxy.wire import Environment, FakeScribe, Peer, says

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@asynccontextmanager
async def users_own(scribe: FakeScribe, mode: str, tmp_path: Any, **more: Any) -> AsyncIterator[tuple[str, int]]:
    master = Master(options.Options())
    server = proxyserver.Proxyserver()  # type: ignore[no-untyped-call]
    addon = standalone_addon(scribe, now=time.monotonic_ns, wall=time.time_ns)
    master.addons.add(core.Core(), server, next_layer.NextLayer(), tlsconfig.TlsConfig(), addon)  # type: ignore[no-untyped-call]
    master.options.update(mode=[f"{mode}@127.0.0.1:0"], confdir=str(tmp_path), **more)  # type: ignore[no-untyped-call]
    running = asyncio.create_task(master.run())
    async with asyncio.timeout(10):
        while not server.listen_addrs():
            await asyncio.sleep(0.01)
    try:
        yield server.listen_addrs()[0][:2]
    finally:
        master.shutdown()  # type: ignore[no-untyped-call]
        await running


@asynccontextmanager
async def environment(answerer: Any) -> AsyncIterator[Environment]:
    made = Environment(answerer)
    await made.start()
    yield made
    await made.stop()


async def test_reverse_mode_records_and_puts_links_right_as_our_own_listeners_do(tmp_path: Any) -> None:
    scribe = FakeScribe()
    async with environment(says(b"")) as env:
        answer = b"HTTP/1.1 302 Found\r\nLocation: %s/b\r\nContent-Length: 0\r\n\r\n" % env.url.encode()
        env._answerer = says(answer)
        async with users_own(scribe, f"reverse:{env.url}", tmp_path, replay_env=[f"crm={env.url}"]) as (host, port):
            agent = Peer(*await asyncio.open_connection(host, port))
            got = await agent.ask(b"GET /rp/e1/a HTTP/1.1\r\nHost: %s:%d\r\n\r\n" % (host.encode(), port))
            agent.close()
            assert b"Location: http://%s:%d/rp/e1/b\r\n" % (host.encode(), port) in got
        assert env.requests == [b"GET /a HTTP/1.1\r\nHost: %s\r\n\r\n" % env.authority]
    exchange = scribe.exchanges[0]
    assert (exchange.env, exchange.carrier, exchange.upstream) == ("crm", "prefix", env.url)
    assert exchange.request.agent_host == b"%s:%d" % (host.encode(), port)
    assert exchange.outcome is Outcome.ANSWERED
    assert scribe.faults == []


async def test_regular_mode_takes_marks_off_and_leaves_paths_links_and_hosts(tmp_path: Any) -> None:
    scribe = FakeScribe()
    async with environment(says(b"")) as env:
        answer = b"HTTP/1.1 302 Found\r\nLocation: %s/b\r\nContent-Length: 0\r\n\r\n" % env.url.encode()
        env._answerer = says(answer)
        async with users_own(scribe, "regular", tmp_path) as (host, port):
            agent = Peer(*await asyncio.open_connection(host, port))
            request = b"GET %s/rp/x HTTP/1.1\r\nHost: %s\r\nX-Replay-Episode: e1\r\n\r\n"
            assert await agent.ask(request % (env.url.encode(), env.authority)) == answer
            agent.close()
        assert env.requests == [b"GET /rp/x HTTP/1.1\r\nHost: %s\r\n\r\n" % env.authority]
    exchange = scribe.exchanges[0]
    assert (exchange.env, exchange.carrier) == (f"env-127-0-0-1-{env.port}", "header")
    assert scribe.kinds().count("escaping-links") == 0


async def test_regular_mode_takes_the_episode_from_the_proxy_s_user_and_keeps_it_to_itself(tmp_path: Any) -> None:
    scribe = FakeScribe()
    user = b"Proxy-Authorization: Basic %s\r\n" % b64encode(b"e1:x")
    async with environment(says(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")) as env:
        async with users_own(scribe, "regular", tmp_path) as (host, port):
            agent = Peer(*await asyncio.open_connection(host, port))
            await agent.ask(b"GET %s/a HTTP/1.1\r\nHost: %s\r\n%s\r\n" % (env.url.encode(), env.authority, user))
            agent.close()
            agent = Peer(*await asyncio.open_connection(host, port))
            await agent.ask(b"CONNECT %s HTTP/1.1\r\nHost: x\r\n%s\r\n" % (env.authority, user))
            await agent.ask(b"GET /b HTTP/1.1\r\nHost: %s\r\n\r\n" % env.authority)
            agent.close()
    assert [exchange.carrier for exchange in scribe.exchanges] == ["proxy-user", "proxy-user"]
    assert not any(b"proxy" in request.lower() for request in env.requests)


async def test_other_add_ons_still_see_websocket_messages(tmp_path: Any) -> None:
    scribe = FakeScribe()

    async def answerer(peer: Peer, request: bytes) -> None:
        await peer.send(ACCEPT + frame(1, b"x") + frame(8, b""))

    async with environment(answerer) as env:
        async with users_own(scribe, f"reverse:{env.url}", tmp_path) as (host, port):
            agent = Peer(*await asyncio.open_connection(host, port))
            await agent.send(UPGRADE)
            assert await agent.read_head() == ACCEPT
            assert await read_frame(agent) == (1, b"x")
            exchange = await scribe.exchange()
            agent.close()
    assert exchange.websocket is not None
    assert [message.payload for message in exchange.websocket.messages] == [b"x"]


@pytest.mark.parametrize("text", ["crm", "1=http://a", "crm=ftp://a"])
async def test_a_bad_name_is_refused_at_start(tmp_path: Any, text: str) -> None:
    with pytest.raises(exceptions.OptionsError, match="replay_env"):
        async with users_own(FakeScribe(), "regular", tmp_path, replay_env=[text]):
            pass
