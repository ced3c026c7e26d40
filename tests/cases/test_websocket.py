"""A WebSocket that ends without a close frame ends without one for the other side, in recording and in replay."""

from __future__ import annotations

import asyncio

import pytest

from replayproxy.core.values import Outcome
from replayproxy.storage import Store
from tests.cases.lab import recording, replaying, talker
from tests.proxy.test_websocket import ACCEPT, UPGRADE, Talk, frame, read_frame
from tests.proxy.wire import Peer

HANDSHAKE = UPGRADE.replace(b"/rp/e1/ws", b"/ws")
CLOSES = {
    "without a close frame": (b"", 1006),
    "in the middle of a frame": (frame(1, b"abcdef")[:4], 1006),
    "with a close frame and no code": (frame(8, b""), 1005),
    "with a code": (frame(8, b"\x0f\xa1bye"), 4001),
}


async def say(agent: Peer, environment: Peer | None) -> list[tuple[int, bytes]]:
    """One message each way; what the agent heard."""
    await agent.send(frame(1, b"hello", masked=True))
    if environment is not None:
        assert await read_frame(environment) == (1, b"hello")
        await environment.send(frame(1, b"world") + frame(2, b"\x00\xff"))
    return [await read_frame(agent), await read_frame(agent)]


@pytest.mark.parametrize(("last", "code"), CLOSES.values(), ids=CLOSES)
async def test_how_the_environment_ended_a_conversation_is_how_it_ends_again(
    store: Store, last: bytes, code: int
) -> None:
    talk = Talk()
    async with recording(store, talk.answerer) as on:
        agent = await on.agent()
        await agent.send(HANDSHAKE)
        assert await agent.read_head() == ACCEPT
        environment = await talk.environment
        heard = await say(agent, environment)
        await environment.send(last)
        environment.close()
        if code == 1006:
            assert await agent.read_to_end() == b"", "no close frame is made up"
        else:
            assert await read_frame(agent) == (8, last[2:])
        (one,) = await on.exchanges(count=1)
    assert one.websocket is not None
    assert (one.websocket.close_code, one.closed_by_agent) == (code, False)
    assert one.outcome is (Outcome.CUT if code == 1006 else Outcome.ANSWERED)
    async with replaying(store) as origin:
        again = await talker(origin.ports["app"])
        await again.send(HANDSHAKE)
        assert await again.read_head() == ACCEPT
        assert await say(again, None) == heard
        if code == 1006:
            assert await again.read_to_end() == b""
        else:
            while (ending := await read_frame(again))[0] == 10:
                pass  # a pong means nothing to an agent; pings and pongs are not part of a recording
            assert ending == (8, last[2:])
        again.close()
        receipt = origin.receipt()
    assert (receipt["served"]["exact"], receipt["missed"]) == (1, 0)


async def test_an_agent_that_left_without_a_close_frame_is_waited_for_again(store: Store) -> None:
    talk = Talk()
    async with recording(store, talk.answerer) as on:
        agent = await on.agent()
        await agent.send(HANDSHAKE)
        assert await agent.read_head() == ACCEPT
        environment = await talk.environment
        heard = await say(agent, environment)
        agent.abort()
        assert await environment.read_to_end() == b"", "no close frame is made up"
        (one,) = await on.exchanges(count=1)
    assert one.websocket is not None
    assert (one.outcome, one.websocket.close_code, one.closed_by_agent) == (Outcome.CLIENT_GONE, 1006, True)
    async with replaying(store) as origin:
        again = await talker(origin.ports["app"])
        await again.send(HANDSHAKE)
        assert await again.read_head() == ACCEPT
        assert await say(again, None) == heard
        assert await again.is_open(), "the environment closed nothing"
        again.abort()
        for _ in range(100):
            receipt = origin.receipt()
            if receipt["reproduced"]:
                break
            await asyncio.sleep(0.02)
    assert receipt["reproduced"] is True, receipt
