"""The cases over HTTP/2 and TLS, before environments of either version."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from replayproxy.core.redact import TOKEN
from replayproxy.core.values import Outcome
from replayproxy.storage import Store
from tests.cases import generated
from tests.cases.lab import ok
from tests.cases.lab_http2 import Recording2, Replaying2, Scripted, Told, recording_http2, replaying_http2
from tests.cases.test_sequence import BUSY, CONDITIONS, bundle
from tests.cases.test_urls import UNLIKE
from tests.proxy.h2_server import Got, H2Agent, Pairs
from tests.proxy.wire import Peer
from tests.session.tls_server import TlsFiles, make_tls_files

type Request = tuple[bytes, bytes, Pairs, Sequence[bytes]]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return make_tls_files(tmp_path_factory.mktemp("tls"))


def lower(pairs: Pairs) -> list[tuple[bytes, bytes]]:
    return [(name.lower(), value) for name, value in pairs if name.lower() not in (b"host", b"connection", b"te")]


def made(r: random.Random, number: int) -> tuple[Request, Told]:
    """A request of HTTP/2, and an answer that either version can carry."""
    method = r.choice(generated.METHODS)
    fields, pieces = lower(generated.fields(r)), []
    if method not in (b"GET", b"HEAD", b"get"):
        coding, body = generated.coded(r, generated.content(r)[:20_000])
        fields += lower(coding)
        pieces = cut(r, body)
    status = r.choice(generated.STATUSES)
    told = lower(generated.fields(r))
    told += [(b"set-cookie", r.choice((b"a=1", b"b=2; Path=/x", b"", b"odd=\xff"))) for _ in range(r.choice((0, 2, 3)))]
    told += [(b"date", r.choice((b"0", b"soon", b"", b"Thu, 21 Mar 2030 12:45:00 GMT")))]
    interim = [[(b"link", b"</%d.css>" % n)] for n in range(r.choice((0, 0, 1, 2)))]
    if method == b"HEAD" or status in (204, 304):
        told += [] if status == 204 else [(b"content-length", b"%d" % r.randint(0, 9999))]
        return (method, generated.target(r, number), fields, pieces), Told(status, told, (), (), interim)
    coding, body = generated.coded(r, generated.content(r)[:20_000])
    parts = [piece for piece in cut(r, body) if piece] or [b"x"]
    trailers = [(b"x-sum", generated.value(r))] if r.random() < 0.3 else []
    return (method, generated.target(r, number), fields, pieces), Told(
        status, told + lower(coding), parts, trailers, interim
    )


def cut(r: random.Random, body: bytes) -> list[bytes]:
    at = sorted(r.randint(0, len(body)) for _ in range(r.choice((0, 1, 3))))
    return [body[a:b] for a, b in zip([0, *at], [*at, len(body)], strict=True)]


def in_http1(told: Told) -> bytes:
    """The same answer in HTTP/1.1."""
    early = b"".join(b"HTTP/1.1 103 Early\r\n%s\r\n" % generated.lines(list(pairs)) for pairs in told.interim)
    head = b"HTTP/1.1 %d X\r\n%s" % (told.status, generated.lines(list(told.fields)))
    if not told.pieces:
        return early + head + b"\r\n"
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in told.pieces)
    return early + head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n" + generated.lines(
        list(told.trailers)
    ) + b"\r\n"  # fmt: skip


def number_of(target: bytes) -> int:
    return int(target.partition(b"/n")[2].partition(b"/")[0].partition(b"?")[0])


@pytest.mark.parametrize(("version", "seed"), [(2, 1), (1, 2)])
async def test_what_an_http2_agent_gets_it_gets_again(
    store: Store, tmp_path: Path, files: TlsFiles, version: int, seed: int
) -> None:
    r = random.Random(seed)
    script = {number: made(r, number) for number in range(120)}

    def said(head: Mapping[bytes, bytes], body: bytes) -> Told:
        return script[number_of(head[b":path"])][1]

    async def answerer(peer: Peer, request: bytes) -> None:
        await peer.send(in_http1(script[number_of(request.split(b" ", 2)[1])][1]))

    upstream = Scripted(files, said) if version == 2 else answerer
    async with recording_http2(store, upstream, files) as on, on.agent() as agent:
        live = {number: await agent.ask(*request) for number, (request, _) in script.items()}
        kept = {number_of(one.request.target): one for one in await on.on.exchanges(count=len(script))}
    for number, (request, told) in script.items():
        got, one = live[number], kept[number]
        assert (got.status, got.body, got.was_reset) == (told.status, b"".join(told.pieces), False), request
        assert [tuple(pair) for pair in told.fields] == [p for p in got.fields if p[0] != b"transfer-encoding"]
        assert (list(got.trailers), len(got.interim)) == (list(told.trailers), len(told.interim))
        assert (one.request.method, one.request.target) == request[:2]
        assert [pair for pair in one.request.fields if pair in request[2]] == list(request[2])
    async with replaying_http2(store, tmp_path) as replay, replay.agent() as agent:
        again = {number: await agent.ask(*request) for number, (request, _) in script.items()}
    assert again == live
    assert (replay.receipt["reproduced"], replay.receipt["served"]["exact"]) == (True, len(script))
    assert replay.receipt["upstream_contacts"] == 0


async def plain_ask(agent: H2Agent, target: bytes, *fields: tuple[bytes, bytes], body: bytes = b"") -> Got:
    return await agent.ask(b"POST" if body else b"GET", target, fields, [body] if body else [])


async def test_targets_that_differ_by_a_byte_are_never_taken_for_each_other(
    store: Store, tmp_path: Path, files: TlsFiles
) -> None:
    def echo(head: Mapping[bytes, bytes], body: bytes) -> Told:
        return Told(200, (), [head[b":path"].hex().encode()])

    async with recording_http2(store, Scripted(files, echo), files) as on, on.agent() as agent:
        for family in UNLIKE:
            assert (await plain_ask(agent, family[0])).body == family[0].hex().encode()
    async with replaying_http2(store, tmp_path) as replay, replay.agent() as agent:
        for family in UNLIKE:
            assert {(await plain_ask(agent, other)).status for other in family[1:]} == {470}, family
            assert (await plain_ask(agent, family[0])).body == family[0].hex().encode()
    assert replay.receipt["served"]["exact"] == len(UNLIKE)


async def test_the_nth_equal_request_gets_the_nth_answer_and_one_more_is_a_miss(
    store: Store, tmp_path: Path, files: TlsFiles
) -> None:
    answers = [BUSY, BUSY, ok(b"task"), ok(b"done"), ok(b"later")]

    async def answerer(peer: Peer, request: bytes) -> None:
        await peer.send(answers.pop(0))

    async with recording_http2(store, answerer, files) as on, on.agent() as agent:
        live = [await plain_ask(agent, path) for path in (b"/task", b"/task", b"/task", b"/done", b"/task")]
    async with replaying_http2(store, tmp_path) as replay, replay.agent() as agent:
        again = [await plain_ask(agent, path) for path in (b"/task", b"/task", b"/done", b"/task", b"/task", b"/task")]
    assert again[:5] == [live[0], live[1], live[3], live[2], live[4]]
    assert (again[5].status, dict(again[5].fields)[b"replay-miss"]) == (470, b"1")
    assert json.loads(again[5].body)["nearest"][0]["state"] == "consumed"
    assert (replay.receipt["missed"], replay.receipt["reproduced"]) == (1, False)


async def test_a_condition_or_range_is_answered_only_by_what_was_recorded_under_it(
    store: Store, tmp_path: Path, files: TlsFiles
) -> None:
    def under(field: bytes) -> list[tuple[bytes, bytes]]:
        name, _, value = field.partition(b": ")
        return [(name.lower(), value)] if field else []

    async def insensitive(peer: Peer, request: bytes) -> None:
        named = {name.lower(): name for name in CONDITIONS}
        spelt = next((named[line.lower()] for line in request.split(b"\r\n") if line.lower() in named and line), b"")
        await bundle(peer, b"GET /bundle HTTP/1.1\r\n" + spelt)

    for kept in CONDITIONS:
        run = f"r{list(CONDITIONS).index(kept)}"
        async with recording_http2(store, insensitive, files, run=run) as on, on.agent() as agent:
            live = await plain_ask(agent, b"/bundle", *under(kept))
        async with replaying_http2(store, tmp_path, f"{run}/e") as replay, replay.agent() as agent:
            others = [c for c in (*CONDITIONS, b'If-None-Match: "v2"') if c != kept]
            assert {(await plain_ask(agent, b"/bundle", *under(c))).status for c in others} == {470}, kept
            assert await plain_ask(agent, b"/bundle", *under(kept)) == live


BOUNDARY = b'--%s\r\nContent-Disposition: form-data; name="f"; filename="f"\r\n\r\na\r\n--b\r\n--%s--\r\n'
FORM = b"multipart/form-data; boundary="
JSON = (b"content-type", b"application/json")
GZIP = (b"content-encoding", b"gzip")
BODIES = {
    "numbers by exact value": ((JSON,), b'{"id":%d}' % (2**64), (JSON,), b'{ "id" : %d.0 }' % (2**64), 1),
    "a digit beyond a float": ((JSON,), b'{"id":%d}' % (2**64), (JSON,), b'{"id":%d}' % (2**64 + 1), 0),
    "another boundary": (
        ((b"content-type", FORM + b"b1"),), BOUNDARY % (b"b1", b"b1"),
        ((b"content-type", FORM + b"b2x"),), BOUNDARY % (b"b2x", b"b2x"), 1,
    ),
    "gzip, and other content": ((JSON, GZIP), gzip.compress(b'{"a":1}', mtime=0), (JSON,), b"[]", 0),
    "plain under gzip": ((JSON, GZIP), b'{"a":1}', (JSON, GZIP), b'{"a":1}', 1),
    "two quotes and nothing": ((JSON,), b'""', (JSON,), b"", 0),
}  # fmt: skip


async def test_bodies_match_by_the_same_rules(store: Store, tmp_path: Path, files: TlsFiles) -> None:
    def echo(head: Mapping[bytes, bytes], body: bytes) -> Told:
        return Told(200, (), [body or b"-"])

    async with recording_http2(store, Scripted(files, echo), files) as on, on.agent() as agent:
        for number, (fields, body, *_) in enumerate(BODIES.values()):
            got = await agent.ask(b"POST", b"/%d" % number, fields, [body[:2], body[2:]])
            assert got.body == body
    async with replaying_http2(store, tmp_path) as replay, replay.agent() as agent:
        for number, (name, (_, body, fields, other, same)) in enumerate(BODIES.items()):
            got = await agent.ask(b"POST", b"/%d" % number, fields, [other])
            assert (got.status, got.body if same else b"") == ((200, body) if same else (470, b"")), name


async def test_an_answer_with_two_framings_is_refused_by_the_proxy(
    store: Store, tmp_path: Path, files: TlsFiles
) -> None:
    async def answerer(peer: Peer, request: bytes) -> None:
        await peer.send(
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
        )

    async with recording_http2(store, answerer, files) as on, on.agent() as agent:
        live = await plain_ask(agent, b"/x")
        (one,) = await on.on.exchanges(count=1)
    assert (one.outcome, live.status) == (Outcome.INVALID, 502)
    assert b"replay-local" in dict(live.fields)
    async with replaying_http2(store, tmp_path) as replay, replay.agent() as agent:
        assert await plain_ask(agent, b"/x") == live


async def test_events_pass_as_they_come_and_an_agent_that_leaves_is_kept_as_gone(
    store: Store, tmp_path: Path, files: TlsFiles
) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"

    async def answerer(peer: Peer, request: bytes) -> None:
        if b"/other" in request:
            await peer.send(ok(b"other"))
            return
        await peer.send(head)
        for n in range(100):
            await peer.send(b"9\r\ndata: %d\n\n\r\n" % (n % 10))
            await asyncio.sleep(0.1)

    async with recording_http2(store, answerer, files) as on:
        await watches(on)
        one, _ = sorted(await on.on.exchanges(count=2), key=lambda each: each.request.target)
    assert (one.outcome, one.closed_by_agent) == (Outcome.CLIENT_GONE, True)
    assert one.response is not None
    assert one.response.body is not None
    assert (one.response.body.inline or b"").startswith(b"data: 0\n\ndata: 1\n\n")
    async with replaying_http2(store, tmp_path) as replay:
        await watches(replay)
    assert replay.receipt["reproduced"] is True, replay.receipt


async def watches(on: Recording2 | Replaying2) -> None:
    """Two events are seen while the stream goes on, another request is answered meanwhile, and the agent leaves."""
    async with on.agent() as agent, on.agent() as other:
        stream = agent.begin(b"GET", b"/events", None)
        assert await agent.part(stream, 18) == b"data: 0\n\ndata: 1\n\n"
        assert (await plain_ask(other, b"/other")).body == b"other"
        agent.reset(stream)
        await asyncio.sleep(0.2)


SECRETS = (b"AAAkJ3v9QzX7secret", b"BBBmT5w2LpR8secret", b"CCCxN4d6VhY1secret")


async def test_no_secret_of_an_http2_request_is_kept_and_the_environment_gets_the_live_one(
    store: Store, tmp_path: Path, files: TlsFiles
) -> None:
    seen: list[bytes] = []

    def said(head: Mapping[bytes, bytes], body: bytes) -> Told:
        seen.append(head.get(b"authorization", b""))
        return Told(200, [(b"set-cookie", b"sid=" + SECRETS[2])], [b"{}"], [(b"x-api-key", SECRETS[0])])

    fields = [
        (b"authorization", b"Bearer " + SECRETS[0]),
        (b"cookie", b"theme=dark"),
        (b"cookie", b"sid=" + SECRETS[1]),
    ]
    async with recording_http2(store, Scripted(files, said), files, discreet=True) as on, on.agent() as agent:
        live = await plain_ask(agent, b"/x?api_key=" + SECRETS[1], *fields)
        (one,) = await on.on.exchanges(count=1)
    assert seen == [b"Bearer " + SECRETS[0]]
    assert dict(live.fields)[b"set-cookie"] == b"sid=" + SECRETS[2]
    written = repr(one).encode() + b"".join(p.read_bytes() for p in store.path.rglob("*") if p.is_file())
    assert not [secret for secret in SECRETS if secret in written]
    assert TOKEN.search(written)
    async with replaying_http2(store, tmp_path) as replay, replay.agent() as agent:
        again = await plain_ask(agent, b"/x?api_key=" + SECRETS[1], *fields)
    assert replay.receipt["reproduced"] is True
    assert TOKEN.fullmatch(dict(again.fields)[b"set-cookie"].partition(b"=")[2])
