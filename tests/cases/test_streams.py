"""What comes piece by piece passes piece by piece, is kept whole, and who ended it is known."""

from __future__ import annotations

import asyncio
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replayproxy.core.canonical import digest
from replayproxy.core.values import Outcome
from replayproxy.serve.control import EndRequest
from replayproxy.storage import Store
from tests.cases.lab import Talker, get, ok, over_a_store, recording, replaying, talker
from tests.proxy.wire import Peer

few = settings(max_examples=6, deadline=None)
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


async def events_of(agent: Talker, count: int) -> list[tuple[bytes, float]]:
    got = []
    for _ in range(count):
        line = await asyncio.wait_for(agent.reader.readuntil(b"\r\n"), 5)
        got.append(((await agent.read(int(line, 16) + 2))[:-2], time.monotonic()))
    return got


@given(count=st.integers(2, 5), method=st.sampled_from([b"GET", b"POST"]), multiline=st.booleans())
@few
@over_a_store
async def test_events_reach_the_agent_as_they_come_and_are_kept_whole(
    store: Store, count: int, method: bytes, multiline: bool
) -> None:
    sent: list[float] = []
    events = [b"id: %d\ndata: a%s\n\n" % (n, b"\ndata: b" if multiline else b"") for n in range(count)]

    async def answerer(peer: Peer, request: bytes) -> None:
        await peer.send(STREAM)
        for one in events:
            sent.append(time.monotonic())
            await peer.send(chunk(one))
            await asyncio.sleep(0.06)
        await peer.send(b"0\r\n\r\n")

    request = get("/events", *([b"Content-Length: 0"] if method == b"POST" else []), method=method)
    async with recording(store, answerer) as on:
        agent = await on.agent()
        await agent.send(request)
        assert await agent.read_head() == STREAM
        got = await events_of(agent, count)
        assert await agent.read(5) == b"0\r\n\r\n"
        (one,) = await on.exchanges(count=1)
    assert [data for data, _ in got] == events
    for n in range(1, count):
        assert got[n - 1][1] < sent[n], f"event {n} was held back until the next"
    assert one.outcome is Outcome.ANSWERED
    assert one.response is not None
    assert one.response.body is not None
    assert one.response.body.inline == b"".join(events)
    assert [c.size for c in one.response.body.chunks] == [len(event) for event in events]
    async with replaying(store) as origin:
        again = await talker(origin.ports["app"])
        assert await again.ask(request) == STREAM + b"".join(map(chunk, events)) + b"0\r\n\r\n"
        again.close()


@pytest.mark.parametrize("ends", ["agent", "environment", "episode"])
async def test_an_endless_stream_is_kept_up_to_its_end_with_who_ended_it(store: Store, ends: str) -> None:
    async def answerer(peer: Peer, request: bytes) -> None:
        if b"/after" in request:
            await peer.send(ok())
            return
        await peer.send(STREAM + chunk(b"data: 1\n\n"))
        await peer.send(chunk(b"data: 2\n\n"))
        if ends == "environment":
            await asyncio.sleep(0.1)
            peer.abort()
            return
        for n in range(3, 200):
            await asyncio.sleep(0.05)
            await peer.send(chunk(b"data: %d\n\n" % n))

    async with recording(store, answerer) as on:
        agent, other = await on.agent(), await on.agent()
        await agent.send(get("/events"))
        await agent.read_head()
        await events_of(agent, 2)
        assert await other.ask(get("/after")) == ok(), "other agents go on"
        if ends == "agent":
            agent.close()
        if ends == "episode":
            await on.recorder.episodes.end("e", EndRequest())
        await on.exchanges(count=2)
    async with replaying(store) as origin:
        reader = origin.stage.reader
        one = next(
            e for e in reader.exchanges(origin.stage.episodes["e"], bodies=9999) if e.request.target == b"/events"
        )
        expected = {"agent": Outcome.CLIENT_GONE, "environment": Outcome.CUT, "episode": Outcome.OPEN_AT_END}[ends]
        assert one.outcome is expected
        if ends != "episode":
            assert one.closed_by_agent is (ends == "agent")
        assert one.response is not None
        assert one.response.body is not None
        assert (one.response.body.inline or b"").startswith(b"data: 1\n\ndata: 2\n\n")
        again, third = await talker(origin.ports["app"]), await talker(origin.ports["app"])
        await again.send(get("/events"))
        await again.read_head()
        assert [data for data, _ in await events_of(again, 2)] == [b"data: 1\n\n", b"data: 2\n\n"]
        assert await third.ask(get("/after")) == ok()
        if ends == "environment":
            assert await again.read_to_end() == b""
        else:
            assert await again.is_open(), "it stays open until this agent leaves too"
        again.close()
        third.close()


