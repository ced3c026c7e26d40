"""One redaction, before anything is kept: every carrier, every spelling of its name, every kind of record."""

from __future__ import annotations

import base64
import json

from hypothesis import given, settings
from hypothesis import strategies as st

from replayproxy.core.redact import TOKEN
from replayproxy.storage import Store
from tests.cases.lab import get, ok, over_a_store, recording
from tests.proxy.wire import Peer

A, B = b"AAAkJ3v9QzX7secret", b"BBBmT5w2LpR8secret"
UPGRADE = (
    b"Connection: Upgrade",
    b"Upgrade: websocket",
    b"Sec-WebSocket-Version: 13",
    b"Sec-WebSocket-Key: AQIDBAUGBwgJCgsMDQ4PEA==",
)


def spelt(name: str) -> st.SearchStrategy[bytes]:
    return st.sampled_from([name, name.lower(), name.upper(), name.title(), name.swapcase()]).map(str.encode)


ASKED = st.one_of(
    spelt("authorization").map(lambda name: name + b": Bearer " + A),
    spelt("authorization").map(lambda name: name + b": Basic " + base64.b64encode(b"user:" + A)),
    spelt("proxy-authorization").map(lambda name: name + b": Bearer " + A),
    spelt("cookie").map(lambda name: name + b": theme=dark; sid=" + A),
    spelt("x-api-key").map(lambda name: name + b": " + A),
)


@given(
    asked=st.lists(ASKED, min_size=1, max_size=3),
    cookie=spelt("set-cookie"),
    kind=st.sampled_from(["plain", "upgrade", "fails", "half"]),
)
@settings(max_examples=10, deadline=None)
@over_a_store
async def test_no_kind_of_record_holds_a_secret_and_the_wire_carries_the_live_one(
    store: Store, asked: list[bytes], cookie: bytes, kind: str
) -> None:
    answer = ok(b"{}", cookie + b": sid=" + B + b"; Path=/", b"Content-Type: application/json")

    async def answerer(peer: Peer, request: bytes) -> None:
        if kind == "fails":
            await peer.send(b"HTTP/1.1 200 OK\r\n" + cookie + b": sid=" + B + b"\r\nnonsense\r\n\r\n")
            peer.close()
        else:
            await peer.send(answer)

    request = {
        "plain": get("/x", *asked),
        "upgrade": get("/ws", *UPGRADE, *asked),
        "fails": get("/x", *asked),
        "half": get("/x", *asked, b"Content-Length: 10", method=b"POST") + b"123",
    }[kind]
    async with recording(store, answerer, discreet=True) as on:
        agent = await on.agent()
        await agent.send(request)
        if kind == "half":
            agent.abort()
        else:
            got = await agent.answer()
            assert (got == answer) is (kind != "fails")
        (one,) = await on.exchanges(count=1)
        if kind != "half":
            seen = on.environment.requests[0]
            assert all(field.partition(b": ")[2] in seen for field in asked), "the environment gets the live one"
    reader = store.reader()
    events = reader.events(reader.episode(reader.run("r"), "e"))
    written = (
        repr((one, events, reader.runs(), on.said)).encode() + json.dumps(on.recorder.recording.tally.faults).encode()
    )
    for secret in (A, B, base64.b64encode(b"user:" + A)):
        assert secret not in written
    assert TOKEN.search(written) or all(b"Basic" in field for field in asked)  # there the token is coded, too
    for path in store.path.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert A not in data, path
            assert B not in data, path
