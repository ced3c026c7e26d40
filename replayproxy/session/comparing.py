"""Compares episodes in another process while this one still reads the run: two cores, one judgement.

The episodes of a task and seed are compared with the first of them. Which of them may be compared at all is known
only when the whole run was read; what was compared in vain by then is thrown away, and what was not compared in time
is done by whoever asks. So the judgement is the same, whatever the processes do.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from replayproxy.core.rules import Rule
from replayproxy.core.values import Episode, Run, Trace
from replayproxy.detect.nondeterminism import Pairwise, pairwise
from replayproxy.session.beside import Crew, Lost, cores, crew
from replayproxy.storage import Reader, open_store

WORTH = 64
"""Episodes below which starting a process costs more than it saves."""

FIRSTS = 8_000
"""Exchanges of episodes that others are compared with, kept in the other process: one is asked for again and again."""


@dataclass(slots=True)
class Comparing:
    """`Ahead` over a crew of processes."""

    crew: Crew
    _first: dict[Hashable, str] = field(default_factory=dict)
    _asked: dict[tuple[str, str], Future[Pairwise]] = field(default_factory=dict)

    def offer(self, episode: Episode, group: Hashable) -> None:
        first = self._first.setdefault(group, episode.name)
        if first != episode.name:
            self._asked[first, episode.name] = self.crew.submit(_compared, first, episode.name)

    def pairwise(self, first: Episode, other: Episode) -> Pairwise | None:
        asked = self._asked.pop((first.name, other.name), None)
        if asked is None or asked.cancel():
            return None
        try:
            return asked.result()
        except Lost:
            return None


@contextmanager
def ahead(path: Path, run: str, episodes: int, rules: Sequence[Rule], today: date | None) -> Iterator[Comparing | None]:
    """None where it would not be worth it."""
    if (free := cores()) < 2 or episodes < WORTH:
        yield None
        return
    with crew(min(free - 1, 4), _open, str(path), run, tuple(rules), today) as made:
        yield Comparing(made)


# In the other process


@dataclass(slots=True)
class _Here:
    reader: Reader
    run: Run
    rules: tuple[Rule, ...]
    today: date | None
    firsts: OrderedDict[str, Trace] = field(default_factory=OrderedDict)
    kept: int = 0  # exchanges of `firsts`

    def trace(self, name: str) -> Trace:
        return self.reader.trace(self.run, self.reader.episode(self.run, name))

    def first(self, name: str) -> Trace:
        """An episode that others are compared with; those asked for longest ago are forgotten first."""
        found = self.firsts.pop(name, None)
        if found is None:
            found = self.trace(name)
            self.kept += len(found.exchanges)
        self.firsts[name] = found
        while self.kept > FIRSTS and len(self.firsts) > 1:
            self.kept -= len(self.firsts.popitem(last=False)[1].exchanges)
        return found


_here: list[_Here] = []


def _open(path: str, run: str, rules: tuple[Rule, ...], today: date | None) -> None:
    reader = open_store(Path(path)).reader()
    _here[:] = [_Here(reader=reader, run=reader.run(run), rules=rules, today=today)]


def _compared(first: str, other: str) -> Pairwise:
    (here,) = _here
    return pairwise(
        here.first(first), here.trace(other), load=here.reader.node, rules=here.rules, today=here.today
    )  # fmt: skip
