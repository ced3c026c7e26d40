"""Instants and durations as people read them."""

from __future__ import annotations

import time
from datetime import UTC, datetime

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))


def moment(wall_ns: int) -> str:
    """A wall time, in UTC, to the second."""
    return _at(wall_ns).strftime("%Y-%m-%d %H:%M:%S")


def clock(wall_ns: int) -> str:
    """The time of day of a wall time, in UTC, to the millisecond."""
    return f"{_at(wall_ns):%H:%M:%S}.{wall_ns // 1_000_000 % 1000:03}"


def _at(wall_ns: int) -> datetime:
    try:
        return datetime.fromtimestamp(wall_ns // 1_000_000_000, UTC)
    except (OverflowError, ValueError, OSError):
        return datetime.fromtimestamp(0, UTC)  # a wall clock that was set to nonsense must not keep us from looking


def ago(wall_ns: int) -> str:
    """How long ago a wall time is, in its largest unit."""
    seconds = max(0, time.time_ns() - wall_ns) // 1_000_000_000
    size, unit = next(((size, unit) for size, unit in _UNITS if seconds >= size), (1, "s"))
    return f"{seconds // size} {unit} ago"


def duration(ns: int | None) -> str:
    """A duration in the unit that fits; `-` when it is not known."""
    if ns is None:
        return "-"
    if ns < 1_000_000_000:
        return f"{ns / 1_000_000:.0f} ms"
    seconds = ns / 1_000_000_000
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    whole = int(seconds)
    return f"{whole // 60} m {whole % 60:02} s" if whole < 3600 else f"{whole // 3600} h {whole // 60 % 60:02} m"
