"""Sixteen episodes at once over real sockets, two of them with two lanes, equal requests among them."""

from __future__ import annotations

import asyncio
import json
import random

import pytest

from replayproxy.core.values import Exchange
from replayproxy.storage import Store
from tests.properties.test_interleavings import EPISODES, episode
from tests.serve.staged import Staged, record, staged

type Lane = tuple[str, str, list[Exchange]]


def lanes() -> list[Lane]:
    """(episode, lane, what it asked in its order) of every lane."""
    found = []
    for number in range(EPISODES):
        recorded = sorted(episode(number), key=lambda one: one.order)
        for lane in sorted({one.lane for one in recorded}):
            found.append((f"e{number}", lane, [one for one in recorded if one.lane == lane]))
    return found


async def drive(on: Staged, name: str, lane: str, asked: list[Exchange], choose: random.Random) -> None:
    """One connection that asks like the recorded agent, with pauses of its own, and checks each answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", on.ports["app"])
    for one in asked:
        await asyncio.sleep(choose.random() * 0.004)
        method, target = one.request.method.decode(), one.request.target.decode()
        writer.write(f"{method} /rp/{name}{target} HTTP/1.1\r\nHost: h\r\nX-Replay-Lane: {lane}\r\n\r\n".encode())
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
        size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        assert one.response is not None
        assert one.response.body is not None
        assert json.loads(await reader.readexactly(size)) == json.loads(one.response.body.inline or b"")
    writer.close()


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_every_lane_gets_its_own_answers_in_its_own_order(store: Store, seed: int) -> None:
    run = record(store, {f"e{number}": episode(number) for number in range(EPISODES)})
    choose = random.Random(seed)
    async with staged(store, run, sole=None) as on:
        await asyncio.gather(*(drive(on, *lane, random.Random(choose.random())) for lane in lanes()))
        receipt = on.receipt()
    assert receipt["reproduced"] is True
    assert [one["reproduced"] for one in receipt["episodes"]] == [True] * EPISODES
    assert receipt["served"]["exact"] == 20 * EPISODES
    assert receipt["not_replayed"] == []
