"""Opaque-looking tokens that carry readable content: base64 text, JWT, signed cookies.

Such a token is as much chance as its content: a cursor that says `{"after": 12}` is no id, and a JWT that says another
role is another JWT, however random both look.
"""

from __future__ import annotations

import base64
import binascii
import re
from functools import lru_cache

_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{8,}={0,2}\Z")
_SIGNED = re.compile(r"[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]{4,}){1,4}\Z")


@lru_cache(maxsize=16384)
def readable(token: str) -> str | None:
    """The text that a token is the base64 of; None when it is none."""
    if not _BASE64.match(token):
        return None
    plain = token.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        data = base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
        text = data.decode("utf-8")
    except (binascii.Error, ValueError):
        return None
    return text if len(text) >= 5 and all(char.isprintable() or char in "\r\n\t" for char in text) else None


def signed_parts(token: str) -> tuple[str, ...] | None:
    """The parts of `payload.time.signature` or a JWT, at least one of them readable; None when it is none."""
    if not _SIGNED.match(token):
        return None
    parts = tuple(token.split("."))
    return parts if any(readable(part) for part in parts[:-1]) else None
