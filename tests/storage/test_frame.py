from __future__ import annotations

import pytest

from replayproxy.core.canonical import digest
from replayproxy.storage.frame import (
    CHECKSUM_AT,
    Broken,
    checksum,
    framed,
    open_blob,
    open_record,
    seal_blob,
    seal_record,
)


def test_a_record_begins_with_format_flags_and_dictionary() -> None:
    assert seal_record([1])[:6] == b"\x02\x00\x00\x00\x00\x00"
    assert seal_record({"a": 1}, packed=True)[:6] == b"\x02\x01\x00\x00\x00\x00"


def test_a_document_that_json_cannot_carry_is_packed_and_the_record_says_so() -> None:
    raw = seal_record([2**80, "\ud800"], b"tail")
    assert raw[1] == 1
    assert open_record(raw) == ([2**80, "\ud800"], b"tail")


@pytest.mark.parametrize(
    "raw",
    [b"", b"\x01", b"\x02", b"\x02" + b"\0" * 22, b"\x03" + b"\0" * 40, b"\x02" + b"\0" * 40, b"\x01" + b"\0" * 40],
)
def test_bytes_that_are_no_record_are_broken(raw: bytes) -> None:
    with pytest.raises(Broken):
        open_record(raw)


def test_a_blob_is_checked_against_its_address() -> None:
    raw = seal_blob(b"piece")
    assert open_blob(digest(b"piece"), raw) == b"piece"
    for address, stored in ((digest(b"other"), raw), (digest(b"piece"), raw[:-1]), (digest(b"piece"), b"")):
        with pytest.raises(Broken):
            open_blob(address, stored)


def test_any_changed_bit_of_a_record_is_found() -> None:
    raw = seal_record({"deals": [{"id": n, "title": "x" * n} for n in range(20)]}, b"tail")
    for at in range(8 * len(raw)):
        changed = bytearray(raw)
        changed[at // 8] ^= 1 << at % 8
        with pytest.raises(Broken):
            open_record(bytes(changed))


def test_content_that_is_not_what_the_checksum_says_is_broken_though_all_that_lies_there_fits() -> None:
    mine, other = seal_record([1]), seal_record([2])
    mixed = framed(0, 0, mine[CHECKSUM_AT], other[26:])
    with pytest.raises(Broken, match="does not fit its checksum"):
        open_record(mixed)
    assert checksum(0, b"a") != checksum(1, b"a")
