"""Bodies that are small on the wire and huge when decoded: the decoded view is capped, the raw bytes are kept."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib

import pytest

from replayproxy.core.bodies import content
from replayproxy.core.canonical import VIEW_LIMIT, decoded, request_key
from replayproxy.session.diff import diff
from replayproxy.session.look import Stores
from replayproxy.storage import Store
from tests.cases.lab import both, get, ok, stored
from tests.proxy.wire import says

ZEROS = 200 * 1024 * 1024


def bomb(kind: str) -> tuple[bytes, bytes]:
    """(coding, bytes)."""
    packer = zlib.compressobj(9, wbits=15 if kind == "deflate" else 31)
    piece = b"\x00" * (1024 * 1024) if kind != "json" else b"[" * (1024 * 1024)
    data = b"".join(packer.compress(piece) for _ in range(ZEROS // len(piece))) + packer.flush()
    if kind == "nested":
        return b"gzip, gzip", gzip.compress(data, mtime=0)
    return (b"deflate" if kind == "deflate" else b"gzip"), data


@pytest.mark.parametrize("kind", ["gzip", "deflate", "nested", "json"])
async def test_a_bomb_is_kept_raw_and_never_unpacked(store: Store, kind: str) -> None:
    coding, data = bomb(kind)
    assert len(data) < 1024 * 1024
    label = (b"Content-Encoding: " + coding, b"Content-Type: application/json")
    request, answer = get("/b", *label, method=b"POST", body=data), ok(data, *label)
    tracemalloc.start()
    try:
        live, again, receipt = await both(store, says(answer), request)
        (one,) = await stored(store)
        assert one.request.body is not None
        body = store.reader().body(one.request.body)
        assert decoded(one.request.fields, body) is None
        assert request_key("app", one.request)
        assert content(one.request.fields, one.request.body).kind
        assert diff(Stores([store.reader()]), "r/e", "r/e").verdict == "same"
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert live == again == [answer]
    assert receipt["reproduced"] is True
    assert body == data
    assert peak < 8 * VIEW_LIMIT, f"{peak} bytes were in use at once"
