"""Members put into a JSON object as it is written, every other byte of it left alone.

A document that is read and written again loses what a trainer may rely on: members that stand twice, `1e2` for 100.0,
escapes, spaces. Here the text stays, and members are put in before its last brace. Rules of this file: the text was
parsed already and is one JSON object, with white space around it at most.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_SPACE = b" \t\r\n"
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[{}\[\]:,]', re.DOTALL)
_DEEPER, _BACK = b"{[", b"}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A member of the outermost object: its name, and where its value stands in the text."""

    name: str
    start: int
    end: int


def inserted(raw: bytes, added: bytes, *, empty: bool) -> bytes:
    """`added` (members without the comma before them) before the last brace. `empty`: the object has no member."""
    at = len(raw.rstrip(_SPACE)) - 1
    return b"".join((raw[:at], b"" if empty else b", ", added, raw[at:]))


def members(raw: bytes) -> Iterator[Member]:
    """The members of the outermost object in order; one that stands twice comes twice."""
    depth, name, start = 0, None, 0
    for token in _TOKEN.finditer(raw):
        mark = token[0]
        if mark in _DEEPER:
            depth += 1
        elif mark in _BACK or (depth == 1 and mark == b","):
            if depth == 1 and name is not None:
                yield _member(raw, name, start, token.start())
                name = None
            depth -= mark in _BACK
        elif depth == 1 and mark == b":":
            start = token.end()
        elif depth == 1 and name is None:
            name = json.loads(mark)


def _member(raw: bytes, name: str, start: int, end: int) -> Member:
    value = raw[start:end]
    start += len(value) - len(value.lstrip(_SPACE))
    return Member(name=name, start=start, end=start + len(value.strip(_SPACE)))


def renewed(raw: bytes, values: Mapping[str, bytes]) -> bytes:
    """Members of these names get these values where they stand, each time; those that are missing are put in."""
    parts, at, missing, empty = [], 0, dict(values), True
    for member in members(raw):
        empty = False
        if member.name in values:
            parts += [raw[at : member.start], values[member.name]]
            at = member.end
            missing.pop(member.name, None)
    changed = b"".join((*parts, raw[at:]))
    return inserted(changed, written(missing), empty=empty) if missing else changed


def written(values: Mapping[str, bytes]) -> bytes:
    """Members as `inserted` takes them; the values are JSON already."""
    return b", ".join(json.dumps(name).encode() + b": " + value for name, value in values.items())
