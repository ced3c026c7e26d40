"""How one start state differs from another, once clocks and fresh ids are taken out.

Two resets of one task and seed may stamp other times and mint other ids; rows that are equal but for these, under
one renaming, are equal. What is left is residue: a row too many, a row missing, a value that is another one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from replayproxy.core import jsonvalue
from replayproxy.core.opaque import collection_of, is_opaque, singular
from replayproxy.core.rules import RuleBook
from replayproxy.core.times import DAY, Instant, parse_number, parse_text
from replayproxy.core.values import RowChange
from replayproxy.detect.isomorphic import Content, Id, match
from replayproxy.detect.states import States

CLOCK_TOLERANCE_NS = 120 * 1_000_000_000
"""A stamp may lie this much nearer to or farther from its snapshot than its counterpart."""

_COUNTERS = frozenset({"seq", "next_id", "nextid", "last_id", "lastid", "last_value", "auto_increment"})
NO_RULES = RuleBook(())
DECLARED = frozenset({"ignore", "mask", "bind"})
_WORDS = {"fresh id": "renaming", "order": "order", "counter": "counter", "clock": "clock-only", "rule": "rule"}
COUNTER_TABLES = frozenset({"sqlite_sequence"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Residue:
    """`changes` go from the reference to the start. `explained`: differences that mean nothing, by class."""

    changes: tuple[RowChange, ...]
    explained: Counter[str] = field(default_factory=Counter)
    ties: bool = False  # equal up to ties: rows that are alike in all but their ids may have been exchanged

    @property
    def word(self) -> str:
        """The class of a difference in which nothing is left: what alone may differ between two starts."""
        if self.changes:
            return "counter" if self.only_counters else "content"
        for name, word in (
            ("fresh id", "renaming"),
            ("order", "order"),
            ("counter", "counter"),
            ("clock", "clock-only"),
        ):
            if self.explained[name]:
                return word
        return "equal"

    @property
    def only_counters(self) -> bool:
        """Whether nothing but counters of ids differs: visible at most as other ids."""
        return bool(self.changes) and all(is_counter(change) for change in self.changes)


def residue(
    states: States, reference: bytes, start: bytes, wall_reference: int, wall_start: int,
    rules: RuleBook = NO_RULES,
) -> Residue:  # fmt: skip
    """`rules`: what a user has declared may differ (`state/TABLE/KEY/column`). Raises states.TooMuchChanged."""

    def is_key(value: str) -> bool:
        return any(value in content for root in (reference, start) for content in states.rows(root).values())

    comparison = _Comparison((wall_reference, wall_start), is_key)
    changes = []
    for change in states.changes(reference, start):
        ruled = _without(change, rules)
        comparison.explained["rule"] += ruled is not change
        changes += [ruled] if ruled is not None else []
    return comparison.run(changes)


def _without(change: RowChange, rules: RuleBook) -> RowChange | None:
    """The change without what rules leave out; None: nothing is left of it."""
    if not rules:
        return change
    at = f"state/{change.table}/{change.key}"
    if rules.find("", at, DECLARED):
        return None
    before, after = change.before, change.after
    if not isinstance(before, dict) or not isinstance(after, dict):
        return change
    declared = {name for name in {*before, *after} if rules.find("", f"{at}/{name}", DECLARED)}
    if not declared:
        return change
    left = {name: value for name, value in after.items() if name not in declared}
    left |= {name: before[name] for name in declared if name in before}
    return None if jsonvalue.same(before, left) else replace(change, after=left)


class _Comparison:
    def __init__(self, walls: tuple[int, int], is_key: Callable[[str], bool]) -> None:
        self.walls = walls
        self.is_key = is_key
        self.forward: dict[tuple[str, str], str] = {}
        self.backward: dict[tuple[str, str], str] = {}
        self.explained: Counter[str] = Counter()

    def run(self, changes: list[RowChange]) -> Residue:
        gone: dict[bytes, list[RowChange]] = defaultdict(list)
        come: dict[bytes, list[RowChange]] = defaultdict(list)
        modified = []
        for change in changes:
            if change.table in COUNTER_TABLES:
                self.explained["counter"] += 1
            elif change.after is None:
                gone[self._form(change.table, change.key, change.before, 0)].append(change)
            elif change.before is None:
                come[self._form(change.table, change.key, change.after, 1)].append(change)
            else:
                modified.append(change)
        left = list(self._unpaired(gone, come))
        left += [change for change in modified if not self._explains(change.before, change.after, "", change.table)]
        ties = False
        if not left and self.explained["fresh id"]:
            matched = self._matched([change for change in changes if change.table not in COUNTER_TABLES])
            left, ties = matched if matched is not None else ([], True)
        return Residue(
            changes=tuple(sorted(left, key=lambda c: (c.table, c.key))), explained=self.explained, ties=ties
        )  # fmt: skip

    def _matched(self, changes: Sequence[RowChange]) -> tuple[list[RowChange], bool] | None:
        """What no renaming of the ids makes equal, although each row by itself has a counterpart. `_unpaired` does not
        look at how rows refer to each other where several are alike."""
        moved = {change.key for change in changes if change.before is None or change.after is None}
        held: dict[str, bool] = {}

        def stays(text: str) -> bool:
            if text not in held:
                held[text] = text not in moved and self.is_key(text)
            return held[text]

        left = [change for change in changes if change.before is not None]
        right = [change for change in changes if change.after is not None]
        matched = match(
            [self._content(c.table, c.key, c.before, 0, stays) for c in left],
            [self._content(c.table, c.key, c.after, 1, stays) for c in right],
        )
        if matched is None:
            return None
        odd = [replace(left[index], after=None) for index in matched.left]
        odd += [replace(right[index], before=None) for index in matched.right]
        return odd, matched.ties

    def _content(self, table: str, key: str, row: Any, side: int, stays: Callable[[str], bool]) -> Content:
        own = key if stays(key) or not (key.isdigit() or is_opaque(key)) else _as_id(key, singular(table))
        return Content(table=table, key=own, tree=self._with_ids(row, "", key, side, singular(table), stays))

    def _with_ids(self, value: Any, name: str, key: str, side: int, table: str, stays: Callable[[str], bool]) -> Any:
        if isinstance(value, dict):
            return {k: self._with_ids(v, k, key, side, table, stays) for k, v in value.items()}
        if isinstance(value, list):
            return [self._with_ids(item, name, key, side, table, stays) for item in value]
        if self._instant(value, side) is not None:
            return "(time)"
        text = str(value)
        own = text == key and not isinstance(value, bool)
        if (own or _is_id(value, name)) and not stays(text):
            return _as_id(text, table if own else collection_of((name,), table) or name)
        return value if isinstance(value, str | bool) or value is None else jsonvalue.number_text(value)

    def _unpaired(self, gone: dict[bytes, list[RowChange]], come: dict[bytes, list[RowChange]]) -> Iterator[RowChange]:
        pairs: list[tuple[RowChange, RowChange, bool]] = []
        # Forms with one row on each side first: they tell how ids were renamed, for those that could be any of several.
        for form in sorted({*gone, *come}, key=lambda form: len(gone.get(form, ())) + len(come.get(form, ()))):
            ours, theirs = sorted(gone.get(form, ()), key=_age), sorted(come.get(form, ()), key=_age)
            tied = len(ours) > 1 or len(theirs) > 1
            met = list(zip(ours, theirs, strict=False))
            yield from (*ours[len(met) :], *theirs[len(met) :])
            for a, b in met:
                if self._establishes(singular(a.table), a.key, b.key) or tied:
                    pairs.append((a, b, tied))
                else:
                    yield from (a, b)
        # Only now is it known which row became which: what refers to them can be told.
        for a, b, tied in pairs:
            if self._explains(a.before, b.after, "", a.table) or tied:
                self.explained["fresh id"] += 1
            else:
                yield from (a, b)

    def _establishes(self, scope: str, a: str, b: str) -> bool:
        """Takes it that the row `a` is called `b` now, unless one of the two was something else already."""
        if is_opaque(a) and is_opaque(b):
            scope = ""
        if self.forward.get((scope, a), b) != b or self.backward.get((scope, b), a) != a:
            return False
        self.forward[scope, a], self.backward[scope, b] = b, a
        return True

    def _renamed(self, a: Any, b: Any, name: str, table: str) -> bool:
        """Whether `b` is what `a` is called now. What names a row must have been renamed with the row."""
        left, right = str(a), str(b)
        opaque = is_opaque(left) and is_opaque(right)
        scope = "" if opaque else collection_of((name,), singular(table)) or name
        if self.forward.get((scope, left)) == right:
            return True
        if not opaque or self.is_key(left) or self.is_key(right):
            return False
        return self._establishes("", left, right)

    def _explains(self, a: Any, b: Any, name: str, table: str) -> bool:
        if isinstance(a, dict) and isinstance(b, dict):
            return set(a) == set(b) and all(self._explains(a[key], b[key], key, table) for key in a)
        if isinstance(a, list) and isinstance(b, list):
            return len(a) == len(b) and self._explains_list(a, b, name, table)
        if jsonvalue.same(a, b):
            return True
        left, right = self._instant(a, 0), self._instant(b, 1)
        if left is not None and right is not None:
            if self._same_offset(left, right):
                self.explained["clock"] += 1
                return True
            return False
        if _is_id(a, name) and _is_id(b, name) and self._renamed(a, b, name, table):
            self.explained["fresh id"] += 1
            return True
        return False

    def _explains_list(self, a: list[Any], b: list[Any], name: str, table: str) -> bool:
        if jsonvalue.same(a, b):
            return True
        forms = [[jsonvalue.canonical(self._masked(item, name, "", side)) for item in items]
                 for side, items in enumerate((a, b))]  # fmt: skip
        plain = [sorted(jsonvalue.canonical(item) for item in items) for items in (a, b)]
        if plain[0] == plain[1] or (forms[0] != forms[1] and sorted(forms[0]) == sorted(forms[1])):
            self.explained["order"] += 1
            return True
        return all(self._explains(x, y, name, table) for x, y in zip(a, b, strict=True))

    def _instant(self, value: Any, side: int) -> Instant | None:
        if isinstance(value, str):
            return parse_text(value) or parse_number(value, self.walls[side])
        if isinstance(value, int | Decimal) and not isinstance(value, bool):
            return parse_number(value, self.walls[side])
        return None

    def _same_offset(self, a: Instant, b: Instant) -> bool:
        drift = abs((b.at - self.walls[1]) - (a.at - self.walls[0]))
        grain = max(a.grain, b.grain)
        return drift <= max(CLOCK_TOLERANCE_NS, DAY if grain >= DAY else 0)

    def _form(self, table: str, key: str, row: Any, side: int) -> bytes:
        """A row with its ids and instants taken out: rows of one form can be one row of two resets."""
        own = "#" if key.isdigit() else "@" if is_opaque(key) else key
        return jsonvalue.canonical([table, own, self._masked(row, "", key, side)])

    def _masked(self, value: Any, name: str, key: str, side: int) -> Any:
        if isinstance(value, dict):
            return {k: self._masked(v, k, key, side) for k, v in value.items()}
        if isinstance(value, list):
            items = [self._masked(item, name, key, side) for item in value]
            return sorted(items, key=jsonvalue.canonical)
        if self._instant(value, side) is not None:
            return "(time)"
        if _is_id(value, name) or (str(value) == key and not isinstance(value, bool)):
            return "(id)"
        return value


def _as_id(text: str, scope: str) -> Id:
    return Id("" if is_opaque(text) else scope, text)


def _age(change: RowChange) -> tuple[int, str]:
    return (int(change.key), "") if change.key.isdigit() and len(change.key) < 19 else (0, change.key)


def _is_id(value: Any, name: str) -> bool:
    if isinstance(value, bool) or not isinstance(value, str | int):
        return False
    if isinstance(value, str) and is_opaque(value):
        return True
    low = name.lower()
    if low in _COUNTERS:
        return False
    named = low == "id" or low.endswith("_id") or name.endswith(("Id", "ID"))
    return named and str(value).isdigit()


def is_counter(change: RowChange) -> bool:
    """Whether nothing of the row but a counter of ids differs, by its name."""
    if not isinstance(change.before, dict) or not isinstance(change.after, dict):
        return False
    before, after = change.before, change.after
    names = [name for name in {*before, *after} if before.get(name) != after.get(name)]
    return bool(names) and all(
        name.lower() in _COUNTERS and isinstance(before.get(name), int) and isinstance(after.get(name), int)
        for name in names
    )
