from __future__ import annotations

import pytest

from replayproxy.core.canonical import digest
from replayproxy.storage.frame import Broken, open_blob, open_record, seal_blob, seal_record


def test_a_record_begins_with_format_flags_and_dictionary() -> None:
    assert seal_record([1])[:6] == b"\x01\x00\x00\x00\x00\x00"
    assert seal_record({"a": 1}, packed=True)[:6] == b"\x01\x01\x00\x00\x00\x00"


def test_a_document_that_json_cannot_carry_is_packed_and_the_record_says_so() -> None:
    raw = seal_record([2**80, "\ud800"], b"tail")
    assert raw[1] == 1
    assert open_record(raw) == ([2**80, "\ud800"], b"tail")


@pytest.mark.parametrize("raw", [b"", b"\x01", b"\x02" + b"\0" * 40, b"\x01" + b"\0" * 40])
def test_bytes_that_are_no_record_are_broken(raw: bytes) -> None:
    with pytest.raises(Broken):
        open_record(raw)


def test_a_blob_is_checked_against_its_address() -> None:
    raw = seal_blob(b"piece")
    assert open_blob(digest(b"piece"), raw) == b"piece"
    for address, stored in ((digest(b"other"), raw), (digest(b"piece"), raw[:-1]), (digest(b"piece"), b"")):
        with pytest.raises(Broken):
            open_blob(address, stored)
