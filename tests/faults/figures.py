"""Shares with their intervals, and the sums of many cells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import comb

from replayproxy.detect.finding import CONVINCING
from replayproxy.detect.verdicts import wilson
from tests.faults.score import Score


@dataclass(frozen=True, slots=True)
class Share:
    """`hits` of `n`."""

    hits: int
    n: int

    @property
    def value(self) -> float | None:
        return self.hits / self.n if self.n else None

    def __str__(self) -> str:
        if not self.n:
            return "none occurred"
        low, high = wilson(self.hits, self.n)
        return f"{self.hits}/{self.n} = {self.hits / self.n:.3f} [{low:.3f}, {high:.3f}]"


def at_most(hits: int, n: int, confidence: float = 0.95) -> float:
    """The exact one-sided upper bound of a rate of which `hits` were seen in `n` (Clopper and Pearson)."""
    if hits >= n:
        return 1.0
    low, high = hits / n, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        tail = sum(comb(n, k) * middle**k * (1 - middle) ** (n - k) for k in range(hits + 1))
        low, high = (middle, high) if tail > 1 - confidence else (low, middle)
    return high


def recall(scores: Iterable[Score]) -> Share:
    """Faults that some finding of any grade named, of those that occurred."""
    scores = list(scores)
    return Share(sum(s.found for s in scores), sum(len(s.best) for s in scores))


def firm(scores: Iterable[Score]) -> Share:
    """The same with proven and confirmed findings alone."""
    scores = list(scores)
    return Share(sum(s.convincing for s in scores), sum(len(s.best) for s in scores))


def precision(scores: Iterable[Score], wanted: Callable[[str, str], bool]) -> Share:
    """Findings that are not wrong, of those whose (kind, grade) is wanted."""
    right, wrong = Counter[bool](), 0
    for score in scores:
        for name, count in (*score.right.items(), *score.aside.items()):
            right[wanted(*name)] += count
        wrong += sum(count for name, count in score.wrong.items() if wanted(*name))
    return Share(right[True], right[True] + wrong)


def convincing(kind: str, grade: str) -> bool:
    return grade in CONVINCING


def per_fault(scores: Iterable[Score]) -> float | None:
    """Findings for each different thing that was told: more than 1, and some faults are told twice."""
    scores = list(scores)
    told = sum(s.told for s in scores)
    return sum(s.hits for s in scores) / told if told else None


def summed(scores: Sequence[Score], part: str) -> Counter[tuple[str, str]]:
    """`right`, `aside` or `wrong` of all scores."""
    total: Counter[tuple[str, str]] = Counter()
    for score in scores:
        total.update(getattr(score, part))
    return total
