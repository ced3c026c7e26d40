"""What recording changes on the wire, seen from both sides of the proxy: the closed list, and nothing else."""

from __future__ import annotations

import asyncio
import gzip

import pytest

from replayproxy.core.values import Outcome
from replayproxy.proxy.listeners import EnvOptions
from tests.proxy.wire import Peer, Wire, says

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

REQUESTS = {
    "odd case, repeats, empty values and their order": (
        b"GET /a HTTP/1.1\r\nx-B: 2\r\nHost: HOST\r\nX-b: 1\r\nAcCePt: */*\r\nX-Empty: \r\nx-B: 3\r\n\r\n"
    ),
    "header bytes that are no UTF-8": b"GET /a HTTP/1.1\r\nHost: HOST\r\nX-Name: caf\xe9\xff\r\n\r\n",
    "percent-encodings, dots, doubled slashes": (
        b"GET /files/a%2Fb/%7Eu/../y//z?q=%27a%27&&b=&c HTTP/1.1\r\nHost: HOST\r\n\r\n"
    ),
    "target bytes that are no ASCII": b"GET /caf\xe9?\xff HTTP/1.1\r\nHost: HOST\r\n\r\n",
    "a method nobody knows": b"BREW /pot HTTP/1.1\r\nHost: HOST\r\n\r\n",
    "a method in lower case": b"get /a HTTP/1.1\r\nHost: HOST\r\n\r\n",
    "PROPFIND with a body": b"PROPFIND /a HTTP/1.1\r\nHost: HOST\r\nDepth: 1\r\nContent-Length: 3\r\n\r\n<a>",
    "OPTIONS *": b"OPTIONS * HTTP/1.1\r\nHost: HOST\r\n\r\n",
    "DELETE": b"DELETE /a HTTP/1.1\r\nHost: HOST\r\n\r\n",
    "a body under a wrong coding": (
        b"POST /cfg HTTP/1.1\r\nHost: HOST\r\nContent-Encoding: gzip\r\nContent-Length: 7\r\n\r\n" + b'{"a":1}'
    ),
    "two cookie headers": b"GET / HTTP/1.1\r\nHost: HOST\r\nCookie: a=1\r\nCookie: b=2\r\n\r\n",
    "hop-by-hop headers": (
        b"GET / HTTP/1.1\r\nHost: HOST\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\nTE: trailers\r\n"
        b"Proxy-Connection: keep-alive\r\nForwarded: for=a\r\nVia: 1.1 a\r\n\r\n"
    ),
    "one chunk": b"POST /a HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    "a content length of zero": b"POST /a HTTP/1.1\r\nHost: HOST\r\nContent-Length: 0\r\n\r\n",
}


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
async def test_the_environment_gets_the_request_byte_for_byte_with_its_own_host(w: Wire, request_: bytes) -> None:
    environment, listener, agent = await w.between(says(OK))
    assert await agent.ask(request_.replace(b"HOST", listener.origin[7:].encode())) == OK
    assert environment.requests == [request_.replace(b"HOST", environment.authority)]
    exchange = await w.scribe.exchange()
    assert (
        b"%s %s %s\r\n" % (exchange.request.method, exchange.request.target, exchange.request.version)
        + b"".join(name + b": " + value + b"\r\n" for name, value in exchange.request.fields)
        + b"\r\n"
        == environment.requests[0].partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
    )
    assert exchange.request.agent_host == listener.origin[7:].encode()
    assert w.scribe.faults == []


async def test_with_host_kept_the_environment_gets_the_agents_host(w: Wire) -> None:
    environment, _, agent = await w.between(says(OK), options=EnvOptions(host_header="keep"))
    await agent.ask(b"GET / HTTP/1.1\r\nHost: crm.test\r\n\r\n")
    assert environment.requests == [b"GET / HTTP/1.1\r\nHost: crm.test\r\n\r\n"]
    exchange = await w.scribe.exchange()
    assert exchange.request.fields == ((b"Host", b"crm.test"),)


async def test_identity_marks_an_expectation_and_an_offer_of_h2c_never_reach_the_environment(w: Wire) -> None:
    environment, _, agent = await w.between(says(OK))
    await agent.send(
        b"PUT /rp/e1/a?b HTTP/1.1\r\nHost: x\r\nX-Replay-Episode: e2\r\nbaggage: a=1,replay.episode=e3\r\n"
        b"X-Replay-Lane: l\r\nExpect: 100-continue\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
        b"HTTP2-Settings: AAMAAABk\r\nContent-Length: 2\r\n\r\n"
    )
    assert await agent.read_head() == b"HTTP/1.1 100 Continue\r\n\r\n"
    await agent.send(b"hi")
    assert await agent.read_message() == OK
    assert environment.requests == [
        b"PUT /a?b HTTP/1.1\r\nHost: %s\r\nbaggage: a=1\r\nContent-Length: 2\r\n\r\nhi" % environment.authority
    ]
    exchange = await w.scribe.exchange()
    assert exchange.request.fields == (
        (b"Host", environment.authority),
        (b"baggage", b"a=1"),
        (b"Content-Length", b"2"),
    )
    assert (exchange.carrier, exchange.lane) == ("prefix", "l")
    assert "h2c-offer-removed" in exchange.notes