@given(size=st.sampled_from([65_535, 65_537, 300_000, 1_500_000]), up=st.booleans(), chunked=st.booleans())
@few
@over_a_store
async def test_a_body_that_streams_past_is_there_when_the_entry_is_written(
    store: Store, size: int, up: bool, chunked: bool
) -> None:
    body = bytes(range(251)) * (size // 251) + b"x" * (size % 251)
    if chunked:
        framed = b"".join(chunk(body[at : at + 50_000]) for at in range(0, size, 50_000)) + b"0\r\n\r\n"
        lead = b"Transfer-Encoding: chunked"
    else:
        framed, lead = body, b"Content-Length: %d" % size
    request = get("/up", lead, method=b"PUT") + framed if up else get("/dump")
    answer = ok() if up else b"HTTP/1.1 200 OK\r\n" + lead + b"\r\n\r\n" + framed

    async def answerer(peer: Peer, asked: bytes) -> None:
        await peer.send(answer)

    async with recording(store, answerer) as on:
        live = await on.ask(request)
        (one,) = await on.exchanges(count=1)
    kept = one.request.body if up else one.response.body if one.response else None
    assert kept is not None
    assert (kept.size, kept.digest) == (size, digest(body))
    assert b"".join(store.reader().pieces(kept)) == body
    async with replaying(store) as origin:
        again = await talker(origin.ports["app"])
        assert await again.ask(request) == live
        again.close()
        assert origin.receipt()["reproduced"] is True


@given(sent=st.sampled_from(["whole", "half", "half-chunk"]), patience=st.sampled_from([0.0, 0.05]))
@few
@over_a_store
async def test_an_agent_that_leaves_before_the_answer_is_kept_with_what_it_did(
    store: Store, sent: str, patience: float
) -> None:
    acted: list[bytes] = []

    async def answerer(peer: Peer, request: bytes) -> None:
        acted.append(request)
        await asyncio.sleep(0.2)
        await peer.send(ok(b"late"))

    request = {
        "whole": get("/step", method=b"POST", body=b"0123456789"),
        "half": get("/step", b"Content-Length: 10", method=b"POST") + b"012",
        "half-chunk": get("/step", b"Transfer-Encoding: chunked", method=b"POST") + b"a\r\n012",
    }[sent]
    async with recording(store, answerer) as on:
        agent = await on.agent()
        await agent.send(request)
        await asyncio.sleep(patience)
        agent.abort()
        (one,) = await on.exchanges(count=1)
    assert one.response is None
    if sent == "whole":
        assert one.outcome is Outcome.CLIENT_GONE
        assert one.closed_by_agent is True
        assert one.times.up_end is None, "when its effect ended is not known"
    else:
        assert one.outcome is Outcome.HALF_SENT
        assert acted == []
    async with replaying(store) as origin:
        again = await talker(origin.ports["app"])
        await again.send(get("/step", method=b"POST", body=b"0123456789"))
        if sent == "whole":
            assert await again.is_open(), "held, as recorded, until this agent leaves"
        else:
            assert (await again.answer()).startswith(b"HTTP/1.1 470 "), "never matched as a whole request"
        again.close()
