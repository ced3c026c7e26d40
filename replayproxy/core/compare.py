"""Compares two episodes: what differs, what explains it, what follows from what.

A verdict is `same`, `different` or `undecided`, never a bool. Nothing is masked silently: each difference that was
explained is counted under its class.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from replayproxy.core import jsonvalue
from replayproxy.core.canonical import Kind, view
from replayproxy.core.rules import Rule
from replayproxy.core.templates import request_template
from replayproxy.core.values import EpisodeState, Exchange, Trace


class Absent:
    """What stands where one side has no value at all; JSON null is a value."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "(absent)"


ABSENT = Absent()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """Differences that follow from a root: how many of one kind, and the first of them."""

    template: str
    pointer: str
    count: int
    a: int | None
    b: int | None
    by: str  # value, state, control, or same: the same change again


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """A difference that follows from no other. `a`, `b`: the exchanges by number; None: that side has none.

    `values` are what A and B have at `pointer`, JSON values or ABSENT; credentials never stand there. `kind` is one
    of value, type, added, removed, order, status, outcome, request, inserted, deleted, renaming, state.
    `consequences` counts the differences folded under it, those of its own exchange included.
    """

    a: int | None
    b: int | None
    pointer: str
    values: tuple[Any, Any]
    kind: str
    consequences: int = 0
    folded: tuple[Fold, ...] = ()
    lane: str = ""
    template: str = ""
    request: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateDifference:
    """The first snapshot in which the states differ, and the first row that does."""

    name: str
    when: str
    a: int
    b: int
    after: tuple[int | None, int | None]
    table: str
    key: str
    pointer: str
    values: tuple[Any, Any]
    rows: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """The first example of a class of explained differences."""

    a: int | None
    b: int | None
    pointer: str
    values: tuple[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What came out. `undecided` holds the reasons why nothing can be said, or why `same` cannot."""

    verdict: str
    roots: tuple[Root, ...]
    explained: Mapping[str, int]
    explained_detail: Mapping[str, tuple[Explained, ...]] = field(default_factory=dict)
    pairs: tuple[tuple[int | None, int | None], ...] = ()
    state: StateDifference | None = None
    undecided: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    unused_rules: tuple[str, ...] = ()
    not_compared: Mapping[str, int] = field(default_factory=dict)

    @property
    def differences(self) -> int:
        return sum(1 + root.consequences for root in self.roots)


def compare(
    a: Trace,
    b: Trace,
    *,
    pairs: Sequence[tuple[int | None, int | None]] | None = None,
    rules: Sequence[Rule] = (),
    authorities_a: frozenset[str] = frozenset(),
    authorities_b: frozenset[str] = frozenset(),
    bindings: Mapping[str, str] | None = None,
    load: Callable[[bytes], bytes] | None = None,
    load_b: Callable[[bytes], bytes] | None = None,
    today: date | None = None,
) -> Comparison:
    """The comparison of two episodes."""
    by_a = {exchange.seq: exchange for exchange in a.exchanges}
    by_b = {exchange.seq: exchange for exchange in b.exchanges}
    if pairs is None:
        pairs = _by_position(a, b)
    roots: list[Root] = []
    for left, right in pairs:
        x, y = by_a.get(left or 0), by_b.get(right or 0)
        roots += _roots(x, y)
    reasons = tuple(
        f"{trace.address} is {trace.episode.state}" for trace in (a, b) if trace.episode.state is not EpisodeState.SEALED
    )
    if not by_a and not by_b:
        reasons += ("nothing to compare",)
    verdict = "undecided" if reasons else "different" if roots else "same"
    return Comparison(verdict=verdict, roots=tuple(roots), explained=Counter(), pairs=tuple(pairs), undecided=reasons)


def _by_position(a: Trace, b: Trace) -> list[tuple[int | None, int | None]]:
    pairs: list[tuple[int | None, int | None]] = []
    for lane in dict.fromkeys(e.lane for e in (*a.exchanges, *b.exchanges)):
        left: list[int | None] = [e.seq for e in a.exchanges if e.lane == lane]
        right: list[int | None] = [e.seq for e in b.exchanges if e.lane == lane]
        size = max(len(left), len(right))
        pairs += zip(left + [None] * (size - len(left)), right + [None] * (size - len(right)), strict=True)
    return pairs


def _roots(x: Exchange | None, y: Exchange | None) -> list[Root]:
    if x is None or y is None:
        only = x or y
        assert only is not None
        return [Root(a=x.seq if x else None, b=y.seq if y else None, pointer="", values=(ABSENT, ABSENT),
                     kind="deleted" if x else "inserted", lane=only.lane, template=request_template(only.request))]  # fmt: skip
    found: list[tuple[str, Any, Any]] = []
    if (x.request.method, x.request.target) != (y.request.method, y.request.target):
        found.append(("request/path", x.request.target.decode("latin-1"), y.request.target.decode("latin-1")))
    if x.outcome != y.outcome:
        found.append(("outcome", str(x.outcome), str(y.outcome)))
    status = tuple(e.response.status if e.response else ABSENT for e in (x, y))
    if status[0] != status[1]:
        found.append(("status", *status))
    if x.response and y.response:
        left, right = view(x.response.fields, x.response.body), view(y.response.fields, y.response.body)
        if left.key != right.key:
            found += _body(left, right)
    return [Root(a=x.seq, b=y.seq, pointer=pointer, values=(va, vb), kind="value", lane=x.lane,
                 template=request_template(x.request), consequences=len(found) - 1)
            for pointer, va, vb in found[:1]]  # fmt: skip


def _body(left: Any, right: Any) -> list[tuple[str, Any, Any]]:
    if left.kind is not Kind.JSON or right.kind is not Kind.JSON:
        return [("body", str(left.kind), str(right.kind))]
    a = {jsonvalue.pointer(*at): value for at, value in jsonvalue.leaves(left.value)}
    b = {jsonvalue.pointer(*at): value for at, value in jsonvalue.leaves(right.value)}
    keys = dict.fromkeys((*a, *b))
    return [("body" + key, a.get(key, ABSENT), b.get(key, ABSENT)) for key in keys
            if key not in a or key not in b or not jsonvalue.same(a[key], b[key])]  # fmt: skip