async def test_an_absolute_target_becomes_origin_form(w: Wire) -> None:
    environment, listener, agent = await w.between(says(OK))
    await agent.ask(b"GET %s/rp/e1/a?b HTTP/1.1\r\nHost: x\r\n\r\n" % listener.origin.encode())
    assert environment.requests == [b"GET /a?b HTTP/1.1\r\nHost: %s\r\n\r\n" % environment.authority]


GZIP = gzip.compress(b"hello", mtime=0)
ANSWERS = {
    "odd case, repeats, empty values": (
        b"HTTP/1.1 200 Fine By Me\r\nx-B: 2\r\nX-b: 1\r\nX-Empty: \r\nContent-LENGTH: 2\r\nx-B: 3\r\n\r\nok"
    ),
    "an empty reason": b"HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n",
    "no UTF-8": b"HTTP/1.1 404 Caf\xe9\r\nX-Name: caf\xe9\r\nContent-Length: 1\r\n\r\n\xff",
    "cookies apart": (
        b"HTTP/1.1 200 OK\r\nSet-Cookie: sid=a; Expires=Wed, 01 Jan 2031 00:00:00 GMT\r\nLink: <a>; rel=x\r\n"
        b"Set-Cookie: lang=en\r\nLink: <b>; rel=y\r\nSet-Cookie: sid=a\r\nContent-Length: 0\r\n\r\n"
    ),
    "204": b"HTTP/1.1 204 No Content\r\nX: 1\r\n\r\n",
    "gzip": b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s" % (len(GZIP), GZIP),
    "a wrong coding": b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip, br\r\nContent-Length: 5\r\n\r\nplain",
    "chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    "chunked and empty": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "trailers": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n"
        b"3\r\nabc\r\n0\r\nX-Sum: 9\r\nx-sum: \xe9\r\n\r\n"
    ),
    "an unknown status": b"HTTP/1.1 799 Odd\r\nContent-Length: 0\r\n\r\n",
}


@pytest.mark.parametrize("method", [b"GET", b"POST"])
@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
async def test_the_agent_gets_the_answer_byte_for_byte(w: Wire, answer: bytes, method: bytes) -> None:
    _, _, agent = await w.between(says(answer))
    ask = (
        method
        + b" /rp/e1/a HTTP/1.1\r\nHost: x\r\n"
        + (b"Content-Length: 0\r\n" if method == b"POST" else b"")
        + b"\r\n"
    )
    assert await agent.ask(ask) == answer
    assert await agent.ask(ask) == answer, "the connection is good for another request"
    exchange = await w.scribe.exchange(2)
    assert exchange.outcome is Outcome.ANSWERED
    assert exchange.response is not None
    head = b"%s %d %s\r\n" % (exchange.response.version, exchange.response.status, exchange.response.reason)
    head += b"".join(name + b": " + value + b"\r\n" for name, value in exchange.response.fields)
    assert answer.startswith(head + b"\r\n")
    assert w.scribe.faults == []


