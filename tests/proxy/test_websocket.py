"""WebSockets: messages with direction, type and order, and how the conversation ended."""

from __future__ import annotations

import asyncio

import pytest

from replayproxy.core.values import Outcome
from tests.proxy.wire import Peer, Wire

UPGRADE = (
    b"GET /rp/e1/ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
ACCEPT = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
)


def frame(opcode: int, payload: bytes, *, masked: bool = False, last: bool = True) -> bytes:
    head = bytes([(0x80 if last else 0) | opcode, (0x80 if masked else 0) | len(payload)])
    return head + b"\0\0\0\0" + payload if masked else head + payload  # a mask of zeros leaves the payload as it is


async def read_frame(peer: Peer) -> tuple[int, bytes]:
    """(opcode, payload without its mask) of a short frame."""
    first, second = await peer.read(2)
    mask = await peer.read(4) if second & 0x80 else b"\0\0\0\0"
    payload = await peer.read(second & 0x7F)
    return first & 0x0F, bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))


class Talk:
    """A conversation with both ends in the test's hands."""

    def __init__(self) -> None:
        self.environment: asyncio.Future[Peer] = asyncio.get_running_loop().create_future()

    async def answerer(self, peer: Peer, request: bytes) -> None:
        assert b"upgrade: websocket" in request.lower()
        await peer.send(ACCEPT)
        self.environment.set_result(peer)
        await asyncio.Event().wait()


async def talk(w: Wire) -> tuple[Peer, Peer]:
    conversation = Talk()
    _, _, agent = await w.between(conversation.answerer)
    await agent.send(UPGRADE)
    assert await agent.read_head() == ACCEPT
    return agent, await conversation.environment


async def test_messages_are_kept_with_direction_type_order_and_time(w: Wire) -> None:
    agent, environment = await talk(w)
    await agent.send(frame(1, "gruß".encode(), masked=True))
    assert await read_frame(environment) == (1, "gruß".encode())
    await environment.send(frame(2, b"\x00\xff") + frame(9, b"ping") + frame(1, b"a", last=False) + frame(0, b"b"))
    assert [await read_frame(agent) for _ in range(4)] == [(2, b"\x00\xff"), (9, b"ping"), (1, b"a"), (0, b"b")]
    await agent.send(frame(8, b"\x0f\xa1bye", masked=True))
    assert await read_frame(environment) == (8, b"\x0f\xa1bye")
    exchange = await w.scribe.exchange()
    conversation = exchange.websocket
    assert conversation is not None
    assert [(m.from_agent, m.text, m.payload) for m in conversation.messages] == [
        (True, True, "gruß".encode()),
        (False, False, b"\x00\xff"),
        (False, True, b"ab"),
    ]
    times = [message.at for message in conversation.messages]
    assert times == sorted(times)
    assert (conversation.close_code, conversation.close_reason) == (4001, "bye")
    assert (exchange.outcome, exchange.closed_by_agent) == (Outcome.ANSWERED, True)
    assert exchange.response is not None
    assert exchange.response.status == 101
    assert w.scribe.faults == []


async def test_a_close_without_a_code_stays_one(w: Wire) -> None:
    agent, environment = await talk(w)
    await environment.send(frame(8, b""))
    assert await read_frame(agent) == (8, b"")
    exchange = await w.scribe.exchange()
    assert exchange.websocket is not None
    assert (exchange.websocket.close_code, exchange.closed_by_agent) == (1005, False)


@pytest.mark.parametrize("by_agent", [False, True], ids=["environment", "agent"])
async def test_an_end_without_a_close_frame_reaches_the_other_side_as_one(w: Wire, by_agent: bool) -> None:
    agent, environment = await talk(w)
    await environment.send(frame(1, b"x"))
    assert await read_frame(agent) == (1, b"x")
    ends, other = (agent, environment) if by_agent else (environment, agent)
    ends.abort()
    assert await other.read_to_end() == b""
    exchange = await w.scribe.exchange()
    assert exchange.websocket is not None
    assert exchange.websocket.close_code == 1006
    assert len(exchange.websocket.messages) == 1
    assert exchange.outcome is (Outcome.CLIENT_GONE if by_agent else Outcome.CUT)


async def test_a_conversation_that_is_open_at_the_end_is_kept_as_far_as_it_went(w: Wire) -> None:
    agent, environment = await talk(w)
    await environment.send(frame(1, b"x"))
    assert await read_frame(agent) == (1, b"x")
    assert w.engine.release(lambda ticket: ticket.env == "app") == 1
    exchange = await w.scribe.exchange()
    assert exchange.outcome is Outcome.OPEN_AT_END
    assert exchange.websocket is not None
    assert (len(exchange.websocket.messages), exchange.websocket.close_code) == (1, None)
    await environment.send(frame(1, b"y"))
    assert await read_frame(agent) == (1, b"y"), "the traffic goes on, unrecorded"
    await environment.send(frame(8, b""))
    assert await read_frame(agent) == (8, b"")
    assert len(w.scribe.exchanges) == 1


async def test_memory_stays_flat_over_a_long_conversation(w: Wire) -> None:
    agent, environment = await talk(w)
    for _ in range(200):
        await environment.send(frame(1, b"x"))
        await read_frame(agent)
    flow = w.engine._addon.open.flow_of(next(iter(w.engine._addon.open)))
    assert flow.websocket is not None
    assert flow.websocket.messages == []
