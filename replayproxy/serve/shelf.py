"""Which of the loaded episodes of a replay stay in memory: those being played, and a few more.

An episode of a thousand exchanges takes 3 to 4 MB, so a run of a million would take as much as it is large. Whatever
was played to its end goes first; of the others, what nobody asked for the longest, when there are very many.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator

ENOUGH = 2_000
"""Exchanges in memory from which on episodes that were played to their end are set aside."""

MOST = 200_000
"""Exchanges in memory from which on others are, too: some 700 MB. Reading an episode again costs 0.1 ms an exchange."""


class Shelf:
    """Names of loaded episodes with their sizes (exchanges), the one asked for the longest ago first."""

    def __init__(self, *, enough: int = ENOUGH, most: int = MOST) -> None:
        self._enough, self._most = enough, most
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self.size = 0

    def put(self, name: str, size: int) -> None:
        self._sizes[name] = size
        self.size += size

    def used(self, name: str) -> None:
        self._sizes.move_to_end(name)

    def spare(self, *, idle: Callable[[str], bool], over: Callable[[str], bool]) -> Iterator[str]:
        """Those to be set aside now; each is off the shelf when it is given. Only `idle` ones; those that are `over`
        first."""
        for limit, fits in ((self._enough, lambda name: over(name) and idle(name)), (self._most, idle)):
            if self.size <= limit:
                return
            for name in [*self._sizes][:-1]:  # the last one has just been asked for
                if self.size <= limit:
                    return
                if fits(name):
                    self.size -= self._sizes.pop(name)
                    yield name
