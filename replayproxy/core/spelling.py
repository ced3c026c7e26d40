"""Small questions about texts and numbers that an explanation asks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal
from typing import Any
from urllib.parse import quote


def own_pattern(names: Iterable[str]) -> re.Pattern[str]:
    """Finds these addresses as whole ones, with their scheme where it stands before them, percent-encoded or not."""
    spelled = {spelling for name in names if name for spelling in (name, quote(name, safe=""))}
    if not spelled:
        return re.compile(r"(?!)")
    either = "|".join(re.escape(name) for name in sorted(spelled, key=lambda name: (-len(name), name)))
    scheme = r"(?:https?|wss?)(?:://|%3A%2F%2F)"
    return re.compile(rf"(?:{scheme}|(?<![\w.-]))(?:{either})(?![\w-])(?!\.\w)", re.IGNORECASE)


def bare_address(text: str) -> str:
    """An address as `own_pattern` found it, without its scheme and a default port."""
    plain = text.lower().replace("%3a", ":").replace("%2f", "/")
    return re.sub(r"^(?:https?|wss?)://", "", plain).removesuffix(":80").removesuffix(":443")


def is_number(value: Any) -> bool:
    """Whether it is a JSON number; true is none."""
    return isinstance(value, int | Decimal) and not isinstance(value, bool)


def is_url(text: str) -> bool:
    """Whether the whole text is a URL or an absolute path (`\\x00`: the environment's own address, taken out)."""
    return bool(re.match(r"(?:[a-z][a-z0-9+.-]*://|/|\x00)\S*\Z", text))


def is_jitter(a: Decimal, b: Decimal) -> bool:
    """Noise of binary floating point shows in its last digits: 1000000000.01 against .02 is money, and no noise."""
    if not (a.is_finite() and b.is_finite()) or max(len(a.as_tuple().digits), len(b.as_tuple().digits)) < 15:
        return False
    return abs(a - b) <= max(abs(a), abs(b)) * Decimal("1e-9")
