from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replayproxy.core.canonical import digest
from replayproxy.core.values import Chunk
from replayproxy.storage import BodySink


@given(st.lists(st.tuples(st.integers(0, 300_000), st.none() | st.integers(0, 10)), max_size=5))
def test_a_body_is_whole_however_it_comes(parts: list[tuple[int, int | None]]) -> None:
    put: dict[bytes, bytes] = {}
    sink = BodySink(put.__setitem__)
    data = b"".join(bytes([65 + n]) * size for n, (size, _) in enumerate(parts))
    for n, (size, at) in enumerate(parts):
        sink.write(bytes([65 + n]) * size, at)
    body = sink.close()
    assert (body.size, body.digest) == (len(data), digest(data))
    assert (b"".join(put[a] for a in body.pieces) if body.inline is None else body.inline) == data
    assert (body.inline is None) == (len(data) >= 4096)
    assert body.chunks == tuple(Chunk(size=size, at=at) for size, at in parts if at is not None)
    assert all(len(piece) <= 256 * 1024 for piece in put.values())


def test_an_empty_body_is_inline_and_empty() -> None:
    body = BodySink(lambda address, data: None).close()
    assert (body.size, body.inline, body.pieces) == (0, b"", ())


def test_a_closed_sink_gives_the_same_body_and_takes_no_more() -> None:
    sink = BodySink(lambda address, data: None)
    sink.write(b"a")
    assert sink.close() is sink.close()
    with pytest.raises(ValueError, match="closed"):
        sink.write(b"b")
