"""JSON with exact numbers: parse, canonical bytes, pointers.

`1`, `1.0` and `1e0` are one value; `true` is not `1`; no float is ever made, so no digit is lost. What Python's
parser would accept beyond RFC 8259 (NaN, Infinity) or quietly drop (a repeated member) is refused instead, and the
caller falls back to bytes: a canonical form never drops a value.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import Any

MAX_DEPTH = 200


class NotJson(ValueError):
    """The bytes are not JSON in the strict sense, or nest deeper than `MAX_DEPTH`."""


def _no_constant(name: str) -> Any:
    raise NotJson(f"{name} is not JSON")


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise NotJson("an object repeats a member")
    return members


def _integer(text: str) -> int | Decimal:
    if text == "-0":
        return Decimal("-0")  # so that -0 and -0.0 are one value
    # int() of more than 4,300 digits raises by default (a guard against quadratic time); Decimal does not.
    return int(text) if len(text) < 4000 else Decimal(text)


_DECODER = json.JSONDecoder(
    object_pairs_hook=_no_repeats, parse_float=Decimal, parse_int=_integer, parse_constant=_no_constant
)


def parse(data: bytes | str) -> Any:
    """The value, with Decimal for numbers that carry a point or an exponent. Raises NotJson."""
    try:
        text = data if isinstance(data, str) else data.decode("utf-8")
        return _DECODER.decode(text)
    except (UnicodeDecodeError, ValueError, InvalidOperation) as error:
        raise NotJson(str(error)) from error
    except RecursionError as error:
        raise NotJson("nested too deeply") from error


def number_text(value: int | Decimal) -> str:
    """One text per number: 1, 1.0 and 1e0 give `1`. The sign of zero is kept."""
    if type(value) is int and -(10**15) < value < 10**15:
        return str(value)
    if isinstance(value, int):
        text = str(value) if -(10**15) < value < 10**15 else f"{Decimal(value):f}"
        digits, exponent, sign = text.lstrip("-"), 0, text.startswith("-")
    else:
        tuple_ = value.as_tuple()
        if not isinstance(tuple_.exponent, int):
            raise NotJson(f"{value} is not a JSON number")
        digits, exponent, sign = "".join(map(str, tuple_.digits)), tuple_.exponent, bool(tuple_.sign)
    stripped = digits.lstrip("0")
    if not stripped:
        return "-0" if sign and not isinstance(value, int) else "0"
    body = stripped.rstrip("0")
    exponent += len(stripped) - len(body)
    # Plain digits where that is short, an exponent elsewhere: 1e1000000 must not become a megabyte.
    if 0 <= exponent <= 20:
        shown = body + "0" * exponent
    elif exponent < 0 and -exponent <= len(body) + 6:
        padded = body.rjust(-exponent + 1, "0")
        shown = f"{padded[:exponent]}.{padded[exponent:]}"
    else:
        shown = f"{body}e{exponent}"
    return "-" + shown if sign else shown


def canonical(value: Any) -> bytes:
    """Equal bytes exactly for equal values: members sorted by code point, numbers by `number_text`, no white space."""
    out: list[str] = []
    _write(value, out, 0)
    return "".join(out).encode("utf-8", "surrogatepass")


_quote = json.encoder.encode_basestring


def _write(value: Any, out: list[str], depth: int) -> None:
    if depth > MAX_DEPTH:
        raise NotJson("nested too deeply")
    if value is None:
        out.append("null")
    elif value is True:
        out.append("true")
    elif value is False:
        out.append("false")
    elif isinstance(value, str):
        out.append(_quote(value))
    elif isinstance(value, (int, Decimal)):
        out.append(number_text(value))
    elif isinstance(value, float):
        out.append(number_text(Decimal(repr(value))))
    elif isinstance(value, dict):
        _write_members(value, out, depth)
    elif isinstance(value, (list, tuple)):
        out.append("[")
        for index, item in enumerate(value):
            if index:
                out.append(",")
            _write(item, out, depth + 1)
        out.append("]")
    else:
        raise TypeError(f"{type(value).__name__} is not a JSON value")


def _write_members(value: dict[str, Any], out: list[str], depth: int) -> None:
    out.append("{")
    for index, name in enumerate(sorted(value)):
        if index:
            out.append(",")
        out.append(_quote(name))
        out.append(":")
        _write(value[name], out, depth + 1)
    out.append("}")


def same(a: Any, b: Any) -> bool:
    """Equality as JSON values: 1 equals 1.0 and never equals true."""
    return canonical(a) == canonical(b)


def pointer(*tokens: str | int) -> str:
    """The RFC 6901 pointer of the tokens; the whole document is ""."""
    return "".join("/" + escaped(str(token)) for token in tokens)


def escaped(name: str) -> str:
    """A name as a token of a pointer."""
    return name.replace("~", "~0").replace("/", "~1")


def tokens(path: str) -> tuple[str, ...]:
    """The tokens of an RFC 6901 pointer."""
    if path == "":
        return ()
    if not path.startswith("/"):
        raise ValueError(f"{path!r} is no JSON pointer: it begins with /")
    return tuple(token.replace("~1", "/").replace("~0", "~") for token in path[1:].split("/"))


def leaves(value: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Every scalar, and every empty array or object, with its path of member names and indices."""
    if not value or not isinstance(value, (dict, list)):
        yield at, value
        return
    for name, item in value.items() if isinstance(value, dict) else enumerate(value):
        if item and isinstance(item, (dict, list)):
            yield from leaves(item, (*at, name))
        else:
            yield (*at, name), item


def resolve(value: Any, path: str) -> Any:
    """The value at a pointer. Raises KeyError when there is none."""
    for token in tokens(path):
        if isinstance(value, dict):
            value = value[token]
        elif isinstance(value, list) and token.isdigit() and int(token) < len(value):
            value = value[int(token)]
        else:
            raise KeyError(path)
    return value
