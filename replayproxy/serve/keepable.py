"""What of a body's values the store can give back as it came."""

from __future__ import annotations

import math
from typing import Any

MAX_DEPTH = 64
"""Levels of nesting: what nests deeper could be taken by the API, and then not be written to the store."""


def finite(value: int | float) -> bool:
    """1e999 is valid JSON and infinite as a float, and an integer of 400 digits is no float at all."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def why_not_kept(document: Any) -> str | None:
    """Why the store could not give a JSON document back as it came; None when it can."""
    level = [document]
    for _ in range(MAX_DEPTH):
        if any(isinstance(item, float) and not math.isfinite(item) for item in level):
            return "holds a number beyond the range of a float"
        inner = [item.values() if isinstance(item, dict) else item for item in level if isinstance(item, dict | list)]
        level = [each for items in inner for each in items]
        if not level:
            return None
    return f"nests deeper than {MAX_DEPTH} levels"
