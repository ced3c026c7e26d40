"""Which member of an answer is which column of the state, learned from moments when nothing was being written.

Structure proposes (`cells`), values decide: a pair counts once it agreed at a quiet point, and is dropped by a
disagreement at a quiet point so long after the last write that no honest cache could explain it. Otherwise a stale
cache would teach us that the member is not the column.
"""

from __future__ import annotations

from dataclasses import dataclass

SETTLED_NS = 5_000_000_000
"""A disagreement counts against a pair only this long after the last write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A member of the answers of one kind of request, and the column that it should be. `query`: the names asked."""

    env: str
    table: str
    pointer: str  # `*` for the item of a list
    column: str
    query: tuple[str, ...]


@dataclass(slots=True)
class _Score:
    agreed: int = 0
    dropped: bool = False


class Agreement:
    """What was learned so far in a run."""

    def __init__(self) -> None:
        self._scores: dict[Pair, _Score] = {}

    def note(self, pair: Pair, *, agrees: bool, since_write: int | None) -> None:
        """`since_write`: ns between the last write and the reading."""
        score = self._scores.setdefault(pair, _Score())
        if agrees:
            score.agreed += 1
        elif since_write is not None and since_write > SETTLED_NS:
            score.dropped = True

    def holds(self, pair: Pair) -> bool:
        score = self._scores.get(pair)
        return score is not None and score.agreed > 0 and not score.dropped

    def dropped(self, pair: Pair) -> bool:
        score = self._scores.get(pair)
        return score is not None and score.dropped

    def agreed(self, pair: Pair) -> int:
        score = self._scores.get(pair)
        return score.agreed if score else 0
