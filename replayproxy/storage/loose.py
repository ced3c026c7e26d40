"""JSON for values that JSON cannot carry: big integers, exact decimals, bytes, NaN, lone surrogates.

`unpack(pack(value)) == value` for every tree of None, bool, int, float, Decimal, str, bytes, lists and mappings with
text as keys (a tuple comes back as a list). What JSON can carry is left as it is, so that records stay readable.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

TAG = "$"


def _is_text(value: str) -> bool:
    return value.isascii() or not any("\ud800" <= char <= "\udfff" for char in value)


def pack(value: Any) -> Any:
    """A tree that orjson writes without loss. Raises TypeError for what is no value."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value) if _is_text(value) else _tagged("str", value.encode("utf-8", "surrogatepass"))
    if isinstance(value, int):
        return int(value) if -(2**63) <= value < 2**63 else {TAG: "int", "v": hex(value)}
    if isinstance(value, float):
        return value if math.isfinite(value) else {TAG: "float", "v": repr(value)}
    if isinstance(value, Decimal):
        return {TAG: "decimal", "v": str(value)}
    if isinstance(value, bytes):
        return _tagged("bytes", value)
    if isinstance(value, list | tuple):
        return [pack(item) for item in value]
    if isinstance(value, Mapping):
        return _pack_mapping(value)
    raise TypeError(f"{type(value).__name__} cannot be stored")


def _tagged(tag: str, raw: bytes) -> dict[str, str]:
    return {TAG: tag, "v": raw.decode("latin-1")}


def _pack_mapping(value: Mapping[Any, Any]) -> dict[str, Any]:
    if not all(isinstance(name, str) for name in value):
        raise TypeError("a mapping with keys that are no text cannot be stored")
    if TAG in value or not all(map(_is_text, value)):
        return {TAG: "map", "v": [[pack(name), pack(item)] for name, item in value.items()]}
    return {str(name): pack(item) for name, item in value.items()}


def _raw(value: Any) -> bytes:
    text: str = value
    return text.encode("latin-1")


_UNTAG: dict[str, Callable[[Any], Any]] = {
    "str": lambda value: _raw(value).decode("utf-8", "surrogatepass"),
    "int": lambda value: int(value, 16),
    "float": float,
    "decimal": Decimal,
    "bytes": _raw,
    "map": lambda value: {unpack(name): unpack(item) for name, item in value},
}


def unpack(value: Any) -> Any:
    """The tree that was packed. Any exception means that the bytes are damaged."""
    if isinstance(value, list):
        return [unpack(item) for item in value]
    if isinstance(value, dict):
        tag = value.get(TAG)
        return {name: unpack(item) for name, item in value.items()} if tag is None else _UNTAG[tag](value["v"])
    return value
