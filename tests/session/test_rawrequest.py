"""A request from a file or a terminal: CRLF or LF, with or without its length, and one clear error for what is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replayproxy.errors import WrongUsage
from replayproxy.session.rawrequest import read_request


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("length", [b"", b"Content-Length: 7\n"])
def test_lines_may_end_either_way_and_the_length_may_be_left_out(end: bytes, length: bytes) -> None:
    raw = b"POST /x?a=%2F HTTP/1.1\nHost: a\nContent-Type: application/json\n" + length + b"\n"
    made = read_request(raw.replace(b"\n", end) + b'{"a":1}')
    assert (made.method, made.target) == (b"POST", b"/x?a=%2F")
    assert made.body is not None
    assert made.body.inline == b'{"a":1}'
    assert made.fields[1] == (b"Content-Type", b"application/json")


def test_the_last_line_break_of_an_editor_is_no_part_of_a_measured_body() -> None:
    made = read_request(b"POST /x HTTP/1.1\nContent-Length: 1\n\na\n")
    assert made.body is not None
    assert made.body.inline == b"a"


@pytest.mark.parametrize("raw", [b"GET /x", b"\r\nGET /x HTTP/1.1\r\n\r\n", b"GET http://h:1/x HTTP/1.1\n\n\n"])
def test_a_head_alone_is_a_request_without_a_body(raw: bytes) -> None:
    made = read_request(raw)
    assert made.target == b"/x"
    assert made.body is not None
    assert made.body.size == 0


def test_chunks_are_put_together() -> None:
    raw = b"POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3;x=1\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    made = read_request(raw)
    assert made.body is not None
    assert made.body.inline == b"abcde"


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "no request"), (b"\n\n", "no request"), (b"nonsense", "no request line"), (b"GET  /x HTTP/1.1", "line"),
        (b"GET /x HTTP/1.1\nbad header\n\n", "no header line"), (b"GET /x HTTP/1.1\nA : b\n\n", "no header line"),
        (b"POST /x HTTP/1.1\nContent-Length: 5\n\nabc", "has 3 bytes"),
        (b"POST /x HTTP/1.1\nContent-Length: x\n\n", "Content-Length"),
        (b"POST /x HTTP/1.1\nContent-Length: 1\n\nabc", "2 bytes follow"),
        (b"POST /x HTTP/1.1\nTransfer-Encoding: chunked\n\nzz", "chunks"),
        (b"POST /x HTTP/1.1\nTransfer-Encoding: chunked\n\n5\nab", "chunk of 5"),
    ],
)  # fmt: skip
def test_what_is_no_request_is_told_in_one_line(raw: bytes, why: str) -> None:
    with pytest.raises(WrongUsage) as told:
        read_request(raw)
    assert why in str(told.value)
    assert "\n" not in str(told.value)


@given(st.binary(max_size=200))
def test_any_bytes_give_a_request_or_that_error(raw: bytes) -> None:
    try:
        made = read_request(raw)
    except WrongUsage:
        return
    assert made.method
    assert made.target
