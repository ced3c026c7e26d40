"""Bodies that are held until they are redacted, and those that are too large for that."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

from replayproxy.core.canonical import VIEW_LIMIT
from replayproxy.core.redact import Redactor
from replayproxy.core.values import Fields
from replayproxy.storage.redacting_sink import RedactingSink
from replayproxy.storage.sink import BodySink

R = Redactor(b"k" * 32)
SECRET = b"a-secret-of-some-length"


def sink(blobs: dict[bytes, bytes], grown: dict[bytes, int], fields: Fields = ()) -> RedactingSink:
    return RedactingSink(
        lambda: BodySink(blobs.__setitem__), lambda: R.stretch(fields, of_answer=True), grown.__setitem__
    )


def test_a_body_that_can_be_held_comes_out_as_it_came_and_nothing_is_stored() -> None:
    blobs: dict[bytes, bytes] = {}
    body = sink(blobs, {})
    body.write(b"ab", 1)
    body.write(b"c" * 10_000, 2)
    closed = body.close()
    assert closed is not None
    assert (closed.inline, [chunk.at for chunk in closed.chunks], blobs) == (b"ab" + b"c" * 10_000, [1, 2], {})
    assert body.close() is closed


def test_a_larger_one_is_stored_without_its_secrets_and_tells_by_how_much_it_grew() -> None:
    blobs: dict[bytes, bytes] = {}
    grown: dict[bytes, int] = {}
    body = sink(blobs, grown)
    whole = b"." * (VIEW_LIMIT - 10) + b'{"token": "%b"}' % SECRET + b"." * 300_000
    for at in range(0, len(whole), 100_000):
        body.write(whole[at : at + 100_000], at)
    closed = body.close()
    assert closed is not None
    stored = b"".join(blobs[piece] for piece in closed.pieces)
    assert stored == whole.replace(SECRET, R.token(SECRET))
    assert sum(chunk.size for chunk in closed.chunks) == closed.size == len(stored)
    assert grown == {closed.digest: len(stored) - len(whole)}


def test_a_larger_coded_one_is_withheld_where_a_secret_is_found_in_it_and_kept_where_none_is() -> None:
    coded: Fields = ((b"Content-Encoding", b"gzip"),)
    noise = os.urandom(VIEW_LIMIT + 500_000)
    for inside, kept in ((b"", True), (b'{"token": "%b"}' % SECRET, False)):
        blobs: dict[bytes, bytes] = {}
        body = sink(blobs, {}, coded)
        whole = gzip.compress(noise + inside + noise[:600_000], 1)
        for at in range(0, len(whole), 65_536):
            body.write(whole[at : at + 65_536])
        closed = body.close()
        assert (closed is not None) is kept
        if closed is not None:
            assert b"".join(blobs[piece] for piece in closed.pieces) == whole


def test_the_store_holds_nothing_of_a_body_before_its_exchange(tmp_path: Path) -> None:
    blobs: dict[bytes, bytes] = {}
    body = sink(blobs, {})
    body.write(SECRET * 1000)
    assert blobs == {}
    assert list(tmp_path.iterdir()) == []
