from __future__ import annotations

from pathlib import Path

import pytest
import zstandard

from replayproxy.storage import open_store
from replayproxy.storage.codec import decode_exchange, exchange_content
from replayproxy.storage.dictionaries import (
    MOST,
    Dictionaries,
    DictionaryPress,
    numbers,
    open_dictionary,
    put_dictionary,
    seal_dictionary,
)
from replayproxy.storage.frame import (
    CHECKSUM_AT,
    PLAIN,
    Broken,
    NoDictionary,
    dictionary_of,
    open_record,
    pressed,
    seal_content,
    seal_record,
)
from replayproxy.storage.layout import dictionary_key
from replayproxy.testing import exchange

DATA = b'{"id":"deal_","stage":"negotiation","owner":{"name":"Ada"}}' * 3
ONE = exchange("GET", "/deals/1", body=b'{"id":"deal_1","stage":"negotiation","owner":{"name":"Grace"}}')


def shelf(**kept: bytes) -> Dictionaries:
    return Dictionaries(lambda number: kept.get(f"n{number}"))


def test_a_record_that_was_compressed_with_a_dictionary_is_read_with_it_and_names_it() -> None:
    raw = seal_content(*exchange_content(ONE), DictionaryPress(7, DATA))
    assert dictionary_of(raw) == 7
    assert len(raw) < len(seal_content(*exchange_content(ONE)))
    assert decode_exchange(raw, ONE.order, 0, shelf(n7=seal_dictionary(7, DATA))) == ONE


def test_compressed_anew_a_record_keeps_its_checksum_and_what_it_says() -> None:
    kept = shelf(n7=seal_dictionary(7, DATA))
    plain = seal_content(*exchange_content(ONE))
    raw = pressed(plain, None, DictionaryPress(7, DATA))
    assert raw[CHECKSUM_AT] == plain[CHECKSUM_AT]
    assert pressed(raw, kept, PLAIN) == plain
    assert pressed(plain, None) is plain


@pytest.mark.parametrize("kept", [{}, {"n7": b""}, {"n7": seal_dictionary(7, DATA)[:-1]}, {"n7": b"\x09" + DATA}])
def test_a_lost_or_damaged_dictionary_is_named(kept: dict[str, bytes]) -> None:
    raw = seal_content(*exchange_content(ONE), DictionaryPress(7, DATA))
    with pytest.raises(NoDictionary, match=r"it needs dictionary 7, which is (missing|damaged)"):
        decode_exchange(raw, ONE.order, 0, shelf(**kept))
    with pytest.raises(NoDictionary, match="dictionary 7"):
        open_record(raw)


def test_a_dictionary_under_anothers_number_is_damaged() -> None:
    with pytest.raises(Broken, match="checksum"):
        open_dictionary(2, seal_dictionary(1, DATA))
    assert open_dictionary(1, seal_dictionary(1, DATA)) == DATA


def test_a_dictionary_that_is_too_large_is_refused() -> None:
    with pytest.raises(Broken):
        open_dictionary(1, seal_dictionary(1, bytes(MOST + 1)))


def test_another_dictionary_never_gives_other_data() -> None:
    """Bytes of another, under the right number and with a checksum that fits: what a hostile hand could do."""
    raw = seal_content(*exchange_content(ONE), DictionaryPress(7, DATA))
    for other in (DATA.replace(b"Ada", b"Eve"), DATA.replace(b"negotiation", b"renegotiate"), bytes(len(DATA))):
        try:
            found = decode_exchange(raw, ONE.order, 0, shelf(n7=seal_dictionary(7, other)))
        except Broken:
            continue
        assert found == ONE


def test_a_content_that_another_dictionary_changes_is_broken() -> None:
    raw = seal_content(*exchange_content(ONE), DictionaryPress(7, DATA))
    changed = DATA.replace(b"negotiation", b"renegotiate")
    squeezed = raw[26:]
    other = zstandard.ZstdDecompressor(dict_data=zstandard.ZstdCompressionDict(changed)).decompress(squeezed)
    assert b"renegotiate" in other  # zstd does not notice
    with pytest.raises(Broken, match="does not fit its checksum"):
        open_record(raw, shelf(n7=seal_dictionary(7, changed)))


def test_a_record_of_format_1_is_left_as_it_is() -> None:
    old = b"\x01" + seal_record([1])[1:]
    assert pressed(old, None, DictionaryPress(7, DATA)) is old


def test_no_number_is_given_twice_and_whoever_needs_a_deleted_dictionary_puts_it_back(tmp_path: Path) -> None:
    with open_store(tmp_path / "s", create=True) as store:
        meta = store.env.dbs["meta"]
        with store.env.writing() as txn:
            assert [put_dictionary(txn, meta, DATA), put_dictionary(txn, meta, DATA + b"2")] == [1, 2]
            assert numbers(txn, meta) == [1, 2]
        press = store.env.press()
        assert press.number == 2
        with store.env.writing() as txn:
            txn.delete(dictionary_key(2), db=meta)
            assert put_dictionary(txn, meta, DATA + b"3") == 3
            press.keep(txn, meta)
            assert numbers(txn, meta) == [1, 2, 3]
            assert open_dictionary(2, txn.get(dictionary_key(2), db=meta)) == DATA + b"2"


def test_a_damaged_dictionary_is_not_used_for_new_records(tmp_path: Path) -> None:
    with open_store(tmp_path / "s", create=True) as store:
        meta = store.env.dbs["meta"]
        with store.env.writing() as txn:
            for n in range(2):
                put_dictionary(txn, meta, DATA + b"%d" % n)
            txn.put(dictionary_key(2), b"\x01" + bytes(100), db=meta)
        assert store.env.press().number == 1
