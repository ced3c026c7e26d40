"""Bodies are raw bytes: codings that fit, codings that do not, nothing at all, multipart, ids that change."""

from __future__ import annotations

import gzip
import json
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replayproxy.core.bodies import content
from replayproxy.core.canonical import Kind, decoded, view
from replayproxy.core.relax import Relaxation
from replayproxy.core.rules import parse_rules
from replayproxy.storage import Store
from tests.cases.lab import both, get, ok, over_a_store, recording, replaying, stored, talker
from tests.proxy.wire import Peer, says

few = settings(max_examples=8, deadline=None)

CODINGS = [b"gzip", b"deflate", b"br", b"zstd", b"gzip, br", b"aws-chunked", b"identity", b"x-odd", b"GZIP", b""]
PLAIN = [
    b'{"a":1}',
    b"",
    b"\x1f\x8b",
    b"\x1f\x8b\x08\x00garbage",
    gzip.compress(b"cut short", mtime=0)[:-3],
    b"\xff" * 9,
]


@given(coding=st.sampled_from(CODINGS), asked=st.sampled_from(PLAIN), told=st.sampled_from(PLAIN))
@settings(max_examples=20, deadline=None)
@over_a_store
async def test_a_body_that_does_not_fit_its_coding_is_kept_and_replayed_as_it_is(
    store: Store, coding: bytes, asked: bytes, told: bytes
) -> None:
    label = b"Content-Encoding: " + coding
    request = get(b"/cfg", label, b"Content-Type: application/json", method=b"POST", body=asked)
    answer = ok(told, label, b"Content-Type: application/json")
    live, again, receipt = await both(store, says(answer), request)
    assert live == again == [answer]
    assert receipt["served"]["exact"] == 1
    (one,) = await stored(store)
    assert one.request.body is not None
    assert one.request.body.inline == asked
    # Looking at it never raises: where it cannot be decoded, the raw bytes are what is compared.
    assert content(one.request.fields, one.request.body).kind
    if asked and decoded(one.request.fields, asked) is None:
        assert view(one.request.fields, one.request.body).kind in (Kind.BYTES, Kind.TEXT)


@given(
    body=st.sampled_from([b"hello", b"", b'{"a": [1, 2]}', bytes(range(256)) * 20]),
    pack=st.sampled_from(["gzip", "deflate", "twice", "members"]),
    chunked=st.booleans(),
)
@few
@over_a_store
async def test_a_coded_body_is_replayed_as_it_was_coded(store: Store, body: bytes, pack: str, chunked: bool) -> None:
    packed = {
        "gzip": gzip.compress(body, mtime=0),
        "deflate": zlib.compress(body),
        "twice": gzip.compress(gzip.compress(body, mtime=0), mtime=0),
        "members": gzip.compress(body, mtime=0) + gzip.compress(b"!", mtime=0),
    }[pack]
    coding = b"Content-Encoding: " + (b"deflate" if pack == "deflate" else b"gzip")
    answer = ok(packed, coding)
    if chunked:
        answer = b"HTTP/1.1 200 OK\r\n%s\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (
            coding, len(packed), packed,
        )  # fmt: skip
    live, again, _ = await both(store, says(answer), get("/x", b"Accept-Encoding: gzip"))
    assert live == again == [answer]


EMPTY = [
    get(b"/x", b"Content-Type: application/json", method=b"DELETE"),
    get(b"/x", b"Content-Type: application/x-www-form-urlencoded"),
    get(b"/x", b"Content-Type: application/json", b"Content-Length: 0", method=b"POST"),
    get(b"/x", b"Content-Type: application/json", method=b"POST", body=b'""'),
    get(b"/x", b"Content-Type: multipart/form-data; boundary=b", b"Content-Length: 0", method=b"POST"),
    get(b"/x", b"Content-Type: application/json", b"Content-Encoding: gzip", b"Content-Length: 0", method=b"PUT"),
    get(b"/x", b"Content-Type: application/json", b"Accept: x", method=b"HEAD"),
]


@given(order=st.permutations(EMPTY))
@few
@over_a_store
async def test_no_parser_runs_on_an_empty_body_and_empty_is_not_two_quote_characters(
    store: Store, order: list[bytes]
) -> None:
    async def answerer(peer: Peer, request: bytes) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: 0\r\n"
        await peer.send(head + b"X-N: %d\r\n\r\n" % (hash(request[request.index(b"\r\n\r\n") :]) % 97))

    live, again, receipt = await both(store, answerer, *order)
    assert again == live
    assert receipt["reproduced"] is True
    bodies = {one.request.method: one.request.body for one in await stored(store) if one.request.method == b"POST"}
    assert None not in bodies.values()
    async with replaying(store) as origin:
        again_there = await talker(origin.ports["app"])
        quoted, empty = EMPTY[3], EMPTY[2]
        assert (await again_there.ask(quoted)).startswith(b"HTTP/1.1 200 ")
        assert (await again_there.ask(quoted)).startswith(b"HTTP/1.1 470 "), "the empty one is not taken for it"
        assert (await again_there.ask(empty)).startswith(b"HTTP/1.1 200 ")
        again_there.close()


