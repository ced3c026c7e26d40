"""Where two requests first differ, as a person can read it.

Rules of this file: the order is that of reading a request: environment, method, path, query, header, body. Nothing is
a difference that is none in the canonical form. What a credential is, is never shown, only that it differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import zip_longest
from typing import Any

from replayproxy.core import jsonvalue
from replayproxy.core.canonical import (
    KEY_FIELDS,
    MULTIPART,
    SECRET_KEY_FIELDS,
    Kind,
    RequestKey,
    View,
    all_fields,
    decoded,
    field,
    view,
)
from replayproxy.core.multipart import Part, boundary_of, parts_of
from replayproxy.core.secretnames import is_secret_name
from replayproxy.core.secrets import without_members
from replayproxy.core.values import Request

SHOWN = 200
"""Characters of a value that are shown."""

ABSENT = None

ANOTHER_CREDENTIAL = "(another credential)"

type Difference = tuple[str, Any, Any]
"""Pointer, recorded value, asked value."""


def differences(key_r: RequestKey, recorded: Request, key_a: RequestKey, asked: Request) -> Iterator[Difference]:
    """Where two requests differ as keys, first things first. Values are cut and free of credentials."""
    for pointer, before, after in _differences(key_r, recorded, key_a, asked):
        if _is_secret(pointer):
            yield pointer, *_hidden(before is not ABSENT, after is not ABSENT)
        else:
            yield pointer, before, after


def _is_secret(pointer: str) -> bool:
    """Whether it leads to, or into, a parameter or member that is named like a credential."""
    part, _, name = pointer.partition(".") if pointer.startswith("query.") else pointer.partition("/")
    return part in ("query", "body") and any(map(is_secret_name, name.split("/") if part == "body" else [name]))


def _differences(key_r: RequestKey, recorded: Request, key_a: RequestKey, asked: Request) -> Iterator[Difference]:
    if key_r.env != key_a.env:
        yield "env", key_r.env, key_a.env
    if key_r.method != key_a.method:
        yield "method", shown(key_r.method), shown(key_a.method)
    path_r, path_a = _path(key_r), _path(key_a)
    for index in range(max(len(path_r), len(path_a))):
        before = path_r[index] if index < len(path_r) else ABSENT
        after = path_a[index] if index < len(path_a) else ABSENT
        if before != after:
            yield f"path/{index}", shown(before), shown(after)
    yield from _query(key_r, key_a)
    yield from _fields(key_r, key_a)
    yield from _bodies(recorded, asked)


def _path(key: RequestKey) -> list[bytes]:
    return key.path.split(b"/")[1:] if key.path.startswith(b"/") else [key.path]


def _query(recorded: RequestKey, asked: RequestKey) -> Iterator[Difference]:
    if recorded.query == asked.query:
        return
    before, after = _by_name(recorded.query or ()), _by_name(asked.query or ())
    if (recorded.query is None and b"" in after) or (asked.query is None and b"" in before):
        # `/list` against `/list?`: only the question mark differs.
        yield "query", *_both(recorded.query, asked.query, lambda query: ABSENT if query is None else "?")
    yield from _pairs("query.", before, after)


def _pairs(
    lead: str, before: Mapping[bytes, Sequence[bytes | None]], after: Mapping[bytes, Sequence[bytes | None]]
) -> Iterator[Difference]:
    for name in (*before, *(name for name in after if name not in before)):
        if before.get(name) != after.get(name):
            yield lead + text(name), _values(name, before.get(name)), _values(name, after.get(name))


def _values(name: bytes, values: Sequence[bytes | None] | None) -> Any:
    """What a repeated name holds. A bare `tag` shows as `tag`, and `tag=` as `tag=`, so that they look different."""
    if values is None:
        return ABSENT
    named = [shown(name if value is None else value or name + b"=") for value in values]
    return named[0] if len(named) == 1 else named


def _fields(recorded: RequestKey, asked: RequestKey) -> Iterator[Difference]:
    for name in KEY_FIELDS:
        before, after = ([value for key, value in side.fields if key == name] for side in (recorded, asked))
        if before != after and name in SECRET_KEY_FIELDS:
            yield f"header/{text(name)}", *_hidden(bool(before), bool(after))
        elif before != after:
            yield f"header/{text(name)}", _joined(before), _joined(after)


def _hidden(before: bool, after: bool) -> tuple[str | None, str | None]:
    other = ANOTHER_CREDENTIAL if before else "(a credential)"
    return "(a credential)" if before else ABSENT, other if after else ABSENT


def _both[T](before: T, after: T, show: Callable[[T], Any]) -> tuple[Any, Any]:
    return show(before), show(after)


def _joined(values: Sequence[bytes]) -> str | None:
    return shown(b", ".join(values)) if values else ABSENT


def _bodies(recorded: Request, asked: Request) -> Iterator[Difference]:
    before, after = view(recorded.fields, recorded.body), view(asked.fields, asked.body)
    if before.key == after.key:
        return
    if before.kind is Kind.JSON and after.kind is Kind.JSON:
        yield from _trees(before.value, after.value, ("body",))
    elif before.key.startswith(MULTIPART) and after.key.startswith(MULTIPART):
        yield from _parts(_parts_in(recorded, before), _parts_in(asked, after))
    elif before.kind is Kind.FORM and after.kind is Kind.FORM:
        yield from _pairs("body/", _by_name(before.value), _by_name(after.value))
    elif _undone(recorded) or _undone(asked):
        yield "body", _summary(recorded, before.kind), _summary(asked, after.kind)
    elif isinstance(before.value, bytes) and isinstance(after.value, bytes) and before.kind is after.kind:
        yield "body", *_around(before.value, after.value)
    else:
        yield "body", _summary(recorded, before.kind), _summary(asked, after.kind)


def _parts_in(request: Request, seen: View) -> Sequence[Part]:
    return parts_of(seen.value, boundary_of(field(request.fields, b"content-type") or b"") or b"") or ()


def _parts(before: Sequence[Part], after: Sequence[Part]) -> Iterator[Difference]:
    for index, (left, right) in enumerate(zip_longest(before, after)):
        at = f"body/part/{index}"
        if left is None or right is None:
            yield at, *_both(left, right, lambda part: ABSENT if part is None else f"{len(part.data)} bytes")
            continue
        for name in dict.fromkeys(name for name, _ in (*left.fields, *right.fields)):
            values = [[value for key, value in part.fields if key == name] for part in (left, right)]
            if values[0] != values[1]:
                yield f"{at}/{text(name)}", _joined(values[0]), _joined(values[1])
        if left.data != right.data:
            yield at, *_around(left.data, right.data)


def _by_name(pairs: Sequence[tuple[bytes, bytes | None]]) -> dict[bytes, list[bytes | None]]:
    grouped: dict[bytes, list[bytes | None]] = {}
    for name, value in pairs:
        grouped.setdefault(name, []).append(value)
    return grouped


def _trees(before: Any, after: Any, at: tuple[str | int, ...]) -> Iterator[Difference]:
    if isinstance(before, dict) and isinstance(after, dict):
        for name in (*before, *(name for name in after if name not in before)):
            yield from _branch(before.get(name, _NOT_THERE), after.get(name, _NOT_THERE), (*at, name))
    elif isinstance(before, list) and isinstance(after, list):
        for index, (left, right) in enumerate(zip_longest(before, after, fillvalue=_NOT_THERE)):
            yield from _branch(left, right, (*at, index))
    elif not jsonvalue.same(before, after):
        yield _point(at), plain(before), plain(after)


_NOT_THERE: Any = object()  # JSON null is a value


def _branch(before: Any, after: Any, at: tuple[str | int, ...]) -> Iterator[Difference]:
    if before is _NOT_THERE or after is _NOT_THERE:
        yield _point(at), *_both(before, after, lambda value: ABSENT if value is _NOT_THERE else plain(value))
    else:
        yield from _trees(before, after, at)


def _point(at: tuple[str | int, ...]) -> str:
    return jsonvalue.pointer(*at)[1:]


def plain(value: Any) -> Any:
    """A JSON value as any encoder takes it: numbers that it would change are given as text, long things cut."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, str):
        return value if len(value) <= SHOWN else value[:SHOWN] + "…"
    if isinstance(value, int) and -(2**53) <= value <= 2**53:
        return value
    if isinstance(value, int | Decimal):
        short = jsonvalue.number_text(value)
        as_float = float(value) if len(short) < 18 else 0.0
        return as_float if len(short) < 18 and Decimal(repr(as_float)) == value else short
    whole = jsonvalue.canonical(without_members(value)).decode("utf-8", "replace")
    return whole if len(whole) <= SHOWN else whole[:SHOWN] + "…"


