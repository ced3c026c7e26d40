"""The differences of two JSON trees, each at its pointer.

Numbers are exact, object members join by name whatever their order. Array elements join by a learned key (a member
like an id: unique, always present, at least 80 % shared), else by the longest common subsequence of equal subtrees,
else by likeness between two matches. An array that holds the same elements in another order is one change, `order`.
Equal arrays are found by number, not by walking them twice.

`soften` names what is equal but for its spelling (a renamed id, a time): it steers which elements meet, and is never
taken for equality: what differs in spelling is always among the changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from replayproxy.core import jsonvalue
from replayproxy.core.align import WINDOW, align
from replayproxy.core.tokens import fresh_alike

OVERLAP = 0.8
INNER = "(json)"
"""The token that stands in a pointer where a text is itself a JSON document and was compared as one."""

_KEYS = ("id", "_id", "uuid", "guid", "key", "uid", "name", "slug", "path", "href", "url", "email", "code", "number")
_PLAIN = frozenset({str, int, bool, type(None)})  # of one such type, what Python calls equal is one JSON value
_MAX_TABLE = 4096  # likeness is worked out pair by pair in gaps of at most this product


class Absent:
    """What stands where one side has no value at all; JSON null is a value."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "(absent)"

    def __reduce__(self) -> str:
        return "ABSENT"  # there is one, in a copy and in another process too


ABSENT = Absent()

type Path = tuple[str | int, ...]
type Soften = Callable[[Any, bool], Any]
"""(leaf, whether it is A's) -> what it is but for its spelling."""


@dataclass(frozen=True, slots=True)
class Change:
    """One difference: `value`, `type`, `added` (only B has it), `removed` (only A), `order`, or `key` (a member whose
    name is an id has another one: `a` and `b` are the names).

    `a_path` and `b_path` differ where array elements moved.
    """

    kind: str
    a_path: Path
    b_path: Path
    a: Any
    b: Any


def tree_diff(a: Any, b: Any, soften: Soften | None = None) -> list[Change]:
    """Every change from `a` to `b`; none exactly when they are one JSON value."""
    return _Diff(soften).run(a, b)


def _same(leaf: Any, of_a: bool) -> Any:
    return leaf


class _Numbers:
    """Gives equal subtrees equal numbers: exact, and linear in the size of the trees."""

    def __init__(self, soften: Soften) -> None:
        self._soften = soften
        self._numbers: dict[Any, int] = {}
        self._of: dict[tuple[int, bool], int] = {}

    def give(self, value: Any, of_a: bool) -> int:
        if isinstance(value, (dict, list)):
            known = self._of.get((id(value), of_a))
            if known is None:
                known = self._of[(id(value), of_a)] = self._number(self._shape(value, of_a))
            return known
        return self._number(_scalar(self._soften(value, of_a)))

    def knows(self, container: Any) -> bool:
        """Whether a container of A has its number."""
        return (id(container), True) in self._of

    def _shape(self, value: Any, of_a: bool) -> Any:
        if isinstance(value, list):
            return ("l", *[self.give(item, of_a) for item in value])
        return ("o", *[(name, self.give(value[name], of_a)) for name in sorted(value)])

    def _number(self, key: Any) -> int:
        return self._numbers.setdefault(key, len(self._numbers))


def _scalar(value: Any) -> Any:
    if isinstance(value, str):
        return ("s", value)
    if value is None or isinstance(value, bool):
        return ("c", value is None, value is True)
    if isinstance(value, (int, Decimal)):
        return ("n", jsonvalue.number_text(value))
    return ("x", repr(value))


