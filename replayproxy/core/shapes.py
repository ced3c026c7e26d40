"""Whether a value holds what its class says: for values that were made from bytes that somebody else may have written.

Only what the classes of `core.values` use is understood: plain types, None, enumerations, values in values, tuples and
mappings. A bool passes for an int and an int for a float, as everywhere in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, TypeAliasType, Union, get_args, get_origin, get_type_hints

type Check = Callable[[Any], bool]


_known: dict[type, tuple[tuple[str, Check], ...]] = {}


def _members(kind: type) -> tuple[tuple[str, Check], ...]:
    if kind not in _known:
        hints = get_type_hints(kind)
        _known[kind] = tuple((f.name, _check(hints[f.name])) for f in fields(kind))
    return _known[kind]


def wrong_member(value: Any) -> str | None:
    """The first member, by path, that is not of its type; None when all are."""
    for name, check in _members(type(value)):
        member = getattr(value, name)
        if not check(member):
            inner = wrong_member(member) if is_dataclass(member) else None
            return f"{name}.{inner}" if inner else name
    return None


def _check(hint: Any) -> Check:
    if isinstance(hint, TypeAliasType):
        return _check(hint.__value__)
    if hint is Any:
        return lambda _value: True
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        checks = tuple(map(_check, inner))
        return lambda value: any(check(value) for check in checks)
    if origin is tuple:
        return _tuple(inner)
    if origin is not None and issubclass(origin, Mapping):
        key, item = map(_check, inner)
        return lambda value: isinstance(value, Mapping) and all(key(k) and item(v) for k, v in value.items())
    return _plain(hint)


def _tuple(inner: tuple[Any, ...]) -> Check:
    if len(inner) == 2 and inner[1] is Ellipsis:
        check = _check(inner[0])
        return lambda value: isinstance(value, tuple) and all(map(check, value))
    checks = tuple(map(_check, inner))
    return lambda value: (
        isinstance(value, tuple) and len(value) == len(checks) and all(c(v) for c, v in zip(checks, value, strict=True))
    )


def _plain(kind: type) -> Check:
    if is_dataclass(kind):
        return lambda value: isinstance(value, kind) and wrong_member(value) is None
    if kind is float:
        return lambda value: isinstance(value, float | int)
    if kind is NoneType:
        return lambda value: value is None
    return lambda value: isinstance(value, kind)
