"""What is said of an episode after it was sealed: a reward computed overnight, a task that the recorder did not know.

Rules of this file: the episode shows the later value, and keeps beside it what the recording was told, whatever is said
how often. Who says again what the recording was told takes the annotation back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import isfinite
from typing import Any

from replayproxy.core.values import Episode

META = "meta."
SETTABLE = ("reward", "outcome", "task", "seed", "attempt", "group")
"""Beside `meta.NAME`, any name."""

DEPTH = 64
"""Levels of a value of meta."""


def settable(name: str) -> bool:
    """Whether an annotation may set this."""
    return name in SETTABLE or (name.startswith(META) and len(name) > len(META))


def value_of(episode: Episode, name: str) -> Any:
    """What the episode says now; None where it says nothing."""
    if name.startswith(META):
        return episode.meta.get(name.removeprefix(META))
    return getattr(episode, name)


def said(episode: Episode, name: str) -> Any:
    """What the recording was told."""
    told: Mapping[str, Any] = episode.annotated.get("said", {})
    return told[name] if name in told else value_of(episode, name)


def fitting(name: str, value: Any) -> Any:
    """The value as the member holds it. Raises ValueError, with the reason, for one that it cannot hold."""
    if name.startswith(META):
        if not _is_json(value, DEPTH):
            raise ValueError(f"{name} is {_shown(value)}, which is no value of JSON, or too deep")
        return value
    if name == "reward":
        if isinstance(value, bool) or not isinstance(value, int | float) or not _is_finite(value):
            raise ValueError(f"{name} is {_shown(value)}, which is no number")
        return float(value)
    if name in ("seed", "attempt"):
        return _whole(name, value)
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(f"{name} is {_shown(value)}, which is no text")
    return str(value)


def _is_json(value: Any, depth: int) -> bool:
    """Tables hold instants, bytes and more, which a store or a reader of its JSON has no form for."""
    if value is None or isinstance(value, str | bool):
        return True
    if isinstance(value, int | float):
        return _is_finite(value)
    if isinstance(value, list):
        return depth > 0 and all(_is_json(item, depth - 1) for item in value)
    if isinstance(value, dict):
        fit = all(isinstance(key, str) and _is_json(item, depth - 1) for key, item in value.items())
        return depth > 0 and fit
    return False


def _is_finite(value: int | float) -> bool:
    try:
        return isfinite(value)
    except OverflowError:  # an integer that no float holds
        return False


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}.."


def _whole(name: str, value: Any) -> int:
    if isinstance(value, str):
        digits = value.removeprefix("-")
        if digits.isascii() and digits.isdigit() and len(digits) < 19:
            return int(value)
    elif isinstance(value, int | float) and not isinstance(value, bool) and value == value // 1 and abs(value) < 2**63:
        return int(value)
    raise ValueError(f"{name} is {_shown(value)}, which is no whole number")


def annotated(episode: Episode, values: Mapping[str, Any], *, source: str, wall: int) -> Episode:
    """The episode with these values (`fitting` ones); the very same where they change nothing."""
    changed = {name: value for name, value in values.items() if not _same(value_of(episode, name), value)}
    if not changed:
        return episode
    told = dict(episode.annotated.get("said", {}))
    for name in changed:
        told.setdefault(name, value_of(episode, name))
    meta = dict(episode.meta)
    for name, value in changed.items():
        if name.startswith(META):
            meta[name.removeprefix(META)] = value
    plain = {name: value for name, value in changed.items() if not name.startswith(META)}
    made = replace(episode, meta=meta, **plain)
    left = {name: before for name, before in told.items() if not _same(value_of(made, name), before)}
    return replace(made, annotated={"said": left, "source": source, "wall": wall} if left else {})


def _same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and bool(a == b)
