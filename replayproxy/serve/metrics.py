"""`GET /metrics`: the figures of a recorder in the text format of Prometheus.

The families are put together when they are asked for, in a registry of their own, so that counting costs the traffic
nothing but an addition, and two recorders in one process never mix.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from prometheus_client.core import HistogramMetricFamily, Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

PREFIX = "replayproxy_"


class Histogram(Protocol):
    """Durations in seconds. `counts` has one more than `bounds`: those above the last bound."""

    @property
    def bounds(self) -> Sequence[float]: ...

    @property
    def counts(self) -> Sequence[int]: ...

    @property
    def sum(self) -> float: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a recorder has counted at one instant.

    `exchanges`: (environment, outcome) -> all that were recorded, in episodes or not. `unattributed`: those that no
    carrier gave an episode. `episodes`: state -> how many: `open` are so now, the others have ended in this recording.
    `findings`: (kind, grade) -> those that fall on episodes which were judged when they ended. `snapshots`: how long
    each reading of a state took, from its begin to its end; one that several episodes share counts for each of them.

    `added`: what the proxy itself took of each exchange that was sent on and answered. From the request's last byte to
    just before its first byte to the environment (connecting, where no connection was open, is in it; 0 for a request
    that was passed on while it still came), and from the environment's last byte to the last one handed to the agent,
    without the time that the answer was held for a snapshot.

    `queue`: records that wait for the disk.
    """

    exchanges: Mapping[tuple[str, str], int] = field(default_factory=dict)
    unattributed: int = 0
    episodes: Mapping[str, int] = field(default_factory=dict)
    findings: Mapping[tuple[str, str], int] = field(default_factory=dict)
    snapshots: Histogram
    added: Histogram
    queue: int = 0


def exposition(reading: Reading) -> bytes:
    """The page, for `CONTENT_TYPE`."""
    # It takes longer to import than a recorder's other parts of its size, and most recorders are never asked.
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(reading))
    return bytes(generate_latest(registry))


class _Collected:
    """What prometheus_client asks for families."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        now = self._reading
        exchanges = CounterMetricFamily(
            f"{PREFIX}exchanges", "Exchanges that were recorded.", labels=("env", "outcome")
        )
        for labels, count in sorted(now.exchanges.items()):
            exchanges.add_metric(labels, count)
        yield exchanges
        yield CounterMetricFamily(
            f"{PREFIX}unattributed", "Exchanges that no carrier gave an episode.", value=now.unattributed
        )
        episodes = GaugeMetricFamily(
            f"{PREFIX}episodes", "Episodes that are open, and that ended in this recording.", labels=("state",)
        )
        for state, count in now.episodes.items():
            episodes.add_metric((state,), count)
        yield episodes
        findings = CounterMetricFamily(
            f"{PREFIX}findings", "Findings on episodes that were judged when they ended.", labels=("kind", "grade")
        )
        for labels, count in sorted(now.findings.items()):
            findings.add_metric(labels, count)
        yield findings
        yield _histogram("snapshot_seconds", "How long a state took to be read.", now.snapshots)
        yield _histogram("added_seconds", "What the proxy itself took of an answered exchange.", now.added)
        yield GaugeMetricFamily(f"{PREFIX}queue_depth", "Records that wait for the disk.", value=now.queue)


def _histogram(name: str, what: str, durations: Histogram) -> HistogramMetricFamily:
    from prometheus_client.core import HistogramMetricFamily

    family = HistogramMetricFamily(f"{PREFIX}{name}", what)
    family.add_metric((), list(_buckets(durations.bounds, durations.counts)), durations.sum)
    return family


def _buckets(bounds: Iterable[float], counts: Iterable[int]) -> Iterator[tuple[str, float]]:
    """(upper bound as text, how many up to it)."""
    upto = 0
    for bound, count in zip((*bounds, float("inf")), counts, strict=True):
        upto += count
        yield ("+Inf" if bound == float("inf") else f"{bound!r}"), upto
