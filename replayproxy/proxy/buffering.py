"""Which bodies are passed on as one block, and which as they come."""

from __future__ import annotations

from replayproxy.core.canonical import field, media_type
from replayproxy.core.effects import is_write
from replayproxy.core.values import Fields, Request

BUFFER_LIMIT = 64 * 1024
"""A body up to this many bytes may be passed on as one block; a longer one is passed on as it comes."""


def is_long(fields: Fields) -> bool:
    """Whether the body of a request with these fields is passed on as it comes: too long, or of unknown length."""
    if field(fields, b"transfer-encoding") is not None:
        return True
    length = field(fields, b"content-length") or b"0"
    return length.isdigit() and int(length) > BUFFER_LIMIT


def is_open_ended(method: bytes, fields: Fields) -> bool:
    """Whether an HTTP/2 request may have a body of a length that it does not tell."""
    return method not in (b"GET", b"HEAD", b"DELETE", b"OPTIONS") and field(fields, b"content-length") is None


def may_buffer(request: Request, reads: tuple[str, ...], status: int, fields: Fields) -> bool:
    """Short answers, and those to writes whatever their length turns out to be, because only a buffered answer can be
    held. Never an event stream."""
    if request.method.upper() == b"HEAD" or status in (101, 204, 304):
        return True
    if media_type(fields) == b"text/event-stream":
        return False
    length = field(fields, b"content-length")
    if length is not None:
        return int(length) <= BUFFER_LIMIT
    return is_write(request, reads)
