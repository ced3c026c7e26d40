"""A body with its secrets replaced: decoded to look, coded anew only if something in it was replaced."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from replayproxy.core.canonical import VIEW_LIMIT, all_fields, body_of, field, media_type
from replayproxy.core.multipart import first_boundary
from replayproxy.core.redact_edit import Edit, applied, moved_chunks, scaled_chunks
from replayproxy.core.values import Body, Fields

type Scan = Callable[[bytes], Sequence[Edit]]

WINDOW = 256 * 1024
OVERLAP = 32 * 1024
"""A body too large to hold is scanned in windows; a secret, with its name, is found up to the size of the overlap."""

DECODED_LIMIT = 64 * 1024 * 1024
"""A body that is held is looked into so far: what decodes to more is a bomb."""

GIVEN_UP = "secret in a coded body: not stored"

_WBITS = {b"gzip": 31, b"x-gzip": 31, b"deflate": 15}


@dataclass(frozen=True, slots=True)
class Shape:
    """What of a head says how its body is read."""

    form: bool
    boundary: bytes
    json: bool
    coding: bytes

    @classmethod
    def of(cls, fields: Fields) -> Shape:
        # Asked four times of each exchange, and nearly always of the same two fields.
        telling = tuple([pair for pair in fields if pair[0].lower() in _TELLING])
        if sum([len(value) for _, value in telling]) > _LONG:
            return _shape(telling)
        return _shape_of_short(telling)

    @property
    def special(self) -> bool:
        """Whether more than text is looked for."""
        return self.form or self.json or bool(self.boundary)

    @property
    def coded(self) -> bool:
        return self.coding in _WBITS


_TELLING = frozenset((b"content-type", b"content-encoding"))
_LONG = 400


def _shape(fields: Fields) -> Shape:
    """`Shape.of`, of the fields that matter to it."""
    kind = media_type(fields)
    boundary = b""
    if kind.startswith(b"multipart/"):
        boundary = first_boundary(field(fields, b"content-type") or b"")
    return Shape(
        form=kind == b"application/x-www-form-urlencoded",
        boundary=boundary,
        json=b"json" in kind,
        coding=b",".join(all_fields(fields, b"content-encoding")).strip().lower(),
    )


_shape_of_short = lru_cache(maxsize=512)(_shape)


def redacted_body(body: Body, shape: Shape, scan: Scan) -> Body | None:
    """The body without the secrets that `scan` finds in it; None where that cannot be had. It must be held whole."""
    data = body.inline
    if not data:
        return body
    if shape.coded:
        return _coded(body, data, shape.coding, scan)
    edits = scan(data)
    if not edits:
        return body
    return replace(body_of(applied(data, edits)), chunks=moved_chunks(body.chunks, edits))


def _coded(body: Body, data: bytes, coding: bytes, scan: Scan) -> Body | None:
    plain, whole = inflated(data, coding)
    edits = scan(plain)
    if not edits:
        if len(plain) >= VIEW_LIMIT and _further(data, coding, scan):
            return None
        # Bytes that are not what their label says are looked at as they are.
        return body if plain or not scan(data) else None
    if not whole:
        return None
    made = body_of(_deflated(applied(plain, edits), coding, raw=_is_raw(data, coding)))
    return replace(made, chunks=scaled_chunks(body.chunks, len(data), made.size))


def _further(data: bytes, coding: bytes, scan: Scan) -> bool:
    """Whether a secret is found in what a body decodes to, however large; up to `DECODED_LIMIT`."""
    watch = _Watch(coding, scan)
    for at in range(0, len(data), 4096):
        if watch.found(data[at : at + 4096]):
            return True
        if watch.seen > DECODED_LIMIT or watch.broken:
            return False
    return False


class _Watch:
    """Looks into a coded body as it passes, a bounded step at a time."""

    def __init__(self, coding: bytes, scan: Scan) -> None:
        self._coding, self._scan = coding, scan
        self._inflate: zlib._Decompress | None = None
        self._tail = b""
        self.seen = 0
        self.broken = False

    def found(self, piece: bytes) -> bool:
        """Whether there is a secret in what this piece adds. `broken`: it is not what its label says."""
        rest = piece
        try:
            while rest:
                inflate = self._inflate = self._inflate or inflater(rest, self._coding)
                plain = inflate.decompress(rest, WINDOW)
                rest = inflate.unconsumed_tail
                self.seen += len(plain)
                text = self._tail + plain
                if self._scan(text):
                    return True
                self._tail = text[-OVERLAP:]
                if inflate.eof:
                    rest, self._inflate = inflate.unused_data, None
        except zlib.error:
            self.broken = True
        return False


def inflated(data: bytes, coding: bytes) -> tuple[bytes, bool]:
    """The body decoded as far as it goes (up to `VIEW_LIMIT`), and whether that is all of it: every member of gzip,
    and deflate with its header or, as some send it, without."""
    out, rest, whole = bytearray(), data, False
    inflate = inflater(data, coding)
    try:
        while rest and len(out) < VIEW_LIMIT:
            out += inflate.decompress(rest, VIEW_LIMIT - len(out))
            rest = inflate.unused_data
            whole = inflate.eof and not rest
            if not inflate.eof or coding == b"deflate":
                break
            inflate = inflater(rest, coding)
    except zlib.error:
        if not out:
            return _piecewise(data, coding), False
        whole = False
    return bytes(out) + rest, whole


def inflater(data: bytes, coding: bytes) -> zlib._Decompress:
    """For what begins with these bytes."""
    return zlib.decompressobj(-15 if _is_raw(data, coding) else _WBITS[coding])


def _is_raw(data: bytes, coding: bytes) -> bool:
    """Whether it is deflate without the header of zlib. A lone byte tells nothing: it has the header's first or not."""
    if coding != b"deflate" or not data:
        return False
    return data[0] & 15 != 8 or (len(data) > 1 and (data[0] << 8 | data[1]) % 31 != 0)


