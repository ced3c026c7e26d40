"""The frame around every record, and around every blob.

record, format 2: format u8 | flags u8 | dictionary u32 | checksum 16 | CRC-32 u32 | zstd of the content
record, format 1: format u8 | flags u8 | 0 u32 | checksum 16 | zstd of the content
content:          u32 length of JSON | JSON | bytes
blob:             format u8 | zstd of the bytes; its key is the checksum

The checksum of format 2 is BLAKE2b over format, flags and content: what a record says may be compressed anew, with
another dictionary or none, and keeps its checksum, and so does the seal of its episode. The CRC is over all else that
lies there. Format 1 has its checksum over everything else as it lies there, and no dictionary. Dictionary 0 is none
(`storage.dictionaries`). Flag 1: the JSON is packed (`storage.loose`). A record that does not check raises `Broken`,
and nothing else.
"""

from __future__ import annotations

import struct
import threading
from hashlib import blake2b
from typing import Any, Protocol
from zlib import crc32

import orjson
import zstandard

from replayproxy.core.canonical import digest
from replayproxy.storage import loose

RECORD_FORMAT = 2
BLOB_FORMAT = 1
LEVEL = 3
PACKED = 1
CHECKSUM_AT = slice(6, 22)
_HEAD = struct.Struct(">BBI16s")
_CRC = struct.Struct(">I")
_BEFORE_CONTENT = {1: _HEAD.size, 2: _HEAD.size + _CRC.size}
_LENGTH = struct.Struct(">I")
_MOST = 1 << 31

_local = threading.local()


class Broken(Exception):
    """These bytes are not what was written; the text says what is wrong with them."""


class NoDictionary(Broken):
    """They need a dictionary that is not there, or is damaged: many others need it as well."""

    def __init__(self, number: int, why: str) -> None:
        super().__init__(f"it needs dictionary {number}, which {why}")
        self.number, self.why = number, why


class Press(Protocol):
    """How records are compressed. `number`: the dictionary that is used for it, 0: none."""

    @property
    def number(self) -> int: ...
    @property
    def data(self) -> bytes:
        """The dictionary."""

    def compress(self, content: bytes) -> bytes: ...
    def keep(self, txn: Any, meta: Any) -> None:
        """Puts the dictionary where it is not: in the transaction that puts records that need it."""


class Shelf(Protocol):
    """Where dictionaries are found. Raises NoDictionary."""

    def decompressor(self, number: int) -> zstandard.ZstdDecompressor: ...


def _compressor() -> zstandard.ZstdCompressor:
    made: zstandard.ZstdCompressor | None = getattr(_local, "compressor", None)
    if made is None:
        made = _local.compressor = zstandard.ZstdCompressor(level=LEVEL)
    return made


def _decompressor() -> zstandard.ZstdDecompressor:
    made: zstandard.ZstdDecompressor | None = getattr(_local, "decompressor", None)
    if made is None:
        made = _local.decompressor = zstandard.ZstdDecompressor()
    return made


class Plain:
    """The press without a dictionary. From any thread."""

    number = 0
    data = b""

    def compress(self, content: bytes) -> bytes:
        return _compressor().compress(content)

    def keep(self, txn: Any, meta: Any) -> None:
        """There is none."""


PLAIN = Plain()


def checksum(flags: int, content: bytes) -> bytes:
    hasher = blake2b(bytes((RECORD_FORMAT, flags)), digest_size=16)
    hasher.update(content)
    return hasher.digest()


def _checksum_1(flags: int, squeezed: bytes) -> bytes:
    hasher = blake2b(_HEAD.pack(1, flags, 0, b"")[:6], digest_size=16)
    hasher.update(squeezed)
    return hasher.digest()


def why_too_large(raw: bytes, at: int, most: int) -> str | None:
    """Why a record or blob may not be unpacked: what its compressed bytes, from `at`, say of their size; None: it may.

    The decompressor takes the memory that they claim, before a byte of it is there.
    """
    try:
        claimed = zstandard.frame_content_size(raw[at : at + 18])
    except zstandard.ZstdError:
        return None  # it will not unpack at all, and then says so
    if claimed == zstandard.CONTENTSIZE_UNKNOWN:
        return "it does not say how large it is"
    if len(raw) > most or claimed > most:
        return f"it is {max(len(raw), claimed):,} bytes large, at most {most:,} are taken"
    return None


def why_record_too_large(raw: bytes, most: int) -> str | None:
    """`why_too_large` of a record."""
    return why_too_large(raw, _BEFORE_CONTENT.get(raw[0], 0) if raw else 0, most)


def content_of(document: Any, tail: bytes = b"", *, packed: bool = False) -> tuple[int, bytes]:
    """Flags and content of a JSON document and the bytes after it.

    `packed` documents go through `loose.pack`; others do when orjson refuses them.
    """
    try:
        text = orjson.dumps(loose.pack(document) if packed else document)
    except TypeError:
        if packed:
            raise
        packed = True
        text = orjson.dumps(loose.pack(document))
    return (PACKED if packed else 0), b"".join((_LENGTH.pack(len(text)), text, tail))


