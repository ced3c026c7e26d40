"""Over sockets: event streams keep their place among the requests that may have caused what they tell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from replayproxy.core.values import Exchange, Outcome
from replayproxy.serve import gate
from replayproxy.storage import Store
from replayproxy.testing import exchange
from tests.core.test_causes import SSE, call, stream
from tests.serve.staged import Staged, record, staged


@asynccontextmanager
async def listening(
    store: Store, *exchanges: Exchange, **more: Any
) -> AsyncIterator[tuple[Staged, asyncio.StreamReader]]:
    """The episode on stage, and an agent that has asked for its stream."""
    async with staged(store, record(store, {"e": exchanges}), **more) as on:
        reader, writer = await asyncio.open_connection("127.0.0.1", on.ports["app"])
        writer.write(b"GET /events HTTP/1.1\r\nHost: h\r\n\r\n")
        yield on, reader
        writer.close()


async def said(reader: asyncio.StreamReader, text: bytes) -> bytes:
    return await asyncio.wait_for(reader.readuntil(text), 5)


async def is_silent(reader: asyncio.StreamReader) -> bool:
    try:
        await asyncio.wait_for(reader.read(1), 0.15)
    except TimeoutError:
        return True
    return False


async def test_an_event_comes_after_the_request_that_it_tells_of(store: Store) -> None:
    async with listening(store, stream(5, 15, 25, until=30), call(10), call(20)) as (on, reader):
        assert (await said(reader, b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        for _ in range(2):
            await said(reader, b"1\r\ne\r\n")
            assert await is_silent(reader)
            await on.get("/jobs", method="POST")
        await said(reader, b"1\r\ne\r\n0\r\n\r\n")
        assert on.receipt()["reproduced"] is True


async def test_a_stream_without_events_begins_at_once_and_ends_when_it_ended(store: Store) -> None:
    async with listening(store, stream(until=30), call(10)) as (on, reader):
        await said(reader, b"\r\n\r\n")
        assert await is_silent(reader)
        await on.get("/jobs", method="POST")
        await said(reader, b"0\r\n\r\n")
        assert on.receipt()["reproduced"] is True


@pytest.mark.parametrize("version", ["until the close", "cut"])
async def test_an_end_that_is_the_close_waits_too(store: Store, version: str) -> None:
    fields = {"Content-Type": "text/event-stream"} if version == "until the close" else SSE
    outcome = Outcome.ANSWERED if version == "until the close" else Outcome.CUT
    first = replace(stream(5, until=30, headers=fields), outcome=outcome)
    async with listening(store, first, call(10)) as (on, reader):
        await said(reader, b"e")
        await asyncio.sleep(0.15)
        assert not reader.at_eof()
        await on.get("/jobs", method="POST")
        await asyncio.wait_for(reader.read(), 5)
        assert on.receipt()["reproduced"] is True


@pytest.mark.parametrize(("last", "departures"), [(5, 0), (25, 1)])
async def test_an_agent_may_leave_before_the_end_and_not_before_the_last_event(
    store: Store, last: int, departures: int
) -> None:
    async with listening(store, stream(last, until=30), call(10), call(20)) as (on, reader):
        await said(reader, b"\r\n\r\n")
        if last == 5:
            await said(reader, b"e\r\n")
        await on.get("/jobs", method="POST")
    assert on.receipt()["departures"] == departures


async def test_after_a_miss_a_stream_waits_no_longer_than_a_turn(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "TURN_LIMIT", 0.2)
    async with listening(store, stream(15, 25, until=30), call(10), call(20)) as (on, reader):
        await on.get("/elsewhere")
        await said(reader, b"1\r\ne\r\n1\r\ne\r\n0\r\n\r\n")
        receipt = on.receipt()
        assert (receipt["order_divergences"], receipt["reproduced"]) == (1, False)


async def test_a_stream_of_another_lane_waits_for_a_turn_and_says_what_for(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "TURN_LIMIT", 0.2)
    async with listening(store, stream(15, until=30), call(10, lane="b")) as (on, reader):
        await said(reader, b"0\r\n\r\n")
        await on.get("/jobs", method="POST", X_Replay_Lane="b")
        receipt = on.receipt()
        assert (receipt["order_divergences"], receipt["unused"]) == (1, 0)
        assert receipt["first_divergence"]["waited_for"] == "r/e/2"


async def test_an_ordinary_answer_in_pieces_is_not_held(store: Store) -> None:
    page = exchange("GET", "/events", body=b"ee", headers={"Transfer-Encoding": "chunked"}, chunks=[(1, 5), (1, 15)])
    async with listening(store, page, call(10)) as (_, reader):
        await said(reader, b"1\r\ne\r\n1\r\ne\r\n0\r\n\r\n")
