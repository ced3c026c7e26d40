"""Compares the episodes of two runs pair by pair: one core or all of them, the same results in the same order.

A pair is compared by itself, so it matters to no result where that was done. What a process of ours did not do,
because it was killed, or because something is wrong with a recording, is done here: then the same fault shows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import islice
from pathlib import Path

from replayproxy.core.rules import Rule
from replayproxy.core.values import Episode, Run
from replayproxy.session.beside import Crew, Lost, cores, crew
from replayproxy.session.diff_pair import EpisodePair, compared
from replayproxy.storage import Reader, open_store
from replayproxy.storage.archive import Archive

type Pair = tuple[Episode, Episode]

WORTH = 4_000
"""Exchanges below which starting processes costs more than it saves."""

TOGETHER = 256
"""Exchanges that are given to a process at once: enough that telling it costs little, few enough to be shared out."""

AHEAD = 4
"""Batches under way for each process. What is done early waits here, so that memory stays bounded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """Two runs, each in its store, and by what they are compared."""

    readers: tuple[Reader, Reader]
    runs: tuple[Run, Run]
    rules: tuple[Rule, ...]
    today: date | None

    def pair(self, x: Episode, y: Episode) -> EpisodePair:
        (a, b), (of_a, of_b) = self.readers, self.runs
        return compared((a, of_a, x), (b, of_b, y), self.rules, self.today)


def in_order(ground: Ground, pairs: Sequence[Pair]) -> Generator[EpisodePair, None, None]:
    """One result for each pair. Close it when no more of them are wanted."""
    size = min(cores(), len(pairs))
    # An archive was checked and indexed as a whole when it was opened; each process would have to do that again.
    if size < 2 or any(isinstance(reader.env, Archive) for reader in ground.readers) or not _worth(ground, pairs):
        yield from (ground.pair(x, y) for x, y in pairs)
        return
    paths = tuple(str(reader.path) for reader in ground.readers)
    with crew(size, _open, paths, ground.runs, ground.rules, ground.today) as made:
        yield from _shared(ground, _batches(ground, pairs), made, AHEAD * size)


def _worth(ground: Ground, pairs: Sequence[Pair]) -> bool:
    left = WORTH
    for x, _ in pairs:
        left -= ground.readers[0].count(x)
        if left <= 0:
            return True
    return False


def _batches(ground: Ground, pairs: Sequence[Pair]) -> Iterator[list[Pair]]:
    batch: list[Pair] = []
    held = 0
    for x, y in pairs:
        batch.append((x, y))
        held += 1 + ground.readers[0].count(x)
        if held >= TOGETHER:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch


def _shared(ground: Ground, batches: Iterator[list[Pair]], made: Crew, most: int) -> Iterator[EpisodePair]:
    under_way = deque((batch, made.submit(_compared, batch)) for batch in islice(batches, most))
    while under_way:
        batch, asked = under_way.popleft()
        try:
            told = asked.result()
        except Lost:
            yield from (ground.pair(x, y) for x, y in batch)
        else:
            yield from told
        under_way.extend((more, made.submit(_compared, more)) for more in islice(batches, 1))


# In the other process

_here: list[Ground] = []


def _open(paths: tuple[str, str], runs: tuple[Run, Run], rules: tuple[Rule, ...], today: date | None) -> None:
    stores = [open_store(Path(path)) for path in paths]  # of one path they share one environment
    readers = stores[0].reader(), stores[1].reader()
    _here[:] = [Ground(readers=readers, runs=runs, rules=rules, today=today)]


def _compared(batch: Sequence[Pair]) -> list[EpisodePair]:
    (here,) = _here
    return [here.pair(x, y) for x, y in batch]
