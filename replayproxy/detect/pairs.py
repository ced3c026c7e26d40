"""Which two requests of one sequential recording may go wrong when they come together, the likeliest first.

Nothing is shown here: two requests are a risky pair when both act on one row of the state and nothing in them says
which version of it they mean. The row is known from the snapshots around each write, else from its path. A write that
takes a free thing, or adds to a number, makes a pair with itself: the same request, sent by two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from replayproxy.core.canonical import field
from replayproxy.core.templates import request_template
from replayproxy.core.values import Exchange, RowChange
from replayproxy.detect.cells import Row
from replayproxy.detect.normal import normal
from replayproxy.detect.ops import Effect, Op

TWICE, TWO = "twice", "two"
FREE = frozenset({"null", "0", "'", "'free", "'open", "'available", "'none", "'unassigned", "'pending", "'new"})
REFUSED = frozenset({409, 412, 422, 423})
GUARDS = (b"if-match", b"if-none-match", b"if-unmodified-since", b"idempotency-key", b"x-idempotency-key")
CLAIM, REFUSAL, COUNTER, SHARED, MAKES, READ, GUARDED = 4, 4, 3, 2, 1, 1, -4
"""What each sign adds to a pair's rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Risky:
    """Two requests to release together. `how` is `twice` (then `b` equals `a`) or `two`. `row`: what both act on; None
    where only the path tells. `why`: the signs, for a reader. `more`: pairs of the same two templates that it stands
    for. `guard`: the header that should keep them apart, "" where there is none."""

    how: str
    a: int
    b: int
    row: Row | None
    path: str
    why: tuple[str, ...]
    rank: int
    guard: str = ""
    more: int = 0

    @property
    def key(self) -> tuple[int, int]:
        return self.a, self.b


@dataclass(frozen=True, slots=True, kw_only=True)
class _Write:
    """A write that was granted, with the rows that it changed and those that stood there before."""

    exchange: Exchange
    op: Op
    changes: Sequence[RowChange]
    guard: str
    template: str

    @property
    def seq(self) -> int:
        return self.exchange.seq

    @property
    def path(self) -> str:
        return self.op.target.partition("?")[0]

    @property
    def rows(self) -> list[Row]:
        return [Row(c.table, c.key) for c in self.changes if c.before is not None]


def risky_pairs(
    exchanges: Sequence[Exchange], ops: Mapping[int, Op], changed: Mapping[int, Sequence[RowChange]],
    drawn: Mapping[int, set[int]],
) -> list[Risky]:  # fmt: skip
    """The pairs of one episode, by rank and then by time. `changed`: the rows that a write alone changed, where the
    snapshots tell (an empty list: it changed none); `drawn`: which answers a request took a name from."""
    ordered = sorted((e for e in exchanges if e.seq in ops), key=lambda e: (e.times.head, e.seq))
    writes = [one for e in ordered if (one := _write(e, ops[e.seq], changed.get(e.seq))) is not None]
    found = [risky for one in writes if (risky := _twice(one, ordered, ops)) is not None]
    for at, first in enumerate(writes):
        for second in writes[at + 1 :]:
            risky = _two(first, second, ordered, ops, drawn)
            if risky is not None:
                found.append(risky)
    templates = {one.seq: one.template for one in writes}
    return _one_of_a_kind(found, templates)


def guard_of(exchange: Exchange) -> str:
    """The header that says which version is meant, or that a repeat is one request; "" where there is none."""
    return next((name.decode() for name in GUARDS if field(exchange.request.fields, name) is not None), "")


def _write(exchange: Exchange, op: Op, changes: Sequence[RowChange] | None) -> _Write | None:
    granted = op.status is not None and 200 <= op.status < 400 and op.effect is not Effect.NONE
    if not granted or op.is_reset or exchange.is_probe or (changes is not None and not changes):
        return None
    return _Write(exchange=exchange, op=op, changes=changes or (), guard=guard_of(exchange),
                  template=request_template(exchange.request))  # fmt: skip


def _twice(one: _Write, ordered: Sequence[Exchange], ops: Mapping[int, Op]) -> Risky | None:
    signs = list(_signs(one))
    refused = [e.seq for e in ordered if _same(e, one) and ops[e.seq].status in REFUSED]
    if refused:
        signs.append((REFUSAL, f"sent again it was refused (#{refused[0]}, {ops[refused[0]].status})"))
    rows = one.rows
    if not signs and not one.changes and one.op.method in ("PUT", "DELETE"):
        return None  # nothing shows that a repeat of it is anything but the same again
    if not signs:
        signs.append((MAKES, "it makes something" if not rows else "it changes a row that was there"))
    if reads := _read_before(rows, one, ordered, ops):
        signs.append((READ, f"#{reads} read it before"))
    return _risky(TWICE, one, one, rows[0] if rows else None, signs)