def _around(before: bytes, after: bytes) -> tuple[str, str]:
    """Both bodies from shortly before their first difference on."""
    shorter = min(len(before), len(after))
    same = next((at for at in range(shorter) if before[at] != after[at]), shorter)
    start = max(same - 20, 0)
    lead = "…" if start else ""
    return lead + text(before[start : start + 80]), lead + text(after[start : start + 80])


def _summary(request: Request, kind: Kind) -> str:
    body = request.body
    if body is None:
        return "not captured"
    return f"{kind}, {body.size} bytes{_undone(request)}" if body.size else "empty"


def _undone(request: Request) -> str:
    """Says of a coded body that it could not be decoded, and is compared as it was sent; "" where it could be."""
    body = request.body
    if body is None or not body.inline or decoded(request.fields, body.inline) is not None:
        return ""
    coding = b", ".join(all_fields(request.fields, b"content-encoding"))
    return f", compared as sent: {text(coding[:40])} cannot be undone"


def text(raw: bytes) -> str:
    """Bytes for people: UTF-8 where they are, escapes where they are not."""
    return raw.decode("utf-8", "backslashreplace")


def shown(raw: bytes | None) -> str | None:
    """Bytes for people, cut to `SHOWN` characters."""
    if raw is None:
        return ABSENT
    whole = text(raw[: SHOWN + 1])
    return whole if len(whole) <= SHOWN else whole[:SHOWN] + "…"
