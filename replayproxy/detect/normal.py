"""One text per value, so that what an API shows can be compared with what a database holds.

`true` and 1, 12.0 and "12", a JSON text and the document in it are written differently on the two sides of one
environment. Here they are one. Taking more values for equal never makes a false accusation: it only hides a change.
"""

from __future__ import annotations

import re
from decimal import Decimal
from functools import lru_cache
from typing import Any

from replayproxy.core import jsonvalue

_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?\Z")
_INSTANT = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]00:?00)?\Z")
LONGEST_NUMBER = 40


def normal(value: Any) -> str:
    """Equal texts for values that are one to people."""
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bool):
        return "1" if value else "0"
    if value is None:
        return "null"
    if isinstance(value, (int, Decimal)):
        return jsonvalue.number_text(value)
    if isinstance(value, float):
        return jsonvalue.number_text(Decimal(repr(value)))
    return "=" + jsonvalue.canonical(value).decode("utf-8", "replace")


@lru_cache(maxsize=65536)
def _text(value: str) -> str:
    if len(value) <= LONGEST_NUMBER and _NUMBER.match(value):
        return jsonvalue.number_text(Decimal(value))
    if instant := _INSTANT.match(value):
        day, time, fraction, _ = instant.groups()
        return f"{day}T{time}{(fraction or '').rstrip('0').rstrip('.')}"
    if value[:1] in ("{", "[") and value[-1:] in ("}", "]"):
        try:
            return "=" + jsonvalue.canonical(jsonvalue.parse(value)).decode("utf-8", "replace")
        except jsonvalue.NotJson:
            pass  # a text that only looks like JSON is a text
    return "'" + value
