"""The figures of one recording that `GET /metrics` gives, counted as it comes.

Rules of this file: every label has few values, whatever the agents ask for. Names of environments are the agents' to
choose where there is a forward proxy, so only the first `ENVS_KEPT` get a name of their own; outcomes, kinds and grades
are closed sets.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from replayproxy.core.values import Exchange, Snapshot, SnapshotStatus

ENVS_KEPT = 100
OTHER_ENVS = "(other)"
"""Stands for all further environments. No environment's name, nor a host's, has a bracket of this kind."""

ADDED_BOUNDS = (0.00025, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.008, 0.012, 0.02, 0.05, 0.1, 0.25, 1.0, 5.0)
SNAPSHOT_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Seconds. The proxy adds a millisecond or two; a write's answer is held for 250 ms at most unless told otherwise."""


class Durations:
    """How many durations there were up to each bound, and their sum."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        """A bound belongs to its bucket (`le`)."""
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.sum += seconds


@dataclass(slots=True)
class Figures:
    """`exchanges`: (environment, outcome) -> how many; `findings`: (kind, grade) -> how many."""

    exchanges: Counter[tuple[str, str]] = field(default_factory=Counter)
    findings: Counter[tuple[str, str]] = field(default_factory=Counter)
    added: Durations = field(default_factory=lambda: Durations(ADDED_BOUNDS))
    snapshots: Durations = field(default_factory=lambda: Durations(SNAPSHOT_BOUNDS))
    _envs: set[str] = field(default_factory=set)

    def name(self, env: str) -> str:
        """What the environment is called in a label."""
        if env not in self._envs:
            if len(self._envs) >= ENVS_KEPT:
                return OTHER_ENVS
            self._envs.add(env)
        return env

    def exchange(self, exchange: Exchange, added: int | None) -> None:
        """`added`: what the proxy added to it, in ns; None: that is not known of it."""
        self.exchanges[self.name(exchange.env), exchange.outcome.value] += 1
        if added is not None:
            self.added.add(added / 1e9)

    def snapshot(self, snapshot: Snapshot) -> None:
        """One that is missing took no time that could be told."""
        if snapshot.status is not SnapshotStatus.MISSING:
            self.snapshots.add((snapshot.done - snapshot.begun) / 1e9)

    def judged(self, verdict: Any) -> None:
        """The findings that fall on an ended episode."""
        for reason in verdict["reasons"]:
            self.findings[reason["kind"], reason["grade"]] += 1
