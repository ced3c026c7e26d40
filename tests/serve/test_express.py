"""The short way gives what the long way gives, leaves what it does not know to it, and disturbs no connection."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any, cast

import pytest
from aiohttp import web_protocol
from aiohttp.http_parser import HttpRequestParserPy

from replayproxy.serve.connection import Connection
from replayproxy.serve.express import Express
from replayproxy.serve.ready import Ready
from replayproxy.serve.wire import Ending
from replayproxy.storage import Store
from replayproxy.testing import exchange
from tests.properties.test_interleavings import EPISODES, episode
from tests.serve.staged import Staged, record, staged
from tests.serve.test_interleaved import drive, lanes
from tests.serve.test_shelf import timeless


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that were answered by the short way."""
    told: list[str] = []
    real = Express.answer

    def seen(self: Express, message: Any) -> bytes | None:
        data = real(self, message)
        if data is not None:
            told.append(message.path)
        return data

    monkeypatch.setattr(Express, "answer", seen)
    return told


class Line:
    """One connection that is kept."""

    def __init__(self, on: Staged) -> None:
        self.on = on

    async def open(self) -> Line:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.on.ports["app"])
        return self

    async def ask(self, path: str, *, method: str = "GET", sent: bytes = b"", more: str = "") -> tuple[int, bytes]:
        length = f"Content-Length: {len(sent)}\r\n" if sent else ""
        self.writer.write(f"{method} {path} HTTP/1.1\r\nHost: h\r\n{length}{more}\r\n".encode() + sent)
        return await self.answer(method)

    async def answer(self, method: str = "GET") -> tuple[int, bytes]:
        head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 5)
        size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        return int(head.split()[1]), b"" if method == "HEAD" else await self.reader.readexactly(size)

    def close(self) -> None:
        self.writer.close()


RECORDED = [exchange("GET", f"/{n}", at_ms=n * 10, body={"n": n}) for n in range(6)]


