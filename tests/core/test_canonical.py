"""What makes two requests one."""

from __future__ import annotations

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replayproxy.core.canonical import Kind, body_of, decoded, request_key, same_bytes, split_query, view
from replayproxy.core.values import Body, Fields, Request

JSON = ((b"Content-Type", b"application/json"),)


def request(target: bytes = b"/x", method: bytes = b"GET", fields: Fields = (), body: bytes | None = b"") -> Request:
    return Request(
        method=method, target=target, version=b"HTTP/1.1", fields=fields,
        body=None if body is None else body_of(body),
    )  # fmt: skip


def one(a: Request, b: Request) -> bool:
    return request_key("app", a) == request_key("app", b)


@pytest.mark.parametrize(
    ("a", "b"),
    [(b"/l?a=1&b=2", b"/l?b=2&a=1"), (b"/l?a=1&b=2&a=3", b"/l?b=2&a=1&a=3")],
)
def test_query_order_between_names_does_not_matter(a: bytes, b: bytes) -> None:
    assert one(request(a), request(b))
    assert not same_bytes(request(a), request(b))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (b"/l?a=1&a=2", b"/l?a=2&a=1"), (b"/list?tag=", b"/list?tag"), (b"/list?tag=", b"/list"), (b"/list?", b"/list"),
        (b"/files/a%2Fb", b"/files/a/b"), (b"/x/%7Eu", b"/x/~u"), (b"/a//b", b"/a/b"), (b"/a/../b", b"/b"),
        (b"/p?q=%27a", b"/p?q='a"), (b"/x", b"/x/"), (b"/X", b"/x"),
    ],
)  # fmt: skip
def test_targets_that_differ_are_never_one(a: bytes, b: bytes) -> None:
    assert not one(request(a), request(b))


@given(st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.binary(max_size=3)), max_size=6), st.randoms())
def test_any_shuffle_that_keeps_the_order_within_names_gives_the_same_key(pairs, random) -> None:
    clean = [(n, v.replace(b"&", b"").replace(b"?", b"").replace(b"=", b"")) for n, v in pairs]
    names = [n for n, _ in clean]
    random.shuffle(names)
    queues = {name: [v for n, v in clean if n == name] for name in set(names)}
    shuffled = [(name, queues[name].pop(0)) for name in names]
    join = lambda items: b"/l?" + b"&".join(n + b"=" + v for n, v in items)  # noqa: E731
    assert one(request(join(clean)), request(join(shuffled)))


def test_json_bodies_are_compared_by_value() -> None:
    a = request(method=b"POST", fields=JSON, body=b'{"a": 1, "b": [1.0]}')
    b = request(method=b"POST", fields=JSON, body=b'{"b":[1e0],"a":1}')
    assert one(a, b)
    assert not one(a, request(method=b"POST", fields=JSON, body=b'{"a":1,"b":[true]}'))


def test_a_repeated_member_is_compared_as_bytes_and_not_dropped() -> None:
    a = request(fields=JSON, body=b'{"a":1,"a":2}')
    assert not one(a, request(fields=JSON, body=b'{"a":2}'))
    assert view(a.fields, a.body).kind is Kind.BYTES


def test_not_captured_empty_and_quotes_are_three_things() -> None:
    views = {view(JSON, body).key for body in (None, body_of(b""), body_of(b'""'))}
    assert len(views) == 3


@pytest.mark.parametrize("name", [b"Range", b"If-None-Match", b"If-Match", b"Authorization", b"X-Api-Key"])
def test_a_key_header_makes_another_request(name: bytes) -> None:
    assert not one(request(fields=((name, b"1"),)), request())
    assert not one(request(fields=((name, b"1"),)), request(fields=((name, b"2"),)))
    assert one(request(fields=((name, b"1"),)), request(fields=((name.upper(), b"1"),)))


@pytest.mark.parametrize("name", [b"User-Agent", b"Accept", b"Cookie", b"Traceparent", b"Host"])
def test_any_other_header_does_not(name: bytes) -> None:
    assert one(request(fields=((name, b"1"),)), request())


def test_content_type_ignores_case_and_parameter_order() -> None:
    a = request(fields=((b"Content-Type", b"Text/Plain; charset=utf-8; x=1"),), body=b"a")
    b = request(fields=((b"content-type", b"text/plain;x=1;charset=utf-8"),), body=b"a")
    assert one(a, b)


def test_gzip_is_undone_for_the_view_and_a_false_label_falls_back_to_bytes() -> None:
    fields = (*JSON, (b"Content-Encoding", b"gzip"))
    assert view(fields, body_of(gzip.compress(b'{"a":1}'))).value == {"a": 1}
    assert view(fields, body_of(b'{"a":1}')).kind is Kind.BYTES
    assert decoded(((b"Content-Encoding", b"gzip, br"),), b"x") is None
    assert decoded(((b"Content-Encoding", b"deflate"),), zlib.compress(b"x")) == b"x"


def test_a_gzip_bomb_is_not_unpacked() -> None:
    bomb = gzip.compress(b"\0" * (64 * 1024 * 1024))
    assert decoded(((b"Content-Encoding", b"gzip"),), bomb) is None


def test_a_body_stored_apart_is_compared_by_its_digest() -> None:
    a = Body(size=10_000_000, digest=b"d" * 32, inline=None, pieces=(b"p" * 32,))
    assert view(JSON, a).key == b"bytes:" + b"d" * 32


def test_forms_are_multimaps() -> None:
    form = ((b"Content-Type", b"application/x-www-form-urlencoded"),)
    assert one(request(fields=form, body=b"a=1&b=2"), request(fields=form, body=b"b=2&a=1"))
    assert not one(request(fields=form, body=b"a="), request(fields=form, body=b"a"))


def test_queries_keep_their_encoding() -> None:
    assert split_query(b"a=%20&b=+&c") == ((b"a", b"%20"), (b"b", b"+"), (b"c", None))
