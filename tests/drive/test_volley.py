"""Requests released together: all but the last byte of each is there before the last byte of any."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from replayproxy.core.canonical import body_of
from replayproxy.core.values import Body, Outcome, Request
from replayproxy.drive.message import Message, message
from replayproxy.drive.origin import origin
from replayproxy.drive.volley import Loaded, volley
from tests.drive.raw_server import Raw, Talk, raw_server

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
NO = b"HTTP/1.1 409 Conflict\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


def sent(body: bytes = b"", *, chunked: bool = False) -> Message:
    fields: tuple[tuple[bytes, bytes], ...] = ((b"Host", b"x"),)
    if chunked:
        fields += ((b"Transfer-Encoding", b"chunked"),)
    elif body:
        fields += ((b"Content-Length", str(len(body)).encode()),)
    request = Request(method=b"POST", target=b"/x", version=b"HTTP/1.1", fields=fields, body=body_of(body))

    def no_pieces(body: Body) -> Iterator[bytes]:
        raise AssertionError("nothing lies apart here")

    return message(request, host=None, pieces=no_pieces)


def whole(one: Message) -> bytes:
    return one.head + b"".join(one.body())


class Meeting:
    """A server that notes, for each connection, when its last byte came, and how much each had by then."""

    def __init__(self, sizes: list[int]) -> None:
        self.sizes = sizes
        self.had: dict[int, int] = {}
        self.ends: list[dict[int, int]] = []
        self._count = 0

    async def __call__(self, talk: Talk) -> None:
        number, self._count = self._count, self._count + 1
        while self.had.get(number, 0) < self.sizes[number]:
            got = await talk.reader.read(65536)
            if not got:
                return
            talk.got += got
            self.had[number] = len(talk.got)
        self.ends.append(dict(self.had))
        await talk.say(OK)


@pytest.mark.parametrize("kind", ["no body", "a body", "chunks", "a large body"])
async def test_the_last_bytes_go_when_all_else_is_there(kind: str) -> None:
    made = {"no body": sent(), "a body": sent(b"{}"), "chunks": sent(b"{}", chunked=True),
            "a large body": sent(b"x" * 700_000)}[kind]  # fmt: skip
    size = len(whole(made))
    meeting = Meeting([size, size])
    async with raw_server(meeting) as server:
        answers = await volley([Loaded(origin=origin(server.url), message=made)] * 2)
    assert [a.response.status for a in answers if a.response] == [200, 200]
    first = meeting.ends[0]
    assert sorted(first) == [0, 1]
    if kind != "a large body":  # of that the system may hold a part which the server has not read yet
        assert min(first.values()) >= size - 1
    assert all(bytes(got) == whole(made) for got in server.connections)


async def test_one_may_be_released_later_than_the_other() -> None:
    async with raw_server(Meeting([len(whole(sent(b"{}")))] * 2)) as server:
        where = origin(server.url)
        early, late = await volley(
            [Loaded(origin=where, message=sent(b"{}"), after=0.05), Loaded(origin=where, message=sent(b"{}"))]
        )
    assert early.fwd - late.fwd >= 49_000_000
    assert early.up_end > late.up_end


async def test_an_answer_before_the_last_byte_is_an_answer() -> None:
    async def refuses(talk: Talk) -> None:
        await talk.until(b"\r\n\r\n")
        await talk.say(NO)

    async with raw_server(refuses) as server:
        answers = await volley([Loaded(origin=origin(server.url), message=sent(b"x" * 10))] * 2)
    assert [a.response.status for a in answers if a.response] == [409, 409]


async def test_what_goes_wrong_with_one_is_no_matter_of_the_other() -> None:
    turn: list[int] = []

    async def one_falls_silent(talk: Talk) -> None:
        turn.append(1)
        if len(turn) == 1:
            await talk.until(b"{}")
            return
        await talk.until(b"{}")
        await talk.say(OK)

    async with raw_server(one_falls_silent) as server:
        answers = await volley([Loaded(origin=origin(server.url), message=sent(b"{}"))] * 2)
    assert sorted(a.outcome for a in answers) == sorted([Outcome.CUT, Outcome.ANSWERED])


async def test_without_a_connection_nothing_is_sent() -> None:
    async with raw_server(Meeting([1])) as server:
        there, gone = origin(server.url), origin("http://127.0.0.1:9")
        with pytest.raises(OSError):
            await volley([Loaded(origin=there, message=sent()), Loaded(origin=gone, message=sent())])
        await asyncio.sleep(0.05)
        assert all(not got for got in server.connections)


async def test_an_answer_that_never_comes_ends_at_its_limit() -> None:
    async def silent(talk: Talk) -> None:
        await talk.reader.read()

    server: Raw
    async with raw_server(silent) as server:
        (answer,) = await volley([Loaded(origin=origin(server.url), message=sent(), limit=0.1)])
    assert answer.outcome is Outcome.TIMED_OUT
