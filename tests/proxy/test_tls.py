"""TLS between agent and proxy: which protocol is spoken, what is recorded of HTTP/2, and what a wrong agent is told."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from replayproxy.core.chaos import Fault
from replayproxy.core.values import Outcome
from replayproxy.proxy.ca import Authority
from replayproxy.proxy.listeners import EnvOptions, Listener
from tests.proxy.h2_server import H2Environment
from tests.proxy.wire import Wire, says, wire
from tests.session.tls_server import TlsFiles, make_tls_files

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Odd-CASE: 1\r\nLocation: /next\r\n\r\nok"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return make_tls_files(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("store") / "ca")


@pytest.fixture
async def w(authority: Authority) -> AsyncIterator[Wire]:
    async with wire(authority=authority) as made:
        yield made


def client(authority: Authority, **given: Any) -> httpx.AsyncClient:
    trust = ssl.create_default_context(cafile=authority.certificate)
    return httpx.AsyncClient(verify=trust, trust_env=False, **given)


async def listening(w: Wire, upstream: str, ca: Path | None = None, **given: Any) -> Listener:
    w.scribe.urls["app"] = upstream
    return await w.engine.listen("app", upstream, options=EnvOptions(tls=True, ca=ca, **given))


async def test_a_tls_listener_is_recorded_and_its_links_lead_back_to_it(w: Wire, authority: Authority) -> None:
    environment = await w.environment(says(OK))
    listener = await listening(w, environment.url)
    assert listener.url.startswith("https://127.0.0.1:")
    async with client(authority) as http:
        for host in ("127.0.0.1", "localhost"):
            got = await http.get(f"https://{host}:{listener.bound[1]}/rp/e1/a")
            assert (got.http_version, got.headers["Location"]) == ("HTTP/1.1", "/rp/e1/next")
    exchange = await w.scribe.exchange(2)
    assert (exchange.request.target, exchange.request.agent_host) == (b"/a", b"localhost:%d" % listener.bound[1])
    assert b"Host: " + environment.authority in environment.requests[0]


@pytest.mark.parametrize("protocols", [("h2",), ("http/1.1",)])
async def test_the_environment_s_protocol_is_the_agent_s(
    w: Wire, authority: Authority, files: TlsFiles, protocols: tuple[str, ...]
) -> None:
    async with H2Environment(files, protocols) as environment:
        listener = await listening(w, environment.url, files.ca)
        async with client(authority, http2=True) as http:
            got = await http.get(listener.url + "/rp/e1/a?x=%2f")
            again = await http.post(listener.url + "/rp/e1/b", content=b"body")
    wanted = "HTTP/2" if protocols == ("h2",) else "HTTP/1.1"
    assert (got.http_version, got.status_code, got.text) == (wanted, 200, "/a?x=%2f")
    assert (again.http_version, again.text) == (wanted, "/bbody")
    exchange = await w.scribe.exchange(2)
    assert exchange.request.version == (b"HTTP/2.0" if wanted == "HTTP/2" else b"HTTP/1.1")
    assert exchange.outcome is Outcome.ANSWERED


async def test_http2_is_kept_as_it_came_and_its_authority_is_the_environment_s(
    w: Wire, authority: Authority, files: TlsFiles
) -> None:
    async with H2Environment(files) as environment:
        listener = await listening(w, environment.url, files.ca)
        async with client(authority, http2=True) as http:
            cookies = [("cookie", "a=1"), ("cookie", "b=2")]
            await http.get(listener.url + "/rp/e1/a", headers=[*cookies, ("X-Odd-CASE", "1")])
        (seen,) = environment.seen
    exchange = await w.scribe.exchange()
    assert [pair for pair in exchange.request.fields if pair[0] == b"cookie"] == [
        (b"cookie", b"a=1"),
        (b"cookie", b"b=2"),
    ]
    assert (b"x-odd-case", b"1") in exchange.request.fields
    assert not [name for name, _ in exchange.request.fields if name.startswith(b":")]
    assert exchange.request.agent_host == b"127.0.0.1:%d" % listener.bound[1]
    assert dict(seen)[b":authority"] == environment.url.partition("://")[2].encode()
    assert dict(seen)[b":path"] == b"/a"


async def test_an_http2_agent_before_an_http1_environment(w: Wire, authority: Authority) -> None:
    environment = await w.environment(says(OK))
    listener = await listening(w, environment.url)
    trust = ssl.create_default_context(cafile=authority.certificate)
    async with H2Environment.agent(listener.bound, trust) as agent:
        cookies = [(b"cookie", b"a=1"), (b"cookie", b"b=2")]
        got = await agent.ask(b"POST", b"/rp/e1/a", cookies, [b"one", b"two"], trailers=[(b"x-end", b"1")])
    assert (got.status, got.body) == (200, b"ok")
    (sent,) = environment.requests
    assert b"POST /a HTTP/1.1\r\n" in sent
    assert b"transfer-encoding: chunked" in sent.lower()
    assert b"cookie: a=1; b=2\r\n" in sent.lower()
    assert sent.endswith(b"0\r\nx-end: 1\r\n\r\n")
    exchange = await w.scribe.exchange()
    assert exchange.request.body is not None
    assert (exchange.request.body.inline, exchange.request.trailers) == (b"onetwo", ((b"x-end", b"1"),))


@pytest.mark.parametrize("trailers", [[], [(b"x-end", b"1")]])
@pytest.mark.parametrize("smuggled", [b"two", b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"])
async def test_an_empty_data_frame_is_nothing_and_never_the_end_of_a_body(
    w: Wire, authority: Authority, smuggled: bytes, trailers: list[tuple[bytes, bytes]]
) -> None:
    environment = await w.environment(says(OK))
    listener = await listening(w, environment.url)
    trust = ssl.create_default_context(cafile=authority.certificate)
    async with H2Environment.agent(listener.bound, trust) as agent:
        for pieces in ([b"", b"one", b"", smuggled, b""], [b""]):
            got = await agent.ask(b"POST", b"/rp/e1/a", (), pieces, trailers=trailers)
            assert (got.status, got.body) == (200, b"ok")
    tail = b"0\r\n" + b"".join(b"%s: %s\r\n" % pair for pair in trailers) + b"\r\n"
    sent = [request.partition(b"\r\n\r\n")[2] for request in environment.requests]
    assert sent == [b"3\r\none\r\n%x\r\n%s\r\n" % (len(smuggled), smuggled) + tail, tail]
    exchange = await w.scribe.exchange(2)
    assert exchange.request.body is not None
    assert exchange.request.body.inline == b""


UNFIT: dict[str, tuple[bytes, bytes, list[tuple[bytes, bytes]], list[bytes]]] = {
    "a space in the target": (b"GET", b"/a b", [], []),
    "another version": (b"GET", b"/a HTTP/1.0", [], []),
    "a tab in the target": (b"GET", b"/a\tb", [], []),
    "no slash": (b"GET", b"a", [], []),
    "another host's target": (b"GET", b"http://elsewhere.test/", [], []),
    "a space in the method": (b"GET /smuggled HTTP/1.1", b"/a", [], []),
    "no method": (b"", b"/a", [], []),
    "a length without a body": (b"GET", b"/a", [(b"content-length", b"35")], []),
    "with a body and trailers": (b"POST", b"/a b", [], [b"abc", b"def"]),
}


@pytest.mark.parametrize("name", UNFIT)
async def test_a_head_that_would_be_another_in_http1_is_refused_and_the_connection_goes_on(
    w: Wire, authority: Authority, name: str
) -> None:
    method, path, fields, pieces = UNFIT[name]
    environment = await w.environment(says(OK))
    listener = await listening(w, environment.url)
    trust = ssl.create_default_context(cafile=authority.certificate)
    async with H2Environment.agent(listener.bound, trust, careless=True) as agent:
        got = await agent.ask(method, path, fields, pieces, trailers=[(b"x-end", b"1")] if pieces else ())
        assert (got.status, dict(got.fields)[b"replay-local"]) == (400, b"local")
        assert (await agent.ask(b"GET", b"/rp/e1/ok")).status == 200
    assert [request.split(b"\r\n")[0] for request in environment.requests] == [b"GET /ok HTTP/1.1"]
    await w.scribe.until(lambda: "unreadable-request" in w.scribe.kinds())
    assert (await w.scribe.exchange()).request.target == b"/ok"


async def test_trailers_that_http1_cannot_carry_are_noted(w: Wire, authority: Authority) -> None:
    environment = await w.environment(says(OK))
    listener = await listening(w, environment.url)
    trust = ssl.create_default_context(cafile=authority.certificate)
    async with H2Environment.agent(listener.bound, trust) as agent:
        length = [(b"content-length", b"3")]
        assert (await agent.ask(b"POST", b"/a", length, [b"abc"], trailers=[(b"x-end", b"1")])).status == 200
    exchange = await w.scribe.exchange()
    assert exchange.request.trailers == ((b"x-end", b"1"),)
    assert "request-trailers-not-carried" in exchange.notes
    assert b"x-end" not in environment.requests[0]


async def test_interim_answers_and_trailers_pass_over_http2(w: Wire, authority: Authority, files: TlsFiles) -> None:
    async with H2Environment(files) as environment:
        listener = await listening(w, environment.url, files.ca)
        trust = ssl.create_default_context(cafile=authority.certificate)
        async with H2Environment.agent(listener.bound, trust) as agent:
            got = await agent.ask(b"GET", b"/rp/e1/hints")
    assert (got.status, got.body) == (200, b"/hints")
    assert got.interim == [(103, ((b"link", b"</s.css>"),))]
    assert got.trailers == ((b"x-sum", b"7"),)
    exchange = await w.scribe.exchange()
    assert exchange.response is not None
    assert exchange.response.informational == ((103, ((b"link", b"</s.css>"),)),)
    assert exchange.response.trailers == ((b"x-sum", b"7"),)


async def test_an_http1_environment_s_interims_and_trailers_reach_an_http2_agent(w: Wire, authority: Authority) -> None:
    early = b"HTTP/1.1 103 Early Hints\r\nLink: </s.css>\r\n\r\n"
    late = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 7\r\n\r\n"
    environment = await w.environment(says(early + late))
    listener = await listening(w, environment.url)
    trust = ssl.create_default_context(cafile=authority.certificate)
    async with H2Environment.agent(listener.bound, trust) as agent:
        got = await agent.ask(b"GET", b"/a")
    assert (got.interim, got.body, got.trailers) == ([(103, ((b"link", b"</s.css>"),))], b"abc", ((b"x-sum", b"7"),))


@pytest.mark.parametrize(("path", "outcome", "status"), [
    (b"/reset", Outcome.CUT, None), (b"/gone", Outcome.CUT, None), (b"/half", Outcome.CUT, 200),
])  # fmt: skip
async def test_a_stream_that_the_environment_ends_is_ended_for_the_agent(
    w: Wire, authority: Authority, files: TlsFiles, path: bytes, outcome: Outcome, status: int | None
) -> None:
    async with H2Environment(files) as environment:
        listener = await listening(w, environment.url, files.ca)
        trust = ssl.create_default_context(cafile=authority.certificate)
        async with H2Environment.agent(listener.bound, trust) as agent:
            got = await agent.ask(b"GET", b"/rp/e1" + path)
    exchange = await w.scribe.exchange()
    assert (exchange.outcome, got.status, got.was_reset) == (outcome, status, True), exchange.error
    assert got.body == (b"part" if status else b"")


async def test_an_environment_that_is_not_there_is_a_problem_document_over_http2(
    w: Wire, authority: Authority, files: TlsFiles
) -> None:
    async with H2Environment(files) as environment:
        gone = environment.url
    listener = await listening(w, gone, files.ca)
    trust = ssl.create_default_context(cafile=authority.certificate)
    async with H2Environment.agent(listener.bound, trust) as agent:
        got = await agent.ask(b"GET", b"/rp/e1/a")
        head = await agent.ask(b"HEAD", b"/rp/e1/a")
    assert (got.status, dict(got.fields)[b"replay-local"]) == (502, b"refused")
    assert json.loads(got.body)["answered_by"] == "replayproxy"
    assert (head.status, dict(head.fields)[b"replay-local"], head.body) == (502, b"refused", b"")
    assert (await w.scribe.exchange()).outcome is Outcome.REFUSED


async def test_no_answer_in_time_is_504_over_http2(authority: Authority, files: TlsFiles) -> None:
    async with wire(authority=authority, upstream_timeout=0.2) as w, H2Environment(files) as environment:
        listener = await listening(w, environment.url, files.ca)
        async with client(authority, http2=True) as http:
            got = await http.get(listener.url + "/rp/e1/silence")
        assert (got.status_code, got.headers["Replay-Local"]) == (504, "timed-out")
        assert (await w.scribe.exchange()).outcome is Outcome.TIMED_OUT


async def test_twenty_slow_streams_of_one_http2_agent_do_not_wait_for_each_other(w: Wire, authority: Authority) -> None:
    async def slowly(peer: Any, request: bytes) -> None:
        await asyncio.sleep(0.5)
        await peer.send(OK)

    environment = await w.environment(slowly)
    listener = await listening(w, environment.url)
    urls = f"{listener.url}/rp/e1/[1-20]"
    began = time.monotonic()
    curl = await asyncio.create_subprocess_exec(
        "curl", "-sSf", "-Z", "--parallel-max", "20", "--http2", "--cacert", authority.certificate,
        "-w", "%{http_version} ", "-o", "/dev/null", urls, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert (await curl.communicate())[0].split() == [b"2"] * 20
    assert time.monotonic() - began < 1.8, "five at a time would take 2 s"
    assert environment.connections == 20


async def test_plain_http_at_a_tls_listener_is_told_what_is_wrong(w: Wire) -> None:
    environment = await w.environment(says(OK))
    listener = await listening(w, environment.url)
    agent = await w.agent(listener)
    answer = await agent.ask(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"speaks TLS" in answer
    assert environment.requests == []
    await w.scribe.until(lambda: "unreadable-request" in w.scribe.kinds())


async def test_injected_faults_over_http2_end_their_own_stream_and_no_other(w: Wire, authority: Authority) -> None:
    environment = await w.environment(says(OK))
    listener = await listening(w, environment.url)
    trust = ssl.create_default_context(cafile=authority.certificate)
    faults = [Fault("status", 503, "s"), Fault("reset", 0, "r"), Fault("truncate", 1, "t"), None]
    arrive = w.scribe.arrive

    def with_fault(*args: Any, **kwargs: Any) -> Any:
        arrive(*args, **kwargs)
        w.scribe.tickets[-1] = replace(w.scribe.tickets[-1], fault=faults.pop(0))
        return w.scribe.tickets[-1]

    w.scribe.arrive = with_fault  # type: ignore[method-assign]
    async with H2Environment.agent(listener.bound, trust) as agent:
        got = await agent.ask(b"GET", b"/rp/e1/a")
        assert (got.status, dict(got.fields)[b"replay-local"]) == (503, b"local")
        for _ in range(2):
            assert (await agent.ask(b"GET", b"/rp/e1/a")).was_reset
        assert (await agent.ask(b"GET", b"/rp/e1/a")).body == b"ok"
    exchanges = [await w.scribe.exchange(n) for n in (1, 2, 3, 4)]
    assert [one.injected.partition(" ")[0] for one in exchanges] == ["status", "reset", "truncate", ""]
    assert [one.outcome for one in exchanges] == [Outcome.LOCAL] * 2 + [Outcome.ANSWERED] * 2
    assert len(environment.requests) == 2
    assert w.scribe.faults == []
