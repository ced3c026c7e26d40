"""The dictionaries that small records are compressed with: how they lie in a store, and how they are found again.

dictionary: format u8 | checksum 16 | bytes of the dictionary, under its number in `meta`

They are numbered from 1 in each store, and no number is given twice. Whoever commits records that name a dictionary
puts it with them where it is not there (`Press.keep`): one that no record names may be deleted at any time. Records go
into an archive, or another store, without one (`frame.pressed`): it holds pieces of other episodes than those that are
handed on. The checksum is over the number, too. A dictionary that is not there, or does not check, is `NoDictionary`
that names it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from hashlib import blake2b
from typing import Any

import lmdb
import zstandard

from replayproxy.storage.frame import LEVEL, Broken, NoDictionary, dictionary_of
from replayproxy.storage.layout import META_DICTIONARY, META_LAST_DICTIONARY, dictionary_key, dictionary_number
from replayproxy.storage.scans import keys_under

FORMAT = 1
MOST = 1 << 20
_CHECK = 16


def seal_dictionary(number: int, data: bytes) -> bytes:
    return bytes((FORMAT,)) + _checksum(number, data) + data


def open_dictionary(number: int, raw: bytes) -> bytes:
    """The bytes that were sealed under that number. Raises Broken."""
    if raw[:1] != bytes((FORMAT,)):
        raise Broken(f"its format number is {raw[0] if raw else 'missing'}")
    data = raw[1 + _CHECK :]
    if len(data) > MOST or _checksum(number, data) != raw[1 : 1 + _CHECK]:
        raise Broken("its checksum does not fit")
    return data


def _checksum(number: int, data: bytes) -> bytes:
    return blake2b(dictionary_key(number) + data, digest_size=_CHECK).digest()


def numbers(txn: Any, meta: Any) -> list[int]:
    """The numbers of a store's dictionaries, the oldest first. Where the pages of one are damaged, all that were ever
    given: LMDB reads them with the key, and nothing more in this transaction."""
    last = int.from_bytes(txn.get(META_LAST_DICTIONARY, db=meta) or b"", "big")
    try:
        return [dictionary_number(bytes(key)) for key in keys_under(txn, meta, META_DICTIONARY)]
    except lmdb.Error:
        return list(range(1, last + 1))


def put_dictionary(txn: Any, meta: Any, data: bytes) -> int:
    """Writes it under the next number, and gives that."""
    last = int.from_bytes(txn.get(META_LAST_DICTIONARY, db=meta) or b"", "big")
    txn.put(META_LAST_DICTIONARY, (last + 1).to_bytes(4, "big"), db=meta)
    txn.put(dictionary_key(last + 1), seal_dictionary(last + 1, data), db=meta)
    return last + 1


class Dictionaries:
    """Those of one store; each is read once. `load` gives what lies under a number. From any thread."""

    def __init__(self, load: Callable[[int], bytes | None]) -> None:
        self._load = load
        self._known: dict[int, zstandard.ZstdCompressionDict] = {}
        self._local = threading.local()

    def decompressor(self, number: int) -> zstandard.ZstdDecompressor:
        """This thread's. Raises NoDictionary."""
        made: dict[int, zstandard.ZstdDecompressor] | None = getattr(self._local, "made", None)
        if made is None:
            made = self._local.made = {}
        found = made.get(number)
        if found is None:
            found = made[number] = zstandard.ZstdDecompressor(dict_data=self._dictionary(number))
        return found

    def _dictionary(
        self, number: int, load: Callable[[int], bytes | None] | None = None
    ) -> zstandard.ZstdCompressionDict:
        found = self._known.get(number)
        if found is None:
            raw = (load or self._load)(number)
            if raw is None:
                raise NoDictionary(number, "is missing")
            try:
                found = zstandard.ZstdCompressionDict(open_dictionary(number, bytes(raw)))
            except (Broken, zstandard.ZstdError) as broken:
                raise NoDictionary(number, f"is damaged: {broken}") from broken
            self._known[number] = found
        return found

    def know(self, listed: Iterable[int]) -> None:
        """Reads these now. One that is damaged is told of where it is needed."""
        for number in listed:
            with suppress(NoDictionary):
                self._dictionary(number)

    def know_of(self, txn: Any, meta: Any, records: Iterable[bytes]) -> None:
        """Reads now what these records name, in the transaction that they come from: behind it `gc` may delete that."""
        for raw in records:
            with suppress(Broken, lmdb.Error):  # told of where it is needed
                if number := dictionary_of(raw):
                    self._dictionary(number, lambda n: txn.get(dictionary_key(n), db=meta))

    def press(self, number: int) -> DictionaryPress:
        """Compresses with it. For one thread. Raises NoDictionary."""
        return DictionaryPress(number, self._dictionary(number).as_bytes())


class DictionaryPress:
    """See `frame.Press`. For one thread."""

    def __init__(self, number: int, data: bytes) -> None:
        self.number, self.data = number, data
        self._key, self._sealed = dictionary_key(number), seal_dictionary(number, data)
        made = zstandard.ZstdCompressionDict(data)
        made.precompute_compress(level=LEVEL)  # digested once: else every record would pay for it
        # The number stands in the record's head already.
        self._compressor = zstandard.ZstdCompressor(level=LEVEL, dict_data=made, write_dict_id=False)

    def compress(self, content: bytes) -> bytes:
        return self._compressor.compress(content)

    def keep(self, txn: Any, meta: Any) -> None:
        """To be called where records that were compressed with it are put: it may have been deleted meanwhile."""
        txn.put(self._key, self._sealed, overwrite=False, db=meta)


NONE = Dictionaries(lambda number: None)
"""Of an archive: none of its records needs any."""
