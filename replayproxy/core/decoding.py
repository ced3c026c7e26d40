"""The steps of `decode`: how a rule gets from what stands on the wire to the id that is in it.

| step | gives |
|---|---|
| `percent` | the text with `%XX` decoded |
| `base64`, `base64url` | the bytes as UTF-8 text; padding may be missing |
| `json:POINTER` | the scalar at the pointer of a JSON text; `json:` is the whole text |
| `dot:N` | the N-th part between dots, from 1 |
| `lower` | in lower case |
| `prefix:TEXT` | without that beginning |
| `regex:PATTERN` | what the one group of the pattern matched, anywhere in the text |

A step that does not fit the text gives None: the rule says nothing about that exchange.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any
from urllib.parse import unquote_to_bytes

from replayproxy.core import jsonvalue
from replayproxy.core.patterns import one_group

VALUE_LIMIT = 4096
"""A longer value is no id: it is not looked at, and no pattern ever sees it."""

type Step = Callable[[str], str | None]


def compiled(steps: Sequence[str]) -> tuple[Step, ...]:
    """ValueError, naming the step, for one that does not exist or cannot be."""
    return tuple(_step(text) for text in steps)


def decode(text: str, steps: Sequence[Step]) -> str | None:
    """The value after each step in turn; None where a step does not apply, or it is empty or too long."""
    value: str | None = text
    for step in steps:
        if value is None or len(value) > VALUE_LIMIT:
            return None
        value = step(value)
    return value if value and len(value) <= VALUE_LIMIT else None


def scalar(value: Any) -> str | None:
    """A JSON scalar as text: numbers in their one spelling; null, objects and arrays are no value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | Decimal):
        return jsonvalue.number_text(value)
    return value if isinstance(value, str) else None


def _step(text: str) -> Step:
    word, colon, rest = text.partition(":")
    if word in _PLAIN and not colon:
        return _PLAIN[word]
    if word in _WITH and colon:
        return _WITH[word](rest)
    known = ", ".join([*_PLAIN, *(f"{name}:.." for name in _WITH)])
    raise ValueError(f"{text!r} is no step; there are {known}")


def _percent(text: str) -> str | None:
    return _text(unquote_to_bytes(text.encode("utf-8", "surrogateescape")))


def _text(raw: bytes) -> str | None:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _base64(altchars: bytes | None) -> Step:
    def step(text: str) -> str | None:
        bare = text.rstrip("=")
        try:
            raw = base64.b64decode(bare + "=" * (-len(bare) % 4), altchars, validate=True)
        except (binascii.Error, ValueError):
            return None
        return _text(raw)

    return step


def _json(pointer: str) -> Step:
    jsonvalue.tokens(pointer)

    def step(text: str) -> str | None:
        try:
            return scalar(jsonvalue.resolve(jsonvalue.parse(text), pointer))
        except (jsonvalue.NotJson, KeyError):
            return None

    return step


def _dot(number: str) -> Step:
    if not number.isascii() or not number.isdigit() or not 1 <= int(number[:4]) <= 99:
        raise ValueError(f"dot:{number}: the number of a part, from 1")
    at = int(number) - 1

    def step(text: str) -> str | None:
        parts = text.split(".")
        return parts[at] if at < len(parts) else None

    return step


def _prefix(lead: str) -> Step:
    if not lead:
        raise ValueError("prefix: names no text")
    return lambda text: text.removeprefix(lead) if text.startswith(lead) else None


def _regex(pattern: str) -> Step:
    found = one_group(pattern)

    def step(text: str) -> str | None:
        match = found.search(text)
        return match[1] if match else None

    return step


_PLAIN: dict[str, Step] = {
    "percent": _percent, "base64": _base64(None), "base64url": _base64(b"-_"), "lower": str.lower,
}  # fmt: skip
_WITH: dict[str, Callable[[str], Step]] = {"json": _json, "dot": _dot, "prefix": _prefix, "regex": _regex}