def _two(
    first: _Write, second: _Write, ordered: Sequence[Exchange], ops: Mapping[int, Op], drawn: Mapping[int, set[int]]
) -> Risky | None:
    if first.exchange.env != second.exchange.env or _depends(second.seq, first.seq, drawn):
        return None
    shared = [row for row in first.rows if row in second.rows]
    if first.changes and second.changes and not shared:
        return None
    if not shared and not _one_path(first, second):
        return None
    signs = [(SHARED, f"both act on {_named(shared, first)}")]
    signs += [sign for one in (first, second) for sign in _signs(one) if sign[0] == COUNTER][:1]
    columns = [_columns(one, shared[0]) for one in (first, second)] if shared else []
    if columns and columns[0] != columns[1]:
        signs.append((READ, f"they set {_listed(columns[0])} and {_listed(columns[1])}: a row written whole loses one"))
    if reads := _read_before(shared, first, ordered, ops):
        signs.append((READ, f"#{reads} read it before"))
    return _risky(TWO, first, second, shared[0] if shared else None, signs)


def _risky(how: str, a: _Write, b: _Write, row: Row | None, signs: Sequence[tuple[int, str]]) -> Risky:
    guard = a.guard if a.guard and b.guard else ""
    rank = sum(weight for weight, _ in signs) + (GUARDED if guard else 0)
    return Risky(how=how, a=a.seq, b=b.seq, row=row, path=a.path, why=tuple(text for _, text in signs), rank=rank,
                 guard=guard)  # fmt: skip


def _signs(one: _Write) -> Iterator[tuple[int, str]]:
    """What in the rows that it changed shows a claim, or a sum."""
    numbers = {normal(value) for value in one.op.asked.values() if not isinstance(value, bool | str)}
    for change in one.changes:
        if not isinstance(change.before, Mapping) or not isinstance(change.after, Mapping):
            continue
        for column in sorted(set(change.before) & set(change.after), key=str):
            was, now = change.before[column], change.after[column]
            where = f"{change.table}/{change.key} /{column}"
            if normal(was) == normal(now):
                continue
            if normal(was) in FREE and not _adds(was, now, numbers):
                yield CLAIM, f"takes {where}: {_short(was)} -> {_short(now)}"
            elif _adds(was, now, numbers) or _counts(was, now):
                yield COUNTER, f"counts in {where}: {_short(was)} -> {_short(now)}"


def _adds(was: Any, now: Any, numbers: set[str]) -> bool:
    return _is_number(was) and _is_number(now) and normal(abs(Decimal(str(now)) - Decimal(str(was)))) in numbers


def _counts(was: Any, now: Any) -> bool:
    return _is_number(was) and _is_number(now) and abs(Decimal(str(now)) - Decimal(str(was))) == 1


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _same(exchange: Exchange, one: _Write) -> bool:
    request, other = exchange.request, one.exchange.request
    return exchange.seq != one.seq and (request.method, request.target) == (other.method, other.target)


def _read_before(rows: Sequence[Row], one: _Write, ordered: Sequence[Exchange], ops: Mapping[int, Op]) -> int:
    """The last read before it that showed one of the rows; 0: none."""
    seqs = [
        e.seq for e in ordered
        if e.times.head < one.exchange.times.head and any(shown.row in rows for shown in ops[e.seq].rows)
    ]  # fmt: skip
    return seqs[-1] if seqs else 0


def _depends(seq: int, on: int, drawn: Mapping[int, set[int]]) -> bool:
    """Whether a request says a name that came, by whatever way, from the answer to another."""
    seen: set[int] = set()
    todo = [seq]
    while todo:
        for source in drawn.get(todo.pop(), ()):
            if source == on:
                return True
            if source not in seen:
                seen.add(source)
                todo.append(source)
    return False


def _one_path(first: _Write, second: _Write) -> bool:
    """Whether one path is the other's, or stands below it; a bare collection is nobody's row."""
    a, b = first.path.strip("/").split("/"), second.path.strip("/").split("/")
    short = min(len(a), len(b))
    return short > 1 and a[:short] == b[:short]


def _columns(one: _Write, row: Row) -> frozenset[str]:
    """The columns of a row that it changed and that its own words name; all that it changed where they name none."""
    changed: set[str] = set()
    for change in one.changes:
        if Row(change.table, change.key) == row and isinstance(change.before, Mapping):
            after = change.after if isinstance(change.after, Mapping) else {}
            changed |= {c for c in change.before if normal(change.before[c]) != normal(after.get(c))}
    return frozenset(changed & set(one.op.asked)) or frozenset(changed)


def _named(shared: Sequence[Row], one: _Write) -> str:
    return f"{shared[0].table}/{shared[0].key}" if shared else one.path


def _listed(columns: frozenset[str]) -> str:
    return ", ".join(sorted(map(str, columns))[:3]) or "nothing"


def _short(value: Any) -> str:
    text = "null" if value is None else str(value)
    return text if len(text) <= 24 else text[:23] + "…"


def _one_of_a_kind(found: Sequence[Risky], templates: Mapping[int, str]) -> list[Risky]:
    """The best of each two templates, first in time: the others are sent to the same code."""
    kinds: dict[tuple[str, str, str], list[Risky]] = {}
    for risky in found:
        kinds.setdefault((risky.how, templates[risky.a], templates[risky.b]), []).append(risky)
    best = [replace(min(alike, key=lambda one: (-one.rank, one.key)), more=len(alike) - 1) for alike in kinds.values()]
    return sorted(best, key=lambda one: (-one.rank, one.key))
