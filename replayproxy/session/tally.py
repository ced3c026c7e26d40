"""What a recording holds, counted as it comes, and whether it is whole. `tally_text` puts it in words."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from replayproxy.core.shown import count
from replayproxy.core.values import Exchange, Outcome, Snapshot, SnapshotStatus
from replayproxy.session.figures import Figures

FAILURES = frozenset({Outcome.CUT, Outcome.REFUSED, Outcome.INVALID, Outcome.TIMED_OUT})
"""The ways in which an environment fails to answer."""

UNANSWERED = {Outcome.LOCAL: "answered by the proxy itself"}
"""How an exchange without an answer of its environment is called, where its outcome's own word does not say it."""

FAULTS_KEPT = 20


class Histogram:
    """Durations, kept as counts in buckets that are 9 % wide: a quantile of any number of them in little memory."""

    STEPS = 8

    def __init__(self) -> None:
        self._buckets: Counter[int] = Counter()

    def add(self, ns: int) -> None:
        self._buckets[math.ceil(math.log2(max(ns, 1)) * self.STEPS)] += 1

    def quantile(self, q: float) -> float | None:
        """In milliseconds; None when there is nothing."""
        left = math.ceil(self._buckets.total() * q)
        for bucket in sorted(self._buckets):
            left -= self._buckets[bucket]
            if left <= 0:
                return float(2 ** (bucket / self.STEPS) / 1e6)
        return None


@dataclass(slots=True)
class EnvTally:
    exchanges: int = 0
    errors: int = 0
    failed: Counter[Outcome] = field(default_factory=Counter)
    added: Histogram = field(default_factory=Histogram)


@dataclass(slots=True)
class Stray:
    """Unattributed traffic of one reason: how much, and the first of it."""

    count: int = 0
    first: str = ""
    agent: str = ""


