"""Where the rows of a SQLite database changed, told from the pages of two copies of its file.

To compare all rows costs as much as the database is large; a write changes a page or two. The rows of a table stand in
the leaves of its B-tree, in the order of their rowids, and what is not in a leaf stands in pages that this module does
not know by name: inner pages, overflow, the free list, the schema. So where every page that differs is a leaf, the
trees are the same in both copies, and rows differ only between the first and the last rowid of those leaves. Wherever
else a page differs nothing is concluded, and all rows are compared.

Source: "Database File Format", sqlite.org/fileformat2.html, sections 1.3 (header), 1.6 (B-tree pages).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

_INNER_INDEX, _INNER_TABLE, _LEAF_INDEX, _LEAF_TABLE = 2, 5, 10, 13
_AT_ONCE = 16
"""Pages that are compared together: where nothing differs, that is all that is looked at."""
_MOST = 32
"""Leaves above which all rows are compared: by then that is as quick."""

type Copy = bytes | bytearray
type Span = tuple[int, int]
"""The first and the last rowid, both included."""


class _Unknown(Exception):
    """Nothing can be concluded."""


@dataclass(slots=True)
class _Trees:
    """Which tree a leaf belongs to, by the leaf's page; trees and pages go by the numbers of their (root) pages."""

    leaves: dict[int, int] = field(default_factory=dict)
    without_rowids: set[int] = field(default_factory=set)


class Pages:
    """Of one database file, copy after copy."""

    def __init__(self) -> None:
        self._copy: Copy = b""
        self._trees: _Trees | None = None

    def take(self, copy: Copy, roots: Sequence[int]) -> Mapping[int, Sequence[Span] | None] | None:
        """By the root page of each tree in which anything may differ from the copy before: the rowids between which;
        of a tree without rowids None. None altogether: anything may differ. `roots` are those of all tables and
        indexes, as the copy's schema has them; `copy` is kept, and must not be changed."""
        before, self._copy = self._copy, copy
        trees, self._trees = self._trees, None
        try:
            if trees is not None and (spans := _spans(before, copy, trees)) is not None:
                self._trees = trees
                return spans
            self._trees = _walked(copy, roots)
        except (_Unknown, IndexError, struct.error):
            pass  # a file whose trees cannot be followed is SQLite's to judge
        return None


def _spans(before: Copy, copy: Copy, trees: _Trees) -> dict[int, Sequence[Span] | None] | None:
    """None where a page differs that is no leaf."""
    size = _page_size(copy)
    if len(before) != len(copy) or _page_size(before) != size:
        return None
    found: dict[int, list[Span] | None] = {}
    for count, page in enumerate(_differing(before, copy, size)):
        root = trees.leaves.get(page)
        if root is None or count >= _MOST:
            return None
        if root in trees.without_rowids:
            found[root] = None
            continue
        spans = found.setdefault(root, [])
        if spans is not None:
            spans += [span for one in (before, copy) if (span := _span(one, page, size)) is not None]
    return {root: spans and _united(spans) for root, spans in found.items()}


def _united(spans: Sequence[Span]) -> list[Span]:
    """The same rowids, each in one span only."""
    made: list[Span] = []
    for first, last in sorted(spans):
        if made and first <= made[-1][1]:
            made[-1] = (made[-1][0], max(last, made[-1][1]))
        else:
            made.append((first, last))
    return made


def _differing(before: Copy, copy: Copy, size: int) -> Iterator[int]:
    """The numbers of the pages that differ. Of the header the counters of changes do not count."""
    step = size * _AT_ONCE
    for start in range(0, len(copy), step):
        if before[start : start + step] == copy[start : start + step]:
            continue
        for at in range(start, min(start + step, len(copy)), size):
            one, other = before[at : at + size], copy[at : at + size]
            if one != other and (at or _uncounted(one) != _uncounted(other)):
                yield at // size + 1


def _uncounted(first: Copy) -> bytes:
    """The first page without the file change counter, and without the version that wrote it and when."""
    return bytes(first[:24] + first[28:92] + first[100:])


def _walked(copy: Copy, roots: Sequence[int]) -> _Trees:
    """Raises _Unknown, IndexError or struct.error for trees that cannot be followed."""
    size, trees, seen = _page_size(copy), _Trees(), set[int]()
    for root in roots:
        waiting = [root]
        while waiting:
            page = waiting.pop()
            if page in seen or not 1 < page * size <= len(copy):
                raise _Unknown
            seen.add(page)
            at = _head(page, size)
            kind = copy[at]
            if kind in (_LEAF_TABLE, _LEAF_INDEX):
                trees.leaves[page] = root
                if kind == _LEAF_INDEX:
                    trees.without_rowids.add(root)
            elif kind in (_INNER_TABLE, _INNER_INDEX):
                waiting += _children(copy, page, size)
            else:
                raise _Unknown
    return trees


def _children(copy: Copy, page: int, size: int) -> Iterator[int]:
    at, start = _head(page, size), (page - 1) * size
    cells, last = struct.unpack_from(">3xH3xI", copy, at)
    yield last
    for pointer in struct.unpack_from(f">{cells}H", copy, at + 12):
        yield struct.unpack_from(">I", copy, start + pointer)[0]


def _span(copy: Copy, page: int, size: int) -> Span | None:
    """The first and the last rowid of a table's leaf; None where it is empty."""
    at, start = _head(page, size), (page - 1) * size
    if copy[at] != _LEAF_TABLE:
        raise _Unknown
    (cells,) = struct.unpack_from(">3xH", copy, at)
    if not cells:
        return None
    first, last = (struct.unpack_from(">H", copy, at + 8 + 2 * number)[0] for number in (0, cells - 1))
    return _rowid(copy, start + first), _rowid(copy, start + last)


def _rowid(copy: Copy, at: int) -> int:
    """Of a table leaf's cell: it follows the payload's length, both as varints."""
    for _ in range(9):  # a varint's ninth byte is its last, whatever it holds
        at += 1
        if copy[at - 1] < 0x80:
            break
    value = 0
    for byte in copy[at : at + 8]:
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value
    value = value << 8 | copy[at + 8]
    return value - 2**64 if value >= 2**63 else value


def _head(page: int, size: int) -> int:
    """Where the head of a B-tree's page begins: on the first page behind the file's header."""
    return 100 if page == 1 else (page - 1) * size


def _page_size(copy: Copy) -> int:
    found: int = struct.unpack_from(">H", copy, 16)[0]
    return 65536 if found == 1 else found
