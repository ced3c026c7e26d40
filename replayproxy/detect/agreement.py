"""Which member of an answer is which column of the state, learned from moments when nothing was being written.

Structure proposes (`cells`), values decide: a pair counts once it agreed at a quiet point, or in two different values
while others wrote, and is dropped by a disagreement at a quiet point long after the last write. Otherwise a stale
cache would teach us that the member is not the column. A cache may be stale for minutes, though: a disagreement that
shows an earlier value of the very cell drops only a pair that has not agreed in two different values, because a member
that is not the column does that too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

SETTLED_NS = 5_000_000_000
"""A disagreement counts against a pair only this long after the last write."""


class Pair(NamedTuple):
    """A member of the answers of one kind of request, and the column that it should be. `query`: the names asked."""

    env: str
    table: str
    pointer: str  # `*` for the item of a list
    column: str
    query: tuple[str, ...]


@dataclass(slots=True)
class _Score:
    agreed: int = 0
    values: set[str] = field(default_factory=set)  # at most two of those it agreed in
    steady: set[str] = field(default_factory=set)  # the same, while others wrote
    dropped: bool = False
    doubted: bool = False

    @property
    def wrong(self) -> bool:
        return self.dropped or (self.doubted and len(self.values) < 2)


class Agreement:
    """What was learned so far in a run."""

    def __init__(self) -> None:
        self._scores: dict[Pair, _Score] = {}
        self._items: dict[tuple[str, str, tuple[str, ...]], list[Pair]] = {}
        self._listed: dict[tuple[str, str], int] = {}
        self._views: dict[tuple[Pair, int], set[str]] = {}

    def agree(self, pair: Pair, value: str) -> None:
        """The member showed the column's value, in normal form."""
        score = self._score(pair)
        score.agreed += 1
        if len(score.values) < 2:
            score.values.add(value)

    def _score(self, pair: Pair) -> _Score:
        score = self._scores.get(pair)
        if score is None:
            score = self._scores[pair] = _Score()
            if pair.column == "" and not pair.pointer.endswith("*"):
                self._items.setdefault((pair.env, pair.table, pair.query), []).append(pair)
        return score

    def agree_steadily(self, pair: Pair, value: str) -> None:
        """The member showed what the column held before and after, while others wrote: one such value may be chance."""
        score = self._score(pair)
        if len(score.steady) < 2:
            score.steady.add(value)

    def disagree(self, pair: Pair, *, since_write: int, earlier: bool) -> None:
        """It did not. `since_write`: ns between the last write and the reading; `earlier`: the column had held it."""
        score = self._scores.setdefault(pair, _Score())
        if since_write > SETTLED_NS:
            score.doubted |= earlier
            score.dropped |= not earlier

    def saw(self, pair: Pair, who: int, value: str) -> None:
        """A principal was shown this value, as the state held it."""
        seen = self._views.setdefault((pair, who), set())
        if len(seen) < 2:
            seen.add(value)

    def views(self, pair: Pair, who: int) -> int:
        """How many different values, of at most two, the principal was shown as the state held them."""
        return len(self._views.get((pair, who), ()))

    def holds(self, pair: Pair) -> bool:
        score = self._scores.get(pair)
        return score is not None and (score.agreed > 0 or len(score.steady) > 1) and not score.wrong

    def dropped(self, pair: Pair) -> bool:
        score = self._scores.get(pair)
        return score is not None and score.wrong

    def agreed(self, pair: Pair) -> int:
        score = self._scores.get(pair)
        return score.agreed if score else 0

    def item(self, env: str, table: str, query: tuple[str, ...]) -> Pair | None:
        """How a request for one row of the table shows that row, if it is known."""
        return next((pair for pair in self._items.get((env, table, query), ()) if self.holds(pair)), None)

    def listed(self, env: str, target: str, rows: int) -> None:
        """A list showed all rows of its table."""
        self._listed[env, target] = max(rows, self._listed.get((env, target), 0))

    def most_listed(self, env: str, target: str) -> int | None:
        """The most rows that the list showed when it showed the whole table; None: it never did."""
        return self._listed.get((env, target))
