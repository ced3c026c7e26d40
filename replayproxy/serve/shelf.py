"""Which of the loaded episodes of a replay stay in memory: those being played, and a few more.

An episode of a thousand exchanges takes 3 to 4 MB, so a run of a million would take as much as it is large. Whatever
was played to its end, or was ended, goes first; of the others, what nobody asked for the longest, when there are very
many.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

ENOUGH = 2_000
"""Exchanges in memory from which on episodes that were played to their end are set aside."""

MOST = 200_000
"""Exchanges in memory from which on others are, too: some 700 MB. Reading an episode again costs 0.1 ms an exchange."""

LOOKS = 64
"""So many episodes are looked at whenever one has been read, and one more for each of its exchanges: with ten thousand
that are being played, to look at all of them would hold everybody up."""


class Shelf:
    """Names of loaded episodes with their sizes (exchanges), the one asked for the longest ago first."""

    def __init__(self, *, enough: int = ENOUGH, most: int = MOST) -> None:
        self._enough, self._most = enough, most
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._round: OrderedDict[str, None] = OrderedDict()  # the same names, the one looked at the longest ago first
        self.size = 0

    def put(self, name: str, size: int) -> None:
        """It was read, and is the last one asked for."""
        self.size += size - self._sizes.pop(name, 0)
        self._sizes[name] = size
        self._round[name] = None

    def used(self, name: str) -> None:
        self._sizes.move_to_end(name)

    def spare(self, *, idle: Callable[[str], bool], over: Callable[[str], bool]) -> Iterator[str]:
        """Those to be set aside now that one was put; each is off the shelf when it is given. Only `idle` ones; those
        that are `over` first, as far as they are found (`LOOKS`): the next call goes on behind them."""
        latest, read = next(reversed(self._sizes.items()))

        def found(queue: OrderedDict[str, Any], limit: int, fits: Callable[[str], bool]) -> Iterator[str]:
            for _ in range(min(LOOKS + read, len(queue))):
                if self.size <= limit:
                    return
                name = next(iter(queue))
                if name != latest and fits(name):
                    self.size -= self._sizes.pop(name)
                    del self._round[name]
                    yield name
                else:
                    queue.move_to_end(name)  # one that is not idle is in use

        yield from found(self._round, self._enough, lambda name: idle(name) and over(name))
        yield from found(self._sizes, self._most, idle)
