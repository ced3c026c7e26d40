"""How exchanges end: what the agent gets, what the recording says, to the byte."""

from __future__ import annotations

import asyncio
import json
import socket
import struct

import pytest

from replayproxy.core.values import Exchange, Outcome
from tests.proxy.wire import Peer, Wire, says

GET = b"GET /rp/e1/a HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST /rp/e1/a HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def body(exchange: Exchange) -> bytes | None:
    return exchange.response.body.inline if exchange.response and exchange.response.body else None


def problem(raw: bytes) -> dict[str, object]:
    head, _, document = raw.partition(b"\r\n\r\n")
    assert b"content-type: application/problem+json" in head.lower()
    assert b"replay-local: " in head.lower()
    found: dict[str, object] = json.loads(document)
    return found


@pytest.mark.parametrize(
    ("sent", "size", "got"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", 3, None),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n", 0, None),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + b"x" * 70000, 70000, None),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", 3, None),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc", 3, b"3\r\nabc\r\n"),
    ],
    ids=["buffered", "head only", "streamed", "chunked", "in a chunk"],
)
@pytest.mark.parametrize("ask", [GET, POST], ids=["GET", "POST"])
async def test_a_cut_answer_reaches_the_agent_as_far_as_it_came(
    w: Wire, ask: bytes, sent: bytes, size: int, got: bytes | None
) -> None:
    _, _, agent = await w.between(says(sent, close=True))
    await agent.send(ask)
    expected = sent if got is None else sent.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" + got
    assert await agent.read_to_end() == expected
    exchange = await w.scribe.exchange()
    assert (exchange.outcome, exchange.cut_at, exchange.closed_by_agent) == (Outcome.CUT, size, False)
    assert len(body(exchange) or b"") == size
    assert exchange.times.up_end is not None
    assert w.scribe.faults == []