def multipart(boundary: bytes, parts: list[tuple[bytes, bytes]], *, end: bool = True) -> bytes:
    lines = b"".join(
        b'--%s\r\nContent-Disposition: form-data; name="%s"; filename="f"\r\nContent-Type: text/plain\r\n\r\n%s\r\n'
        % (boundary, name, data)
        for name, data in parts
    )
    body = lines + (b"--%s--\r\n" % boundary if end else b"")
    kind = b"Content-Type: multipart/form-data; boundary=" + boundary
    return get(b"/up", kind, method=b"POST", body=body)


PARTS = st.lists(
    st.tuples(
        st.sampled_from([b"a", b"file"]), st.sampled_from([b"", b"x", b"a\r\n--b", b"\r\n--b1-\r\n", b"\xff\r\n\r\n"])
    ),
    min_size=1,
    max_size=3,
)


@given(parts=PARTS, marks=st.permutations([b"b1", b"b2x", b"----WebKitFormBoundary7MA4"]), end=st.booleans())
@settings(max_examples=12, deadline=None)
@over_a_store
async def test_uploads_match_by_their_parts_and_not_by_their_boundary(
    store: Store, parts: list[tuple[bytes, bytes]], marks: list[bytes], end: bool
) -> None:
    first, second, third = marks
    request = multipart(first, parts, end=end)
    async with recording(store, says(ok())) as on:
        assert await on.ask(request) == ok()
        (one,) = await on.exchanges(count=1)
    assert one.request.body is not None
    assert one.request.body.inline == request.partition(b"\r\n\r\n")[2], "stored as it was sent"
    changed = [(parts[0][0], parts[0][1] + b"!"), *parts[1:]]
    async with replaying(store) as origin:
        again = await talker(origin.ports["app"])
        assert (await again.ask(multipart(third, changed, end=end))).startswith(b"HTTP/1.1 470 ")
        same = await again.ask(multipart(second, parts, end=end))
        # One that ends without its last boundary is none: it is compared as bytes, boundary and all.
        assert same.startswith(b"HTTP/1.1 200 " if end else b"HTTP/1.1 470 ")
        again.close()


NUMBERS = [
    b"18446744073709551616",
    b"1e400",
    b"-0",
    b"1.0",
    b"0.1000000000000000055511151231257827",
    b"1e2",
    b"9007199254740993",
]


@given(number=st.sampled_from(NUMBERS), spaces=st.sampled_from([b"", b" ", b"\n\t"]), other=st.sampled_from(NUMBERS))
@settings(max_examples=12, deadline=None)
@over_a_store
async def test_a_json_body_is_never_parsed_and_written_again_and_its_numbers_match_by_exact_value(
    store: Store, number: bytes, spaces: bytes, other: bytes
) -> None:
    def asks(value: bytes, space: bytes = b"") -> bytes:
        body = b'{"id":%s%s,"b":1}' % (space, value)
        return get(b"/n", b"Content-Type: application/json", method=b"POST", body=body)

    told = ok(b'{ "id":%s,"id2": %s}\n' % (number, number), b"Content-Type: application/json")
    async with recording(store, says(told)) as on:
        assert await on.ask(asks(number)) == told
        assert on.environment.requests[0].endswith(b'{"id":%s,"b":1}' % number)
    async with replaying(store) as origin:
        again = await talker(origin.ports["app"])
        if other != number:
            assert (await again.ask(asks(other))).startswith(b"HTTP/1.1 470 ")
        assert await again.ask(asks(number, spaces)) == told
        again.close()


RULES = parse_rules(
    [
        {"name": n, "at": "POST /act", "pointer": f"/{n}", "action": "mask", "reason": "new at each run"}
        for n in ("call_id", "ts")
    ]
)


@pytest.mark.parametrize("field", ["action", "amount", "deep"])
async def test_a_declared_volatile_field_is_masked_and_any_other_change_is_a_miss_that_names_it(
    store: Store, field: str
) -> None:
    def act(call: str, ts: float, **changed: object) -> bytes:
        body = {"call_id": call, "ts": ts, "action": "left", "amount": 2, "deep": {"x": [1, 2]}, **changed}
        return get(b"/act", b"Content-Type: application/json", method=b"POST", body=json.dumps(body).encode())

    async with recording(store, says(ok(b'{"done":true}'))) as on:
        live = await on.ask(act("c-8f2a", 1712000000.12))
    async with replaying(store, rules=Relaxation(RULES)) as origin:
        again = await talker(origin.ports["app"])
        missed = await again.ask(act("c-1111", 1712000999.0, **{field: "changed"}))
        assert missed.startswith(b"HTTP/1.1 470 ")
        assert f"/{field}".encode() in missed
        assert await again.ask(act("c-77aa", 1712000777.5)) == live
        again.close()
        receipt = origin.receipt()
    assert receipt["served"]["relaxed"] == 1
    assert [(rule["name"], rule["uses"]) for rule in receipt["rules"]] == [("call_id", 1), ("ts", 1)]
    assert receipt["reproduced"] is False
