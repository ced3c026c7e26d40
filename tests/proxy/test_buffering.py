"""Which bodies wait for their end."""

from __future__ import annotations

import pytest

from replayproxy.core.canonical import body_of
from replayproxy.core.values import Fields, Request
from replayproxy.proxy.buffering import BUFFER_LIMIT, is_long, may_buffer

CHUNKED: Fields = ((b"Transfer-Encoding", b"chunked"),)
EVENTS: Fields = ((b"Content-Type", b"text/event-stream; charset=utf-8"), (b"Content-Length", b"5"))


def length(size: int) -> Fields:
    return ((b"content-length", b"%d" % size),)


def request(method: bytes, body: bytes = b"", kind: bytes = b"") -> Request:
    fields = ((b"Content-Type", kind),) if kind else ()
    return Request(method=method, target=b"/a", version=b"HTTP/1.1", fields=fields, body=body_of(body))


@pytest.mark.parametrize(
    ("fields", "long"),
    [((), False), (length(BUFFER_LIMIT), False), (length(BUFFER_LIMIT + 1), True), (CHUNKED, True)],
)
def test_a_request_that_is_long_or_of_unknown_length_is_passed_on_as_it_comes(fields: Fields, long: bool) -> None:
    assert is_long(fields) is long


CALL = b'{"jsonrpc": "2.0", "id": 1, "method": "%s"}'


@pytest.mark.parametrize(
    ("asked", "status", "fields", "buffered"),
    [
        (request(b"GET"), 200, length(BUFFER_LIMIT), True),
        (request(b"GET"), 200, length(BUFFER_LIMIT + 1), False),
        (request(b"GET"), 200, CHUNKED, False),
        (request(b"GET"), 200, (), False),
        (request(b"HEAD"), 200, length(10**9), True),
        (request(b"GET"), 304, length(10**9), True),
        (request(b"POST"), 200, CHUNKED, True),
        (request(b"POST"), 200, (), True),
        (request(b"POST"), 200, length(BUFFER_LIMIT + 1), False),
        (request(b"POST"), 200, EVENTS, False),
        (request(b"POST", CALL % b"tools/list", b"application/json"), 200, CHUNKED, False),
        (request(b"POST", CALL % b"tools/call", b"application/json"), 200, CHUNKED, True),
    ],
)
def test_short_answers_and_those_to_writes_wait_for_their_end(
    asked: Request, status: int, fields: Fields, buffered: bool
) -> None:
    assert may_buffer(asked, (), status, fields) is buffered


def test_a_declared_read_is_no_write() -> None:
    assert not may_buffer(request(b"POST"), ("POST /a",), 200, CHUNKED)
