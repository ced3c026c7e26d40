"""The frame around every record, and around every blob.

record: format u8 | flags u8 | dictionary u32 | checksum 16 | zstd of (u32 length of JSON | JSON | bytes)
blob:   format u8 | zstd of the bytes; its key is the checksum

The checksum is BLAKE2b over everything else in the record. Dictionary 0 is none. Flag 1: the JSON is packed
(`storage.loose`). A record that does not check raises `Broken`, and nothing else.
"""

from __future__ import annotations

import struct
import threading
from hashlib import blake2b
from typing import Any

import orjson
import zstandard

from replayproxy.core.canonical import digest
from replayproxy.storage import loose
from replayproxy.storage.layout import FORMAT

LEVEL = 3
PACKED = 1
CHECKSUM_AT = slice(6, 22)
_HEAD = struct.Struct(">BBI16s")
_LENGTH = struct.Struct(">I")
_MOST = 1 << 31

_local = threading.local()


class Broken(Exception):
    """These bytes are not what was written; the text says what is wrong with them."""


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


def checksum(flags: int, dictionary: int, packed: bytes) -> bytes:
    hasher = blake2b(_HEAD.pack(FORMAT, flags, dictionary, b"")[:6], digest_size=16)
    hasher.update(packed)
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


def seal_record(document: Any, tail: bytes = b"", *, packed: bool = False) -> bytes:
    """The record of a JSON document and the bytes after it.

    `packed` documents go through `loose.pack`; others do when orjson refuses them.
    """
    try:
        text = orjson.dumps(loose.pack(document) if packed else document)
    except TypeError:
        if packed:
            raise
        packed = True
        text = orjson.dumps(loose.pack(document))
    flags = PACKED if packed else 0
    squeezed = _compressor().compress(b"".join((_LENGTH.pack(len(text)), text, tail)))
    return _HEAD.pack(FORMAT, flags, 0, checksum(flags, 0, squeezed)) + squeezed


def open_record(raw: bytes) -> tuple[Any, bytes]:
    """The document and the bytes after it. Raises Broken."""
    if len(raw) < _HEAD.size:
        raise Broken(f"it is {len(raw)} bytes long")
    form, flags, dictionary, expected = _HEAD.unpack_from(raw)
    if form != FORMAT:
        raise Broken(f"its format number is {form}")
    squeezed = raw[_HEAD.size :]
    if checksum(flags, dictionary, squeezed) != expected:
        raise Broken("its checksum does not fit")
    if dictionary or flags & ~PACKED:
        raise Broken(f"it needs dictionary {dictionary}, flags {flags}")
    try:
        content = _decompressor().decompress(squeezed, max_output_size=_MOST)
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


def seal_blob(data: bytes) -> bytes:
    return bytes((FORMAT,)) + _compressor().compress(data)


def open_blob(address: bytes, raw: bytes) -> bytes:
    """The bytes that `address` is the digest of. Raises Broken."""
    if raw[:1] != bytes((FORMAT,)):
        raise Broken(f"its format number is {raw[0] if raw else 'missing'}")
    try:
        data: bytes = _decompressor().decompress(raw[1:], max_output_size=_MOST)
    except zstandard.ZstdError as error:
        raise Broken(f"it cannot be decompressed: {error}") from error
    if digest(data) != address:
        raise Broken("its content does not fit its address")
    return data
