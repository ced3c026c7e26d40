"""What goes out, byte by byte, and what is read."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from replayproxy.core.canonical import body_of
from replayproxy.core.values import Body, Chunk, Outcome, Request
from replayproxy.drive.collect import Collector, Stretch
from replayproxy.drive.message import message
from replayproxy.drive.origin import origin
from replayproxy.drive.wire import Answer, Lines
from tests.drive.raw_server import Raw, Talk, answers, raw_server

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def request(
    target: bytes = b"/x", *, method: bytes = b"GET", fields: tuple[tuple[bytes, bytes], ...] = ((b"Host", b"rec:1"),),
    body: Body | bytes = b"", version: bytes = b"HTTP/1.1", trailers: tuple[tuple[bytes, bytes], ...] = (),
) -> Request:  # fmt: skip
    made = body_of(body) if isinstance(body, bytes) else body
    return Request(method=method, target=target, version=version, fields=fields, body=made, trailers=trailers)


def no_pieces(body: Body) -> Iterator[bytes]:
    raise AssertionError("nothing lies apart here")


async def sent(server: Raw, *requests: Request, limit: float = 5.0, lines: Lines | None = None) -> list[Answer]:
    where = origin(server.url)
    own = lines or Lines()
    try:
        return [
            await own.send("main", where, message(one, host=where.authority.encode(), pieces=no_pieces), limit=limit)
            for one in requests
        ]
    finally:
        own.close()


async def test_the_bytes_sent_are_the_recorded_ones_but_for_the_value_of_host() -> None:
    fields = (
        (b"accept", b"text/plain"), (b"hOsT", b"recorded:9"), (b"X-Twice", b"1"), (b"Cookie", b"a=1"),
        (b"X-Twice", b"2"), (b"X-Odd", b"caf\xe9 \xff"), (b"Empty", b""),
    )  # fmt: skip
    async with raw_server(answers(OK)) as server:
        await sent(server, request(b"/a%2Fb/x/../y//z?q=%27a%27&tag=&tag&x=%7Eu", method=b"BREW", fields=fields))
    assert bytes(server.connections[0]) == (
        b"BREW /a%2Fb/x/../y//z?q=%27a%27&tag=&tag&x=%7Eu HTTP/1.1\r\n"
        b"accept: text/plain\r\n"
        b"hOsT: 127.0.0.1:" + str(server.port).encode() + b"\r\n"
        b"X-Twice: 1\r\nCookie: a=1\r\nX-Twice: 2\r\nX-Odd: caf\xe9 \xff\r\nEmpty: \r\n\r\n"
    )


async def test_a_chunked_body_goes_out_in_its_recorded_chunks_with_its_trailers() -> None:
    body = replace(body_of(b"abcdefgh"), chunks=(Chunk(size=3, at=0), Chunk(size=5, at=1)))
    fields = ((b"Host", b"rec"), (b"Transfer-Encoding", b"chunked"), (b"Trailer", b"X-Sum"))

    async def handler(talk: Talk) -> None:
        await talk.until(b"0\r\nX-Sum: 7\r\n\r\n")
        await talk.say(OK)

    async with raw_server(handler) as server:
        await sent(server, request(method=b"POST", fields=fields, body=body, trailers=((b"X-Sum", b"7"),)))
    assert bytes(server.connections[0]).partition(b"\r\n\r\n")[2] == (
        b"3\r\nabc\r\n5\r\ndefgh\r\n0\r\nX-Sum: 7\r\n\r\n"
    )


async def test_a_body_that_lies_apart_is_streamed_from_its_pieces() -> None:
    pieces = [b"x" * 300_000, b"y" * 300_000, b"z"]
    body = Body(size=600_001, digest=b"", inline=None, pieces=(b"1", b"2", b"3"))
    fields = ((b"Host", b"rec"), (b"Content-Length", b"600001"))

    async def handler(talk: Talk) -> None:
        await talk.until(b"\r\n\r\n")
        await talk.exactly(600_001)
        await talk.say(OK)

    async with raw_server(handler) as server:
        where = origin(server.url)
        made = message(request(method=b"PUT", fields=fields, body=body), host=None, pieces=lambda _: iter(pieces))
        answer = await Lines().send("main", where, made, limit=5)
    assert answer.outcome is Outcome.ANSWERED
    assert bytes(server.connections[0]).partition(b"\r\n\r\n")[2] == b"".join(pieces)


async def test_an_answer_keeps_status_reason_order_case_and_repeats_of_fields() -> None:
    raw = (
        b"HTTP/1.1 299 Rather Fine\r\nset-cookie: a=1; Path=/\r\nX-B: caf\xe9\r\nSet-Cookie: b=2\r\n"
        b"Content-Length: 0\r\n\r\n"
    )
    async with raw_server(answers(raw)) as server:
        [answer] = await sent(server, request())
    assert answer.response is not None
    assert (answer.response.status, answer.response.reason) == (299, b"Rather Fine")
    assert answer.response.fields == (
        (b"set-cookie", b"a=1; Path=/"), (b"X-B", b"caf\xe9"), (b"Set-Cookie", b"b=2"), (b"Content-Length", b"0"),
    )  # fmt: skip


async def test_chunks_informational_answers_and_trailers_are_read_exactly() -> None:
    raw = (
        b"HTTP/1.1 103 Early Hints\r\nLink: </s.css>\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </t.css>\r\n\r\n"
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n5\r\ndefgh\r\n0\r\nX-Sum: 7\r\n\r\n"
    )
    async with raw_server(answers(raw)) as server:
        [answer] = await sent(server, request())
    assert answer.outcome is Outcome.ANSWERED
    assert answer.response is not None
    assert answer.response.body is not None
    assert answer.response.informational == ((103, ((b"Link", b"</s.css>"),)), (103, ((b"Link", b"</t.css>"),)))
    assert [chunk.size for chunk in answer.response.body.chunks] == [3, 5]
    assert answer.response.body.inline == b"abcdefgh"
    assert answer.response.trailers == ((b"X-Sum", b"7"),)


async def test_redirects_are_not_followed_and_codings_not_undone() -> None:
    raw = (
        b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nSet-Cookie: s=1\r\nContent-Encoding: gzip\r\n"
        b"Content-Length: 3\r\n\r\n\x1f\x8b\x08"
    )
    async with raw_server(answers(raw)) as server:
        [answer] = await sent(server, request())
    assert answer.response is not None
    assert answer.response.body is not None
    assert answer.response.body.inline == b"\x1f\x8b\x08"
    assert len(server.connections) == 1


async def test_an_answer_to_head_has_no_body_whatever_its_length_says() -> None:
    async with raw_server(answers(b"HTTP/1.1 200 OK\r\nContent-Length: 4096\r\n\r\n")) as server:
        [answer] = await sent(server, request(method=b"HEAD"))
    assert answer.outcome is Outcome.ANSWERED
    assert answer.response is not None
    assert answer.response.body is not None
    assert answer.response.body.size == 0


async def test_a_body_without_framing_ends_where_the_connection_ends() -> None:
    async with raw_server(answers(b"HTTP/1.1 200 OK\r\n\r\nto the end")) as server:
        [answer] = await sent(server, request())
    assert answer.outcome is Outcome.ANSWERED
    assert answer.response is not None
    assert answer.response.body is not None
    assert answer.response.body.inline == b"to the end"


@pytest.mark.parametrize(
    ("raw", "outcome", "cut_at"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", Outcome.CUT, 3),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc", Outcome.CUT, 3),
        (b"HTTP/1.1 200 OK\r\nContent-Le", Outcome.CUT, None),
        (b"", Outcome.CUT, None),
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", Outcome.INVALID, None),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n", Outcome.INVALID, 0),
    ],
)
async def test_what_is_no_whole_answer_says_so_and_how_far_it_came(
    raw: bytes, outcome: Outcome, cut_at: int | None
) -> None:
    closed = asyncio.Event()

    async def handler(talk: Talk) -> None:
        await talk.until(b"\r\n\r\n")
        await talk.say(raw)
        if outcome is Outcome.INVALID:
            await closed.wait()

    async with raw_server(handler) as server:
        [answer] = await sent(server, request())
        closed.set()
    assert (answer.outcome, answer.cut_at) == (outcome, cut_at)


async def test_an_answer_that_never_ends_is_timed_out() -> None:
    async def handler(talk: Talk) -> None:
        await talk.until(b"\r\n\r\n")
        await talk.say(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc")
        await talk.exactly(1)

    async with raw_server(handler) as server:
        [answer] = await sent(server, request(), limit=0.1)
    assert (answer.outcome, answer.cut_at, answer.left) == (Outcome.TIMED_OUT, 3, True)


async def test_nobody_there_is_refused_and_nothing_was_sent() -> None:
    async with raw_server(answers(OK)) as server:
        pass
    [answer] = await sent(server, request())
    assert answer.outcome is Outcome.REFUSED


async def test_an_answer_before_the_whole_body_was_sent_counts() -> None:
    body = Body(size=50_000_000, digest=b"", inline=None, pieces=(b"1",))
    fields = ((b"Host", b"rec"), (b"Content-Length", b"50000000"))
    done = asyncio.Event()

    async def handler(talk: Talk) -> None:
        await talk.until(b"\r\n\r\n")
        await talk.say(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n")
        await done.wait()

    async with raw_server(handler) as server:
        where = origin(server.url)
        made = message(
            request(method=b"PUT", fields=fields, body=body), host=None, pieces=lambda _: iter([b"x" * 50_000_000])
        )
        answer = await Lines().send("main", where, made, limit=5)
        done.set()
    assert answer.response is not None
    assert answer.response.status == 413
    assert not answer.reusable


async def test_a_connection_is_used_again_only_where_the_environment_says_keep_alive() -> None:
    async def keeps(talk: Talk) -> None:
        while True:
            await talk.until(b"\r\n\r\n")
            await talk.say(b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok")

    async def is_silent(talk: Talk) -> None:
        while True:
            await talk.until(b"\r\n\r\n")
            await talk.say(OK)

    async with raw_server(keeps) as said, raw_server(is_silent) as unsaid:
        await sent(said, request(), request(), request())
        await sent(unsaid, request(), request(), request())
    assert (len(said.connections), len(unsaid.connections)) == (1, 3)


async def test_a_kept_connection_that_was_closed_meanwhile_is_not_written_to() -> None:
    async def one(talk: Talk) -> None:
        await talk.until(b"\r\n\r\n")
        await talk.say(b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok")

    lines = Lines()
    async with raw_server(one) as server:
        where = origin(server.url)
        write = message(request(method=b"POST"), host=None, pieces=no_pieces)
        first = await lines.send("main", where, write, limit=5)
        [[kept]] = lines._idle.values()
        while not kept.reader.at_eof():
            await asyncio.sleep(0)
        second = await lines.send("main", where, write, limit=5)
        lines.close()
    assert (first.outcome, second.outcome) == (Outcome.ANSWERED, Outcome.ANSWERED)
    assert [bytes(got).count(b"POST") for got in server.connections] == [1, 1]


async def test_lanes_have_connections_of_their_own() -> None:
    async def keeps(talk: Talk) -> None:
        while True:
            await talk.until(b"\r\n\r\n")
            await talk.say(b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok")

    lines = Lines()
    async with raw_server(keeps) as server:
        where = origin(server.url)
        made = message(request(), host=None, pieces=no_pieces)
        for lane in ("a", "b", "a", "b"):
            await lines.send(lane, where, made, limit=5)
        lines.close()
    assert len(server.connections) == 2


async def test_a_stream_is_closed_from_our_side_and_only_as_much_as_recorded_counts() -> None:
    closed = asyncio.Event()

    async def handler(talk: Talk) -> None:
        await talk.until(b"\r\n\r\n")
        await talk.say(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\ndata: 2\n\ndata: 3\n\n")
        try:
            await talk.exactly(1)
        finally:
            closed.set()

    async def leave(body: Collector) -> None:
        await body.enough()

    async with raw_server(handler) as server:
        made = message(request(), host=None, pieces=no_pieces)
        answer = await Lines().send("main", origin(server.url), made, limit=5, leave=leave,
                                    body=Collector(stretch=Stretch(size=18)))  # fmt: skip
        await asyncio.wait_for(closed.wait(), 5)
    assert answer.response is not None
    assert answer.response.body is not None
    assert answer.left
    assert answer.response.body.inline == b"data: 1\n\ndata: 2\n\n"


async def test_what_came_by_http2_goes_out_with_the_framing_of_http1() -> None:
    async def handler(talk: Talk) -> None:
        await talk.until(b"\r\n\r\n")
        await talk.exactly(2)
        await talk.say(OK)

    async with raw_server(handler) as server:
        await sent(server, request(method=b"POST", version=b"HTTP/2.0", fields=((b"accept", b"*/*"),), body=b"hi"))
    assert bytes(server.connections[0]) == (
        b"POST /x HTTP/1.1\r\nhost: 127.0.0.1:" + str(server.port).encode()
        + b"\r\naccept: */*\r\ncontent-length: 2\r\n\r\nhi"
    )  # fmt: skip


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tls")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", path / "key.pem", "-out",
         path / "cert.pem", "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"],
        check=True, capture_output=True,
    )  # fmt: skip
    return path


async def test_an_https_environment_is_spoken_to_and_its_certificate_checked(certificate: Path) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    url = f"https://localhost:{server.sockets[0].getsockname()[1]}"
    made = message(request(), host=None, pieces=no_pieces)
    try:
        outcomes = [
            (await Lines().send("main", where, made, limit=5)).outcome
            for where in (origin(url), origin(url, ca=str(certificate / "cert.pem")), origin(url, insecure=True))
        ]
    finally:
        server.close()
    assert outcomes == [Outcome.REFUSED, Outcome.ANSWERED, Outcome.ANSWERED]
