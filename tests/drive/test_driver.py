"""In which order recorded requests go out again, and when streams are closed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from replayproxy.core.bindings import Bindings, flows
from replayproxy.core.schedule import plan
from replayproxy.core.values import Body, Exchange, Outcome
from replayproxy.drive.driver import Drive, Driver, Target
from replayproxy.drive.origin import origin
from replayproxy.errors import DamagedRecord
from replayproxy.testing import exchange, trace
from tests.drive.raw_server import Raw, Talk, raw_server

HOST = (("Host", "rec.test"),)


class Looks:
    """A watcher that does nothing but remember, and may ask to stop."""

    def __init__(self, stop_at: int = 0) -> None:
        self.pairs: list[tuple[int, int]] = []
        self.stop_at = stop_at

    async def answered(self, recorded: Exchange, live: Exchange) -> bool:
        self.pairs.append((recorded.seq, live.seq))
        return recorded.seq == self.stop_at


def pieces(body: Body) -> Any:
    raise AssertionError("nothing lies apart")


async def drive(server: Raw, exchanges: Sequence[Exchange], *, watcher: Looks | None = None, **more: Any) -> Drive:
    recorded = trace(exchanges).exchanges
    driver = Driver(
        recorded, plan(recorded, flows=flows(recorded)), {"app": Target(origin=origin(server.url))}, Bindings(),
        watcher or Looks(), pieces=pieces, limit=5, **more,
    )  # fmt: skip
    return await asyncio.wait_for(driver.run(), 20)


def one(method: str, target: str, at_ms: float, took_ms: float = 5, **more: Any) -> Exchange:
    return exchange(method, target, at_ms=at_ms, took_ms=took_ms, request_headers=HOST, **more)


class Room:
    """Answers `ok` to everything; a path that begins with /wait is answered once `needed` of them are there."""

    def __init__(self, needed: int = 0) -> None:
        self.needed, self.here = needed, 0
        self.order: list[str] = []
        self.all_here = asyncio.Event()

    async def __call__(self, talk: Talk) -> None:
        head = await talk.until(b"\r\n\r\n")
        target = head.split(b" ")[1].decode()
        self.order.append(target)
        if target.startswith("/wait"):
            self.here += 1
            if self.here == self.needed:
                self.all_here.set()
            await self.all_here.wait()
        await talk.say(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


async def test_requests_of_a_lane_go_out_one_after_the_other() -> None:
    room = Room()
    async with raw_server(room) as server:
        done = await drive(server, [one("GET", f"/{n}", n * 10) for n in range(12)])
    assert room.order == [f"/{n}" for n in range(12)]
    assert [e.outcome for e in done.live.values()] == [Outcome.ANSWERED] * 12


async def test_requests_that_overlapped_in_a_lane_are_in_flight_together() -> None:
    room = Room(needed=3)
    async with raw_server(room) as server:
        await drive(server, [one("GET", f"/wait/{n}", n, took_ms=50) for n in range(3)])
    assert room.all_here.is_set()


async def test_a_conflicting_write_of_another_lane_is_waited_for() -> None:
    room = Room(needed=2)
    async with raw_server(room) as server:
        running = asyncio.ensure_future(
            drive(server, [
                one("POST", "/wait/1", 0, lane="a"), one("GET", "/wait/1/notes", 20, lane="b"),
                one("GET", "/other", 20, lane="c"),
            ])
        )  # fmt: skip
        while len(room.order) < 2:
            await asyncio.sleep(0.01)
        assert sorted(room.order) == ["/other", "/wait/1"]
        room.all_here.set()
        await running
    assert room.order[-1] == "/wait/1/notes"


async def test_a_stream_that_the_agent_closed_is_closed_after_what_had_ended_before_and_not_earlier() -> None:
    log: list[str] = []
    posted = asyncio.Event()

    async def handler(talk: Talk) -> None:
        target = (await talk.until(b"\r\n\r\n")).split(b" ")[1].decode()
        if target != "/events":
            log.append(target)
            await asyncio.sleep(0.05)
            await talk.say(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            if target == "/say/2":
                posted.set()
            return
        await talk.say(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n")
        await posted.wait()
        await talk.say(b"data: 2\n\ndata: 3\n\n")
        await talk.reader.read()
        log.append("closed")

    recorded = [
        one("GET", "/events", 0, 100, outcome=Outcome.CLIENT_GONE, body=b"data: 1\n\ndata: 2\n\n",
            headers=[("Content-Type", "text/event-stream")]),
        one("POST", "/say/1", 10), one("POST", "/say/2", 20), one("POST", "/say/3", 200),
    ]  # fmt: skip
    async with raw_server(handler) as server:
        done = await drive(server, recorded)
    assert log[:2] == ["/say/1", "/say/2"]
    assert set(log[2:]) == {"closed", "/say/3"}
    stream = done.live[1]
    assert (stream.outcome, stream.closed_by_agent) == (Outcome.CLIENT_GONE, True)
    assert stream.response is not None
    assert stream.response.body is not None
    assert stream.response.body.inline == b"data: 1\n\ndata: 2\n\n"


async def test_a_request_that_the_agent_gave_up_is_given_as_long_again() -> None:
    left = asyncio.Event()
    began = 0.0

    async def handler(talk: Talk) -> None:
        nonlocal began
        await talk.until(b"\r\n\r\n")
        began = time.monotonic()
        await talk.reader.read()
        left.set()

    async with raw_server(handler) as server:
        done = await drive(server, [one("POST", "/step", 0, 200, status=None, outcome=Outcome.CLIENT_GONE)])
        await asyncio.wait_for(left.wait(), 5)
    # The recorded end is at 80 % of the time, the first byte out at 20 %: see `testing.times`.
    assert time.monotonic() - began >= 0.11
    assert (done.live[1].outcome, done.live[1].response) == (Outcome.CLIENT_GONE, None)


async def test_recorded_pace_keeps_the_agents_pauses_and_a_factor_shortens_them() -> None:
    async def took(pace: float | None) -> float:
        async with raw_server(Room()) as server:
            began = time.monotonic()
            await drive(server, [one("GET", "/a", 0), one("GET", "/b", 205)], pace=pace)
            return time.monotonic() - began

    assert await took(1.0) >= 0.2
    assert await took(2.0) >= 0.1
    assert await took(None) < await took(1.0)


async def test_no_more_is_sent_once_the_watcher_has_seen_enough() -> None:
    room, looks = Room(), Looks(stop_at=2)
    async with raw_server(room) as server:
        done = await drive(server, [one("GET", f"/{n}", n * 10) for n in range(5)], watcher=looks)
    assert room.order == ["/0", "/1"]
    assert (done.stopped, done.unsent) == (True, [3, 4, 5])
    assert looks.pairs == [(1, 1), (2, 2)]


async def test_what_is_skipped_holds_nothing_up() -> None:
    room = Room()
    recorded = [one("GET", "/a", 0), one("GET", "/half", 10, outcome=Outcome.HALF_SENT), one("GET", "/b", 20)]
    async with raw_server(room) as server:
        done = await drive(server, recorded)
    assert room.order == ["/a", "/b"]
    assert sorted(done.live) == [1, 3]


async def test_a_name_from_a_stream_that_is_still_open_is_waited_for_and_bound() -> None:
    was, now = "ab12" * 8, "ef97" * 8

    async def handler(talk: Talk) -> None:
        target = (await talk.until(b"\r\n\r\n")).split(b" ")[1].decode()
        if target == "/sse":
            await talk.say(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
            await asyncio.sleep(0.05)
            await talk.say(f"event: endpoint\ndata: /messages/?session_id={now}\n\n".encode())
            await talk.reader.read()
        else:
            seen.append(target)
            await talk.say(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")

    seen: list[str] = []
    told = f"event: endpoint\ndata: /messages/?session_id={was}\n\n".encode()
    recorded = [
        one("GET", "/sse", 0, 100, body=told, chunks=[(len(told), 5)], outcome=Outcome.OPEN_AT_END,
            headers=[("Content-Type", "text/event-stream")]),
        one("POST", f"/messages/?session_id={was}", 20, status=202),
    ]  # fmt: skip
    async with raw_server(handler) as server:
        await drive(server, recorded)
    assert seen == [f"/messages/?session_id={now}"]


async def test_times_and_addresses_of_what_was_sent_are_the_live_ones() -> None:
    async with raw_server(Room()) as server:
        done = await drive(server, [one("GET", "/a", 0)])
    live = done.live[1]
    assert live.upstream == server.url
    assert live.request.fields == ((b"Host", server.url.removeprefix("http://").encode()),)
    times = [live.times.head, live.times.fwd, live.times.first, live.times.up_end, live.times.c_out]
    assert times == sorted(times, key=lambda at: at or 0)
    assert all(times)


async def test_the_path_of_the_given_url_replaces_the_recorded_one_and_is_listed() -> None:
    room = Room()
    async with raw_server(room) as server:
        targets = ("/api/v1/deals?x=/api/v1", "/api/v1", "/api/v10")
        recorded = trace([one("GET", path, at * 10) for at, path in enumerate(targets)])
        bindings = Bindings()
        target = Target(origin=origin(server.url), base=("/api/v1", "/v2"))
        driver = Driver(recorded.exchanges, plan(recorded.exchanges), {"app": target}, bindings, Looks(), pieces=pieces)
        await driver.run()
    assert room.order == ["/v2/deals?x=/api/v1", "/v2", "/api/v10"]
    assert [(one.place, one.kind) for one in bindings.substitutions] == [("target", "authority")] * 2


async def test_nobody_there_any_more_is_an_outcome_and_no_crash() -> None:
    async with raw_server(Room()) as server:
        pass
    done = await drive(server, [replace(one("GET", "/a", 0))])
    assert done.live[1].outcome is Outcome.REFUSED


async def test_a_body_that_the_store_cannot_give_is_told_as_it_is() -> None:
    big = replace(one("PUT", "/a", 0), request=replace(one("PUT", "/a", 0).request, body=Body(
        size=9, digest=b"", inline=None, pieces=(b"gone",))))  # fmt: skip

    def damaged(body: Body) -> Iterator[bytes]:
        raise DamagedRecord("a piece is gone")
        yield b""

    async with raw_server(Room()) as server:
        recorded = trace([big]).exchanges
        driver = Driver(
            recorded, plan(recorded), {"app": Target(origin=origin(server.url))}, Bindings(), Looks(), pieces=damaged
        )
        with pytest.raises(DamagedRecord, match="a piece is gone"):
            await asyncio.wait_for(driver.run(), 5)
