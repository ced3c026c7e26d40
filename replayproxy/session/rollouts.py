"""A rollout file as a trainer keeps it: JSON objects, one a line, and where in them a field stands.

Lines end at a line feed and nowhere else (U+2028 or a bare CR is a part of its line). A line of white space is kept and
says nothing. What is no JSON object is refused with its number, whatever else the file holds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from replayproxy.core.shown import safe
from replayproxy.errors import WrongUsage

LINE_MOST = 256 * 1024 * 1024
"""Bytes of one line: a longer one is refused before memory is taken for it."""

BOM = b"\xef\xbb\xbf"
_PACKED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"PK\x03\x04": "zip"}
_DIGITS = 4000
MISSING: Any = object()

type Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Line:
    """One line with its end as it stands in the file. `document` None: it is blank."""

    number: int
    raw: bytes
    document: Document | None


def lines(file: BinaryIO, name: str) -> Iterator[Line]:
    """Every line in order; memory holds one. Raises WrongUsage for one that is no JSON object."""
    number = 0
    while raw := file.readline(LINE_MOST + 1):
        number += 1
        if len(raw) > LINE_MOST:
            raise refused(name, number, f"it is longer than {LINE_MOST >> 20} MiB")
        text = raw[len(BOM) :] if number == 1 and raw.startswith(BOM) else raw
        yield Line(number, raw, _parsed(text, name, number))


def _parsed(text: bytes, name: str, number: int) -> Document | None:
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        if not text.strip(b" \t\r\n"):
            return None
        found = _leniently(text, name, number)
    if type(found) is not dict:
        raise refused(name, number, "it is no JSON object")
    return found


def _leniently(text: bytes, name: str, number: int) -> Any:
    """What Python's own json writes and orjson refuses: NaN, Infinity, halves of surrogate pairs, deep nesting, and
    integers of any length."""
    try:
        return json.loads(text.decode("utf-8"), parse_int=_integer)
    except UnicodeDecodeError:
        packed = [f": this is {what}, unpack it first" for magic, what in _PACKED.items() if text.startswith(magic)]
        raise refused(name, number, "".join(["it is no UTF-8", *packed])) from None
    except json.JSONDecodeError as error:
        raise refused(name, number, f"it is no JSON object: {error.msg} at column {error.colno}") from None
    except RecursionError:
        raise refused(name, number, "it is nested too deeply") from None


def _integer(digits: str) -> int | float:
    """One of more digits than Python turns into a number says nothing here; the line keeps them."""
    return int(digits) if len(digits) <= _DIGITS else float(digits)


def refused(name: str, number: int, why: str) -> WrongUsage:
    """The error of a line that cannot be used; nothing was written."""
    return WrongUsage(f"{safe(name)} line {number}: {why}; nothing was written", hint="one JSON object a line")


def opened(path: Path) -> BinaryIO:
    """The file for reading. Raises WrongUsage when it cannot be read, and for a pipe: what is joined and checked before
    anything is written is read more than once."""
    try:
        if path.is_dir():
            raise WrongUsage(f"{path} is a directory", hint="name the file of rollouts")
        if path.exists() and not path.is_file():
            raise WrongUsage(f"{path} is no file but a pipe or a device", hint="write the rollouts to a file first")
        return path.open("rb", buffering=1 << 20)
    except OSError as error:
        raise WrongUsage(f"{path} cannot be read: {error.strerror}", hint="name the file of rollouts") from None


# Fields


type Field = Callable[[Document], Any]
"""The value of a field in a document, `MISSING` where it has none."""


def field(text: str) -> Field:
    """`a` is a member, `a.b` the member of that very name or else `b` in `a`, `/a/0/b` a JSON pointer."""
    if text.startswith("/"):
        steps = [step.replace("~1", "/").replace("~0", "~") for step in text[1:].split("/")]
        return lambda document: _along(document, steps)
    parts = text.split(".")
    if len(parts) == 1:
        return lambda document: document.get(text, MISSING)

    def dotted(document: Document) -> Any:
        found = document.get(text, MISSING)
        return _along(document, parts) if found is MISSING else found

    return dotted


def outermost(text: str) -> Sequence[str]:
    """The members of the outermost object that `field(text)` may look at."""
    if text.startswith("/"):
        return (text[1:].split("/")[0].replace("~1", "/").replace("~0", "~"),)
    return tuple(dict.fromkeys((text, text.split(".")[0])))


def _along(value: Any, steps: Sequence[str]) -> Any:
    for step in steps:
        if isinstance(value, dict):
            value = value.get(step, MISSING)
        elif isinstance(value, list) and step.isascii() and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
        else:
            return MISSING
        if value is MISSING:
            return MISSING
    return value


def as_key(value: Any) -> str | None:
    """A value as two sides compare it: 7, 7.0 and "7" are one. None: it can be no one's key.

    A float of 2^53 or more stands for several integers: it is none either.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        whole = value.is_integer() and abs(value) < 2**53
        return str(int(value)) if whole else repr(value) if abs(value) < 2**53 else None
    return None