def seal_content(flags: int, content: bytes, press: Press = PLAIN) -> bytes:
    """The record."""
    return framed(flags, press.number, checksum(flags, content), press.compress(content))


def framed(flags: int, dictionary: int, check: bytes, squeezed: bytes) -> bytes:
    """The record, of what was made for it."""
    head = _HEAD.pack(RECORD_FORMAT, flags, dictionary, check)
    return b"".join((head, _CRC.pack(crc32(squeezed, crc32(head))), squeezed))


def seal_record(document: Any, tail: bytes = b"", *, packed: bool = False) -> bytes:
    """The record of a JSON document and the bytes after it, compressed without a dictionary."""
    return seal_content(*content_of(document, tail, packed=packed))


def dictionary_of(raw: bytes) -> int:
    """The number of the dictionary that a record names, 0: none. Raises Broken."""
    if len(raw) < _HEAD.size:
        raise Broken(f"it is {len(raw)} bytes long")
    number: int = _HEAD.unpack_from(raw)[2]
    return number


def pressed(raw: bytes, shelf: Shelf | None, press: Press = PLAIN) -> bytes:
    """The same record, checked, and compressed with another dictionary, or none: content and checksum stay. What is
    compressed so already, and what is of format 1, comes back as it is. Raises Broken."""
    if dictionary_of(raw) == press.number or raw[0] != RECORD_FORMAT:
        return raw
    flags, content = _content(raw, shelf)
    return framed(flags, press.number, raw[CHECKSUM_AT], press.compress(content))


def content(raw: bytes, shelf: Shelf | None) -> bytes:
    """What a record holds, checked. Raises Broken."""
    return _content(raw, shelf)[1]


def open_record(raw: bytes, shelf: Shelf | None = None) -> tuple[Any, bytes]:
    """The document and the bytes after it. Raises Broken."""
    flags, content = _content(raw, shelf)
    try:
        (length,) = _LENGTH.unpack_from(content)
        end = _LENGTH.size + length
        if end > len(content):
            raise Broken("its JSON is cut")
        document = orjson.loads(content[_LENGTH.size : end])
        return (loose.unpack(document) if flags & PACKED else document), content[end:]
    except Broken:
        raise
    except Exception as error:  # a checksum that fits by chance must not become another kind of error
        raise Broken(f"it cannot be decoded: {error}") from error


def _content(raw: bytes, shelf: Shelf | None) -> tuple[int, bytes]:
    """Flags and content, checked."""
    if len(raw) < _HEAD.size:
        raise Broken(f"it is {len(raw)} bytes long")
    form, flags, dictionary, expected = _HEAD.unpack_from(raw)
    begin = _BEFORE_CONTENT.get(form)
    if begin is None or len(raw) < begin:
        raise Broken(f"its format number is {form}" if begin is None else f"it is {len(raw)} bytes long")
    squeezed = raw[begin:]
    if form == 1:
        fits = not dictionary and _checksum_1(flags, squeezed) == expected
    else:
        fits = _CRC.unpack_from(raw, _HEAD.size)[0] == crc32(squeezed, crc32(raw[: _HEAD.size]))
    if not fits:
        raise Broken("its checksum does not fit")
    if flags & ~PACKED:
        raise Broken(f"it has flags {flags}")
    unpacker = _decompressor() if not dictionary else _from_shelf(shelf, dictionary)
    try:
        content: bytes = unpacker.decompress(squeezed, max_output_size=_MOST)
    except Exception as error:
        raise Broken(f"it cannot be decoded: {error}") from error
    # A dictionary under a wrong number may unpack without complaint: this is what stands between that and wrong data.
    if form != 1 and checksum(flags, content) != expected:
        raise Broken("its content does not fit its checksum")
    return flags, content


def _from_shelf(shelf: Shelf | None, number: int) -> zstandard.ZstdDecompressor:
    if shelf is None:
        raise NoDictionary(number, "is not kept with it")
    return shelf.decompressor(number)


def seal_blob(data: bytes) -> bytes:
    return bytes((BLOB_FORMAT,)) + _compressor().compress(data)


def open_blob(address: bytes, raw: bytes) -> bytes:
    """The bytes that `address` is the digest of. Raises Broken."""
    if raw[:1] != bytes((BLOB_FORMAT,)):
        raise Broken(f"its format number is {raw[0] if raw else 'missing'}")
    try:
        data: bytes = _decompressor().decompress(raw[1:], max_output_size=_MOST)
    except zstandard.ZstdError as error:
        raise Broken(f"it cannot be decompressed: {error}") from error
    if digest(data) != address:
        raise Broken("its content does not fit its address")
    return data
