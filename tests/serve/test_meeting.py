"""WebSockets without any mark in the replay of a run: the first message tells whose each is."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import WSMsgType

from replayproxy.core.identity import LATE
from replayproxy.core.values import Exchange, Message, Run
from replayproxy.serve import meeting
from replayproxy.storage import Store
from replayproxy.testing import exchange
from tests.serve.staged import record, staged
from tests.serve.talks import UPGRADE, agent, connected, env, talk

RULE = {
    "name": "openenv",
    "action": "extract",
    "at": "GET /ws",
    "connection": True,
    "frame": "/data/episode_id",
    "fills": "episode",
}


def begun(name: str, *said: Message, at_ms: float = 0.0) -> Exchange:
    first = agent(f'{{"type": "reset", "data": {{"episode_id": "{name}"}}}}')
    one = talk(first, env(f"hello {name}"), *said, at_ms=at_ms, carrier="rule")
    return replace(one, notes=(LATE,))


def recorded(store: Store, *names: str, **more: Any) -> Run:
    episodes = {name: [begun(name, agent("step"), env(f"done {name}"), at_ms=at)] for at, name in enumerate(names)}
    return record(store, episodes, config={"rule": [RULE]}, **more)


async def play(s: Any, name: str) -> list[str]:
    async with connected(s) as socket:
        await socket.send_str(f'{{"type":"reset","data":{{"episode_id":"{name}"}}}}')
        heard = [await socket.receive_str()]
        await socket.send_str("step")
        heard.append(await socket.receive_str())
        await socket.close()
    return heard


async def test_each_connection_is_played_from_the_episode_that_its_first_message_names(store: Store) -> None:
    run = recorded(store, "e1", "e2", "e3")
    async with staged(store, run, sole=None) as s:
        heard = await asyncio.gather(*(play(s, name) for name in ("e3", "e1", "e2")))
        receipt = s.receipt()
    assert heard == [[f"hello {name}", f"done {name}"] for name in ("e3", "e1", "e2")]
    assert receipt["reproduced"], receipt
    assert receipt["served"]["canonical"] == 3


async def test_a_name_that_no_episode_has_is_turned_away_with_the_reason(store: Store) -> None:
    run = recorded(store, "e1", "e2")
    async with staged(store, run, sole=None) as s:
        async with connected(s) as socket:
            await socket.send_str('{"type": "reset", "data": {"episode_id": "e9"}}')
            closing = await socket.receive(5)
            assert (closing.type, closing.data) == (WSMsgType.CLOSE, 4470)
        receipt = s.receipt()
    assert receipt["missed"] == 1
    assert len(s.misses) == 1


async def test_a_connection_that_says_nothing_is_turned_away(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "FIRST_MESSAGE", 0.2)
    run = recorded(store, "e1", "e2")
    async with staged(store, run, sole=None) as s:
        async with connected(s) as socket:
            closing = await socket.receive(5)
            assert (closing.type, closing.data) == (WSMsgType.CLOSE, 4470)
        receipt = s.receipt()
    assert receipt["unattributed"][0]["reason"] == "no message came that could tell its episode"


async def test_a_handshake_that_is_none_is_refused(store: Store) -> None:
    run = recorded(store, "e1", "e2")
    async with staged(store, run, sole=None) as s:
        answer = await s.get("/ws", Upgrade="websocket", Sec_WebSocket_Key="short")
    assert answer.startswith(b"HTTP/1.1 470 ")


async def test_an_episode_that_was_played_already_is_a_miss_on_the_wire(store: Store) -> None:
    run = recorded(store, "e1", "e2")
    async with staged(store, run, sole=None) as s:
        await play(s, "e1")
        async with connected(s) as socket:
            await socket.send_str('{"type": "reset", "data": {"episode_id": "e1"}}')
            closing = await socket.receive(5)
            assert (closing.type, closing.data) == (WSMsgType.CLOSE, 4470)
        receipt = s.receipt()
    assert receipt["missed"] == 1


async def test_a_handshake_that_was_refused_when_recorded_is_not_a_conversation_now(store: Store) -> None:
    refused = exchange("GET", "/ws", status=403, request_headers=UPGRADE)
    run = record(store, {"e1": [refused], "e2": []}, config={"rule": [RULE]})
    async with staged(store, run, sole=None) as s:
        async with connected(s) as socket:
            await socket.send_str('{"type": "reset", "data": {"episode_id": "e1"}}')
            closing = await socket.receive(5)
            assert (closing.data, closing.extra) == (4470, "this handshake was refused when recorded")
        receipt = s.receipt()
    assert receipt["missed"] == 1
