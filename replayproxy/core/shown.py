"""Values as they are printed: JSON with exact numbers, and text that changes nothing but what it says."""

from __future__ import annotations

import json
import unicodedata
from decimal import Decimal
from typing import Any

import orjson

from replayproxy.core.jsonvalue import number_text


def json_bytes(document: Any) -> bytes:
    """JSON of a document, with exact decimals and integers of any size; a lone surrogate becomes an escape."""
    try:
        return orjson.dumps(document, default=_beyond_json)
    except TypeError:
        return orjson.dumps(_prepared(document), default=_beyond_json)


def _beyond_json(value: Any) -> Any:
    if isinstance(value, Decimal):
        return orjson.Fragment(number_text(value)) if value.is_finite() else str(value)
    if isinstance(value, bytes):
        return safe(value)
    if isinstance(value, tuple | set | frozenset):
        return list(value)
    raise TypeError(f"{type(value).__name__} cannot be printed as JSON")


def _prepared(value: Any) -> Any:
    """The slow way, for what orjson refuses: integers beyond 64 bits, lone surrogates."""
    if isinstance(value, dict):
        names = [str(name).encode("utf-8", "backslashreplace").decode() for name in value]
        return dict(zip(names, map(_prepared, value.values()), strict=True))
    if isinstance(value, list | tuple):
        return [_prepared(item) for item in value]
    if isinstance(value, str):
        return orjson.Fragment(json.dumps(value))
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**63:
        return orjson.Fragment(str(Decimal(value)))
    return value


def count(number: int, what: str) -> str:
    """`1 episode`, `2,003 episodes`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def safe(text: str | bytes, *, lines: bool = False) -> str:
    """Text that changes nothing but what it says: control, format and unprintable characters become escapes.

    `lines`: line feeds and tabs may stay.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "backslashreplace")
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if lines and char in "\n\t" else _shown(char) for char in text)


def _shown(char: str) -> str:
    if char.isprintable() or unicodedata.category(char) == "Zs":
        return char
    return char.encode("ascii", "backslashreplace").decode() if ord(char) > 0x7F else f"\\x{ord(char):02x}"