async def test_a_reset_in_the_body_is_a_cut(w: Wire) -> None:
    async def answerer(peer: Peer, request: bytes) -> None:
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
        sock: socket.socket = peer.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.abort()

    _, _, agent = await w.between(answerer)
    await agent.send(GET)
    assert (await agent.read_to_end()) in (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", b"")
    assert (await w.scribe.exchange()).outcome is Outcome.CUT


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\nX: "], ids=["nothing", "half a head"])
async def test_an_environment_that_closes_before_its_answer_closes_the_agents_connection(w: Wire, sent: bytes) -> None:
    _, _, agent = await w.between(says(sent, close=True))
    await agent.send(GET)
    assert await agent.read_to_end() == b""
    exchange = await w.scribe.exchange()
    assert (exchange.outcome, exchange.response, exchange.cut_at) == (Outcome.CUT, None, 0)


@pytest.mark.parametrize(
    "sent",
    [
        b"garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nbad header\r\n\r\n",
        b"HTTP/1.1 103 Early\r\nbad header\r\n\r\n",
    ],
)
async def test_what_is_no_http_becomes_a_502_of_ours_and_is_not_the_environments_word(w: Wire, sent: bytes) -> None:
    _, _, agent = await w.between(says(sent))
    await agent.send(GET)
    got = await agent.read_to_end()
    assert got.startswith(b"HTTP/1.1 502 Bad Gateway\r\n")
    assert problem(got)["outcome"] == "invalid"
    exchange = await w.scribe.exchange()
    assert (exchange.outcome, exchange.response) == (Outcome.INVALID, None)
    assert exchange.error


async def test_a_body_that_turns_into_garbage_ends_where_it_does(w: Wire) -> None:
    good = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"
    _, _, agent = await w.between(says(good + b"zzz\r\n"))
    await agent.send(GET)
    assert await agent.read_to_end() == good
    exchange = await w.scribe.exchange()
    assert (exchange.outcome, exchange.cut_at, body(exchange)) == (Outcome.INVALID, 3, b"abc")


async def test_a_refused_environment_is_a_502_of_ours(w: Wire) -> None:
    environment, _, agent = await w.between(says(OK))
    await environment.stop()
    await agent.send(POST)
    got = await agent.read_to_end()
    assert got.startswith(b"HTTP/1.1 502 Bad Gateway\r\n")
    assert problem(got)["outcome"] == "refused"
    exchange = await w.scribe.exchange()
    assert (exchange.outcome, exchange.response, exchange.times.fwd) == (Outcome.REFUSED, None, None)
    assert exchange.request.body is not None
    assert exchange.request.body.inline == b"hi"
    assert "upstream-refused" in w.scribe.kinds()


async def test_an_answer_of_ours_to_head_has_no_body(w: Wire) -> None:
    environment, _, agent = await w.between(says(OK))
    await environment.stop()
    await agent.send(b"HEAD /rp/e1/x HTTP/1.1\r\nHost: x\r\n\r\n")
    head, _, content = (await agent.read_to_end()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 502 Bad Gateway\r\n")
    assert b"application/problem+json" in head
    assert content == b""
    assert (await w.scribe.exchange()).outcome is Outcome.REFUSED


async def test_a_refused_environment_is_told_even_after_a_100_continue(w: Wire) -> None:
    environment, _, agent = await w.between(says(OK))
    await environment.stop()
    await agent.send(b"PUT /a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
    assert await agent.read_head() == b"HTTP/1.1 100 Continue\r\n\r\n"
    await agent.send(b"hi")
    assert problem(await agent.read_to_end())["status"] == 502


async def test_an_agent_that_leaves_before_the_answer_is_kept_and_the_environment_is_told(w: Wire) -> None:
    asked, gone = asyncio.Event(), asyncio.Event()

    async def answerer(peer: Peer, request: bytes) -> None:
        asked.set()
        await peer.reader.read()
        gone.set()

    _, _, agent = await w.between(answerer)
    await agent.send(POST)
    await asyncio.wait_for(asked.wait(), 5)
    agent.close()
    exchange = await w.scribe.exchange()
    assert (exchange.outcome, exchange.response, exchange.closed_by_agent) == (Outcome.CLIENT_GONE, None, True)
    assert exchange.times.fwd is not None
    await asyncio.wait_for(gone.wait(), 5)
    assert w.scribe.faults == []


async def test_an_agent_that_leaves_a_stream_leaves_what_came(w: Wire) -> None:
    gone = asyncio.Event()

    async def answerer(peer: Peer, request: bytes) -> None:
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n")
        await peer.reader.read()
        gone.set()

    _, _, agent = await w.between(answerer)
    await agent.send(GET)
    await agent.read_head()
    assert await agent.read(9) == b"data: 1\n\n"
    agent.close()
    exchange = await w.scribe.exchange()
    assert (exchange.outcome, body(exchange), exchange.closed_by_agent) == (Outcome.CLIENT_GONE, b"data: 1\n\n", True)
    await asyncio.wait_for(gone.wait(), 5)


@pytest.mark.parametrize("length", [10, 100_000], ids=["buffered", "streamed"])
async def test_half_a_request_is_kept_as_such(w: Wire, length: int) -> None:
    _, _, agent = await w.between(says(OK))
    await agent.send(b"POST /rp/e1/a HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\nabc" % length)
    await w.scribe.until(lambda: w.scribe.tickets)
    if length > 65536:
        await w.scribe.until(lambda: "upstream-connected" in w.scribe.kinds())
    agent.close()
    exchange = await w.scribe.exchange()
    assert (exchange.outcome, exchange.response, exchange.times.c_in) == (Outcome.HALF_SENT, None, None)
    assert exchange.request.body is not None
    assert exchange.request.body.inline == b"abc"
    assert w.scribe.faults == []


async def test_a_request_that_mitmproxy_refuses_is_local(w: Wire) -> None:
    environment, _, agent = await w.between(says(OK))
    await agent.send(b"GET /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n")
    got = await agent.read_to_end()
    assert got.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert problem(got)["outcome"] == "local"
    assert (await w.scribe.exchange()).outcome is Outcome.LOCAL
    assert environment.requests == []


@pytest.mark.parametrize("bad", [b"Content-Length: x", b"Content-Length: 1\r\nContent-Length: 2", b"Bad Name: 1"])
async def test_a_request_whose_head_cannot_be_passed_on_is_local(w: Wire, bad: bytes) -> None:
    environment, _, agent = await w.between(says(OK))
    await agent.send(b"GET /rp/e1/a HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n" % bad)
    assert (await agent.read_to_end()).startswith(b"HTTP/1.1 400 Bad Request\r\n")
    exchange = await w.scribe.exchange()
    assert (exchange.outcome, exchange.response, exchange.closed_by_agent) == (Outcome.LOCAL, None, None)
    assert exchange.error
    assert environment.requests == []


async def test_a_request_body_that_turns_into_garbage_is_half_a_request(w: Wire) -> None:
    _, _, agent = await w.between(says(OK))
    await agent.send(b"POST /rp/e1/a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\nzzz\r\n")
    assert (await agent.read_to_end()).startswith(b"HTTP/1.1 400 ")
    exchange = await w.scribe.exchange()
    assert (exchange.outcome, exchange.closed_by_agent) == (Outcome.HALF_SENT, False)
    assert exchange.request.body is not None
    assert exchange.request.body.inline == b"hi"


@pytest.mark.parametrize("garbage", [b"hello\r\n\r\n", b"GET  HTTP/1.1\r\n\r\n"])
async def test_what_is_no_request_is_refused_and_told(w: Wire, garbage: bytes) -> None:
    environment, _, agent = await w.between(says(OK))
    await agent.send(garbage + b"x" * 20 + b"\r\n\r\n")
    assert (await agent.read_to_end()).startswith(b"HTTP/1.1 400 Bad Request\r\n")
    await w.scribe.until(lambda: "unreadable-request" in w.scribe.kinds())
    assert (w.scribe.exchanges, environment.requests) == ([], [])


async def test_a_request_that_ends_after_its_answer_is_kept_whole(w: Wire) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)
        await writer.drain()
        await reader.readexactly(100_000)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    environment = await w.environment(says(OK))
    await environment.stop()
    environment.port = server.sockets[0].getsockname()[1]
    agent = await w.agent(await w.listen(environment))
    await agent.send(b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\nabc")
    assert await agent.read_message() == OK
    await agent.send(b"x" * 99_997)
    exchange = await w.scribe.exchange()
    assert exchange.outcome is Outcome.ANSWERED
    assert exchange.request.body is not None
    assert exchange.request.body.size == 100_000
    server.close()


async def test_pipelined_requests_are_answered_in_order(w: Wire) -> None:
    async def answerer(peer: Peer, request: bytes) -> None:
        name = request.split()[1]
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(name), name))

    _, _, agent = await w.between(answerer)
    await agent.send(b"".join(b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n" % number for number in range(5)))
    assert [(await agent.read_message())[-2:] for _ in range(5)] == [b"/%d" % number for number in range(5)]
    await w.scribe.exchange(5)
    assert [e.request.target for e in w.scribe.exchanges] == [b"/%d" % number for number in range(5)]


async def test_an_early_answer_to_a_long_upload_arrives(w: Wire) -> None:
    answer = b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    environment = await w.environment(says(OK))
    await environment.stop()
    environment.port = server.sockets[0].getsockname()[1]
    agent = await w.agent(await w.listen(environment))
    await agent.send(b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\nabc")
    assert (await agent.read_to_end()).startswith(answer)
    exchange = await w.scribe.exchange()
    assert exchange.outcome is Outcome.HALF_SENT
    assert exchange.response is not None
    assert exchange.response.status == 413
    server.close()


@pytest.mark.parametrize(
    "interim",
    [
        [b"HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\n"],
        [b"HTTP/1.1 100 Continue\r\n\r\n"],
        [b"HTTP/1.1 102 Processing\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: <b>\r\nLink: <c>\r\n\r\n"],
    ],
)
@pytest.mark.parametrize("rest", [OK, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"])
@pytest.mark.parametrize("cut", [0, 5, 30])
async def test_interim_answers_pass_and_are_kept_aside(w: Wire, interim: list[bytes], rest: bytes, cut: int) -> None:
    whole = b"".join(interim) + rest

    async def answerer(peer: Peer, request: bytes) -> None:
        await peer.send(whole[:cut])
        await asyncio.sleep(0.005)
        await peer.send(whole[cut:])

    _, _, agent = await w.between(answerer)
    for number in (1, 2):
        await agent.send(GET)
        assert await agent.read(len(whole)) == whole
        exchange = await w.scribe.exchange(number)
        assert exchange.response is not None
        assert exchange.response.status == 200
        assert [status for status, _ in exchange.response.informational] == [int(head[9:12]) for head in interim]
    assert w.scribe.faults == []


async def test_interim_answers_are_not_sent_to_http_1_0(w: Wire) -> None:
    _, _, agent = await w.between(says(b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\n\r\nok", close=True))
    await agent.send(b"GET /a HTTP/1.0\r\n\r\n")
    assert await agent.read_to_end() == b"HTTP/1.1 200 OK\r\n\r\nok"


async def test_trailers_pass_both_ways(w: Wire) -> None:
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 7\r\n\r\n"
    environment, _, agent = await w.between(says(answer))
    request = b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX-Up: 1\r\n\r\n"
    assert await agent.ask(request) == answer
    assert await agent.ask(request) == answer
    assert environment.requests == [request.replace(b"Host: x", b"Host: " + environment.authority)] * 2
    exchange = await w.scribe.exchange()
    assert exchange.request.trailers == ((b"X-Up", b"1"),)
    assert exchange.response is not None
    assert exchange.response.trailers == ((b"X-Sum", b"7"),)


async def test_the_times_of_an_exchange_are_in_order(w: Wire) -> None:
    _, _, agent = await w.between(says(OK))
    await agent.ask(POST)
    times = (await w.scribe.exchange()).times
    order = [times.head, times.c_in, times.fwd, times.first, times.up_end, times.c_out]
    assert None not in order
    assert order == sorted(order, key=lambda at: at or 0)


async def test_a_protocol_that_is_not_carried_is_closed_and_not_passed_on_unrecorded(w: Wire) -> None:
    answer = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: other\r\nConnection: Upgrade\r\n\r\n"
    _, _, agent = await w.between(says(answer))
    await agent.send(b"GET /a HTTP/1.1\r\nHost: x\r\nUpgrade: other\r\nConnection: Upgrade\r\n\r\n")
    assert await agent.read_to_end() == answer
    exchange = await w.scribe.exchange()
    assert "upgrade-not-carried" in exchange.notes


async def test_the_preface_of_http_2_without_tls_is_refused(w: Wire) -> None:
    environment, _, agent = await w.between(says(OK))
    await agent.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    assert (await agent.read_to_end()).startswith(b"HTTP/1.1 505 HTTP Version Not Supported\r\n")
    assert (await w.scribe.exchange()).outcome is Outcome.LOCAL
    assert environment.requests == []


async def test_a_long_body_passes_both_ways_without_being_collected(w: Wire) -> None:
    size = 3_000_000
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + b"y" * size
    environment, _, agent = await w.between(says(answer))
    request = b"PUT /a HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size + b"z" * size
    await agent.send(request)
    assert await agent.read_message() == answer
    assert environment.requests[0].endswith(b"z" * size)
    exchange = await w.scribe.exchange()
    assert exchange.request.body is not None
    assert (exchange.request.body.size, len(body(exchange) or b"")) == (size, size)
    assert len(exchange.request.body.chunks) > 1
