"""Shorter ways to the same results inside mitmproxy, for what it does dozens of times for each exchange.

Only a process of our own takes them (`ProxyEngine`): a user's mitmproxy keeps its own. Each gives what the original
gives, for every input (tested against it).
"""

from __future__ import annotations

import copy
from typing import Any

from mitmproxy import http, optmanager

_PLAIN = frozenset({str, int, float, bool, type(None), bytes})
"""What a copy of is the thing itself."""


def _wanted(name: str | bytes) -> bytes:
    return (name if isinstance(name, bytes) else name.encode("utf-8", "surrogateescape")).lower()


def _get(self: http.Headers, name: str | bytes, default: Any = None) -> Any:
    """`Headers.get`. The original folds the case of each name and of the wanted one in four nested calls, and raises
    and catches a KeyError for a field that is not there."""
    wanted = _wanted(name)
    found = [value for key, value in self.fields if key.lower() == wanted]
    return ", ".join([value.decode("utf-8", "surrogateescape") for value in found]) if found else default


def _get_all(self: http.Headers, name: str | bytes) -> list[str]:
    wanted = _wanted(name)
    return [value.decode("utf-8", "surrogateescape") for key, value in self.fields if key.lower() == wanted]


def _contains(self: http.Headers, name: object) -> bool:
    if not isinstance(name, str | bytes):
        raise TypeError(f"Expected str or bytes, but got {type(name).__name__}.")
    wanted = _wanted(name)
    return any([key.lower() == wanted for key, _ in self.fields])  # noqa: C419 - a generator costs more


def _current(self: Any) -> Any:
    """`_Option.current`: the value of an option, which the original copies deeply also where it is a number."""
    value = self._default if self.value is optmanager.unset else self.value
    return value if type(value) in _PLAIN else copy.deepcopy(value)


def _unchecked(self: http.MessageData) -> None:
    """`MessageData.__post_init__`: a check of mitmproxy's own arguments, which `python -O` leaves out too."""


def install() -> None:
    """Idempotent; affects the whole process."""
    for kind, name, ours in (
        (http.Headers, "get", _get),
        (http.Headers, "get_all", _get_all),
        (http.Headers, "__contains__", _contains),
        (optmanager._Option, "current", _current),
        (http.MessageData, "__post_init__", _unchecked),
    ):
        setattr(kind, name, ours)
