"""A recorded WebSocket conversation answers an agent, message by message."""

from __future__ import annotations

import aiohttp
from aiohttp import WSMsgType

from replayproxy.storage import Store
from replayproxy.testing import exchange
from tests.serve.staged import record, staged
from tests.serve.talks import UPGRADE, agent, connected, env, talk


async def test_a_conversation_is_replayed_to_its_close(store: Store) -> None:
    said = [agent('{"type": "reset"}'), env('{"obs": 0.30000000000000004}'), agent(b"\x00\xff"), env(b"\x01")]
    run = record(store, {"e": [talk(*said, code=4001, reason="bye")]})
    async with staged(store, run) as s:
        async with connected(s) as socket:
            await socket.send_str('{"type": "reset"}')
            assert await socket.receive_str() == '{"obs": 0.30000000000000004}'
            await socket.send_bytes(b"\x00\xff")
            assert await socket.receive_bytes() == b"\x01"
            await socket.close(code=4001, message=b"bye")
        receipt = s.receipt()
    assert receipt["reproduced"], receipt
    assert receipt["served"]["exact"] == 1


async def test_a_message_that_was_not_recorded_closes_with_4470_and_names_the_field(store: Store) -> None:
    said = [agent('{"type": "step", "data": {"action": "left", "n": 1.0}}'), env("ok")]
    run = record(store, {"e": [talk(*said)]})
    async with staged(store, run) as s:
        async with connected(s) as socket:
            await socket.send_str('{"type":"step","data":{"action":"right","n":1}}')
            closing = await socket.receive()
            assert (closing.type, closing.data) == (WSMsgType.CLOSE, 4470)
            assert closing.extra == "messages/1/data/action: recorded left, asked right"
        receipt = s.receipt()
    assert not receipt["reproduced"]
    assert (receipt["missed"], receipt["served"]["exact"], receipt["unused"]) == (1, 0, 0)
    [miss] = receipt["misses"]
    [near] = miss["nearest"]
    assert near == {
        "exchange": "r/e/1", "message": 1, "state": "free", "pointer": "messages/1/data/action",
        "recorded": "left", "asked": "right",
    }  # fmt: skip
    assert receipt["first_divergence"]["kind"] == "message"
    assert receipt["first_divergence"]["pointer"] == "messages/1/data/action"
    assert s.misses == [miss]


async def test_the_handshakes_own_headers_are_those_recorded_but_for_accept_and_extensions(store: Store) -> None:
    run = record(store, {"e": [talk()]})
    async with staged(store, run) as s, aiohttp.ClientSession() as session:
        async with session.ws_connect(s.url() + "/ws", compress=15) as socket:
            assert socket._response.headers["X-Session"] == "s1"
            assert "Sec-WebSocket-Extensions" not in socket._response.headers
            assert next(iter(socket._response.raw_headers))[0] == b"upgrade"
        receipt = s.receipt()
    assert receipt["reproduced"], receipt


async def test_a_plain_get_of_a_recorded_handshake_is_a_miss_that_names_the_upgrade(store: Store) -> None:
    run = record(store, {"e": [talk()]})
    async with staged(store, run) as s:
        answer = await s.get("/ws")
        receipt = s.receipt()
    assert answer.startswith(b"HTTP/1.1 470 ")
    assert receipt["misses"][0]["nearest"][0]["pointer"] == "header/upgrade"
    assert receipt["unused"] == 1


async def test_a_handshake_that_is_none_is_a_miss_and_nothing_is_switched(store: Store) -> None:
    run = record(store, {"e": [talk()]})
    async with staged(store, run) as s:
        answer = await s.get("/ws", Upgrade="websocket", Sec_WebSocket_Version="13")
        receipt = s.receipt()
    assert answer.startswith(b"HTTP/1.1 470 ")
    assert receipt["misses"][0]["detail"] == "r/e/1: header/sec-websocket-key: no valid WebSocket handshake"
    assert receipt["missed"] == 1


async def test_a_refused_handshake_is_the_plain_answer_that_it_is_and_the_connection_goes_on(store: Store) -> None:
    refused = exchange("GET", "/ws", status=403, body=b"no", request_headers=UPGRADE)
    run = record(store, {"e": [refused, exchange("GET", "/x", body=b"plain", at_ms=5)]})
    head = "".join(f"{name}: {value}\r\n" for name, value in UPGRADE)
    async with staged(store, run) as s:
        answers = await s.call(f"GET /ws HTTP/1.1\r\n{head}\r\n".encode() + last("/x"))
        receipt = s.receipt()
    assert answers.startswith(b"HTTP/1.1 403 ")
    assert answers.endswith(b"plain")
    assert receipt["reproduced"], receipt


def last(target: str) -> bytes:
    return f"GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
