"""How an answer's body is gathered, and how much of it counts."""

from __future__ import annotations

import asyncio

import pytest

from replayproxy.core.canonical import VIEW_LIMIT, digest
from replayproxy.core.values import Body, Chunk
from replayproxy.drive.collect import Collector, Head, Stretch, stretch_of
from replayproxy.testing import exchange

HEAD = Head(status=200, fields=())
SSE = [("Content-Type", "text/event-stream; charset=utf-8")]


class Kept:
    """A sink that remembers."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes, at: int | None = None) -> None:
        self.data += data

    def close(self) -> Body:
        return Body(size=len(self.data), digest=digest(self.data), inline=None, pieces=(b"p",))


async def test_a_body_is_hashed_kept_and_passed_on() -> None:
    sink = Kept()
    body = Collector(sink)
    for piece, at in ((b"abc", 5), (b"de", 9)):
        body.write(piece)
        body.chunk_ended(at)
    made = body.close(10)
    assert (made.inline, made.digest, made.size, made.pieces) == (b"abcde", digest(b"abcde"), 5, (b"p",))
    assert made.chunks == (Chunk(size=3, at=5), Chunk(size=2, at=9))
    assert sink.data == b"abcde"


async def test_a_body_too_large_to_be_looked_at_is_hashed_and_not_kept() -> None:
    body = Collector()
    for _ in range(VIEW_LIMIT // 2**20 + 1):
        body.write(b"x" * 2**20)
    made = body.close(0)
    assert made.inline is None
    assert made.digest == digest(b"x" * (VIEW_LIMIT + 2**20))


async def test_what_is_waited_for_is_the_head_and_the_bytes() -> None:
    body = Collector()
    waiting = asyncio.ensure_future(body.reached(3))
    body.write(b"abcd")
    await asyncio.sleep(0)
    assert not waiting.done()
    body.begin(HEAD)
    await asyncio.wait_for(waiting, 1)


@pytest.mark.parametrize(
    ("recorded", "live", "counts"),
    [
        (b"data: 1\n\ndata: 2\n\n", b"data: 100\n\ndata: 2\n\ndata: 3\n\n", b"data: 100\n\ndata: 2\n\n"),
        (b"data: 1\n\ndat", b"data: 100\n\ndata: 2\n\n", b"data: 100\n\ndat"),
        (b"data: 1\r\n\r\n", b"data: 7\n\ndata: 8\n\n", b"data: 7\n\n"),
        (b"", b"data: 1\n\n", b""),
    ],
)
async def test_of_server_sent_events_as_many_count_as_were_recorded(
    recorded: bytes, live: bytes, counts: bytes
) -> None:
    body = Collector(stretch=stretch_of(exchange(body=recorded, headers=SSE)))
    body.begin(HEAD)
    body.write(live)
    assert body.is_enough()
    assert body.close(0).inline == counts


async def test_of_any_other_stream_as_many_bytes_count_and_chunks_are_cut_too() -> None:
    sink = Kept()
    body = Collector(sink, Stretch(size=4))
    body.begin(HEAD)
    for piece in (b"abc", b"def", b"ghi"):
        body.write(piece)
        body.chunk_ended(1)
    made = body.close(2)
    assert (made.inline, made.size, sink.data) == (b"abcd", 4, b"abcd")
    assert [chunk.size for chunk in made.chunks] == [3, 1]


async def test_a_stream_that_falls_short_keeps_what_there_is() -> None:
    body = Collector(stretch=Stretch(size=9))
    body.begin(HEAD)
    body.write(b"abc")
    assert not body.is_enough()
    assert body.close(0).inline == b"abc"
