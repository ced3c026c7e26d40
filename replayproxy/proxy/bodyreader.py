"""What tells mitmproxy where a body ends: h11's reader with its trailers kept, and lengths that a body can have."""

from __future__ import annotations

from typing import Any

from mitmproxy.net.http import validate
from mitmproxy.proxy.layers.http import _http1

from replayproxy.core.values import Fields

LONGEST = 2**63
"""A length or chunk from here on is a number that overflows somewhere else, and no body."""


class BodyReader:
    """h11's reader, with the trailers put aside: mitmproxy refuses an end of message that has some."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self.trailers: Fields = ()

    def __call__(self, buffer: Any) -> Any:
        event = self._reader(buffer)
        if getattr(self._reader, "_bytes_in_chunk", 0) >= LONGEST:
            raise _http1.h11.RemoteProtocolError("a chunk is longer than any body")  # type: ignore[attr-defined]
        headers = getattr(event, "headers", None)
        if not headers:
            return event
        self.trailers = tuple((bytes(name), bytes(value)) for name, value in headers.raw_items())
        return type(event)()

    def read_eof(self) -> Any:
        return self._reader.read_eof()


_stock_body_reader = _http1.make_body_reader
_stock_content_length = validate.parse_content_length


def make_body_reader(expected_size: int | None) -> Any:
    """In the place of mitmproxy's own function: its reader, which keeps the trailers of a chunked body."""
    reader = _stock_body_reader(expected_size)
    return BodyReader(reader) if expected_size is None else reader  # only chunked bodies have trailers


def parse_content_length(value: str | bytes) -> int:
    """In the place of mitmproxy's own function. Raises ValueError for a length that no body has."""
    length = _stock_content_length(value)
    if length >= LONGEST:
        raise ValueError(f"invalid content-length header: {value!r}")
    return length
