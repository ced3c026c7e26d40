"""Pieces, pace and large bodies."""

from __future__ import annotations

import asyncio
import hashlib
import resource
from dataclasses import replace

import pytest

from replayproxy.core.values import Chunk, Exchange, Outcome, Times
from replayproxy.errors import WrongUsage
from replayproxy.serve.sending import Pace, parse_pace
from replayproxy.storage import Store
from replayproxy.testing import MS, exchange
from tests.serve.staged import large, record, staged

MIB = 1024 * 1024


@pytest.mark.parametrize(("text", "speed"), [("instant", 0), ("recorded", 1), ("2x", 2), ("0.5x", 0.5)])
def test_a_pace_is_instant_recorded_or_a_factor(text: str, speed: float) -> None:
    assert parse_pace(text).speed == speed


@pytest.mark.parametrize("text", ["", "2", "x", "-1x", "0x", "nanx", "infx", "fast"])
def test_any_other_pace_is_refused(text: str) -> None:
    with pytest.raises(WrongUsage):
        parse_pace(text)


def events(*at_ms: float) -> Exchange:
    """A stream of one event of three bytes at each instant after it was asked for."""
    made = exchange(
        body=b"".join(b"e%d\n" % n for n in range(len(at_ms))),
        headers={"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"},
        chunks=[(3, at) for at in at_ms],
    )
    times = Times(head=0, wall=0, c_in=0, fwd=0, first=10 * MS, up_end=round(max(at_ms) * MS) + MS)
    return replace(made, times=times)


async def arrivals(store: Store, pace: Pace) -> list[float]:
    run = record(store, {"e": [events(100, 200, 300)]})
    loop = asyncio.get_running_loop()
    async with staged(store, run, pace=pace) as on:
        reader, writer = await asyncio.open_connection("127.0.0.1", on.ports["app"])
        begun = loop.time()
        writer.write(b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
        seen = []
        for number in range(3):
            await reader.readuntil(b"e%d\n\r\n" % number)
            seen.append(loop.time() - begun)
        assert await reader.readuntil(b"0\r\n\r\n")
        writer.close()
    return seen


async def test_instant_pace_has_no_pauses(store: Store) -> None:
    assert (await arrivals(store, Pace()))[-1] < 0.09


async def test_the_last_pause_before_the_agent_left_is_kept_at_instant_pace(store: Store) -> None:
    left = replace(events(100, 200, 500), outcome=Outcome.CLIENT_GONE, closed_by_agent=True)
    run = record(store, {"e": [left]})
    async with staged(store, run, pace=Pace()) as on:
        reader, writer = await asyncio.open_connection("127.0.0.1", on.ports["app"])
        begun = asyncio.get_running_loop().time()
        writer.write(b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
        await reader.readuntil(b"e1\n\r\n")
        before = asyncio.get_running_loop().time() - begun
        await reader.readuntil(b"e2\n\r\n")
        assert before < 0.2
        assert asyncio.get_running_loop().time() - begun >= 0.295
        writer.close()


async def test_recorded_pace_gives_each_chunk_at_its_time(store: Store) -> None:
    seen = await arrivals(store, Pace(speed=1))
    assert all(got >= wanted - 0.005 for got, wanted in zip(seen, (0.1, 0.2, 0.3), strict=True))


async def test_twice_as_fast_takes_half_the_time(store: Store) -> None:
    seen = await arrivals(store, Pace(speed=2))
    assert seen[-1] >= 0.145
    assert seen[0] < 0.095


async def test_an_answer_in_one_block_waits_for_its_recorded_time(store: Store) -> None:
    run = record(store, {"e": [exchange(body=b"ok", took_ms=200)]})
    loop = asyncio.get_running_loop()
    async with staged(store, run, pace=Pace(speed=1)) as on:
        begun = loop.time()
        await on.get("/x")
        # 4/5 of the time had passed when the answer was whole, of which 1/5 was before it was sent on.
        assert loop.time() - begun >= 0.115


@pytest.mark.parametrize("framing", ["Content-Length", "chunked"])
async def test_a_body_of_50_mib_is_sent_in_flat_memory(store: Store, framing: str) -> None:
    block = hashlib.blake2b(framing.encode()).digest() * 16384
    data = block * 50
    assert len(data) == 50 * MIB
    sizes = [65536] * 800
    body = large(store, data, sizes)
    assert body.inline is None
    assert len(body.chunks) == 800
    assert isinstance(body.chunks[0], Chunk)
    fields = {"Transfer-Encoding": "chunked"} if framing == "chunked" else {"Content-Length": str(len(data))}
    run = record(store, {"e": [exchange(body=body, headers=fields)]})
    wanted = hashlib.sha256(data).hexdigest()
    del data
    async with staged(store, run) as on:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        reader, writer = await asyncio.open_connection("127.0.0.1", on.ports["app"])
        writer.write(b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        got = hashlib.sha256()
        if framing == "chunked":
            while size := int(await reader.readuntil(b"\r\n"), 16):
                assert size == 65536
                got.update((await reader.readexactly(size + 2))[:-2])
        else:
            for _ in range(800):
                got.update(await reader.readexactly(65536))
        writer.close()
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert got.hexdigest() == wanted
        assert on.receipt()["reproduced"] is True
    assert after - before < 24 * 1024, "KiB"


async def test_a_large_upload_is_matched_by_its_digest(store: Store) -> None:
    data = bytes(range(256)) * (10 * MIB // 256)
    body = large(store, data)
    fields = {"Content-Type": "application/octet-stream"}
    run = record(store, {"e": [exchange("POST", "/up", sent=body, request_headers=fields, body=b"got it")]})
    async with staged(store, run) as on:
        wrong = await on.get("/up", method="POST", body=data[:-1] + b"!", Content_Type="application/octet-stream")
        right = await on.get("/up", method="POST", body=data, Content_Type="application/octet-stream")
    assert b" 470 " in wrong.partition(b"\r\n")[0]
    assert right.endswith(b"got it")
