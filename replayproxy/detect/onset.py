"""Since when it went wrong: the moment at which the share of bad episodes rose, and what else changed then.

A change point over the episodes in the order of their opening: of all places before a bad episode the one whose two
sides differ most (likelihood ratio), held to Fisher's exact test. It is a place to look at first, no proof of a cause.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, lgamma, log
from typing import Any

from replayproxy.core import jsonvalue

LEVEL = 0.01
"""The rise is told where Fisher's p, times the places that were tried, is below."""

STRAY = 0.1
"""Share of the episodes of a side that may still, or already, have the other side's value: work in flight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Onset:
    """`at`: index of the first bad episode after the rise. `before` and `since`: (bad, all). `p` is corrected.

    `changed`: name -> (value before, value since), of what is no mere counter.
    """

    at: int
    before: tuple[int, int]
    since: tuple[int, int]
    p: float
    changed: Mapping[str, tuple[Any, Any]]


def onset(bad: Sequence[bool], meta: Sequence[Mapping[str, Any]]) -> Onset | None:
    """Where the share of bad ones rose; None where it did not, or cannot be told from chance. Linear."""
    total, places = sum(bad), [at for at, one in enumerate(bad) if one and at]
    if not places:
        return None
    best, seen, most = 0, 0, 0.0
    for at, one in enumerate(bad):
        if one and at and seen * (len(bad) - at) < (total - seen) * at:
            gain = _fit(seen, at) + _fit(total - seen, len(bad) - at)
            if not best or gain > most:
                best, most = at, gain
        seen += one
    if not best:
        return None
    early = sum(bad[:best])
    p = min(1.0, len(places) * fisher(early, best, total - early, len(bad) - best))
    if p >= LEVEL:
        return None
    return Onset(
        at=best, before=(early, best), since=(total - early, len(bad) - best), p=p,
        changed=changes(meta[:best], meta[best:]),
    )  # fmt: skip


def _fit(hits: int, of: int) -> float:
    """The log-likelihood of a side under its own rate."""
    return sum(count * log(count / of) for count in (hits, of - hits) if count)


def fisher(a_hits: int, a_of: int, b_hits: int, b_of: int) -> float:
    """Fisher's exact test, one side: the chance that b has so many of the hits, or more, if both rates are equal."""
    hits, of = a_hits + b_hits, a_of + b_of

    def ways(n: int, k: int) -> float:
        return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)

    whole = ways(of, hits)
    upper = min(hits, b_of)
    return min(1.0, sum(exp(ways(b_of, k) + ways(a_of, hits - k) - whole) for k in range(b_hits, upper + 1)))


def changes(before: Sequence[Mapping[str, Any]], since: Sequence[Mapping[str, Any]]) -> dict[str, tuple[Any, Any]]:
    """What has one value, or some, before a moment and others since. What only counts upwards is left out."""
    found = {}
    for name in sorted({name for one in (*before, *since) for name in one}):
        old = [(jsonvalue.canonical(one.get(name)), one.get(name)) for one in before]
        new = [(jsonvalue.canonical(one.get(name)), one.get(name)) for one in since]
        early, late = _sides([key for key, _ in old], [key for key, _ in new])
        strays = max(sum(key in early for key, _ in new) / len(new), sum(key in late for key, _ in old) / len(old))
        if early and late and strays <= STRAY and not _counts([value for _, value in (*old, *new)]):
            left = next(value for key, value in reversed(old) if key in early)
            found[name] = left, next(value for key, value in new if key in late)
    return found


def _sides(old: Sequence[bytes], new: Sequence[bytes]) -> tuple[set[bytes], set[bytes]]:
    """The values that are commoner before, and those that are commoner since."""
    before, since = Counter(old), Counter(new)
    late = {key for key in since if since[key] * len(old) > before[key] * len(new)}
    return set(before) - late, late


def _counts(values: Sequence[Any]) -> bool:
    """Whether the values are numbers that grow with time, such as a training step, in more than one place."""
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    return len(numbers) == len(values) and numbers == sorted(numbers) and len(set(numbers)) > 2