@pytest.mark.parametrize(
    ("ask", "answer"),
    [
        (b"HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 4096\r\nX: 1\r\n\r\n"),
        (b"HEAD", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
        (b"GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 4096\r\nETag: a\r\n\r\n"),
    ],
)
async def test_a_length_without_a_body_stays(w: Wire, ask: bytes, answer: bytes) -> None:
    _, _, agent = await w.between(says(answer))
    for _ in range(2):
        await agent.send(ask + b" /a HTTP/1.1\r\nHost: x\r\n\r\n")
        assert await agent.read(len(answer)) == answer
    exchange = await w.scribe.exchange(2)
    assert exchange.response is not None
    assert exchange.response.body is not None
    assert exchange.response.body.size == 0


async def test_a_body_that_ends_with_the_connection_stays_one(w: Wire) -> None:
    answer = b"HTTP/1.1 200 OK\r\nX: 1\r\n\r\nuntil the end"
    _, _, agent = await w.between(says(answer, close=True))
    await agent.send(b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
    assert await agent.read_to_end() == answer
    exchange = await w.scribe.exchange()
    assert exchange.outcome is Outcome.ANSWERED
    assert exchange.response is not None
    assert exchange.response.body is not None
    assert exchange.response.body.inline == b"until the end"


async def test_http_1_0_stays_http_1_0(w: Wire) -> None:
    answer = b"HTTP/1.0 200 OK\r\nX: 1\r\n\r\nold"
    environment, _, agent = await w.between(says(answer, close=True))
    await agent.send(b"GET /a HTTP/1.0\r\nX: 1\r\n\r\n")
    assert await agent.read_to_end() == answer
    assert environment.requests == [b"GET /a HTTP/1.0\r\nX: 1\r\n\r\n"]


async def test_links_cookie_paths_and_alt_svc_change_towards_the_agent_only(w: Wire) -> None:
    async def answerer(peer: Peer, request: bytes) -> None:
        await peer.send(answer)

    environment, listener, agent = await w.between(answerer)
    origin = environment.url.encode()
    answer = (
        b"HTTP/1.1 302 Found\r\nLocation: %s/next\r\nNext-Page: %s/p?2\r\nLink: </p>; rel=next\r\n"
        b'Set-Cookie: sid=1; Path=/api\r\nAlt-Svc: h3=":443"\r\nContent-Length: 24\r\n\r\n%s'
        % (origin, origin, b"x" * 24)
    )
    at = listener.origin.encode()
    got = await agent.ask(b"GET /rp/e%%201/a HTTP/1.1\r\nHost: %s\r\n\r\n" % at[7:])
    assert got == (
        b"HTTP/1.1 302 Found\r\nLocation: %s/rp/e%%201/next\r\nNext-Page: %s/rp/e%%201/p?2\r\n"
        b"Link: </rp/e%%201/p>; rel=next\r\nSet-Cookie: sid=1; Path=/rp/e%%201/api\r\nContent-Length: 24\r\n\r\n%s"
        % (at, at, b"x" * 24)
    )
    exchange = await w.scribe.exchange()
    assert exchange.response is not None
    assert exchange.response.fields[:5] == (
        (b"Location", origin + b"/next"),
        (b"Next-Page", origin + b"/p?2"),
        (b"Link", b"</p>; rel=next"),
        (b"Set-Cookie", b"sid=1; Path=/api"),
        (b"Alt-Svc", b'h3=":443"'),
    )


async def test_links_name_the_proxy_as_the_agent_reached_it(w: Wire) -> None:
    environment, listener, agent = await w.between(says(b""))
    environment._answerer = says(
        b"HTTP/1.1 302 Found\r\nLocation: %s/b\r\nContent-Length: 0\r\n\r\n" % environment.url.encode()
    )
    port = listener.bound[1]
    got = await agent.ask(b"GET /a HTTP/1.1\r\nHost: localhost:%d\r\n\r\n" % port)
    assert b"Location: http://localhost:%d/b\r\n" % port in got
    got = await agent.ask(b"GET /a HTTP/1.1\r\nHost: elsewhere.test\r\n\r\n")
    assert b"Location: http://127.0.0.1:%d/b\r\n" % port in got


async def test_absolute_links_in_bodies_stay_and_are_counted(w: Wire) -> None:
    environment, _, agent = await w.between(says(b""))
    body = b'{"a": "%s/1", "b": "%s/2"}' % (environment.url.encode(), environment.url.encode())
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    environment._answerer = says(answer)
    assert await agent.ask(b"GET /rp/e/a HTTP/1.1\r\nHost: x\r\n\r\n") == answer
    await w.scribe.exchange()
    assert [(kind, detail) for _, kind, detail, _ in w.scribe.events if kind == "escaping-links"] == [
        ("escaping-links", {"count": 2})
    ]


async def test_chunks_pass_one_by_one_and_lose_only_their_extensions(w: Wire) -> None:
    go = asyncio.Event()

    async def answerer(peer: Peer, request: bytes) -> None:
        await peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;ext=1\r\nabc\r\n")
        await go.wait()
        await peer.send(b"2\r\nde\r\n1\r\nf\r\n0\r\n\r\n")

    _, _, agent = await w.between(answerer)
    await agent.send(b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
    await agent.read_head()
    assert await agent.read(8) == b"3\r\nabc\r\n"
    go.set()
    assert await agent.read_chunked() == b"2\r\nde\r\n1\r\nf\r\n0\r\n\r\n"
    exchange = await w.scribe.exchange()
    assert exchange.response is not None
    assert exchange.response.body is not None
    assert [chunk.size for chunk in exchange.response.body.chunks] == [3, 2, 1]
