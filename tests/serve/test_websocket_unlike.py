"""An agent that does on a WebSocket what it did not do when it was recorded, and how a conversation keeps its order."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
from aiohttp import ClientWebSocketResponse, WSMsgType

from replayproxy.core.receipt import judged
from replayproxy.serve.sending import Pace
from replayproxy.storage import Store
from replayproxy.testing import exchange
from tests.serve.staged import record, staged
from tests.serve.talks import agent, connected, env, talk

STEPS = [agent('{"n": 1}'), env("a"), agent('{"n": 2}'), env("b"), agent('{"n": 3}'), env("c")]


async def closed(socket: ClientWebSocketResponse) -> tuple[Any, Any]:
    """(code, reason) of the close frame that comes next."""
    got = await socket.receive(5)
    assert got.type is WSMsgType.CLOSE, got
    return got.data, got.extra


async def test_messages_in_another_order_are_told_with_the_place_they_had(store: Store) -> None:
    run = record(store, {"e": [talk(*STEPS)]})
    async with staged(store, run) as s:
        async with connected(s) as socket:
            await socket.send_str('{"n": 1}')
            await socket.receive_str()
            await socket.send_str('{"n": 3}')
            assert await closed(socket) == (4470, "messages/3/n: recorded 2, asked 3")
        [miss] = s.receipt()["misses"]
    assert [(near["message"], near["state"], near.get("note")) for near in miss["nearest"]] == [
        (3, "free", None),
        (5, "free", "the same message, recorded after this place"),
        (1, "answered", None),
    ]
    assert (miss["message"], miss["status"], miss["request"]) == (3, 4470, "GET /ws")


async def test_a_message_that_comes_twice_is_told_as_consumed(store: Store) -> None:
    run = record(store, {"e": [talk(*STEPS)]})
    async with staged(store, run) as s:
        async with connected(s) as socket:
            for _ in range(2):
                await socket.send_str('{"n": 1}')
                last = await socket.receive()
            assert last.data == 4470
        [miss] = s.receipt()["misses"]
    assert miss["nearest"][1]["state"] == "consumed"


async def test_one_message_too_many_is_a_miss(store: Store) -> None:
    run = record(store, {"e": [talk(agent("a"), env("b"))]})
    async with staged(store, run) as s:
        async with connected(s) as socket:
            await socket.send_str("a")
            await socket.receive_str()
            await socket.send_str("more")
            code, reason = await closed(socket)
        receipt = s.receipt()
    assert (code, reason) == (4470, "messages/3: no message of the agent was recorded here, asked text of 4 bytes")
    assert (receipt["missed"], receipt["reproduced"]) == (1, False)


async def test_another_type_is_a_miss(store: Store) -> None:
    run = record(store, {"e": [talk(agent("a"))]})
    async with staged(store, run) as s, connected(s) as socket:
        await socket.send_bytes(b"a")
        assert await closed(socket) == (4470, "messages/1/type: recorded text, asked binary")


@pytest.mark.parametrize("how", ["closes", "leaves"])
async def test_an_agent_that_ends_early_has_departed(store: Store, how: str) -> None:
    run = record(store, {"e": [talk(*STEPS)]})
    async with staged(store, run) as s:
        async with connected(s) as socket:
            await socket.send_str('{"n": 1}')
            await socket.receive_str()
            if how == "closes":
                await socket.close(code=1001)
            else:
                socket._response.connection.transport.abort()  # type: ignore[union-attr]
        await asyncio.sleep(0.1)
        receipt = s.receipt()
    assert (receipt["departures"], receipt["missed"], receipt["served"]["exact"]) == (1, 0, 0)
    assert (receipt["reproduced"], judged(receipt)) == (False, 1)
    told = {"closes": "the agent closed with 1001 before message 3", "leaves": "the agent left before message 3"}
    assert receipt["first_divergence"]["text"] == told[how]
    assert receipt["first_divergence"]["kind"] == "left"


async def test_another_close_code_is_a_miss_that_names_it(store: Store) -> None:
    run = record(store, {"e": [talk(code=1000)]})
    async with staged(store, run) as s:
        async with connected(s) as socket:
            await socket.close(code=4001)
        receipt = s.receipt()
    assert (receipt["missed"], receipt["first_divergence"]["pointer"]) == (1, "close/code")
    assert (receipt["first_divergence"]["recorded"], receipt["first_divergence"]["asked"]) == (1000, 4001)


async def test_an_agent_that_closes_where_the_recorded_one_was_lost_differs(store: Store) -> None:
    run = record(store, {"e": [talk(code=1006)]})
    async with staged(store, run) as s:
        async with connected(s) as socket:
            await socket.close(code=1000)
        receipt = s.receipt()
    assert receipt["first_divergence"]["pointer"] == "close/code"
    assert receipt["first_divergence"]["recorded"] == 1006


async def test_a_conversation_that_was_open_at_the_end_stays_open_until_the_agent_leaves(store: Store) -> None:
    run = record(store, {"e": [talk(agent("a"), env("b"), code=None)]})
    async with staged(store, run) as s:
        async with connected(s) as socket:
            await socket.send_str("a")
            assert await socket.receive_str() == "b"
            with pytest.raises(TimeoutError):
                await socket.receive(0.3)
            await socket.close(code=1001)
        await asyncio.sleep(0.1)  # after a receive that timed out, this client does not wait for the close's answer
        receipt = s.receipt()
    assert receipt["reproduced"], receipt


async def test_a_replay_that_ends_before_the_agent_did_is_not_reproduced(store: Store) -> None:
    run = record(store, {"e": [talk(*STEPS)]})
    async with staged(store, run) as s, connected(s) as socket:
        await socket.send_str('{"n": 1}')
        await socket.receive_str()
        await s.origin.stop(grace=1)
        receipt = s.receipt()
    assert receipt["first_divergence"]["text"] == "the replay ended before message 3 came"
    assert not receipt["reproduced"]


async def test_ids_of_json_rpc_calls_are_bound_and_answers_carry_the_live_one(store: Store) -> None:
    call = '{"jsonrpc": "2.0", "id": %s, "method": "add", "params": {"n": %d}}'
    answer = '{"jsonrpc":"2.0","result":{"n":%d,"id":7},"id":%s}'
    said = [agent(call % (7, 1)), agent(call % (8, 2)), env(answer % (2, 8)), env(answer % (1, 7))]
    run = record(store, {"e": [talk(*said)]})
    async with staged(store, run) as s:
        async with connected(s) as socket:
            await socket.send_str(call % ('"x-1"', 1))
            await socket.send_str(call % ('"x-2"', 2))
            assert await socket.receive_str() == answer % (2, '"x-2"')
            assert await socket.receive_str() == answer % (1, '"x-1"')
            await socket.close()
        receipt = s.receipt()
    assert receipt["reproduced"], receipt
    assert receipt["served"] == {"exact": 0, "canonical": 1, "relaxed": 0, "repeat": 0}
    assert receipt["bindings"] == [
        {"recorded": 7, "live": "x-1", "exchange": "r/e/1", "place": "messages/1/id", "kind": "json-rpc"},
        {"recorded": 8, "live": "x-2", "exchange": "r/e/1", "place": "messages/2/id", "kind": "json-rpc"},
    ]


@pytest.mark.parametrize(("speed", "least", "most"), [(0.0, 0.0, 0.25), (1.0, 0.55, 2.5), (2.0, 0.25, 1.5)])
async def test_messages_of_the_environment_keep_their_pace(
    store: Store, speed: float, least: float, most: float
) -> None:
    said = [agent("go", 100), env("a", 300), env("b", 500), env("c", 700)]
    run = record(store, {"e": [talk(*said, took_ms=800)]})
    async with staged(store, run, pace=Pace(speed=speed)) as s, connected(s) as socket:
        began = time.monotonic()
        await socket.send_str("go")
        for _ in range(3):
            await socket.receive_str()
        took = time.monotonic() - began
        await socket.close()
    assert least <= took <= most


async def test_a_ping_is_answered_while_a_recorded_pause_is_kept(store: Store) -> None:
    run = record(store, {"e": [talk(agent("go", 100), env("late", 1100), took_ms=1200)]})
    async with staged(store, run, pace=Pace(speed=1.0)) as s, connected(s, autoping=False) as socket:
        await socket.send_str("go")
        await socket.ping(b"alive?")
        began = time.monotonic()
        got = await socket.receive(5)
        assert (got.type, bytes(got.data)) == (WSMsgType.PONG, b"alive?")
        assert time.monotonic() - began < 0.5
        assert await socket.receive_str() == "late"
        await socket.close()


async def test_others_are_served_while_a_conversation_waits(store: Store) -> None:
    open_one = talk(agent("a"), env("b"), lane="left")
    run = record(store, {"e": [open_one, exchange("GET", "/x", body=b"plain", at_ms=5)]})
    async with staged(store, run) as s:
        async with connected(s, headers={"X-Replay-Lane": "left"}) as socket:
            assert (await s.get("/x")).endswith(b"plain")
            await socket.send_str("a")
            await socket.receive_str()
            await socket.close()
        receipt = s.receipt()
    assert receipt["reproduced"], receipt


async def test_what_came_after_a_conversation_in_another_lane_waits_for_its_end(store: Store) -> None:
    first = talk(agent("a"), env("b"), lane="left", target="/deals/ws", took_ms=10)
    run = record(store, {"e": [first, exchange("GET", "/deals", body=b"after", at_ms=50)]})
    async with staged(store, run) as s:
        async with connected(s, "/deals/ws", headers={"X-Replay-Lane": "left"}) as socket:
            waiting = asyncio.create_task(s.get("/deals"))
            await asyncio.sleep(0.2)
            assert not waiting.done()
            await socket.send_str("a")
            await socket.receive_str()
            await socket.close()
        assert (await waiting).endswith(b"after")
        receipt = s.receipt()
    assert receipt["reproduced"], receipt


async def test_two_connections_with_one_handshake_get_their_conversations_in_order(store: Store) -> None:
    run = record(store, {"e": [talk(agent("1"), env("one")), talk(agent("2"), env("two"), at_ms=50)]})
    async with staged(store, run) as s:
        for say, hear in (("1", "one"), ("2", "two")):
            async with connected(s) as socket:
                await socket.send_str(say)
                assert await socket.receive_str() == hear
                await socket.close()
        receipt = s.receipt()
    assert receipt["reproduced"], receipt
    assert receipt["served"]["exact"] == 2


async def test_equal_handshakes_at_once_in_one_lane_are_ambiguous(store: Store) -> None:
    run = record(store, {"e": [talk(agent("1")), talk(agent("2"), at_ms=0.5)]})
    async with staged(store, run) as s:
        receipt = s.receipt()
    assert receipt["lane_ambiguous"] == 1


async def test_a_large_message_that_differs_at_its_end_is_found(store: Store) -> None:
    recorded = json.dumps({"pad": "x" * 300_000, "last": 1})
    run = record(store, {"e": [talk(agent(recorded))]})
    async with staged(store, run) as s, connected(s) as socket:
        await socket.send_str(recorded.replace('"last": 1', '"last": 2'))
        assert await closed(socket) == (4470, "messages/1/last: recorded 1, asked 2")


async def test_places_are_told_in_a_conversation_that_lies_in_the_store(store: Store) -> None:
    said = [part for n in range(300) for part in (agent(f'{{"n": {n}}}'), env("ok" * 20))]
    run = record(store, {"e": [talk(*said)]})
    async with staged(store, run) as s:
        async with connected(s) as socket:
            for n in range(100):
                await socket.send_str(f'{{"n": {n}}}')
                await socket.receive_str()
            await socket.send_str('{"n": 105}')
            assert await closed(socket) == (4470, "messages/201/n: recorded 100, asked 105")
        [miss] = s.receipt()["misses"]
    assert [(near["message"], near["state"], near["pointer"]) for near in miss["nearest"][:2]] == [
        (201, "free", "messages/201/n"),
        (211, "free", None),
    ]
