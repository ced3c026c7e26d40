"""A re-drive sends what was recorded and nothing else: no header, redirect, cookie or decoding of a client's own."""

from __future__ import annotations

import gzip

from hypothesis import given, settings
from hypothesis import strategies as st

from replayproxy.session.redrive import Ask, redrive
from replayproxy.session.redrive_targets import Words
from replayproxy.storage import Store
from tests.cases.lab import get, ok, over_a_store, recording
from tests.cases.test_urls import UNLIKE
from tests.proxy.wire import Environment, Peer

PACKED = gzip.compress(b"hello", mtime=0)


async def world(peer: Peer, request: bytes) -> None:
    """Redirects, sets a cookie, packs a body: what a client library would act upon."""
    target = request.split(b" ", 2)[1]
    if target == b"/obs":
        await peer.send(b"HTTP/1.1 302 Found\r\nLocation: /login\r\nSet-Cookie: s=1\r\nContent-Length: 0\r\n\r\n")
    elif target == b"/packed":
        await peer.send(ok(PACKED, b"Content-Encoding: gzip"))
    else:
        await peer.send(ok(b"plain"))


@given(
    targets=st.lists(
        st.sampled_from([b"/obs", b"/packed", *(one for family in UNLIKE for one in family)]), min_size=1, max_size=5
    ),
    fields=st.lists(st.sampled_from([b"accept: text/plain", b"X-b: 1", b"x-B: 2", b"Odd: caf\xe9"]), max_size=3),
)
@settings(max_examples=6, deadline=None)
@over_a_store
async def test_a_redrive_sends_the_recorded_bytes_and_nothing_of_its_own(
    store: Store, targets: list[bytes], fields: list[bytes]
) -> None:
    requests = [get(target, *fields) for target in targets] + [get("/act", method=b"POST", body=b'{"a":1}')]
    async with recording(store, world) as on:
        agent = await on.agent()
        for request in requests:
            await agent.ask(request)
        recorded, was = on.environment.requests, on.environment.authority
    live = Environment(world)
    await live.start()
    try:
        words = Words(env=(f"app={live.url}",), reset=(f"app=POST {live.url}/reset",))
        (one,) = await redrive(store, Ask(addresses=("r/e",), words=words), lambda line: None)
    finally:
        await live.stop()
    sent = [request for request in live.requests if b" /reset " not in request]
    assert sent == [request.replace(was, live.authority) for request in recorded]
    assert one.repetitions[0].comparison.roots == ()