def _piecewise(data: bytes, coding: bytes) -> bytes:
    """What can be decoded before the place where it is broken."""
    inflate, out = inflater(data, coding), bytearray()
    try:
        for at in range(0, len(data), 256):
            out += inflate.decompress(data[at : at + 256], VIEW_LIMIT)
            if len(out) > VIEW_LIMIT:
                break
    except zlib.error:
        pass
    return bytes(out)


def _deflated(data: bytes, coding: bytes, *, raw: bool) -> bytes:
    """The same bytes give the same bytes: no time is in it."""
    if raw:
        return zlib.compress(data, wbits=-15)
    return zlib.compress(data) if coding == b"deflate" else gzip.compress(data, 6, mtime=0)


class Stretch:
    """A body too large to hold, scanned as it passes: `feed` gives the bytes that may go on, `end` the rest.

    Pieces come back as (bytes, instant) like they were fed; a boundary inside a secret moves to its end. A coded body
    is watched and passed on as it is; one with a secret is given up: `given_up` is set, and nothing more comes.
    """

    def __init__(self, shape: Shape, scan: Scan) -> None:
        self._scan, self._shape = scan, shape
        self._held = bytearray()
        self._ends: list[tuple[int, int | None]] = []  # where each piece in `_held` ends, and its instant
        self._watch = _Watch(shape.coding, scan) if shape.coded else None
        self.given_up = False

    def feed(self, data: bytes, at: int | None = None) -> list[tuple[bytes, int | None]]:
        if self.given_up:
            return []
        out: list[tuple[bytes, int | None]] = []
        for begin in range(0, len(data), WINDOW):
            piece = data[begin : begin + WINDOW]
            self._held += piece
            self._ends.append((len(self._held), at))
            if self._watch is not None:
                if self._watch.found(piece):
                    self.given_up = True
                    self._held.clear()
                    return []
                if self._watch.broken:
                    self._watch = None  # the bytes themselves are looked at from here on
            if len(self._held) >= WINDOW + OVERLAP:
                out += self._release(last=False)
        return out

    def end(self) -> list[tuple[bytes, int | None]]:
        return [] if self.given_up else self._release(last=True)

    def _release(self, *, last: bool) -> list[tuple[bytes, int | None]]:
        data = bytes(self._held)
        limit = len(data) if last else len(data) - OVERLAP
        edits: Sequence[Edit] = ()
        if self._watch is None:
            edits = self._scan(data)
            # Nothing is cut in the middle of a secret, and what begins behind the cut is found again.
            edits = [edit for edit in edits if edit.start < limit]
            limit = max([limit, *(edit.end for edit in edits)])
        out: list[tuple[bytes, int | None]] = []
        done = 0
        for end, at in self._ends:
            if done >= limit:
                break
            end = min(end, limit)
            end = max([end, *(edit.end for edit in edits if edit.start < end < edit.end)])
            if end <= done:
                continue
            inside = [Edit(e.start - done, e.end - done, e.new) for e in edits if done <= e.start < end]
            out.append((applied(data[done:end], inside), at))
            done = end
        del self._held[:limit]
        self._ends = [(end - limit, at) for end, at in self._ends if end > limit]
        return out