async def test_a_receipt_is_the_same_by_either_way(
    store: Store, short: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = record(store, {f"e{number}": episode(number) for number in range(EPISODES)})

    async def receipt() -> Any:
        choose = random.Random(1)
        async with staged(store, run, sole=None) as on:
            await asyncio.gather(*(drive(on, *lane, random.Random(choose.random())) for lane in lanes()))
            told = timeless(on.receipt())
        return told | {"episodes": sorted(told["episodes"], key=lambda one: one["episode"])}

    by_short = await receipt()
    assert len(short) > 10 * EPISODES, "the rest was its episode's first, or waited for its turn"
    monkeypatch.setattr(Express, "answer", lambda self, message: None)
    assert by_short == await receipt()
    assert by_short["reproduced"]


@pytest.mark.parametrize(
    ("ask", "status"),
    [
        ({"path": "/rp/e/none"}, 470), ({"path": "/rp/no/1"}, 470), ({"path": "/rp/e/1", "sent": b"x"}, 470),
        ({"path": "/rp/e/1", "more": "Expect: 100-continue\r\n"}, 100), ({"path": "/rp/e/1", "method": "HEAD"}, 470),
        ({"path": "/rp/e/1", "more": "X-Replay-Lane: another\r\n"}, 470),
        ({"path": "/rp/e/1", "more": "Connection: close\r\n"}, 200),
    ],
)  # fmt: skip
async def test_what_it_does_not_know_takes_the_long_way(
    store: Store, short: list[str], ask: dict[str, Any], status: int
) -> None:
    run = record(store, {"e": RECORDED})
    async with staged(store, run, sole=None) as on:
        line = await Line(on).open()
        assert await line.ask("/rp/e/0") == (200, b'{"n": 0}')
        if status == 100:
            line.writer.write(b"GET /rp/e/1 HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n\r\n")
            assert (await line.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
        else:
            assert (await line.ask(**ask))[0] == status
        assert short == []
        line.close()


async def test_requests_sent_behind_one_another_are_answered_in_their_order(store: Store, short: list[str]) -> None:
    run = record(store, {"e": RECORDED})
    async with staged(store, run, sole=None) as on:
        line = await Line(on).open()
        await line.ask("/rp/e/0")
        await line.ask("/rp/e/1")
        assert short == ["/rp/e/1"]
        line.writer.write(b"".join(b"GET /rp/e/%d HTTP/1.1\r\nHost: h\r\n\r\n" % n for n in (5, 3, 4)))
        assert [json.loads((await line.answer())[1])["n"] for _ in range(3)] == [5, 3, 4]
        assert await line.ask("/rp/e/2") == (200, b'{"n": 2}')
        assert short[1:] == ["/rp/e/2"]
        assert on.receipt()["reproduced"]
        line.close()


@pytest.mark.parametrize("compiled", [True, False])
async def test_a_connection_goes_on_however_many_it_asked_for(
    store: Store, short: list[str], monkeypatch: pytest.MonkeyPatch, compiled: bool
) -> None:
    if not compiled:
        monkeypatch.setattr(web_protocol, "HttpRequestParser", HttpRequestParserPy)
    count = 80  # aiohttp lets 32 requests wait on a connection
    run = record(store, {"e": [exchange("GET", f"/{n}", at_ms=n * 10, body={"n": n}) for n in range(count + 3)]})
    async with staged(store, run, sole=None) as on:
        line = await Line(on).open()
        got = [json.loads((await line.ask(f"/rp/e/{n}"))[1])["n"] for n in range(count)]
        assert got == list(range(count))
        assert len(short) == count - 1
        line.writer.write(b"".join(b"GET /rp/e/%d HTTP/1.1\r\nHost: h\r\n\r\n" % (count + n) for n in range(3)))
        assert [json.loads((await line.answer())[1])["n"] for _ in range(3)] == [count, count + 1, count + 2]
        assert on.receipt()["reproduced"]
        line.close()


async def test_a_miss_between_leaves_the_connection_as_it_was(store: Store, short: list[str]) -> None:
    run = record(store, {"e": RECORDED})
    async with staged(store, run, sole=None) as on:
        line = await Line(on).open()
        got = [await line.ask(path) for path in ("/rp/e/0", "/rp/e/1", "/rp/e/1", "/rp/e/x", "/rp/e/2")]
        assert [status for status, _ in got] == [200, 200, 470, 470, 200]
        assert short == ["/rp/e/1", "/rp/e/2"]
        assert on.receipt()["missed"] == 2
        line.close()


async def test_a_connection_that_is_used_is_not_closed_as_an_idle_one(
    store: Store, short: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Connection.__init__

    def hurried(self: Connection, *given: Any, **options: Any) -> None:
        real(self, *given, **options | {"keepalive_timeout": 0.3})

    monkeypatch.setattr(Connection, "__init__", hurried)
    run = record(store, {"e": RECORDED})
    async with staged(store, run, sole=None) as on:
        line = await Line(on).open()
        for n in range(6):
            assert (await line.ask(f"/rp/e/{n}"))[0] == 200
            await asyncio.sleep(0.15)
        assert len(short) == 5
        await asyncio.sleep(0.6)
        assert await line.reader.read() == b"", "and an idle one is"
        line.close()


async def test_what_fails_in_the_short_way_alone_is_answered_by_the_long_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Express, message: Any) -> bytes | None:
        raise RuntimeError("broken")

    monkeypatch.setattr(Express, "answer", broken)
    run = record(store, {"e": RECORDED})
    async with staged(store, run, sole=None) as on:
        line = await Line(on).open()
        assert [(await line.ask(f"/rp/e/{n}"))[0] for n in (0, 1)] == [200, 200]
        assert on.faults == []
        assert on.receipt()["faults"] == []
        line.close()


class Broken:
    """An answer of which nothing can be had."""

    ending = Ending.KEEP

    @property
    def data(self) -> bytes:
        raise RuntimeError("broken")


async def test_what_fails_in_both_ways_is_told_and_takes_the_answer_of_no_other_request(store: Store) -> None:
    run = record(store, {"e": [exchange("GET", "/a", at_ms=n * 10, body={"n": n}) for n in range(3)]})
    async with staged(store, run, sole=None) as on:
        line = await Line(on).open()
        assert await line.ask("/rp/e/a") == (200, b'{"n": 0}')
        scene = await on.stage.scene("e")
        scene.ready = [None, cast("Ready", Broken()), scene.ready[2]]
        assert (await line.ask("/rp/e/a"))[0] == 500
        line.close()
        line = await Line(on).open()
        assert await line.ask("/rp/e/a") == (200, b'{"n": 2}')
        assert [str(fault) for fault in on.faults] == ["broken"]
        assert on.receipt()["faults"] == ["e: RuntimeError: broken (answering GET /rp/e/a)"]
        line.close()
