"""What a row is but for what may be renamed or told by the clock, and how keys and tables are read."""

from __future__ import annotations

import re
from typing import Any

from replayproxy.core import jsonvalue
from replayproxy.core.canonical import digest
from replayproxy.core.renaming import is_digest, owners
from replayproxy.core.times import parse_text
from replayproxy.core.tokens import FRESH_BITS, bits
from replayproxy.core.values import Row


def natural(key: str) -> tuple[int, str]:
    """Sorts 9 before 10."""
    return len(key), key


def shape(table: str, row: Row | None) -> bytes:
    """A row but for what may be renamed or told by the clock: rows of one shape are candidates for one another."""
    return digest(jsonvalue.canonical(_blank(row, ("state", table, ""))))


def _blank(value: Any, at: tuple[str | int, ...]) -> Any:
    if isinstance(value, dict):
        return {name: _blank(item, (*at, name)) for name, item in value.items()}
    if isinstance(value, list):
        return [_blank(item, (*at, index)) for index, item in enumerate(value)]
    if len(at) > 3 and owners(at, f"/{noun_of(str(at[1]))}")[0]:
        return "id"
    if isinstance(value, str):
        if parse_text(value) is not None:
            return "time"
        return "id" if bits(value) >= FRESH_BITS and not is_digest(str(at[-1])) else value
    if isinstance(value, int) and (10**9 < value < 4 * 10**9 or 10**12 < value < 4 * 10**12):
        return "time"
    return value


def noun_of(table: str) -> str:
    """A table's own name, its schema or prefix left out."""
    return re.split(r"[./:]", table.rstrip(":"))[-1]
