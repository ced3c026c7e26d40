"""The bytes of a state tree's nodes, and where a level is cut into nodes. `core.prolly` says what the tree is for.

All numbers are big-endian. An address is the BLAKE2b-256 of the node's bytes (`core.canonical.digest`).

    node     01, level (0: leaf, ff: piece), then
    leaf     entries: u32 length of table, u32 length of key (ffffffff: the table's mark), u32 length of value, those
    value    "j" canonical JSON (core.rowcode) · "b" bytes · "r" u64 size, addresses of the pieces of one of these
    inner    entries: u32, u32 as above, table and key of the child's last entry, its address (32), u64 rows below
    piece    the bytes
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from struct import Struct

from replayproxy.core import rowcode
from replayproxy.core.canonical import digest
from replayproxy.core.values import Row

FORMAT = 1
NODE_SIZE = 4096
PIECE_LEAST, PIECE_MOST = 4 * 1024, 64 * 1024
LARGE = 16 * 1024
"""A value longer than this is stored as pieces of its own, so that nodes stay small."""

_PIECE_HEAD = bytes([FORMAT, 0xFF])
_MARK = 0xFFFFFFFF
_LENGTHS, _CHILD, _REFERENCE = Struct(">III"), Struct(">32sQ"), Struct(">cQ")

type Key = tuple[bytes] | tuple[bytes, bytes]
"""(table,) is a table's mark, (table, key) a row. Python orders these as the tree does."""
type Load = Callable[[bytes], bytes]
type Nodes = dict[bytes, bytes]
type Items = list[tuple[Key, bytes]]


class UnknownNode(ValueError):
    """The bytes are no node of this format."""


@dataclass(frozen=True)
class Node:
    """A leaf's entries are rows and marks, an inner node's its children by their last keys (`child`)."""

    level: int
    items: Items

    @cached_property
    def keys(self) -> list[Key]:
        return [key for key, _ in self.items]

    def child(self, at: int) -> bytes:
        address: bytes = _CHILD.unpack(self.items[at][1])[0]
        return address

    def rows(self) -> int:
        """How many rows are in it and below it."""
        if self.level:
            return sum(_CHILD.unpack(value)[1] for _, value in self.items)
        return sum(1 for key, _ in self.items if len(key) == 2)


def text_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def bytes_text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def keep(node: bytes, nodes: Nodes) -> bytes:
    """Puts the node among `nodes`; gives its address."""
    address = digest(node)
    nodes[address] = node
    return address


def encode(node: Node) -> bytes:
    out = [bytes([FORMAT, node.level])]
    for key, value in node.items:
        table, name = key[0], key[1] if len(key) == 2 else b""
        out.append(_LENGTHS.pack(len(table), len(name) if len(key) == 2 else _MARK, len(value)))
        out += (table, name, value)
    return b"".join(out)


def decode(data: bytes) -> Node:
    """Raises UnknownNode."""
    if len(data) < 2 or data[0] != FORMAT or data[1] == 0xFF:
        raise UnknownNode(f"no tree node of format {FORMAT}: begins with {data[:2].hex()}")
    items: Items = []
    at, end = 2, len(data)
    try:
        while at < end:
            table, name, value = _LENGTHS.unpack_from(data, at)
            at += 12
            mark = name == _MARK
            key_at = at + table
            value_at = key_at if mark else key_at + name
            key: Key = (data[at:key_at],) if mark else (data[at:key_at], data[key_at:value_at])
            at = value_at + value
            items.append((key, data[value_at:at]))
    except struct.error as error:
        raise UnknownNode("a tree node ends too early") from error
    if at != end:
        raise UnknownNode("a tree node ends too early")
    return Node(data[1], items)


def children(data: bytes) -> list[bytes]:
    """The addresses that a node refers to: what must be kept as long as it is."""
    if data.startswith(_PIECE_HEAD):
        return []
    node = decode(data)
    if node.level:
        return [node.child(at) for at in range(len(node.items))]
    return [piece for _, value in node.items if value[:1] == b"r" for piece in _addresses(value)]


