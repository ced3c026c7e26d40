"""Recorded values on one line, as wide as there is room."""

from __future__ import annotations

import json
from typing import Any

from replayproxy.cli.common import safe


def cut(text: str, width: int) -> str:
    """At most `width` wide, cut in the middle."""
    if len(text) <= width:
        return text
    return text[: max(0, width // 2)] + "…" + text[len(text) - max(0, width - width // 2 - 1) :]


def short(value: Any, width: int = 160) -> str:
    """A value on one line; text in quotes, nothing as what it is."""
    if value is None:
        return "(nothing)"
    text = safe(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str))
    return cut(f'"{text}"' if isinstance(value, str) else text, width)
