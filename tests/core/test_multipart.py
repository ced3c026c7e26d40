"""Uploads: the boundary is random and counts nowhere; whatever can be read in two ways is compared as bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replayproxy.core.canonical import request_key, same_bytes
from replayproxy.core.multipart import Part, boundary_of, first_boundary, parts_key, parts_of, without_boundary
from replayproxy.core.values import Request
from replayproxy.testing import exchange, request
from tests.core.play import Play
from tests.core.world import relaxed

FILE = b"one\r\n--b\r\ntwo\r\n--bogus--\r\n"


def upload(boundary: bytes, *parts: tuple[bytes, bytes], end: bytes = b"--\r\n") -> bytes:
    out = b""
    for name, data in parts:
        out += b"--" + boundary + b'\r\nContent-Disposition: form-data; name="' + name + b'"\r\n\r\n' + data + b"\r\n"
    return out + b"--" + boundary + end


def sent(boundary: bytes, body: bytes, quoted: bool = False) -> Request:
    named = b'"' + boundary + b'"' if quoted else boundary
    return request("POST", "/up", body, headers=[(b"Content-Type", b"multipart/form-data; boundary=" + named)])


def one(a: Request, b: Request) -> bool:
    return request_key("app", a) == request_key("app", b)


def test_two_uploads_of_the_same_parts_are_one_whatever_their_boundary() -> None:
    a = sent(b"b1", upload(b"b1", (b"f", FILE)))
    b = sent(b"b2xyz", upload(b"b2xyz", (b"f", FILE)), quoted=True)
    assert one(a, b)
    assert not same_bytes(a, b)
    assert not one(a, sent(b"b2", upload(b"b2", (b"f", FILE + b"!"))))
    assert not one(a, sent(b"b2", upload(b"b2", (b"g", FILE))))


@pytest.mark.parametrize(
    "body",
    [
        upload(b"b", (b"f", b"x"), end=b""), upload(b"b", (b"f", b"x"), end=b"\r\n"), b"", b"nothing",
        b"lead\r\n" + upload(b"b", (b"f", b"x")), upload(b"b", (b"f", b"x")) + b"more",
        b"--b\r\nno blank line\r\n--b--\r\n", b"--b\r\n folded: x\r\n\r\nx\r\n--b--\r\n",
        upload(b"b", (b"f", b"x\r\n--b\r\ny")),
    ],
)  # fmt: skip
def test_a_malformed_body_is_compared_as_bytes_and_its_boundary_counts(body: bytes) -> None:
    parts = parts_of(body, b"b")
    assert not parts
    other = body.replace(b"--b", b"--c")
    if body and body != other:
        assert not one(sent(b"b", body), sent(b"c", other))
    assert one(sent(b"b", body), sent(b"b", body))


def test_a_type_without_a_boundary_or_with_two_is_compared_as_bytes() -> None:
    assert boundary_of(b"multipart/form-data") is None
    assert boundary_of(b"multipart/form-data; boundary=a; boundary=b") is None
    assert boundary_of(b'multipart/mixed; x=1; Boundary="a b;c"') == b"a b;c"
    assert without_boundary(b'multipart/mixed; boundary="a;b"; charset=utf-8') == b"multipart/mixed; charset=utf-8"


named = st.sampled_from([b"f", b"g", b"file"])
data = st.binary(max_size=40) | st.sampled_from([FILE, b"\r\n", b"\r\n--", b"--b", b"\r\n--b1", b""])
parts = st.lists(st.tuples(named, data), min_size=1, max_size=4)
boundaries = st.from_regex(rb"[0-9a-zA-Z]{20,30}", fullmatch=True)


@relaxed
@given(parts, parts, boundaries, boundaries)
def test_uploads_are_one_exactly_when_their_parts_are(a, b, left: bytes, right: bytes) -> None:
    assert one(sent(left, upload(left, *a)), sent(right, upload(right, *b))) is (a == b)


@relaxed
@given(parts, boundaries)
def test_parts_come_back_as_they_were_put_in(given_parts, boundary: bytes) -> None:
    found = parts_of(upload(boundary, *given_parts), boundary)
    assert found is not None
    assert [part.data for part in found] == [data for _, data in given_parts]


@relaxed
@given(st.binary(max_size=200))
def test_any_bytes_are_read_without_an_error(raw: bytes) -> None:
    found = parts_of(raw, b"b")
    assert found is None or isinstance(found, tuple)


def test_lengths_keep_parts_apart_in_the_key() -> None:
    two = parts_key((Part((), b"a"), Part((), b"b")))
    assert two != parts_key((Part((), b"ad1:b"),))
    assert two != parts_key((Part((), b"b"), Part((), b"a")))


def test_a_miss_names_the_part_and_what_of_it_differs() -> None:
    def kind(boundary: bytes) -> dict[str, str]:
        return {"Content-Type": f"multipart/form-data; boundary={boundary.decode()}"}

    play = Play(exchange("POST", "/up", sent=upload(b"b1", (b"f", b"x"), (b"g", b"y")), request_headers=kind(b"b1")))
    near = play.missed("POST", "/up", upload(b"b2", (b"f", b"x"), (b"g", b"z")), headers=kind(b"b2"))["nearest"][0]
    assert (near["pointer"], near["recorded"], near["asked"]) == ("body/part/1", "y", "z")
    assert play.ask("POST", "/up", upload(b"b3", (b"f", b"x"), (b"g", b"y")), headers=kind(b"b3")) == 1


def test_who_only_looks_into_a_body_takes_the_first_boundary_that_is_named() -> None:
    twice = b"multipart/form-data; boundary=a; boundary=b"
    assert (first_boundary(twice), boundary_of(twice)) == (b"a", None)
    assert first_boundary(b'multipart/mixed;Boundary="a b"') == b"a b"
    assert first_boundary(b"multipart/mixed") == b""
