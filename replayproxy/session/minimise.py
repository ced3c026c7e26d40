"""The smallest part of a list of exchanges that still shows something (delta debugging), by trying."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise

type Shows = Callable[[frozenset[int]], Awaitable[bool]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Minimal:
    """`kept` shows it. `finished`: leaving out any one more of it (with what needs it) does not."""

    kept: frozenset[int]
    tries: int
    finished: bool


class _Spent(Exception):
    """As many tries as were allowed."""


def closed(chosen: Iterable[int], needs: Mapping[int, Set[int]]) -> frozenset[int]:
    """The chosen ones with what they need, and what that needs."""
    found: set[int] = set()
    todo = list(chosen)
    while todo:
        one = todo.pop()
        if one not in found:
            found.add(one)
            todo += needs.get(one, ())
    return frozenset(found)


async def minimise(
    whole: Sequence[int], shows: Shows, *, needs: Mapping[int, Set[int]], first: Sequence[Iterable[int]] = (),
    most: int = 60,
) -> Minimal:  # fmt: skip
    """`whole` is known to show it. `needs`: consumer -> producers that are never left out while it is kept. `first`:
    guesses that are tried before anything else, the likeliest first; the first that shows it is gone on from."""
    search = _Search(whole, shows, needs, most)
    try:
        for guess in first:
            chosen = closed((one for one in guess if one in search.kept), needs)
            if chosen and chosen < search.kept and await search.shown(chosen):
                break
        await search.halve()
        finished = True
    except _Spent:
        finished = False
    return Minimal(kept=search.kept, tries=search.tries, finished=finished)


class _Search:
    def __init__(self, whole: Sequence[int], shows: Shows, needs: Mapping[int, Set[int]], most: int) -> None:
        self.kept = frozenset(whole)
        self.tries = 0
        self._order, self._shows, self._needs, self._most = list(whole), shows, needs, most
        self._failed: set[frozenset[int]] = set()

    async def shown(self, chosen: frozenset[int]) -> bool:
        """Whether the chosen ones show it; then they are what is kept."""
        if chosen in self._failed:
            return False
        if self.tries >= self._most:
            raise _Spent
        self.tries += 1
        if not await self._shows(chosen):
            self._failed.add(chosen)
            return False
        self.kept = chosen
        return True

    async def halve(self) -> None:
        """ddmin: parts alone, then what is left without each part, in ever finer parts."""
        parts = 2
        while len(self.kept) > 1:
            ordered = [one for one in self._order if one in self.kept]
            parts = min(parts, len(ordered))
            pieces = [frozenset(piece) for piece in _pieces(ordered, parts)]
            if await self._any(pieces):
                parts = 2
            elif await self._any([self.kept - piece for piece in pieces]):
                parts = max(parts - 1, 2)
            elif parts == len(ordered):
                return
            else:
                parts = min(2 * parts, len(ordered))

    async def _any(self, sets: Sequence[frozenset[int]]) -> bool:
        for one in sets:
            if await self._try(one):
                return True
        return False

    async def _try(self, chosen: frozenset[int]) -> bool:
        whole = closed(chosen, self._needs)
        return bool(whole) and whole < self.kept and await self.shown(whole)


def _pieces(ordered: Sequence[int], parts: int) -> list[list[int]]:
    bounds = [round(at * len(ordered) / parts) for at in range(parts + 1)]
    return [list(ordered[a:b]) for a, b in pairwise(bounds) if a < b]
