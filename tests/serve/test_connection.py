"""Heads that aiohttp's own reader refuses: what can be recorded can be asked for in a replay."""

from __future__ import annotations

import asyncio

import pytest

from replayproxy.core import bounds
from replayproxy.storage import Store
from replayproxy.testing import exchange
from tests.serve.staged import record, staged

HEADS = {
    "bytes above 0x7f in the target": ("GET", b"/caf\xc3\xa9?\xff", b""),
    "a control character in the target": ("GET", b"/a\x01b", b""),
    "a method nobody knows": ("BREW", b"/pot", b""),
    "a method in lower case": ("get", b"/x", b""),
    "a control character in a value": ("GET", b"/x", b"X-Odd: a\x01b\r\n"),
    "a folded line": ("GET", b"/x", b"X-Long: a\r\n b\r\n"),
    "two content types": ("GET", b"/x", b"Content-Type: text/plain\r\nContent-Type: text/html\r\n"),
}


@pytest.mark.parametrize(("method", "target", "fields"), HEADS.values(), ids=HEADS)
@pytest.mark.parametrize("cut", [None, 5, 30])
async def test_an_odd_head_is_read_whole_or_in_pieces_and_the_connection_kept(
    store: Store, method: str, target: bytes, fields: bytes, cut: int | None
) -> None:
    odd = exchange(method, target, body=b"odd", headers={"Content-Length": "3"}, request_headers=_pairs(fields))
    after = exchange("POST", "/y", sent=b"12", request_headers={}, body=b"next", headers={"Content-Length": "4"})
    run = record(store, {"e": [odd, after]})
    head = b"%s %s HTTP/1.1\r\nHost: h\r\n%s\r\n" % (method.encode(), target, fields)
    async with staged(store, run) as on:
        reader, writer = await asyncio.open_connection("127.0.0.1", on.ports["app"])
        for part in (head[:cut], head[cut:] if cut else b""):
            writer.write(part)
            await asyncio.sleep(0.01)
        first = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5) + await reader.read(3)
        assert first == b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nodd"
        writer.write(b"POST /y HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n12\r\n0\r\n\r\n")
        second = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5) + await reader.read(4)
        assert second == b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnext"
        writer.close()
        assert on.receipt()["reproduced"] is True


def _pairs(fields: bytes) -> list[tuple[str, str]]:
    """The key fields among them, as they are recorded."""
    lines = [line.split(b": ") for line in fields.split(b"\r\n") if line.startswith(b"Content-Type")]
    return [(name.decode(), value.decode()) for name, value in lines]


async def test_a_head_that_never_ends_is_refused_at_a_megabyte(store: Store) -> None:
    async with staged(store, record(store, {"e": [exchange()]})) as on:
        reader, writer = await asyncio.open_connection("127.0.0.1", on.ports["app"])
        writer.write(b"GET /x HTTP/1.1\r\nHost: h\r\n")
        line = b"X-More: " + b"y" * 1000 + b"\r\n"
        sent = 0
        while sent < 4 * bounds.HEAD_LIMIT and not reader.at_eof():
            writer.write(line * 64)
            sent += 64 * len(line)
            try:
                await writer.drain()
            except ConnectionError:
                break
            await asyncio.sleep(0)
        answer = b""
        try:
            answer = await asyncio.wait_for(reader.read(), 5)
        except ConnectionError:
            pass  # it went on sending into a closed connection
        assert not answer or answer.startswith(b"HTTP/1.1 431 ")
        assert sent < 4 * bounds.HEAD_LIMIT
        assert on.receipt()["missed"] == 1
        assert b" 200 OK" in await on.get("/x")


async def test_a_head_that_comes_too_slowly_ends_its_own_connection(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "HEAD_SECONDS", 0.1)
    async with staged(store, record(store, {"e": [exchange(), exchange()]})) as on:
        slow_reader, slow = await asyncio.open_connection("127.0.0.1", on.ports["app"])
        reader, writer = await asyncio.open_connection("127.0.0.1", on.ports["app"])
        slow.write(b"GET /x HT")
        writer.write(b"GET /x HTTP/1.1\r\nHost: h\r\n")
        await asyncio.sleep(0.05)
        writer.write(b"\r\n")
        assert b"200 OK" in await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
        assert await asyncio.wait_for(slow_reader.read(), 5) == b""
        assert b" 200 OK" in await on.get("/x")
        for each in (writer, slow):
            each.close()


@pytest.mark.parametrize("cut", [2, 8, 25])
@pytest.mark.parametrize("first", [b"/a", b"/miss"], ids=["in the short way", "in the long way"])
async def test_an_odd_head_that_begins_behind_a_whole_request_is_read_whole(
    store: Store, cut: int, first: bytes
) -> None:
    odd = exchange("GET", b"/caf\xc3\xa9", body=b"odd", headers={"Content-Length": "3"}, request_headers={})
    run = record(store, {"e": [exchange("GET", "/a", body=b"one", headers={"Content-Length": "3"}), odd]})
    whole, head = b"GET %s HTTP/1.1\r\nHost: h\r\n\r\n" % first, b"GET /caf\xc3\xa9 HTTP/1.1\r\nHost: h\r\n\r\n"
    async with staged(store, run) as on:
        reader, writer = await asyncio.open_connection("127.0.0.1", on.ports["app"])
        writer.write(whole + head[:cut])
        await asyncio.wait_for(reader.readuntil(b"HTTP/1.1 "), 5)
        await asyncio.sleep(0.01)
        writer.write(head[cut:])
        assert (await asyncio.wait_for(reader.readuntil(b"\r\n\r\nodd"), 5)).endswith(b"odd")
        writer.close()
        assert on.receipt()["missed"] == (first == b"/miss")


async def test_a_head_that_begins_behind_a_whole_request_is_timed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "HEAD_SECONDS", 0.1)
    one = [exchange("GET", "/x", body=b"one", headers={"Content-Length": "3"}) for _ in range(3)]
    async with staged(store, record(store, {"e": one})) as on:
        reader, writer = await asyncio.open_connection("127.0.0.1", on.ports["app"])
        other, kept = await asyncio.open_connection("127.0.0.1", on.ports["app"])
        writer.write(b"GET /x HTTP/1.1\r\nHost: h\r\n\r\nGET /x HT")
        kept.write(b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n\r\n")  # a blank line more begins no head
        assert b" 200 OK" in await asyncio.wait_for(reader.read(), 5), "to its end"
        kept.write(b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
        for _ in range(2):
            assert await asyncio.wait_for(other.readuntil(b"one"), 5)
        kept.close()
