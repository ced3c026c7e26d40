"""Redis values as rows, and back: equal rows exactly for equal values, whatever bytes they hold.

A hash is an object of its fields, so that its members are columns. Any other type is marked by the member `$type`. A
string that holds a JSON object is that object (`$type` is `json`), where its text can be written again to the byte; how
it was written (the order of members, the spaces) is kept aside, and holds no value. Bytes that are UTF-8 are text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from replayproxy.core.jsonvalue import NotJson
from replayproxy.core.rowcode import Float, NoRow, decode, encode
from replayproxy.core.values import Row

MARK = "$type"
PLAIN = "keys"
"""The table of keys without a colon."""
STYLES = (
    {"separators": (",", ":"), "ensure_ascii": False},
    {"separators": (",", ":"), "ensure_ascii": True},
    {"separators": (", ", ": "), "ensure_ascii": False},
    {"separators": (", ", ": "), "ensure_ascii": True},
)


def text(data: bytes) -> str | bytes:
    """Text where the bytes are UTF-8, else the bytes: no two values become one."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data


def raw(value: str | bytes) -> bytes:
    """The bytes that `text` was given."""
    return value.encode("utf-8") if isinstance(value, str) else bytes(value)


def spelt_out(key: bytes) -> str:
    """A key as text: what is not UTF-8 as \\xNN, a backslash doubled, so that no two keys give one text."""
    return key.replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace")


def name_of(key: bytes) -> tuple[str, str]:
    """(table, key of the row): what stands before the last colon, and after it; without one the table is `keys`."""
    spelt = spelt_out(key)
    table, colon, rest = spelt.rpartition(":")
    if not colon:
        return PLAIN, spelt
    # `keys:7` and `7` are two keys, and so are `:7` and `::7`.
    return (f"{table}:" if table.rstrip(":") in ("", PLAIN) else table), rest


def key_of(table: str, key: str) -> bytes:
    """The Redis key that `name_of` took apart."""
    prefix = table[:-1] if table.rstrip(":") in ("", PLAIN) else table
    spelt = key if table == PLAIN else f"{prefix}:{key}"
    out = bytearray()
    at = 0
    while at < len(spelt):
        if spelt[at] != "\\":
            out += spelt[at].encode("utf-8", "surrogatepass")
            at += 1
        elif spelt[at + 1 : at + 2] == "x":
            out.append(int(spelt[at + 2 : at + 4], 16))
            at += 4
        else:
            out += b"\\"
            at += 2
    return bytes(out)


def of_string(data: bytes) -> tuple[Row, Row | None]:
    """(the row, how it is written: None where the row says it all)."""
    if data[:1] == b"{" and data[-1:] == b"}":
        try:
            value = json.loads(data, parse_float=_float, parse_constant=_refused, object_pairs_hook=_no_repeats)
            if MARK not in value:
                row = {MARK: "json", **value}
                for number, style in enumerate(STYLES):
                    written = {"style": number, "order": _order(value)}
                    if json.dumps(value, **style).encode() == data == string_of(decode(encode(row)), written):  # type: ignore[arg-type]
                        return row, written
        except (ValueError, RecursionError, NoRow, NotJson):
            pass  # no JSON, or not to be written again as it was: it is text
    return {MARK: "string", "value": text(data)}, None


def string_of(row: Any, written: Any = None) -> bytes:
    """The bytes of a string. Without `written` a JSON object is written in compact form."""
    if row[MARK] == "string":
        return raw(row["value"])
    value = _plain({name: item for name, item in row.items() if name != MARK})
    if written is not None:
        value = _ordered(value, written["order"])
    style: dict[str, Any] = STYLES[int(written["style"]) if written is not None else 0]
    return json.dumps(value, **style).encode()


def of_hash(flat: Sequence[bytes]) -> Row:
    """`flat`: field, value, field, value .."""
    fields = {text(field): text(value) for field, value in zip(flat[::2], flat[1::2], strict=True)}
    if MARK in fields:
        return {MARK: "hash", "value": fields}
    return fields


def of_zset(flat: Sequence[bytes]) -> Row:
    """`flat`: member, score, member, score .."""
    return {MARK: "zset", "value": {text(m): float(score) for m, score in zip(flat[::2], flat[1::2], strict=True)}}


def score_text(score: Any) -> str:
    """A score as Redis reads it, to the same double."""
    number = float(score)
    if math.isinf(number):
        return "+inf" if number > 0 else "-inf"
    return repr(number)


def type_of(row: Any) -> str:
    """Which Redis type a row is of: hash, string, list, set, zset or stream."""
    kind = row.get(MARK, "hash") if isinstance(row, dict) else ""
    return "string" if kind == "json" else str(kind)


def _float(spelt: str) -> float:
    number = float(spelt)
    if repr(number) != spelt:
        raise ValueError(f"{spelt} is not how {number!r} is written")
    return Float(number) if number.is_integer() else number


def _refused(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("an object repeats a member")
    return members


def _order(value: Any) -> Any:
    """The order of all members, without a value: an object is [[name, what is in it] ..], a list its elements'."""
    if isinstance(value, dict):
        return {"names": list(value), "in": {name: inner for name in value if (inner := _order(value[name]))}}
    if isinstance(value, list):
        inside = {str(at): inner for at, item in enumerate(value) if (inner := _order(item))}
        return {"in": inside} if inside else None
    return None


def _ordered(value: Any, order: Any) -> Any:
    """The value with its members in that order; members that it does not know come last."""
    if not order:
        return value
    inside = order.get("in", {})
    if isinstance(value, dict):
        names = [name for name in order.get("names", ()) if name in value]
        names += [name for name in value if name not in names]
        return {name: _ordered(value[name], inside.get(name)) for name in names}
    if isinstance(value, list):
        return [_ordered(item, inside.get(str(at))) for at, item in enumerate(value)]
    return value


def _plain(value: Any) -> Any:
    """The value with numbers that `json.dumps` writes."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
