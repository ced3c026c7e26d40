"""One row as canonical JSON, and back: equal bytes exactly for equal rows.

What JSON cannot hold is carried in tags, and comes back equal: `{"$bytes": base64}`, `{"$number": "NaN"}` (also
`Infinity`, `-Infinity`, and a float that must stay one: `{"$number": "1.0"}`), `{"$map": [[key, value], ..]}` for
an object with a member name that is no text, and `{"$literal": {..}}` around an object that merely looks like a
tag. Anything else (a set, a date) is refused by name: a provider says what text it wants for it.
"""

from __future__ import annotations

import base64
import math
from decimal import Decimal
from typing import Any

import orjson

from replayproxy.core.jsonvalue import NotJson, canonical, number_text, parse
from replayproxy.core.values import Row

_TAGS = frozenset({"$bytes", "$number", "$map", "$literal"})
_PLAIN = frozenset({str, int, bool, type(None)})


class Float(float):
    """A number whose being a float is part of the state: 1.0 where the system of record tells it from 1."""


class NoRow(ValueError):
    """The value cannot be kept as a row; the text says which part of it and why."""


def encode(row: Row) -> bytes:
    """Canonical JSON of the row, tags included. Raises NoRow."""
    if type(row) is dict and not _looks_tagged(row):
        try:
            if (fast := _flat(row)) is not None:
                return fast
        except TypeError:
            pass  # an integer beyond 64 bits, a lone surrogate, a member name that is no text
    if row is None:
        raise NoRow("null is no row")
    try:
        return canonical(_tagged(row))
    except (NotJson, RecursionError) as error:
        raise NoRow(str(error)) from error


def _flat(row: dict[Any, Any]) -> bytes | None:
    """A row of plain scalars, as a database gives it: the same bytes, made in a tenth of the time."""
    kinds = set(map(type, row.values()))
    if float in kinds:
        row = {name: _fragment(value) if type(value) is float else value for name, value in row.items()}
        kinds = set(map(type, row.values())) - {orjson.Fragment}
    return orjson.dumps(row, option=orjson.OPT_SORT_KEYS) if kinds <= _PLAIN else None


def _fragment(value: float) -> Any:
    """The number as canonical JSON has it; what is no number stays, for the exact way."""
    text = repr(value)
    if "n" in text:
        return value
    return orjson.Fragment(number_text(Decimal(text)) if "e" in text else text.removesuffix(".0"))


def document(data: bytes) -> Row:
    """The row as a JSON value, tags and all: what is compared and shown. Raises NotJson."""
    return parse(data.decode("utf-8", "surrogatepass"))


def decode(data: bytes) -> Row:
    """The row as it was given; numbers as in `jsonvalue.parse`. Raises NotJson on bytes that `encode` never made."""
    value = document(data)
    return _untagged(value) if b'"$' in data else value


def _looks_tagged(value: dict[Any, Any]) -> bool:
    return len(value) == 1 and next(iter(value)) in _TAGS


def _tagged(value: Any) -> Any:
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, Float) and math.isfinite(value):
        return {"$number": repr(value)}
    if isinstance(value, float | Decimal):
        return _number(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return {"$bytes": base64.b64encode(value).decode("ascii")}
    if isinstance(value, list | tuple):
        return [_tagged(item) for item in value]
    if isinstance(value, dict):
        return _object(value)
    raise NoRow(f"{type(value).__name__} is no JSON value; give it as text")


def _number(value: float | Decimal) -> Any:
    if math.isfinite(value):
        return value
    if math.isnan(value):
        return {"$number": "NaN"}
    return {"$number": "Infinity" if value > 0 else "-Infinity"}


def _object(value: dict[Any, Any]) -> Any:
    if all(type(name) is str for name in value):
        inside = {name: _tagged(item) for name, item in value.items()}
        return {"$literal": inside} if _looks_tagged(value) else inside
    pairs = [[_tagged(name), _tagged(item)] for name, item in value.items()]
    return {"$map": sorted(pairs, key=lambda pair: canonical(pair[0]))}


def _untagged(value: Any) -> Any:
    if isinstance(value, list):
        return [_untagged(item) for item in value]
    if not isinstance(value, dict):
        return value
    if not _looks_tagged(value):
        return {name: _untagged(item) for name, item in value.items()}
    ((tag, held),) = value.items()
    if tag == "$bytes":
        return base64.b64decode(held)
    if tag == "$number":
        return Float(held)
    if tag == "$map":
        return {_hashable(_untagged(name)): _untagged(item) for name, item in held}
    return {name: _untagged(item) for name, item in held.items()}


def _hashable(name: Any) -> Any:
    """A name that was a tuple is one again: as a list it could be no name."""
    return tuple(map(_hashable, name)) if isinstance(name, list) else name
