from __future__ import annotations

import gzip
from typing import Any

import pytest

from replayproxy.core.bodies import content, events, form_parts, multimaps, summary
from replayproxy.core.canonical import body_of, split_query
from replayproxy.testing import fields

JSON, TEXT, SSE = "application/json", "text/plain", "text/event-stream"


@pytest.mark.parametrize(
    ("kind", "data", "seen"),
    [
        (JSON, b'{"a": 1}', "json"),
        (JSON, b"", "empty"),
        (JSON, b'""', "json"),
        (JSON, b"{not json", "bytes"),
        (JSON, b'{"a": 1, "a": 2}', "bytes"),
        (JSON, b"[" * 300 + b"]" * 300, "bytes"),
        ("application/x-www-form-urlencoded", b"a=1", "form"),
        (TEXT, b"abc", "text"),
        (TEXT, b"\xff", "bytes"),
        (SSE, b"data: 1\n\n", "events"),
        ("image/png", b"\x89PNG", "bytes"),
        ("multipart/form-data; boundary=b", b"--b\r\n\r\nx\r\n--b--", "parts"),
        ("multipart/form-data; boundary=b", b"--b\r\n\r\nx\r\n", "bytes"),
        ("multipart/form-data", b"--b--", "bytes"),
    ],
)
def test_how_a_body_is_looked_at(kind: str, data: bytes, seen: str) -> None:
    assert content(fields({"Content-Type": kind}), body_of(data)).kind == seen


def test_a_body_that_was_not_captured_is_missing() -> None:
    assert str(content(fields({"Content-Type": JSON}), None)) == "not captured"


def test_coded_bodies_are_decoded_when_they_can_be() -> None:
    coded = fields({"Content-Type": JSON, "Content-Encoding": "gzip"})
    assert content(coded, body_of(gzip.compress(b'{"a": 1}'))).value == {"a": 1}
    assert content(coded, body_of(b'{"a": 1}')).kind in ("json", "bytes"), "plain under a gzip label never raises"


def test_event_streams_are_their_events() -> None:
    text = '\ufeff: comment\n\nevent: m\nid: 1\ndata: {"a": 1}\n\ndata: one\r\ndata: two\r\n\r\nretry: 5\ndata:x'
    assert events(text) == [
        {"event": "m", "id": "1", "data": {"a": 1}},
        {"data": "one\ntwo"},
        {"retry": "5", "data": "x"},
    ]


def test_a_boundary_is_one_only_as_a_whole_line() -> None:
    data = b'--b\r\nContent-Disposition: form-data; name="f"; filename="x"\r\n\r\n1\r\n--bx\r\n2\r\n--b--\r\n'
    assert form_parts(b'multipart/form-data; boundary="b"', data) == [
        {"name": "f", "file name": "x", "content": "1\r\n--bx\r\n2"}
    ]


def test_bytes_in_a_part_are_their_address() -> None:
    parts = form_parts(b"multipart/form-data; boundary=b", b"--b\r\n\r\n\xff\xfe\r\n--b--")
    assert parts == [{"content": summary(b"\xff\xfe")}]


@pytest.mark.parametrize(
    ("a", "b", "left", "right"),
    [
        (b"x=1&y=2", b"y=2&x=1", {"x": "1", "y": "2"}, {"y": "2", "x": "1"}),
        (b"x=1&x=2", b"x=3", {"x": ["1", "2"]}, {"x": ["3"]}),
        (b"tag", b"tag=", {"tag": None}, {"tag": ""}),
    ],
)
def test_forms_are_multimaps(a: bytes, b: bytes, left: Any, right: Any) -> None:
    assert multimaps(split_query(a), split_query(b)) == (left, right)
