"""Replacements in bytes: what is to stand in the place of which span, and where chunk boundaries are afterwards.

Rules of this file: outside its spans nothing changes. Spans that overlap become one, so that no part of a secret is
left beside another's token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from replayproxy.core.values import Chunk


class Edit(NamedTuple):
    """`new` in the place of data[start:end]."""

    start: int
    end: int
    new: bytes


def merged(edits: Iterable[Edit], data: bytes, token: Callable[[bytes], bytes]) -> list[Edit]:
    """In order and disjoint. One inside another is the outer's; two that only overlap become one token together."""
    out: list[Edit] = []
    for edit in sorted(set(edits), key=lambda one: (one.start, -one.end)):
        if out and edit.start < out[-1].end:
            last = out[-1]
            if edit.end > last.end:
                out[-1] = Edit(last.start, edit.end, token(data[last.start : edit.end]))
            continue
        out.append(edit)
    return [edit for edit in out if data[edit.start : edit.end] != edit.new]


def applied(data: bytes, edits: Sequence[Edit]) -> bytes:
    """The bytes with every (disjoint, ordered) replacement made."""
    if not edits:
        return data
    parts: list[bytes] = []
    at = 0
    for start, end, new in edits:
        parts += (data[at:start], new)
        at = end
    parts.append(data[at:])
    return b"".join(parts)


def moved_chunks(chunks: Sequence[Chunk], edits: Sequence[Edit]) -> tuple[Chunk, ...]:
    """The chunks of the edited body: a boundary inside a secret moves to its end, and a chunk left empty is none."""
    out: list[Chunk] = []
    at = new_at = shift = index = 0
    for chunk in chunks:
        at += chunk.size
        while index < len(edits) and edits[index].start < at:
            edit = edits[index]
            shift += len(edit.new) - (edit.end - edit.start)
            index += 1
        end = max(at, edits[index - 1].end) if index else at
        if (size := end + shift - new_at) > 0:
            out.append(Chunk(size=size, at=chunk.at))
            new_at = end + shift
    return tuple(out)


def scaled_chunks(chunks: Sequence[Chunk], old: int, new: int) -> tuple[Chunk, ...]:
    """The chunks of a body that was coded anew: as many, at the same instants, each with its share of the bytes."""
    out: list[Chunk] = []
    at = new_at = 0
    for number, chunk in enumerate(chunks, 1):
        at += chunk.size
        end = new if number == len(chunks) else at * new // max(old, 1)
        if end > new_at:
            out.append(Chunk(size=end - new_at, at=chunk.at))
            new_at = end
    return tuple(out)
