"""The parts of a multipart body, whatever its boundary is.

Strict on purpose: a body that another reader could take apart otherwise (no last boundary, text before the first part
or behind the last, a part without its blank line, folded headers) is malformed, and then its bytes are compared.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import NamedTuple

from replayproxy.core.values import Fields

_BOUNDARY = re.compile(rb';[ \t]*boundary=(?:"([^"]{1,200})"|([^;\s"]{1,200}))', re.IGNORECASE)


_ANYHOW = re.compile(rb'boundary=(?:"([^"]+)"|([^\s;]+))', re.IGNORECASE)


class Part(NamedTuple):
    """One part. `fields` in their order, names in lower case."""

    fields: Fields
    data: bytes


def boundary_of(content_type: bytes) -> bytes | None:
    """The boundary that a Content-Type names; None when it names none, or more than one."""
    found = _BOUNDARY.findall(content_type)
    return (found[0][0] or found[0][1]) if len(found) == 1 else None


def first_boundary(content_type: bytes) -> bytes:
    """For readers that only look into a body: the first boundary, however it is written; empty where there is none."""
    found = _ANYHOW.search(content_type)
    return (found[1] or found[2]) if found else b""


def without_boundary(content_type: bytes) -> bytes:
    """The Content-Type with every parameter but the boundary."""
    return _BOUNDARY.sub(b"", content_type)


def parts_of(data: bytes, boundary: bytes) -> tuple[Part, ...] | None:
    """The parts in their order; None for a body that is malformed.

    A delimiter is a whole line: `\\r\\n--b` in a file is none where the boundary is `b1`, nor is `\\r\\n--bogus` where
    it is `b`.
    """
    delimiter = re.compile(rb"\r\n--" + re.escape(boundary) + rb"(--)?[ \t]*(?=\r\n|\Z)")
    lines = list(delimiter.finditer(b"\r\n" + data))
    whole = b"\r\n" + data
    last = next((index for index, line in enumerate(lines) if line.group(1)), None)
    if not lines or last is None or last != len(lines) - 1 or lines[0].start() != 0:
        return None
    if whole[lines[last].end() :] not in (b"", b"\r\n"):
        return None
    parts = [_part(whole[a.end() + 2 : b.start()]) for a, b in pairwise(lines)]
    whole_parts = tuple(part for part in parts if part is not None)
    return whole_parts if len(whole_parts) == len(parts) else None


def _part(raw: bytes) -> Part | None:
    head, blank, data = (b"", b"\r\n", raw[2:]) if raw.startswith(b"\r\n") else raw.partition(b"\r\n\r\n")
    if not blank:
        return None
    fields = []
    for line in head.split(b"\r\n") if head else ():
        name, colon, value = line.partition(b":")
        if not colon or not name or name.strip() != name:
            return None
        fields.append((name.lower(), value.strip()))
    return Part(tuple(fields), data)


def parts_key(parts: tuple[Part, ...]) -> bytes:
    """Equal exactly for equal parts: each length stands before its bytes."""
    out = []
    for part in parts:
        # Of the headers of a part, as of a message, only the order within one name has meaning.
        for name, value in sorted(part.fields, key=lambda pair: pair[0]):
            out.append(b"h%d:%b%d:%b" % (len(name), name, len(value), value))
        out.append(b"d%d:%b" % (len(part.data), part.data))
    return b"".join(out)
