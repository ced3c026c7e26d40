"""Shorter ways to the same results inside mitmproxy, for what it does dozens of times for each exchange.

Only a process of our own takes them (`ProxyEngine`): a user's mitmproxy keeps its own. Each gives what the original
gives, for every input (tested against it).
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import time
import uuid
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from types import SimpleNamespace
from typing import Any

from mitmproxy import connection, flow, hooks, http, optmanager
from mitmproxy.utils import asyncio_utils

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


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(one.name for one in fields(kind))


def _args(self: hooks.Hook) -> list[Any]:
    """`Hook.args`: the original asks for a hook's fields anew each time."""
    return [getattr(self, name) for name in _names(type(self))]  # type: ignore[arg-type]  # a class is hashable


def _task_info(task: asyncio.Task[Any], *, name: str, client: tuple[Any, ...] | None = None) -> None:
    """`set_task_debug_info`, without a look at the environment for the name of a running test."""
    task.created = time.time()  # type: ignore[attr-defined]
    task.set_name(name)
    if client:
        task.client = client  # type: ignore[attr-defined]


def _numbered() -> Callable[[], str]:
    """Names for connections and flows, in a uuid's form and as unlike those of other processes: one uuid, of which only
    the last twelve digits go on. A new one each costs two calls of the system for each exchange."""
    begun, number = str(uuid.uuid4())[:24], itertools.count()
    return lambda: f"{begun}{next(number):012x}"


_IDS = SimpleNamespace(uuid4=_numbered())


def install() -> None:
    """Idempotent; affects the whole process."""
    for kind, name, ours in (
        (http.Headers, "get", _get),
        (http.Headers, "get_all", _get_all),
        (http.Headers, "__contains__", _contains),
        (optmanager._Option, "current", _current),
        (http.MessageData, "__post_init__", _unchecked),
        (hooks.Hook, "args", _args),
        (asyncio_utils, "set_task_debug_info", _task_info),
        (flow, "uuid", _IDS),
        (connection, "uuid", _IDS),
    ):
        setattr(kind, name, ours)