class _Diff:
    def __init__(self, soften: Soften | None) -> None:
        self.soften = soften
        self.exact = _Numbers(_same)
        self.soft = self.exact if soften is None else _Numbers(soften)
        self.keep: list[Any] = []  # parsed inner documents: `_Numbers` knows containers by their id()
        self.out: list[Change] = []

    def run(self, a: Any, b: Any) -> list[Change]:
        self.walk(a, b, (), ())
        return self.out

    def walk(self, a: Any, b: Any, at: Path, bt: Path) -> None:
        if isinstance(a, dict) and isinstance(b, dict):
            self.members(a, b, at, bt)
        elif isinstance(a, list) and isinstance(b, list):
            if not self.spelled_alike(a, b) and self.exact.give(a, True) != self.exact.give(b, False):
                self.elements(a, b, at, bt)
        elif not isinstance(a, (dict, list)) and not isinstance(b, (dict, list)) and _scalar(a) == _scalar(b):
            return
        elif isinstance(a, str) and isinstance(b, str) and (inner := self.documents(a, b)):
            self.walk(*inner, (*at, INNER), (*bt, INNER))
        else:
            kind = "value" if _type(a) == _type(b) or a is None or b is None else "type"
            self.out.append(Change(kind, at, bt, a, b))

    def spelled_alike(self, a: list[Any], b: list[Any]) -> bool:
        """Whether two arrays are one value to the letter: the usual case, and told without numbering what is in them.

        Not asked of arrays in arrays that differ: those have their numbers, and text upon text would not be linear.
        """
        return len(a) == len(b) and not self.exact.knows(a) and repr(a) == repr(b)

    def documents(self, a: str, b: str) -> tuple[Any, Any] | None:
        """Two texts that are JSON documents themselves, as MCP tools answer; but for white space they must differ."""
        if a[:1] not in ("{", "[") or b[:1] != a[:1]:
            return None
        try:
            parsed = jsonvalue.parse(a), jsonvalue.parse(b)
            if jsonvalue.canonical(parsed[0]) == jsonvalue.canonical(parsed[1]):
                return None
        except jsonvalue.NotJson:
            return None
        self.keep.append(parsed)
        return parsed

    def members(self, a: dict[str, Any], b: dict[str, Any], at: Path, bt: Path) -> None:
        renamed = self.renamed(a, b) if a.keys() != b.keys() else {}
        for name, value in a.items():
            if name in b:
                other = b[name]
                if type(value) is not type(other) or type(value) not in _PLAIN or value != other:
                    self.walk(value, other, (*at, name), (*bt, name))
            elif name in renamed:
                new = renamed[name]
                self.out.append(Change("key", (*at, name), (*bt, new), name, new))
                self.walk(value, b[new], (*at, name), (*bt, new))
            else:
                self.out.append(Change("removed", (*at, name), (*bt, name), value, ABSENT))
        met = set(renamed.values())
        for name, value in b.items():
            if name not in a and name not in met:
                self.out.append(Change("added", (*at, name), (*bt, name), ABSENT, value))

    def renamed(self, a: dict[str, Any], b: dict[str, Any]) -> dict[str, str]:
        """Member names that are ids: those whose new name is known, then the rest in their order."""
        left, right = [name for name in a if name not in b], [name for name in b if name not in a]
        known = {name: str(self.soften(name, True)) for name in left if self.soften is not None}
        pairs = {name: other for name, other in known.items() if other in right}
        rest = [name for name in right if name not in pairs.values()]
        for name in left:
            if name not in pairs and rest and fresh_alike(name, rest[0]):
                pairs[name] = rest.pop(0)
        return pairs

    def elements(self, a: list[Any], b: list[Any], at: Path, bt: Path) -> None:
        keys = _learned_keys(a, b, self.soft)
        labels = ([self.exact.give(x, True) for x in a], [self.exact.give(y, False) for y in b])
        if not _moved(*labels, unique=False):  # where spelling alone tells that elements moved, they moved
            labels = keys or ([self.soft.give(x, True) for x in a], [self.soft.give(y, False) for y in b])
        pairs = _reordered(*labels) if _moved(*labels, unique=labels is keys) else None
        if pairs is not None:
            self.out.append(Change("order", at, bt, a, b))
        else:
            pairs = align(*labels, self._likeness(a, b, keyed=keys is not None), window=_window(len(a), len(b)))
        for x, y in pairs:
            if y is None:
                assert x is not None
                self.out.append(Change("removed", (*at, x), (*bt, x), a[x], ABSENT))
            elif x is None:
                self.out.append(Change("added", (*at, y), (*bt, y), ABSENT, b[y]))
            else:
                self.walk(a[x], b[y], (*at, x), (*bt, y))

    def _likeness(self, a: list[Any], b: list[Any], *, keyed: bool) -> Callable[[int, int], float]:
        """How much two elements between the same two matches are one that changed.

        Anything may have become anything else; but of two things with keys of their own, one left and one came.
        """
        least = 0.0 if keyed else 0.1

        def likeness(x: int, y: int) -> float:
            left, right = a[x], b[y]
            if not isinstance(left, dict) or not isinstance(right, dict):
                return 0.5 if _type(left) == _type(right) else least
            names = left.keys() | right.keys()
            same = sum(
                1.0 if self.soft.give(left[name], True) == self.soft.give(right[name], False) else 0.5
                for name in left.keys() & right.keys()
            )
            return 2 * same / len(names) if names and same > 0.4 * len(names) else least

        return likeness


def _window(n: int, m: int) -> int:
    return WINDOW if n * m <= _MAX_TABLE else 64


def _type(value: Any) -> str:
    for name, kinds in (("object", dict), ("array", list), ("string", str), ("boolean", bool)):
        if isinstance(value, kinds):
            return name
    return "null" if value is None else "absent" if value is ABSENT else "number"


def type_name(value: Any) -> str:
    """The JSON type of a value, in the words that people read."""
    return _type(value)


def _moved(a: list[Any], b: list[Any], *, unique: bool) -> bool:
    """Whether the same labels stand in another order: all of them, or of keyed elements those that both have."""
    if a == b:
        return False
    if not unique:
        return len(a) == len(b) and Counter(a) == Counter(b)
    in_a, in_b = set(a), set(b)
    return [key for key in a if key in in_b] != [key for key in b if key in in_a]


def _reordered(a: list[Any], b: list[Any]) -> list[tuple[int | None, int | None]]:
    """Pairs by label, the k-th with the k-th; what one side lacks is alone."""
    places: dict[Any, list[int]] = {}
    for y in range(len(b) - 1, -1, -1):
        places.setdefault(b[y], []).append(y)
    pairs: list[tuple[int | None, int | None]] = [
        (x, places[label].pop() if places.get(label) else None) for x, label in enumerate(a)
    ]
    return pairs + sorted((None, y) for left in places.values() for y in left)


def _learned_keys(a: list[Any], b: list[Any], soft: _Numbers) -> tuple[list[Any], list[Any]] | None:
    """The labels of both arrays by the member that names their elements; None when no member does."""
    if (len(a) < 2 and len(b) < 2) or not all(isinstance(item, dict) for item in (*a, *b)):
        return None
    for name in [name for name in _KEYS if name in a[0]] if a else []:
        left, right = _key_values(a, name, soft, True), _key_values(b, name, soft, False)
        if left and right and len(set(left) & set(right)) >= OVERLAP * min(len(left), len(right)):
            return left, right
    return None


def _key_values(items: list[Any], name: str, soft: _Numbers, of_a: bool) -> list[Any] | None:
    values = [item.get(name) for item in items]
    if not all(isinstance(value, str | int | Decimal) and not isinstance(value, bool) for value in values):
        return None
    labels = [soft.give(value, of_a) for value in values]
    return labels if len(set(labels)) == len(labels) else None