def encode_value(row: Row, nodes: Nodes) -> bytes:
    """A row as a leaf holds it; the pieces of a large one go to `nodes`. Raises rowcode.NoRow."""
    value = b"b" + bytes(row) if isinstance(row, bytes | bytearray) else b"j" + rowcode.encode(row)
    if len(value) <= LARGE:
        return value
    pieces = [keep(_PIECE_HEAD + piece, nodes) for piece in in_pieces(value)]
    return _REFERENCE.pack(b"r", len(value)) + b"".join(pieces)


_LINES, _OBJECTS = re.compile(rb"\n"), re.compile(rb"},")


def in_pieces(data: bytes) -> Iterator[bytes]:
    """Cuts behind a line's end (where there are lines, else behind `},`) if the 12 bytes that follow say so.

    A large document that changes in one place so keeps the pieces before and behind it. Part of the format: equal
    values must be cut alike.
    """
    places = _LINES if data.count(b"\n", 0, PIECE_MOST) >= 16 else _OBJECTS
    begun, end = 0, len(data)
    while end - begun > PIECE_MOST:
        cut = begun + PIECE_MOST
        for place in places.finditer(data, begun + PIECE_LEAST, cut):
            at = place.end()
            if not zlib.crc32(data[at : at + 12]) & 0x7F:
                cut = at
                break
        yield data[begun:cut]
        begun = cut
    yield data[begun:end]


def decode_value(value: bytes, load: Load) -> Row:
    """The row as it was given."""
    whole = _whole(value, load)
    return whole[1:] if whole[:1] == b"b" else rowcode.decode(whole[1:])


def document_of(value: bytes, load: Load) -> Row:
    """The row as a JSON value."""
    whole = _whole(value, load)
    return rowcode.document(rowcode.encode(whole[1:]) if whole[:1] == b"b" else whole[1:])


def _whole(value: bytes, load: Load) -> bytes:
    if value[:1] != b"r":
        return value
    return b"".join(_piece(load(address)) for address in _addresses(value))


def _piece(data: bytes) -> bytes:
    if not data.startswith(_PIECE_HEAD):
        raise UnknownNode(f"no piece of format {FORMAT}: begins with {data[:2].hex()}")
    return data[2:]


def _addresses(value: bytes) -> list[bytes]:
    return [value[at : at + 32] for at in range(_REFERENCE.size, len(value), 32)]


def ends_node(level: int, key: Key, value: bytes) -> bool:
    """Whether the entry is the last of its node: by its key's hash, so often that nodes have about NODE_SIZE."""
    size = 12 + len(key[0]) + len(key[-1]) + len(value)
    # Size counts only to the next power of two: an edit that leaves a row about as long leaves the shape alone.
    weight = 1 << (size - 1).bit_length()
    if level:
        # Nodes of one child each would never end in a root: eight on average at least, however long the keys.
        weight = min(weight, NODE_SIZE // 8)
    if weight >= NODE_SIZE:
        return True
    name = b"%d:%d:%b" % (level, len(key[0]), b":".join(key))
    return int.from_bytes(blake2b(name, digest_size=8).digest(), "big") < (weight << 64) // NODE_SIZE


def cut(level: int, items: Sequence[tuple[Key, bytes]], nodes: Nodes) -> Items:
    """Cuts a run of entries into nodes; gives the entries of the level above."""
    above: Items = []
    begun = 0
    for at, (key, value) in enumerate(items, 1):
        if at == len(items) or ends_node(level, key, value):
            node = Node(level, list(items[begun:at]))
            above.append((key, _CHILD.pack(keep(encode(node), nodes), node.rows())))
            begun = at
    return above


def child_of(value: bytes) -> tuple[bytes, int]:
    """The address and the number of rows that an entry of an inner node holds."""
    address, rows = _CHILD.unpack(value)
    return address, rows
