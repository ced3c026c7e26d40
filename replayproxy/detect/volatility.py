"""The class of a difference that nothing explains away: what sort of change it is, and how much that says.

Explained classes (clock, fresh id, validator, jitter, rule) never come here: `core.explain` takes them out before. An
`order` that differs, and a `counter` that goes on where it should begin again, are told with a low grade: few depend on
either. Everything else stays what it was, a finding of full grade.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from replayproxy.core import jsonvalue
from replayproxy.core.canonical import Kind, view
from replayproxy.core.comparison import Root
from replayproxy.core.templates import request_template
from replayproxy.core.values import Exchange, Trace
from replayproxy.detect.finding import Grade

LOW = frozenset({"order", "counter"})


def named(
    root: Root, first: Trace, other: Trace, pairs: Sequence[tuple[int, int]], kind: str, grade: Grade
) -> tuple[str, Grade]:
    """The `sub` of the finding and its grade: `kind` and `grade` unless the difference is of a low class."""
    found = volatility(root, first, other, pairs)
    return (found, Grade.SUSPECTED) if found in LOW else (kind, grade)


def volatility(root: Root, first: Trace, other: Trace, pairs: Sequence[tuple[int, int]]) -> str:
    """`order`, `counter`, or "" for what is neither."""
    if root.kind == "order":
        return "order"
    return "counter" if _counts_on(root, first, other, pairs) else ""


def _counts_on(root: Root, first: Trace, other: Trace, pairs: Sequence[tuple[int, int]]) -> bool:
    """Whether a number only goes on counting: seen more than once, always rising, and always as much ahead."""
    if not root.pointer.startswith("body") or not all(_whole(value) for value in root.values):
        return False
    by_a, by_b = ({e.seq: e for e in trace.exchanges} for trace in (first, other))
    at = by_a.get(root.a or 0)
    if at is None:
        return False
    template = request_template(at.request)
    seen = [
        (_number(by_a[a], root.pointer), _number(by_b[b], root.pointer))
        for a, b in pairs
        if a in by_a and b in by_b and request_template(by_a[a].request) == template
    ]
    told = [(x, y) for x, y in seen if x is not None and y is not None]
    if len(told) == 1 and len(seen) == 1:
        return _is_new_id(at, root.pointer)  # seen once: what is made next gets the next number
    if len(told) < 2 or len(told) != len(seen):
        return False
    rising = all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(told))
    return rising and len({y - x for x, y in told}) == 1


def _is_new_id(exchange: Exchange, pointer: str) -> bool:
    """Whether the number is the id that the answer gives to what was made."""
    made = exchange.response is not None and exchange.response.status == 201
    return made and pointer.rpartition("/")[2].lower() in ("id", "_id")


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(exchange: Exchange, pointer: str) -> int | None:
    response = exchange.response
    if response is None:
        return None
    seen = view(response.fields, response.body)
    try:
        value = jsonvalue.resolve(seen.value, pointer.removeprefix("body")) if seen.kind is Kind.JSON else None
    except (KeyError, ValueError):
        return None
    return value if _whole(value) else None
