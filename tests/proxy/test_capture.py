"""Bodies on their way to the store."""

from __future__ import annotations

import pytest

from replayproxy.proxy.capture import Capture
from tests.proxy.wire import BrokenSink, Sink


def test_no_body_needs_no_sink_and_is_empty_not_missing() -> None:
    made: list[Sink] = []

    def sink() -> Sink:
        made.append(Sink())
        return made[-1]

    capture = Capture(sink)
    capture.add(b"")
    body = capture.close()
    assert body is not None
    assert (body.size, body.inline, made) == (0, b"", [])
    assert capture.close() is body


def test_a_body_is_closed_once_and_then_takes_no_more() -> None:
    capture = Capture(Sink)
    capture.add(b"ab", 7)
    capture.add(b"c", 8)
    body = capture.close()
    capture.add(b"late", 9)
    assert body is not None
    assert (body.inline, [(chunk.size, chunk.at) for chunk in body.chunks]) == (b"abc", [(2, 7), (1, 8)])
    assert (capture.close(), capture.size) == (body, 3)


def test_a_body_that_is_given_up_is_missing() -> None:
    capture = Capture(BrokenSink)
    with pytest.raises(RuntimeError, match="planted"):
        capture.add(b"x")
    capture.add(b"y")
    assert capture.close() is None
