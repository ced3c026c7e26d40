"""Keeps credentials out of what is shown: that they differ is said, what they are never.

A credential is what stood in Authorization, a cookie, an API key or a session header of either episode, wherever else
it turns up (a login's answer, a link), and the value of a member that is named like one.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable
from typing import Any

from replayproxy.core import jsonvalue
from replayproxy.core.comparison import NOT_SHOWN
from replayproxy.core.difference import Difference
from replayproxy.core.secretnames import is_secret_name, kind_of_header
from replayproxy.core.tokens import skeleton
from replayproxy.core.treediff import ABSENT
from replayproxy.core.values import Exchange, Fields

_SHORTEST = 6  # a shorter credential would blot out words
_LONGEST = 2000
_FEW = 500
_PARAMETER = re.compile(r"(?<=[?&])([^=&#]+)=([^&#]*)")


class Secrets:
    """What must not be shown of two episodes."""

    def __init__(self, exchanges: Iterable[Exchange]) -> None:
        self._values: set[str] = set()
        lists: dict[int, Fields] = {}  # most are sent again and again, and a reader gives them as one object
        for exchange in exchanges:
            lists[id(exchange.request.fields)] = exchange.request.fields
            if exchange.response is not None:
                lists[id(exchange.response.fields)] = exchange.response.fields
        self._collect({pair for fields in lists.values() for pair in fields})
        self._pattern = re.compile(_either(self._values)) if 0 < len(self._values) <= _FEW else None

    def _collect(self, fields: Iterable[tuple[bytes, bytes]]) -> None:
        for name, value in fields:
            kind = kind_of_header(name)
            if kind == "authorization":
                scheme, _, credential = value.partition(b" ")
                self._add(credential or scheme)
                if scheme.lower() == b"basic":
                    self._add(_basic_password(credential))
            elif kind == "cookie":
                for part in value.split(b";"):
                    self._add(part.partition(b"=")[2])
            elif kind == "set-cookie":
                self._add(value.partition(b";")[0].partition(b"=")[2])
            elif kind:
                self._add(value)

    def _add(self, value: bytes) -> None:
        text = value.strip().decode("utf-8", "surrogateescape")
        if len(text) >= _SHORTEST:
            self._values.add(text)

    def hide(self, difference: Difference, value: Any) -> Any:
        """The value as it may be shown at the place of this difference."""
        member = next((t for t in reversed(difference.tokens) if isinstance(t, str)), "")
        named = difference.tokens[0] not in ("outcome", "status") and is_secret_name(member)
        if value is ABSENT:
            return value
        if difference.secret or (named and isinstance(value, str | int) and not isinstance(value, bool)):
            return NOT_SHOWN
        return self.clean(value)

    def clean(self, value: Any) -> Any:
        """The value without any credential in it, and not longer than a reader can use."""
        if isinstance(value, str):
            return shortened(self._text(value))
        if isinstance(value, dict):
            shown = {
                self._text(name): NOT_SHOWN if is_secret_name(name) and isinstance(item, str) else self.clean(item)
                for name, item in value.items()
            }
            return _bounded(shown)
        if isinstance(value, list):
            return _bounded([self.clean(item) for item in value])
        return value

    def request(self, line: str) -> str:
        """A request line; a query parameter that is named like a credential loses its value."""
        return shortened(self._text(without_parameters(line)))

    def _text(self, text: str) -> str:
        if self._pattern is not None:
            return self._pattern.sub(NOT_SHOWN, text)
        # Very many (a cookie that changes with every answer): each is looked up as a whole token.
        parts = {*skeleton(text).tokens, *re.split(r"[\s\"',;=]+", text)} & self._values if self._values else None
        return re.sub(_either(parts), NOT_SHOWN, text) if parts else text


def _either(values: Iterable[str]) -> str:
    return "|".join(sorted((re.escape(value) for value in values), key=len, reverse=True))


def without_parameters(line: str) -> str:
    """A request line in which the parameters that are named like a credential have lost their values."""
    return _PARAMETER.sub(lambda m: f"{m[1]}={NOT_SHOWN}" if is_secret_name(m[1]) else m[0], line)


def without_members(value: Any) -> Any:
    """A JSON value in which the members that are named like a credential have lost theirs."""
    if isinstance(value, dict):
        return {name: NOT_SHOWN if is_secret_name(name) else without_members(item) for name, item in value.items()}
    return [without_members(item) for item in value] if isinstance(value, list) else value


def _basic_password(credential: bytes) -> bytes:
    try:
        return base64.b64decode(credential, validate=True).partition(b":")[2]
    except (binascii.Error, ValueError):
        return b""


def shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text)} characters)"


def _bounded(value: Any) -> Any:
    """A large object or array as its beginning."""
    text = jsonvalue.canonical(value)
    if len(text) <= 2 * _LONGEST:
        return value
    return {"beginning": text[:_LONGEST].decode("utf-8", "replace"), "bytes": len(text)}


def excerpts(a: Any, b: Any, width: int = 160) -> tuple[Any, Any]:
    """Two long texts, each from shortly before the first place where they differ."""
    if not (isinstance(a, str) and isinstance(b, str)) or max(len(a), len(b)) <= width:
        return a, b
    at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    start = max(0, at - width // 4)
    head = "…" if start else ""
    cut = [f"{head}{text[start : start + width]}{'…' if len(text) > start + width else ''}" for text in (a, b)]
    return cut[0], cut[1]
