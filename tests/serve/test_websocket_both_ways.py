"""What an agent sees on a WebSocket, recorded through the proxy and replayed, over real sockets both times."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import aiohttp
import pytest
from aiohttp import WSMsgType, web

from replayproxy.core.values import Outcome
from replayproxy.storage import Store
from tests.proxy.wire import Wire, wire
from tests.serve.both_ways import recorded_from, replayed_to, twice, visit
from tests.serve.staged import record, staged

type Client = aiohttp.ClientWebSocketResponse


@pytest.fixture
async def w() -> AsyncIterator[Wire]:
    async with wire() as made:
        yield made


async def echo(socket: web.WebSocketResponse) -> None:
    """Answers every message with itself, and a close with a close."""
    async for message in socket:
        await socket.send_frame(message.data.encode() if message.type is WSMsgType.TEXT else message.data, message.type)
    await socket.close()


def asks(*said: str | bytes, code: int = 1000, reason: bytes = b"") -> Callable[[Client], Awaitable[None]]:
    async def agent(socket: Client) -> None:
        for one in said:
            await (socket.send_str(one) if isinstance(one, str) else socket.send_bytes(one))
            await socket.receive(5)
        await socket.close(code=code, message=reason)

    return agent


@pytest.mark.parametrize(
    "said",
    [
        ("plain", "", "grüße 😀"),
        (b"", b"\x00\xff" * 10, b"x" * 125, b"x" * 126, b"x" * 70_000),
        ("t" * (1 << 20), b"\x00" * (1 << 20), "small again"),
        ('{"a": 0.30000000000000004}', b'{"a": 1}'),
    ],
    ids=["text", "binary", "1MiB", "json"],
)
async def test_messages_of_every_kind_and_size_come_back(store: Store, w: Wire, said: tuple[str | bytes, ...]) -> None:
    both = await twice(store, w, echo, asks(*said))
    assert both.replayed == both.recorded
    assert [data for _, data, _ in both.recorded] == list(said)
    assert both.receipt["reproduced"], both.receipt
    assert both.receipt["served"]["exact"] == 1


@pytest.mark.parametrize("compress", [15, 9])
async def test_compressed_messages_are_recorded_and_matched_decoded_and_replay_negotiates_nothing(
    store: Store, w: Wire, compress: int
) -> None:
    said = ["x" * 5000, "y", "x" * 5000]
    both = await twice(store, w, echo, asks(*said), compress=compress)
    assert both.replayed == both.recorded
    assert [data for _, data, _ in both.recorded] == said
    talk, answer = both.exchange.websocket, both.exchange.response
    assert talk is not None
    assert answer is not None
    assert b"permessage-deflate" in dict(answer.fields)[b"Sec-WebSocket-Extensions"]
    assert talk.count == 6
    assert both.receipt["served"]["exact"] == 1


@pytest.mark.parametrize(("code", "reason"), [(1000, b""), (1001, b"going"), (4000, "tschüß".encode())])
async def test_the_environments_close_comes_with_its_code_and_reason(
    store: Store, w: Wire, code: int, reason: bytes
) -> None:
    async def closes(socket: web.WebSocketResponse) -> None:
        await socket.send_str("last words")
        await socket.close(code=code, message=reason)

    async def agent(socket: Client) -> None:
        await socket.receive(5)
        await socket.receive(5)
        await socket.close()

    both = await twice(store, w, closes, agent)
    assert both.recorded == both.replayed
    assert both.recorded[1] == (WSMsgType.CLOSE, code, reason.decode())
    assert both.receipt["reproduced"], both.receipt
    assert both.exchange.closed_by_agent is False


@pytest.mark.parametrize(("code", "reason"), [(1000, b"done"), (1001, b""), (4000, b"")])
async def test_the_agents_close_is_as_recorded(store: Store, w: Wire, code: int, reason: bytes) -> None:
    both = await twice(store, w, echo, asks("a", code=code, reason=reason))
    assert both.recorded == both.replayed
    assert both.exchange.websocket is not None
    assert (both.exchange.websocket.close_code, both.exchange.websocket.close_reason) == (code, reason.decode())
    assert both.receipt["reproduced"], both.receipt


async def test_an_environment_that_drops_the_connection_drops_it_again(store: Store, w: Wire) -> None:
    async def drops(socket: web.WebSocketResponse) -> None:
        await socket.send_str("one")
        transport = socket.get_extra_info("socket") and socket._req and socket._req.transport
        assert transport
        transport.abort()

    async def agent(socket: Client) -> None:
        await socket.receive(5)
        await socket.receive(5)

    both = await twice(store, w, drops, agent)
    assert both.exchange.outcome is Outcome.CUT
    assert both.recorded[0] == both.replayed[0]
    assert both.replayed[1][0] is WSMsgType.CLOSED
    assert both.recorded[1][0] is both.replayed[1][0]
    assert both.receipt["reproduced"], both.receipt


async def test_an_agent_that_drops_the_connection_may_do_so_again(store: Store, w: Wire) -> None:
    async def agent(socket: Client) -> None:
        await socket.send_str("a")
        await socket.receive(5)
        socket._response.connection.transport.abort()  # type: ignore[union-attr]

    both = await twice(store, w, echo, agent)
    assert both.exchange.outcome is Outcome.CLIENT_GONE
    assert both.receipt["reproduced"], both.receipt


async def test_an_environment_may_speak_first_and_between(store: Store, w: Wire) -> None:
    async def pushes(socket: web.WebSocketResponse) -> None:
        for number in range(3):
            await socket.send_str(f"push {number}")
        await socket.receive(5)
        for number in range(50):
            await socket.send_bytes(bytes([number]))
        await echo(socket)

    async def agent(socket: Client) -> None:
        for _ in range(3):
            await socket.receive(5)
        await socket.send_str("now")
        for _ in range(50):
            await socket.receive(5)
        await socket.close()

    both = await twice(store, w, pushes, agent)
    assert both.recorded == both.replayed
    assert len(both.recorded) == 53
    assert both.receipt["reproduced"], both.receipt


async def test_pings_and_frames_are_the_connections_business(store: Store, w: Wire) -> None:
    async def agent(socket: Client, *, cut: bool) -> None:
        await socket.ping(b"are you there")
        writer = socket._writer
        if cut:
            # The same message in three frames, with a ping between them.
            raw = [b"\x01\x81\0\0\0\0a", b"\x89\x80\0\0\0\0", b"\x00\x81\0\0\0\0b", b"\x80\x81\0\0\0\0c"]
            writer.transport.write(b"".join(raw))
        else:
            await socket.send_str("abc")
        await socket.receive(5)
        await socket.close()

    _, exchange = await recorded_from(store, w, echo, lambda socket: agent(socket, cut=False))
    seen, receipt = await replayed_to(store, exchange, lambda socket: agent(socket, cut=True))
    assert seen == [(WSMsgType.TEXT, "abc", "")]
    assert receipt["reproduced"], receipt


async def test_a_ping_is_answered_with_its_payload(store: Store, w: Wire) -> None:
    pongs: list[bytes] = []

    async def agent(socket: Client) -> None:
        socket._autoping = False
        await socket.ping(b"p1")
        got = await socket.receive(5)
        assert got.type is WSMsgType.PONG
        pongs.append(bytes(got.data))
        await socket.close()

    await twice(store, w, echo, agent)
    assert pongs == [b"p1", b"p1"]


async def test_text_that_is_no_utf8_ends_as_it_did(store: Store, w: Wire) -> None:
    async def agent(socket: Client) -> None:
        await socket.send_frame(b"\xff\xfe", WSMsgType.TEXT)
        await socket.receive(5)

    both = await twice(store, w, echo, agent)
    assert both.recorded == both.replayed
    assert both.exchange.websocket is not None
    assert both.exchange.websocket.close_code == 1007
    assert both.receipt["reproduced"], both.receipt


async def test_an_agent_that_half_closes_has_left_on_both_ways(store: Store, w: Wire) -> None:
    async def agent(socket: Client) -> None:
        await socket.send_str("a")
        await socket.receive(5)
        transport = socket._response.connection.transport  # type: ignore[union-attr]
        transport.write_eof()
        await socket.receive(5)

    both = await twice(store, w, echo, agent)
    assert both.exchange.outcome is Outcome.CLIENT_GONE
    assert both.recorded[0] == both.replayed[0]
    assert both.receipt["reproduced"], both.receipt


async def test_an_agent_that_breaks_the_protocol_is_closed_as_it_was(store: Store, w: Wire) -> None:
    async def agent(socket: Client) -> None:
        socket._writer.transport.write(b"\x83\x80\0\0\0\0")  # opcode 3 is reserved
        await socket.receive(5)

    both = await twice(store, w, echo, agent)
    assert both.recorded[0][:2] == both.replayed[0][:2] == (WSMsgType.CLOSE, 1002)
    assert both.receipt["reproduced"], both.receipt


async def test_an_agent_may_say_everything_at_once(store: Store, w: Wire) -> None:
    async def agent(socket: Client) -> None:
        for number in range(20):
            await socket.send_str(str(number))
        for _ in range(20):
            await socket.receive(5)
        await socket.close()

    both = await twice(store, w, echo, agent)
    assert [data for _, data, _ in both.replayed] == [str(number) for number in range(20)]
    assert both.receipt["reproduced"], both.receipt


async def test_fifty_agents_at_once_are_each_recorded_apart(store: Store, w: Wire) -> None:
    number = iter(range(50))

    async def agent(socket: Client) -> None:
        me = next(number)
        for turn in range(5):
            await socket.send_str(f"{me} {turn}")
            assert (await socket.receive(10)).data == f"{me} {turn}"
        await socket.close()

    async def all_of_them(socket: Client) -> None:
        url = str(socket._response.url)
        await socket.close()
        await asyncio.gather(*(visit(url, agent) for _ in range(50)))
        await w.scribe.until(lambda: len(w.scribe.exchanges) == 51, 10)

    await recorded_from(store, w, echo, all_of_them)
    said = [[m.payload.decode() for m in one.websocket.messages] for one in w.scribe.exchanges if one.websocket]
    whole = sorted(one for one in said if one)
    assert whole == sorted([f"{me} {turn}" for turn in range(5) for _ in range(2)] for me in range(50))


async def test_fifty_conversations_at_once_each_get_their_own(store: Store, w: Wire) -> None:
    async def agent(socket: Client) -> None:
        for number in range(5):
            await socket.send_str(str(number))
            await socket.receive(5)
            await asyncio.sleep(0)
        await socket.close()

    _, exchange = await recorded_from(store, w, echo, agent)
    each = [replace(exchange, lane=f"l{n}", order=(exchange.order[0] + n, 0)) for n in range(50)]
    run = record(store, {"e": each})
    async with staged(store, run) as s:
        found = await asyncio.gather(
            *(visit(s.url() + "/ws", agent, headers={"X-Replay-Lane": f"l{n}"}) for n in range(50))
        )
        receipt = s.receipt()
    assert all(len(seen) == 5 for seen in found)
    assert receipt["reproduced"], receipt
    assert receipt["served"]["exact"] == 50
