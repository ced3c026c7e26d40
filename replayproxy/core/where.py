"""Where a difference stands, and the names of what may explain it."""

from __future__ import annotations

from dataclasses import dataclass

from replayproxy.core.clock import Span

type Classes = frozenset[str]
"""The classes that together explain a difference."""

CLOCK: Classes = frozenset({"clock"})
FRESH: Classes = frozenset({"fresh-id"})
COUNTER: Classes = frozenset({"counter"})
VALIDATOR: Classes = frozenset({"validator"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """The pair that a difference belongs to: its template, path (as A has it), URI, and the two intervals.

    A row of a snapshot has its table as path and the snapshot's reading as interval.
    """

    template: str
    path: str
    uri: str
    a: Span
    b: Span
