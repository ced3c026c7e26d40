"""What a user says is secret, beyond what is found by name: `[[secret]]` of the config.

A rule names one place: a header, a query or form parameter, a JSON pointer (`*` for any member or index), or a regular
expression (its first group, where it has one). A value that a rule's pointer names is replaced whatever its kind: a
number becomes a string.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from replayproxy.core import jsonvalue
from replayproxy.core.redact_edit import Edit
from replayproxy.core.redact_text import Found, in_pairs

PLACES = ("header", "query", "pointer", "pattern")
WINDOW = 4 * 1024
"""A pattern sees this much of a text at once: what a bad one costs grows with it. Windows overlap by a quarter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretRule:
    """One rule. `at` is "METHOD PATH" or "PATH", each with `*`; `env` an environment's name. Empty: any."""

    name: str
    place: str
    what: str
    at: str = ""
    env: str = ""

    @classmethod
    def of_table(cls, table: Mapping[str, Any]) -> SecretRule:
        """From a table of the config, or ValueError in words."""
        unknown = set(table) - {"name", "at", "env", "reason", *PLACES}
        if unknown:
            raise ValueError(f"unknown key {min(unknown)!r}")
        for key, value in table.items():
            if not isinstance(value, str) or (not value and key != "at"):
                raise ValueError(f"{key} must be a text, not {value!r}")
        if "name" not in table:
            raise ValueError("it has no name")
        places = [place for place in PLACES if place in table]
        if len(places) != 1:
            raise ValueError(f"it names {len(places)} places; one of {', '.join(PLACES)} is wanted")
        (place,) = places
        what = table[place]
        if place == "pointer" and not what.startswith("/"):
            raise ValueError(f"pointer {what!r} does not begin with /")
        if place == "pattern":
            _compiled(what)
        return cls(name=table["name"], place=place, what=what, at=table.get("at", ""), env=table.get("env", ""))

    def table(self) -> dict[str, str]:
        """As it is kept in a run."""
        kept = {"name": self.name, self.place: self.what, "at": self.at, "env": self.env}
        return {key: value for key, value in kept.items() if value}

    def fits(self, env: str, method: bytes, target: bytes) -> bool:
        if self.env and env and self.env != env:
            return False
        if not self.at:
            return True
        method_wanted, _, path_wanted = self.at.rpartition(" ")
        if method_wanted and not fnmatchcase(method.decode("latin-1"), method_wanted):
            return False
        return fnmatchcase(target.partition(b"?")[0].decode("latin-1"), path_wanted)


def _compiled(pattern: str) -> re.Pattern[bytes]:
    try:
        made = re.compile(pattern.encode())
    except (re.error, RecursionError, OverflowError) as wrong:
        raise ValueError(f"pattern {pattern!r} is no regular expression: {wrong}") from None
    if made.match(b"") is not None:
        raise ValueError(f"pattern {pattern!r} fits the empty text, so it names nothing")
    if _nested(pattern):
        raise ValueError(f"pattern {pattern!r} repeats a repetition, which may never end: write it with one repeat")
    return made


def _nested(pattern: str) -> bool:
    """Whether an unbounded repetition, or a choice, stands inside an unbounded repetition."""
    from re import _parser  # type: ignore[attr-defined]  # the standard library's own, and the only one that knows

    def walk(items: Any, inside: bool) -> bool:
        for name, value in items:
            kind = str(name)
            repeats = kind in ("MAX_REPEAT", "MIN_REPEAT") and int(value[1]) > 100
            if inside and (repeats or kind == "BRANCH"):
                return True
            for part in _parts(value):
                if walk(part, inside or repeats):
                    return True
        return False

    def _parts(value: Any) -> Iterator[Any]:
        if isinstance(value, _parser.SubPattern):
            yield value
        elif isinstance(value, tuple | list):
            for one in value:
                yield from _parts(one)

    return walk(_parser.parse(pattern.encode()), inside=False)


class Rules:
    """The rules that hold for one request, compiled."""

    def __init__(self, rules: Sequence[SecretRule]) -> None:
        self.headers = frozenset(rule.what.lower().encode() for rule in rules if rule.place == "header")
        self.queries = frozenset(rule.what for rule in rules if rule.place == "query")
        self.pointers = tuple(jsonvalue.tokens(rule.what) for rule in rules if rule.place == "pointer")
        self.patterns = tuple(_compiled(rule.what) for rule in rules if rule.place == "pattern")

    def in_pairs(self, data: bytes, at: int, found: Found) -> Iterator[Edit]:
        if self.queries:
            yield from in_pairs(data, found, at, self.queries.__contains__)

    def in_text(self, data: bytes, found: Found) -> Iterator[Edit]:
        for pattern in self.patterns:
            for start in range(0, max(len(data), 1), WINDOW * 3 // 4):
                for match in pattern.finditer(data[start : start + WINDOW]):
                    group = 1 if pattern.groups and match[1] is not None else 0
                    if match[group]:
                        begin, end = match.span(group)
                        yield Edit(start + begin, start + end, found(match[group], False))

    def in_json(self, data: bytes, found: Found) -> Iterator[Edit]:
        if self.pointers:
            for path, start, end in _leaves(data):
                if any(_fits(pointer, path) for pointer in self.pointers):
                    raw = data[start:end]
                    if raw[:1] == b'"':
                        text = str(json.loads(raw)).encode("utf-8", "surrogatepass")
                        if text:
                            yield Edit(start + 1, end - 1, found(text, False))
                    elif raw != b"null":
                        yield Edit(start, end, b'"' + found(raw, False) + b'"')


def _fits(pointer: tuple[str, ...], path: tuple[str, ...]) -> bool:
    """A pointer names a leaf, or everything below what it names."""
    return len(path) >= len(pointer) and all(a in ("*", b) for a, b in zip(pointer, path, strict=False))


_LEXEME = re.compile(rb'\s*(?:("(?:[^"\\]|\\.)*")|([{}\[\],:])|([^\s{}\[\],:"]+))')


def _leaves(data: bytes) -> Iterator[tuple[tuple[str, ...], int, int]]:
    """Path, start and end of every scalar of a JSON text, as far as it is one."""
    path: list[str] = []
    kinds: list[str] = []  # "{" or "[" for each open level
    key, named = "", False
    for match in _LEXEME.finditer(data):
        string, mark, word = match.groups()
        if mark is None:
            group = 1 if string is not None else 3
            if kinds and kinds[-1] == "{" and not named:
                key = _key(string or word)
                continue
            yield (*path, *([key] if kinds else [])), *match.span(group)
        elif mark == b":":
            named = True
        elif mark in b"{[":
            if kinds:
                path.append(key)
            kinds.append(mark.decode())
            key, named = ("0" if mark == b"[" else ""), False
        elif mark in b"}]":
            if not kinds:
                return
            kinds.pop()
            key = path.pop() if path else ""
            named = bool(kinds) and kinds[-1] == "{"
        elif kinds:
            if kinds[-1] == "[":
                key = str(int(key) + 1) if key.isdigit() else key
            named = False


def _key(raw: bytes) -> str:
    try:
        return str(json.loads(raw))
    except ValueError:
        return ""
