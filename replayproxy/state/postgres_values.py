"""PostgreSQL's text forms of values, carried as JSON where JSON says exactly the same, else as that text.

`integer`, `bigint` and the like, `real`, `double precision` and `numeric` are numbers, `json` and `jsonb` JSON values,
`bytea` bytes, arrays of these lists. Everything else (times in ISO form and UTC, `uuid`, enums, ranges) is text.
What PostgreSQL tells apart and JSON does not (1.50 and 1.5, the white space of `json`) is kept as text beside the row
(`loses`): written back, and compared by nobody.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from replayproxy.core.jsonvalue import NotJson, canonical, parse

type Read = Callable[[str], Any]

INTEGERS = frozenset({"int2", "int4", "int8", "oid"})
FLOATS = frozenset({"float4", "float8"})
JSON = frozenset({"json", "jsonb"})


def reader(kind: str, *, element: str | None = None) -> Read:
    """How a column's text becomes a value. `kind`: the type's name; of an array, `element` is its elements'."""
    if element is not None:
        inner = reader(element)
        return lambda text: _array(text, inner)
    if kind in INTEGERS:
        return int
    if kind in FLOATS or kind == "numeric":
        return _number
    if kind == "bool":
        return lambda text: text in ("t", "true")
    if kind in JSON:
        return _json
    return _bytes if kind == "bytea" else str


_TRAILING_ZERO = re.compile(r"\.\d*0(?!\d)")


def loses(kind: str, text: str, *, fixed_scale: bool = False) -> bool:
    """Whether the value does not say which text it was. `kind`: the type's name, of an array that of its elements."""
    if kind == "json":
        return True
    if kind == "numeric" and fixed_scale:
        return False  # the column puts the zeros back
    return (kind == "jsonb" or kind == "numeric") and _TRAILING_ZERO.search(text) is not None


def _number(text: str) -> Any:
    if text.lstrip("-").isdigit():
        return int(text)
    return float(text) if text in ("NaN", "Infinity", "-Infinity") else Decimal(text)


def _json(text: str) -> Any:
    try:
        value = parse(text)
    except NotJson:
        return {"$text": text}  # `json` keeps what it is given, repeated members and all
    # A row's column that is JSON null is not a column that is NULL.
    return {"$json": value} if value is None or (isinstance(value, dict) and _marked(value)) else value


def _marked(value: dict[str, Any]) -> bool:
    return len(value) == 1 and next(iter(value)) in ("$text", "$json")


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix("\\x"))


_ITEM = re.compile(r'"((?:[^"\\]|\\.)*)"|([^",{}]+)', re.S)


def _array(text: str, inner: Read) -> Any:
    """A list, nested for more dimensions. An array that does not count from 1 stays text."""
    if not text.startswith("{"):
        return text
    top: list[Any] = []
    open_lists = [top]
    at = 0
    while at < len(text):
        char = text[at]
        if char == "{":
            made: list[Any] = []
            open_lists[-1].append(made)
            open_lists.append(made)
        elif char == "}":
            open_lists.pop()
        elif char != ",":
            found = _ITEM.match(text, at)
            if found is None:
                return text
            quoted, bare = found[1], found[2]
            if quoted is not None:
                open_lists[-1].append(inner(re.sub(r"\\(.)", r"\1", quoted, flags=re.S)))
            else:
                open_lists[-1].append(None if bare == "NULL" else inner(bare))
            at = found.end() - 1
        at += 1
    return top[0]


def written(value: Any, kind: str, element: str | None = None) -> str | None:
    """The text from which PostgreSQL makes the value again; None for NULL."""
    if value is None:
        return None
    if element is not None and isinstance(value, list):
        return _array_text(value, element)
    if kind in JSON:
        if isinstance(value, dict) and _marked(value):
            ((mark, held),) = value.items()
            return str(held) if mark == "$text" else canonical(held).decode("utf-8", "surrogatepass")
        return canonical(value).decode("utf-8", "surrogatepass")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    if isinstance(value, float):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(repr(float(value)), repr(float(value)))
    return str(value)


def _array_text(value: list[Any], element: str) -> str:
    parts = []
    for item in value:
        if isinstance(item, list) and element not in JSON:
            parts.append(_array_text(item, element))
        elif item is None:
            parts.append("NULL")
        else:
            text = written(item, element) or ""
            parts.append('"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"')
    return "{" + ",".join(parts) + "}"
