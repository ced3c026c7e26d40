"""Whether two sets of rows are one but for the names of their ids: colour refinement.

Every row begins with the colour of its content without ids and instants, every id with one colour for all. Round by
round a row takes on the colours of the ids in it, and an id the colours of the rows and places where it stands, until
no more colours come. Rows of two resets that are one under a renaming have the same colours in the same number. The
other way round it holds for all but very regular tangles; rows of one colour are interchangeable as far as this looks.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

MAX_ROUNDS = 16
MAX_ROWS = 5_000
"""With more rows than these nothing is said."""


class Id(NamedTuple):
    """An id as a row holds it. `scope`: what it is an id of; "" for one that is unique by its form."""

    scope: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """A row: its table, its own key, and its content, whose leaves are plain or of class `Id`."""

    table: str
    key: str | Id
    tree: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """Indices of the rows on each side that have no counterpart. `ties`: several rows are alike in all that is told."""

    left: tuple[int, ...]
    right: tuple[int, ...]
    ties: bool


def match(left: Sequence[Content], right: Sequence[Content]) -> Matched | None:
    """None: too many rows. O((rows + ids) · rounds)."""
    if len(left) + len(right) > MAX_ROWS:
        return None
    sides = (_Side(left), _Side(right))
    for _ in range(MAX_ROUNDS):
        before = [side.classes for side in sides]
        for side in sides:
            side.refine()
        if [side.classes for side in sides] == before:
            break
    ours, theirs = (side.colours for side in sides)
    counts = Counter(ours), Counter(theirs)
    return Matched(
        left=_beyond(ours, counts[1]), right=_beyond(theirs, counts[0]),
        ties=any(number > 1 for number in counts[0].values()),
    )  # fmt: skip


def _beyond(colours: Sequence[int], other: Mapping[int, int]) -> tuple[int, ...]:
    """The rows of a colour beyond those that the other side has of it."""
    seen: Counter[int] = Counter()
    found = []
    for index, colour in enumerate(colours):
        seen[colour] += 1
        if seen[colour] > other.get(colour, 0):
            found.append(index)
    return tuple(found)


class _Side:
    def __init__(self, rows: Sequence[Content]) -> None:
        self._rows = rows
        self._ids: dict[Id, int] = {}
        self._at: dict[Id, list[tuple[int, int]]] = defaultdict(list)  # id -> (row, place)
        for index, row in enumerate(rows):
            self._note(row.key, index, hash("key"))
            self._note(row.tree, index, 0)
        self.colours: list[int] = [0] * len(rows)
        self._colour_rows()

    @property
    def classes(self) -> int:
        return len(set(self.colours)) + len(set(self._ids.values()))

    def refine(self) -> None:
        self._ids = {
            one: hash((colour, tuple(sorted((self.colours[row], place) for row, place in self._at[one]))))
            for one, colour in self._ids.items()
        }  # fmt: skip
        self._colour_rows()

    def _colour_rows(self) -> None:
        self.colours = [
            hash((row.table, _colour(row.key, self._ids.get), _colour(row.tree, self._ids.get))) for row in self._rows
        ]

    def _note(self, tree: Any, index: int, place: int) -> None:
        if isinstance(tree, Id):
            self._ids[tree] = hash(tree.scope)
            self._at[tree].append((index, place))
        elif isinstance(tree, dict):
            for name, item in tree.items():
                self._note(item, index, hash((place, name)))
        elif isinstance(tree, list):
            for item in tree:
                self._note(item, index, hash((place, "*")))


def _colour(tree: Any, of: Callable[[Id], int | None]) -> int:
    """The order of a list tells nothing: a database gives what belongs to a row in any."""
    if isinstance(tree, Id):
        return hash(("id", of(tree)))
    if isinstance(tree, dict):
        return hash(tuple(sorted((name, _colour(item, of)) for name, item in tree.items())))
    if isinstance(tree, list):
        return hash(("list", tuple(sorted(_colour(item, of) for item in tree))))
    return hash((type(tree).__name__ == "bool", tree))