@dataclass(slots=True)
class Tally:
    """Counts of one recording, without what an earlier recording of the same run holds."""

    run: str
    envs: dict[str, EnvTally] = field(default_factory=dict)
    sealed: int = 0
    declared: int = 0
    incomplete: list[str] = field(default_factory=list)
    why_incomplete: dict[str, str] = field(default_factory=dict)
    attributed: int = 0
    answered: int = 0
    unanswered: Counter[Outcome] = field(default_factory=Counter)
    lost: int = 0
    strays: dict[str, Stray] = field(default_factory=dict)
    resets_seen: int = 0
    probes: int = 0
    asked_again: int = 0
    snapshots: Counter[str] = field(default_factory=Counter)
    missing: Counter[str] = field(default_factory=Counter)
    late: int = 0
    torn: int = 0
    lane_ambiguous: int = 0
    escaping: int = 0
    empty: list[str] = field(default_factory=list)
    contradictions: int = 0
    contradiction_first: str = ""
    rules: Mapping[str, int] = field(default_factory=dict)
    rule_names: tuple[str, ...] = ()
    rules_expired: tuple[str, ...] = ()
    rules_too_large: int = 0
    faults: list[str] = field(default_factory=list)
    passed: Counter[str] = field(default_factory=Counter)
    tls_refused: Counter[str] = field(default_factory=Counter)
    verdicts: Counter[str] = field(default_factory=Counter)
    stopped: list[str] = field(default_factory=list)
    injected: Counter[str] = field(default_factory=Counter)
    chaos: tuple[str, ...] = ()  # the rules, as they were given
    hits: Counter[str] = field(default_factory=Counter)  # by rule
    on_missing: Callable[[Snapshot], None] | None = None
    figures: Figures = field(default_factory=Figures)

    def judged(self, verdict: Mapping[str, Any]) -> None:
        """A verdict on an ended episode came."""
        self.verdicts[verdict["verdict"]] += 1
        self.figures.judged(verdict)

    def exchange(self, exchange: Exchange, *, attributed: bool) -> None:
        env = self.envs.setdefault(exchange.env, EnvTally())
        env.exchanges += 1
        env.errors += exchange.is_the_environments and exchange.response is not None and exchange.response.status >= 500
        if exchange.injected:
            self.injected[exchange.injected.split()[0]] += 1
            self.hits.update(rule for rule in self.chaos if exchange.injected.endswith(f"(--chaos {rule!r})"))
        env.failed[exchange.outcome] += exchange.outcome in FAILURES
        self.lost += exchange.outcome is Outcome.LOST
        if exchange.is_the_environments:
            self.answered += 1
        elif not (exchange.is_reset or exchange.is_probe):
            self.unanswered[exchange.outcome] += 1
        added = added_ns(exchange)
        if added is not None:
            env.added.add(added)
        self.figures.exchange(exchange, added)
        if exchange.is_reset:
            self.resets_seen += 1
        elif exchange.is_probe and not attributed:
            self.probes += 1
        elif attributed:
            self.attributed += 1
        else:
            self._stray(exchange)

    def _stray(self, exchange: Exchange) -> None:
        stray = self.strays.setdefault(exchange.carrier.partition(":")[0], Stray())
        stray.count += 1
        if not stray.first:
            request = exchange.request
            stray.first = f"{_shown(request.method)} {_shown(request.target)[:80]}"
            stray.agent = next((_shown(v)[:40] for n, v in request.fields if n.lower() == b"user-agent"), "")

    def contradiction(self, address: str, what: str) -> None:
        self.contradictions += 1
        self.contradiction_first = self.contradiction_first or f"{address}: {what}"

    def fault(self, text: str) -> None:
        """The recorder itself failed. The first ones are kept, each once."""
        if text not in self.faults and len(self.faults) < FAULTS_KEPT:
            self.faults.append(text)

    def snapshot(self, snapshot: Snapshot) -> None:
        self.figures.snapshot(snapshot)
        if snapshot.status is SnapshotStatus.MISSING:
            # An undeclared start is expected to have no state; it is in the store, and counts as no fault.
            if snapshot.reason != "undeclared":
                self.missing[snapshot.reason] += 1
                if self.on_missing is not None:
                    self.on_missing(snapshot)
            return
        self.snapshots[snapshot.when] += 1
        self.late += snapshot.late
        self.torn += snapshot.status is SnapshotStatus.TORN

    @property
    def rules_unused(self) -> list[str]:
        return [name for name in self.rule_names if not self.rules.get(name)]

    @property
    def chaos_unused(self) -> list[str]:
        """The rules of `--chaos` that hit nothing."""
        return [rule for rule in self.chaos if not self.hits[rule]]

    @property
    def unattributed(self) -> int:
        return sum(stray.count for stray in self.strays.values())

    @property
    def exchanges(self) -> int:
        return self.attributed + self.unattributed

    def why_not_whole(self) -> list[str]:
        """Empty when the recording is whole."""
        reasons = []
        if not self.attributed:
            reasons.append("no exchange was recorded in an episode")
        elif not self.answered:
            how = ", ".join(f"{n:,} {UNANSWERED.get(one, one.value)}" for one, n in self.unanswered.items())
            reasons.append(f"no exchange was answered by an environment: {how}")
        if self.incomplete:
            reasons.append(f"{count(len(self.incomplete), 'episode')} incomplete")
        if self.unattributed:
            reasons.append(f"{count(self.unattributed, 'exchange')} unattributed")
        if self.lost:
            reasons.append(f"{count(self.lost, 'exchange')} lost with a worker process")
        if self.contradictions:
            reasons.append(count(self.contradictions, "contradiction"))
        if self.missing.total():
            reasons.append(f"{count(self.missing.total(), 'snapshot')} missing")
        if self.faults:
            reasons.append(f"the recorder failed: {self.faults[0]}")
        return reasons

    def document(self) -> dict[str, Any]:
        """What `record --json` prints and the summary holds."""
        return {
            "runs": [self.run],
            "whole": not self.why_not_whole(),
            "why_not_whole": self.why_not_whole(),
            "episodes": self.sealed + len(self.incomplete),
            "exchanges": self.exchanges,
            "lost": self.lost,
            "unattributed": self.unattributed,
            "unattributed_reasons": {reason: stray.count for reason, stray in self.strays.items()},
            "incomplete": list(self.incomplete),
            "empty": list(self.empty),
            "snapshots": {
                "taken": self.snapshots.total(),
                "missing": self.missing.total(),
                "late": self.late,
                "torn": self.torn,
            },
            "lane_ambiguous": self.lane_ambiguous,
            "resets": self.resets_seen,
            "probes": self.probes,
            "asked_again": self.asked_again,
            "escaping_links": self.escaping,
            "tls_refused": self.tls_refused.total(),
            "passed": self.passed.total(),
            "passed_hosts": dict(self.passed),
            "contradictions": self.contradictions,
            "first_contradiction": self.contradiction_first or None,
            "rules": {
                "used": dict(self.rules),
                "unused": self.rules_unused,
                "expired": list(self.rules_expired),
                "too_large": self.rules_too_large,
            },
            "faults": list(self.faults),
            "verdicts": dict(self.verdicts),
            "stopped": list(self.stopped),
            "injected": dict(self.injected),
            "chaos_unused": self.chaos_unused,
        }


def added_ns(exchange: Exchange) -> int | None:
    """What the proxy itself added to a whole exchange; a hold for a snapshot was asked for and is not counted. Of a
    request that was passed on while it still came nothing but its answer's way counts. None: not known, or a fault was
    injected."""
    times = exchange.times
    if exchange.injected:
        return None
    if times.c_in is None or times.fwd is None or times.up_end is None or times.c_out is None:
        return None
    return max(max(times.fwd - times.c_in, 0) + (times.c_out - times.up_end) - exchange.held_ns, 0)


def _shown(raw: bytes) -> str:
    return raw.decode("ascii", "backslashreplace")
