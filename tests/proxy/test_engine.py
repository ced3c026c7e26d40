"""Listeners, routing to environments, and stopping."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import Any

import pytest

from replayproxy.core.values import Outcome
from replayproxy.errors import WorldTrouble, WrongUsage
from tests.needs import absent
from tests.proxy.wire import Peer, Wire, says, wire

GET = b"GET /rp/e1/a HTTP/1.1\r\nHost: x\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


async def test_any_number_of_listeners_each_with_its_own_environment(w: Wire) -> None:
    environments = [await w.environment(says(OK)) for _ in range(3)]
    listeners = [await w.listen(e, env=f"e{n}", port_episode=f"p{n}") for n, e in enumerate(environments)]
    assert len({listener.bound for listener in listeners}) == 3
    for environment, listener in zip(environments, listeners, strict=True):
        agent = await w.agent(listener)
        assert await agent.ask(b"GET /rp/x HTTP/1.1\r\nHost: x\r\n\r\n") == OK
        assert [request.split()[1] for request in environment.requests] == [b"/rp/x"]
    await w.scribe.exchange(3)
    assert [(e.env, e.carrier) for e in w.scribe.exchanges] == [("e0", "port"), ("e1", "port"), ("e2", "port")]


async def test_two_listeners_on_one_environment_are_told_apart(w: Wire) -> None:
    environment = await w.environment(says(OK))
    for name in ("a", "b"):
        agent = await w.agent(await w.listen(environment, port_episode=name))
        await agent.ask(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    await w.scribe.exchange(2)
    assert [t.attribution.episode.name for t in w.scribe.tickets if t.attribution.episode] == ["a", "b"]


async def test_a_port_that_is_taken_is_the_worlds_trouble(w: Wire) -> None:
    environment = await w.environment(says(OK))
    with pytest.raises(WorldTrouble, match=rf"port taken: 127\.0\.0\.1:{environment.port}"):
        await w.engine.listen("app", environment.url, port=environment.port)


async def test_an_address_of_another_machine_is_the_worlds_trouble(w: Wire) -> None:
    with pytest.raises(WorldTrouble, match=r"cannot listen on 192\.0\.2\.1:1234"):
        await w.engine.listen("app", "http://127.0.0.1:1", host="192.0.2.1", port=1234)


@pytest.mark.parametrize(
    "url", ["127.0.0.1:80", "ftp://a", "http://", "http://a/?x", "http://u:p@a/", "http://a:99999"]
)
async def test_an_upstream_that_is_none_is_refused(w: Wire, url: str) -> None:
    with pytest.raises(WrongUsage, match="is no environment's URL"):
        await w.engine.listen("app", url)


async def test_the_path_of_an_upstream_is_kept_in_the_urls_and_not_added_to_requests(w: Wire) -> None:
    environment = await w.environment(says(OK))
    w.scribe.urls["app"] = environment.url
    listener = await w.engine.listen("app", environment.url + "/v1/")
    assert listener.url == f"http://127.0.0.1:{listener.bound[1]}/v1"
    assert listener.episode_url("e%201") == f"{listener.origin}/rp/e%201/v1"
    agent = await w.agent(listener)
    await agent.ask(b"GET /rp/e%201/v1/x HTTP/1.1\r\nHost: x\r\n\r\n")
    assert environment.requests[0].split()[1] == b"/v1/x"
    advertised = await w.engine.listen("app", environment.url + "/v1", advertise="http://box.test:99/")
    assert advertised.url == "http://box.test:99/v1"


async def test_a_dynamic_listener_sends_each_request_where_its_ticket_says(w: Wire) -> None:
    first, second = await w.environment(says(OK)), await w.environment(says(OK))
    agent = await w.agent(await w.engine.listen("app", "dynamic"))
    for environment in (first, second, first):
        w.scribe.urls["app"] = environment.url
        assert await agent.ask(GET) == OK
    host = b"GET /a HTTP/1.1\r\nHost: %s\r\n\r\n"
    assert first.requests == [host % first.authority] * 2
    assert second.requests == [host % second.authority]
    await w.scribe.exchange(3)
    assert [e.upstream for e in w.scribe.exchanges] == [first.url, second.url, first.url]


async def test_an_environment_that_restarts_on_its_port_is_reached_anew(w: Wire) -> None:
    environment, _, agent = await w.between(says(OK))
    assert await agent.ask(GET) == OK
    await environment.stop()
    await w.scribe.until(lambda: "upstream-closed" in w.scribe.kinds())
    await environment.start()
    assert await agent.ask(GET) == OK
    assert environment.connections == 2
    await w.scribe.exchange(2)
    first, second = w.scribe.exchanges
    assert first.agent_connection == second.agent_connection
    assert first.env_connection != second.env_connection


async def test_a_request_without_an_upstream_gets_a_502_of_ours_and_is_local(w: Wire) -> None:
    agent = await w.agent(await w.engine.listen("app", "dynamic"))
    await agent.send(b"POST /rp/e1/a HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n" + b"x" * 100000)
    got = await agent.read_to_end()
    assert got.startswith(b"HTTP/1.1 502 Bad Gateway\r\n")
    assert b"Replay-Local: local\r\n" in got
    assert b"no upstream for app" in got
    exchange = await w.scribe.exchange()
    assert (exchange.outcome, exchange.response, exchange.error) == (Outcome.LOCAL, None, "no upstream for app")
    assert exchange.request.body is not None
    assert exchange.request.body.size == 100000
    assert w.scribe.forwarded == []
    assert w.scribe.faults == []


async def test_ipv6_keeps_its_brackets(w: Wire) -> None:
    try:
        server = await asyncio.start_server(_ipv6_answer, "::1", 0)
    except OSError:
        absent("no IPv6 loopback here")
    port = server.sockets[0].getsockname()[1]
    w.scribe.urls["app"] = f"http://[::1]:{port}"
    listener = await w.engine.listen("app", f"http://[::1]:{port}", host="::1")
    assert listener.url == f"http://[::1]:{listener.bound[1]}"
    agent = await w.agent(listener)
    got = await agent.ask(b"GET /a HTTP/1.1\r\nHost: [::1]:%d\r\n\r\n" % listener.bound[1])
    assert got.endswith(b"Host: [::1]:%d" % port)
    assert (await w.scribe.exchange()).upstream == f"http://[::1]:{port}"
    server.close()


async def _ipv6_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    host = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"host:"))
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(host), host))
    await writer.drain()


async def test_accepted_sockets_do_not_wait_for_more_to_send(w: Wire) -> None:
    _, _, agent = await w.between(says(OK))
    await agent.ask(GET)
    handler = next(iter(w.engine._proxyserver.connections.values()))
    writer: Any = handler.transports[handler.client].writer
    assert writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


async def test_one_agents_streams_do_not_block_its_other_requests(w: Wire) -> None:
    _, _, agent = await w.between(says(OK))
    await agent.ask(GET)
    handler = next(iter(w.engine._proxyserver.connections.values()))
    assert handler.max_conns[("127.0.0.1", 1)]._value == 1000


async def test_after_unlisten_nothing_is_accepted_and_connections_go_on(w: Wire) -> None:
    _, listener, agent = await w.between(says(OK))
    await agent.ask(GET)
    await w.engine.unlisten(listener)
    with pytest.raises(ConnectionRefusedError):
        await w.agent(listener)
    assert await agent.ask(GET) == OK
    await w.scribe.exchange(2)


async def test_stop_lets_what_is_in_flight_end_and_closes_what_is_idle() -> None:
    async with wire() as w:
        asked, go = asyncio.Event(), asyncio.Event()

        async def answerer(peer: Peer, request: bytes) -> None:
            asked.set()
            await go.wait()
            await peer.send(OK)

        _, listener, agent = await w.between(answerer)
        idle = await w.agent(listener)
        await agent.send(GET)
        await asyncio.wait_for(asked.wait(), 5)
        stopping = asyncio.create_task(w.engine.stop(grace=5))
        assert await idle.read_to_end() == b""
        with pytest.raises(ConnectionRefusedError):
            await w.agent(listener)
        go.set()
        assert await agent.read_to_end() == OK
        begun = time.monotonic()
        await stopping
        assert time.monotonic() - begun < 2
        assert [e.outcome for e in w.scribe.exchanges] == [Outcome.ANSWERED]
        await w.engine.stop()


async def test_stop_cuts_what_does_not_end_and_reports_it() -> None:
    async with wire() as w:

        async def answerer(peer: Peer, request: bytes) -> None:
            await peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n")
            await peer.reader.read()

        _, _, agent = await w.between(answerer)
        await agent.send(GET)
        await agent.read_head()
        await agent.read(9)
        begun = time.monotonic()
        await w.engine.stop(grace=0.2)
        assert time.monotonic() - begun < 3
        assert await agent.read_to_end() == b""
        assert [(e.outcome, e.response.body.inline) for e in w.scribe.exchanges if e.response and e.response.body] == [
            (Outcome.OPEN_AT_END, b"data: 1\n\n")
        ]
        assert w.engine.in_flight() == ()
        assert w.scribe.faults == []


async def test_what_is_in_flight_is_told_and_can_be_released(w: Wire) -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def answerer(peer: Peer, request: bytes) -> None:
        asked.set()
        await go.wait()
        await peer.send(OK)

    _, _, agent = await w.between(answerer)
    await agent.send(GET)
    await asyncio.wait_for(asked.wait(), 5)
    assert w.engine.in_flight() == tuple(w.scribe.tickets)
    assert w.engine.release(lambda ticket: ticket.env == "other") == 0
    assert w.engine.release(lambda ticket: ticket.env == "app") == 1
    assert w.engine.in_flight() == ()
    go.set()
    assert await agent.read_message() == OK
    assert [e.outcome for e in w.scribe.exchanges] == [Outcome.OPEN_AT_END]


async def test_nothing_of_mitmproxys_log_reaches_stderr(w: Wire, capfd: pytest.CaptureFixture[str]) -> None:
    environment, _, agent = await w.between(says(b"garbage\r\n\r\n"))
    await agent.send(GET)
    await agent.read_to_end()
    await environment.stop()
    assert capfd.readouterr() == ("", "")
