"""What two requests left behind, in a form that is equal for equal effects.

Left out is what differs lawfully from one time to the next: instants, fresh ids, the numbering of what was made.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from replayproxy.core import jsonvalue
from replayproxy.core.renaming import is_digest, owners, row_id, table_noun
from replayproxy.core.rowshape import natural
from replayproxy.core.times import parse_text
from replayproxy.core.tokens import FRESH_BITS, bits
from replayproxy.core.values import RowChange
from replayproxy.detect.normal import normal

_NUMBER = re.compile(r"(?<=:)-?\d+(?=[,}])")
SEQUENCES = frozenset({"sequences", "sequences (all)", "sqlite_sequence"})
"""Tables in which a provider tells the next number: one that is used up by a refused request is no effect."""


type Item = tuple[str, ...]
"""`("+", table, row)`, `("-", table, key)` or `("=", table, key, column, value)`."""
type Effect = frozenset[tuple[Item, int]]


class Names:
    """The keys of rows that were made since the recorded start, each by a name that is the same every time."""

    def __init__(self, made: Iterable[RowChange]) -> None:
        self._names: dict[tuple[str, str], str] = {}
        self._known: dict[str, str] = {}
        self._new: frozenset[tuple[str, str]] = frozenset()
        new = sorted(
            (c for c in made if c.before is None),
            key=lambda c: (c.table, jsonvalue.canonical(_bare(c.after, c.table)), natural(c.key)),
        )
        for number, change in enumerate(new):
            name = f"(new {table_noun(change.table)} {number + 1})"
            self._names[change.table, change.key] = name
            if bits(change.key) >= FRESH_BITS:
                self._known[change.key] = name

    def beside(self, changes: Iterable[RowChange]) -> Names:
        """The same, with the rows that the two requests themselves made: which is which is not known."""
        made = Names(())
        made._names, made._known = self._names, self._known
        made._new = frozenset((table_noun(c.table), row_id(c.key)) for c in changes if c.before is None)
        return made

    def is_new(self, nouns: Iterable[str], value: str) -> bool:
        """Whether an id at a place of such nouns is that of a row that the two made."""
        return any((noun, value) in self._new for noun in nouns)

    def key(self, table: str, key: str) -> str:
        return self._names.get((table, key), key)

    def text(self, value: str) -> str:
        """A value that is such a key, and no small number that may be anything."""
        return self._known.get(value, value)


def effect_of(changes: Iterable[RowChange], names: Names) -> Effect:
    """The rows that differ, as items that are equal for equal effects."""
    items: Counter[Item] = Counter()
    changes = [change for change in changes if change.table not in SEQUENCES]
    names = names.beside(changes)
    for change in changes:
        key = names.key(change.table, change.key)
        if change.before is None:
            items["+", change.table, _written(_bare(change.after, change.table, names))] += 1
        elif change.after is None:
            items["-", change.table, key] += 1
        else:
            for column, value in _cells(change, names):
                items["=", change.table, key, column, value] += 1
    return frozenset(items.items())


def _cells(change: RowChange, names: Names) -> Iterable[tuple[str, str]]:
    before, after = change.before, change.after
    if not isinstance(before, Mapping) or not isinstance(after, Mapping):
        yield "", _written(_bare(after, change.table, names))
        return
    for column in sorted({*before, *after}, key=str):
        was, now = before.get(column), after.get(column)
        if normal(was) == normal(now) and (column in before) == (column in after):
            continue
        value = _bare(now, change.table, names, (str(column),)) if column in after else "(absent)"
        if value != "(time)":
            yield str(column), _written(value)


def _written(value: Any) -> str:
    return jsonvalue.canonical(value).decode("utf-8", "replace")


def _bare(value: Any, table: str, names: Names | None = None, at: tuple[str | int, ...] = ()) -> Any:
    """The value without instants and fresh ids, and of a new row without the ids that name it or others like it."""
    if isinstance(value, Mapping):
        return {str(name): _bare(item, table, names, (*at, str(name))) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_bare(item, table, names, (*at, index)) for index, item in enumerate(value)]
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, bytes):
        return value.decode("latin-1")
    nouns, defines = owners(("state", table, "", *at), f"/{table_noun(table)}") if at else ((), False)
    text = value if isinstance(value, str) else normal(value)
    if names is not None and (known := names.text(text)) != text:
        return known
    # The number that a row was given when it was made says only what else was made before; `same_effect` sees whether
    # two rows were given one.
    if (defines and (names is None or isinstance(value, str))) or (names is not None and names.is_new(nouns, text)):
        return "(id)"
    if not isinstance(value, str):
        return "(time)" if 10**9 < value < 4 * 10**9 or 10**12 < value < 4 * 10**12 else value
    if parse_text(value) is not None:
        return "(time)"
    return "(id)" if bits(value) >= FRESH_BITS and not is_digest(str(at[-1] if at else "")) else value


def same_effect(expected: Effect, found: Effect) -> bool:
    """Whether two effects are one but for the numbers that new rows were given, where they are told apart as well.

    A request that is refused late may use up a number: 17 and 19 is as good as 17 and 18, and 17 twice is not.
    """
    if expected == found:
        return True
    counted = [_by_shape(effect) for effect in (expected, found)]
    return counted[0] == counted[1] and _apart(found) >= _apart(expected)


def _by_shape(effect: Effect) -> Counter[Item]:
    shapes: Counter[Item] = Counter()
    for item, count in effect:
        shapes[("+", item[1], _NUMBER.sub("0", item[2])) if item[0] == "+" else item] += count
    return shapes


def _apart(effect: Effect) -> int:
    """How many new rows are unlike every other."""
    return sum(1 for item, _ in effect if item[0] == "+")
