"""Which recorded answers must have been given before another may be: the order across the lanes of an episode.

The rule: x comes before e when they are in different lanes of one environment, one of them is a write, one path is
a segment prefix of the other, and x had ended before e began. Order within a lane is the agent's own business.

Counterexample for anything weaker: lane A creates a deal and tells lane B through the agent's memory to read the
list. A read that a replay answers before the create was asked for shows B an answer that it saw only afterwards.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from replayproxy.core.effects import segments


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """What the rule looks at in one exchange. `ended` None: it never holds anybody back."""

    at: int
    lane: str
    env: str
    target: bytes
    write: bool
    begun: int
    ended: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gates:
    """`cells`: exchanges of one lane, path and effect, by the instant they ended. `needs[at]`: (cell, n) pairs: the
    first n of that cell must be done. `where[at]`: (cell, rank) of an exchange that holds others back.

    A prefix count per cell is exact and stays small, where a list of pairs would grow with the square.
    """

    cells: Sequence[Sequence[int]]
    needs: dict[int, tuple[tuple[int, int], ...]]
    where: dict[int, tuple[int, int]]


type _Cell = tuple[str, str, tuple[bytes, ...], bool]  # environment, lane, path, write


def gates(moves: Iterable[Move]) -> Gates:
    """The gates of an episode. Episodes of one lane have none."""
    listed = list(moves)
    if len({move.lane for move in listed}) < 2:
        return Gates(cells=(), needs={}, where={})
    known: dict[bytes, tuple[bytes, ...]] = {}
    paths = {move.at: known.get(move.target) or known.setdefault(move.target, segments(move.target)) for move in listed}
    members: dict[_Cell, list[Move]] = defaultdict(list)
    for move in listed:
        if move.ended is not None:
            members[move.env, move.lane, paths[move.at], move.write].append(move)
    names = list(members)
    cells = [sorted(members[name], key=lambda m: (m.ended or 0, m.at)) for name in names]
    ends = [[move.ended or 0 for move in cell] for cell in cells]
    near = _Neighbours(names)
    needs: dict[int, tuple[tuple[int, int], ...]] = {}
    for move in listed:
        cells_near = near.of(move, paths[move.at])
        wanted = [(cell, before) for cell in cells_near if (before := bisect_left(ends[cell], move.begun))]
        if wanted:
            needs[move.at] = tuple(wanted)
    held_back_by = {cell for wanted in needs.values() for cell, _ in wanted}
    return Gates(
        cells=[[move.at for move in cell] for cell in cells],
        needs=needs,
        where={
            move.at: (number, rank)
            for number, cell in enumerate(cells)
            if number in held_back_by
            for rank, move in enumerate(cell)
        },
    )


class _Neighbours:
    """Finds the cells whose path is a segment prefix of a path, or has it as one."""

    def __init__(self, names: Sequence[_Cell]) -> None:
        self._names = names
        self._at: dict[tuple[str, tuple[bytes, ...]], list[int]] = defaultdict(list)
        self._below: dict[tuple[str, tuple[bytes, ...]], list[int]] = defaultdict(list)
        for number, (env, _, path, _) in enumerate(names):
            self._at[env, path].append(number)
            for length in range(len(path) + 1):
                self._below[env, path[:length]].append(number)

    def of(self, move: Move, path: tuple[bytes, ...]) -> Iterator[int]:
        above = (number for length in range(len(path)) for number in self._at.get((move.env, path[:length]), ()))
        for number in (*above, *self._below.get((move.env, path), ())):
            _, lane, _, write = self._names[number]
            if lane != move.lane and (write or move.write):
                yield number


class Progress:
    """How far the cells of one replay have come."""

    def __init__(self, gates: Gates) -> None:
        self._gates = gates
        self._done = [bytearray(len(cell)) for cell in gates.cells]
        self._prefix = [0] * len(gates.cells)

    def go_on(self, gates: Gates) -> None:
        """With the gates of the same episode, read again."""
        self._gates = gates

    def is_open(self, at: int) -> bool:
        """Whether everything that must come before this exchange is done."""
        return all(self._prefix[cell] >= count for cell, count in self._gates.needs.get(at, ()))

    def waits_for(self, at: int) -> int | None:
        """One exchange that must still come before this one."""
        for cell, count in self._gates.needs.get(at, ()):
            if self._prefix[cell] < count:
                return self._gates.cells[cell][self._prefix[cell]]
        return None

    def done(self, at: int) -> bool:
        """This exchange is done. True when that may have opened a gate."""
        place = self._gates.where.get(at)
        if place is None:
            return False
        cell, rank = place
        flags, prefix = self._done[cell], self._prefix[cell]
        flags[rank] = 1
        while prefix < len(flags) and flags[prefix]:
            prefix += 1
        moved = prefix != self._prefix[cell]
        self._prefix[cell] = prefix
        return moved
