"""Targets are raw bytes: empty parameters, percent-encodings, dots, IPv6 literals."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replayproxy.session.wiring import EnvSpec
from replayproxy.storage import Store
from tests.cases.lab import get, ok, over_a_store, recording, replaying, talker
from tests.proxy.wire import Environment, Peer, says

few = settings(max_examples=8, deadline=None)

UNLIKE = [
    [
        b"/list?tag=",
        b"/list?tag",
        b"/list",
        b"/list?",
        b"/list?&",
        b"/list?tag=&tag=",
        b"/list?tag=x",
        b"/list?=tag",
        b"/List?tag=",
    ],
    [b"/files/a%2Fb", b"/files/a/b", b"/files/a%2fb", b"/files/a%252Fb"],
    [b"/x/%7Eu", b"/x/~u", b"/x/%7eu"],
    [b"/p?q=%27a%27", b"/p?q='a'", b"/p?q=%22a%22"],
    [b"/x/../y//z", b"/y//z", b"/y/z", b"/x/%2e%2e/y//z", b"/x/./../y//z"],
    [b"/s?q=a+b", b"/s?q=a%20b", b"/s?q=a%2Bb"],
    [b"/s?a=1&a=2", b"/s?a=2&a=1", b"/s?a=1"],
    [b"/caf\xc3\xa9", b"/caf%C3%A9", b"/cafe\xcc\x81"],
    [b"/m;v=1", b"/m%3Bv=1", b"/m"],
]


async def echo(peer: Peer, request: bytes) -> None:
    """Says which target it was asked for."""
    await peer.send(ok(request.split(b" ", 2)[1].hex().encode()))


@given(family=st.sampled_from(UNLIKE), data=st.data(), prefixed=st.booleans())
@settings(max_examples=20, deadline=None)
@over_a_store
async def test_targets_that_differ_by_a_byte_are_never_taken_for_each_other(
    store: Store, family: list[bytes], data: st.DataObject, prefixed: bool
) -> None:
    kept, *others = data.draw(st.permutations(family))
    lead = b"/rp/e" if prefixed else b""
    async with recording(store, echo) as on:
        live = await on.ask(get(lead + kept))
        assert live.endswith(kept.hex().encode())
    async with replaying(store) as origin:
        again = await talker(origin.ports["app"])
        for other in others:
            assert (await again.ask(get(lead + other))).startswith(b"HTTP/1.1 470 "), (kept, other)
        assert await again.ask(get(lead + kept)) == live
        again.close()


@given(query=st.permutations([b"a=1", b"b=2", b"c=", b"d"]))
@few
@over_a_store
async def test_only_the_order_of_differently_named_parameters_is_ignored(store: Store, query: list[bytes]) -> None:
    async with recording(store, echo) as on:
        live = await on.ask(get(b"/s?a=1&b=2&c=&d"))
    async with replaying(store) as origin:
        again = await talker(origin.ports["app"])
        assert await again.ask(get(b"/s?" + b"&".join(query))) == live
        again.close()


async def test_an_empty_query_is_not_no_query_in_the_store_and_goes_out_as_it_came(store: Store) -> None:
    targets = [b"/list", b"/list?", b"/list?&", b"/list?tag", b"/list?tag="]
    async with recording(store, echo) as on:
        agent = await on.agent()
        for one in targets:
            assert (await agent.ask(get(one))).endswith(one.hex().encode())
        assert [each.request.target for each in await on.exchanges(count=len(targets))] == targets


@pytest.mark.parametrize("absolute", [False, True])
async def test_an_ipv6_literal_keeps_its_brackets_and_the_request_arrives(store: Store, absolute: bool) -> None:
    environment = Environment(echo)
    server = await asyncio.start_server(environment._serve, "::1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        spec = EnvSpec(name="app", upstream=f"http://[::1]:{port}")
        async with recording(store, says(b""), envs=(spec,), listen="::1") as on:
            bound = on.port()
            agent = await talker(bound, "::1")
            lead = b"http://[::1]:%d" % bound if absolute else b""
            answer = await agent.ask(b"GET %s/x HTTP/1.1\r\nHost: [::1]:%d\r\n\r\n" % (lead, bound))
            agent.close()
            assert answer.endswith(b"/x".hex().encode())
            (one,) = await on.exchanges(count=1)
            url = on.recorder.addresses.plain_urls()["app"]
        assert environment.requests == [b"GET /x HTTP/1.1\r\nHost: [::1]:%d\r\n\r\n" % port]
        assert (urlsplit(url).hostname, urlsplit(url).port) == ("::1", bound)
        assert (urlsplit(one.upstream).hostname, urlsplit(one.upstream).port) == ("::1", port)
        assert one.request.agent_host == b"[::1]:%d" % bound
    finally:
        server.close()
