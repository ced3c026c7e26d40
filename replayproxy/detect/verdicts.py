"""What the findings say about each episode, and about the run: verdicts, spread of suspicion, failure rate."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import sqrt

from replayproxy.core.canonical import request_key
from replayproxy.core.values import Exchange, Outcome
from replayproxy.detect.finding import CONVINCING, Blame, Finding, Kind
from replayproxy.detect.spans import Span, in_time


class Word(StrEnum):
    CLEAN = "clean"  # at least one check ran, and none found anything
    SUSPECT = "suspect"
    POISONED = "poisoned"  # by the environment; no attacker is implied
    UNKNOWN = "unknown"  # no check could run


SPREADS = frozenset({Kind.STATE_BLEED, Kind.DIRTY_RESET})
_LOST = frozenset({Outcome.REFUSED, Outcome.CUT, Outcome.INVALID, Outcome.TIMED_OUT})


def verdict(findings: Iterable[Finding], *, spread: bool, checked: Collection[str]) -> Word:
    """The verdict of one episode from what falls on it."""
    fallen = list(findings)
    if any(f.grade in CONVINCING and f.blame is Blame.ENVIRONMENT for f in fallen):
        return Word.POISONED
    if fallen or spread:
        return Word.SUSPECT
    return Word.CLEAN if checked else Word.UNKNOWN


def spread(
    spans: Iterable[Span], findings: Iterable[Finding], clean_starts: Collection[str], envs: Iterable[str]
) -> dict[str, str]:
    """Episode -> the one that it may have caught it from. Suspicion goes from a convincing bleed or reset to the
    later episodes of the instance, until one begins as the reference says (`clean_starts`)."""
    dirty = {f.episode for f in findings if f.kind in SPREADS and f.grade in CONVINCING}
    caught: dict[str, str] = {}
    ordered = in_time(spans)
    for env in envs:
        source: dict[str, str] = {}  # instance -> the episode that suspicion comes from
        for span in ordered:
            instance = span.instances.get(env, "")
            if span.name in dirty:
                source[instance] = span.name
            elif span.name in clean_starts:
                source.pop(instance, None)
            elif instance in source:
                caught.setdefault(span.name, source[instance])
    return caught


@dataclass(frozen=True, slots=True, kw_only=True)
class Grounds:
    """What verdicts follow from beside the findings. `checked` by episode; `sealed`, `clean_starts`: their names."""

    spans: tuple[Span, ...] = ()
    envs: tuple[str, ...] = ()
    clean_starts: frozenset[str] = frozenset()
    sealed: frozenset[str] = frozenset()
    checked: Mapping[str, Collection[str]] = field(default_factory=dict)

    def say(self, findings: Iterable[Finding]) -> tuple[dict[str, Word], dict[str, str]]:
        """The verdict of every episode, and from where suspicion has spread to which."""
        fallen = list(findings)
        by_episode: dict[str, list[Finding]] = defaultdict(list)
        for finding in fallen:
            by_episode[finding.episode].append(finding)
        caught = spread(self.spans, fallen, self.clean_starts, self.envs)
        words = {
            name: verdict(by_episode[name], spread=name in caught, checked=checked)
            if name in self.sealed else Word.UNKNOWN
            for name, checked in self.checked.items()
        }  # fmt: skip
        return words, caught


def failed(exchanges: Sequence[Exchange]) -> list[int]:
    """The exchanges that were lost to a 5xx, a reset, a refusal or a timeout, and never came through afterwards."""
    open_failures: dict[object, int] = {}
    for exchange in exchanges:
        if exchange.is_probe or exchange.outcome is Outcome.LOCAL:
            continue
        lost = exchange.outcome in _LOST or (exchange.response is not None and exchange.response.status >= 500)
        if not lost and not open_failures:
            continue
        key = exchange.lane, request_key(exchange.env, exchange.request)
        if lost:
            open_failures.setdefault(key, exchange.seq)
        elif exchange.outcome is Outcome.ANSWERED:
            open_failures.pop(key, None)
    return sorted(open_failures.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Of `episodes` that were sealed with an exchange in them, `poisoned` are, and `lost` more failed."""

    poisoned: int
    lost: int
    episodes: int

    @property
    def value(self) -> float | None:
        return (self.poisoned + self.lost) / self.episodes if self.episodes else None

    @property
    def interval(self) -> tuple[float, float] | None:
        return wilson(self.poisoned + self.lost, self.episodes) if self.episodes else None


def wilson(hits: int, n: int, z: float = 1.959964) -> tuple[float, float]:
    """Wilson's 95 % interval of a share."""
    p = hits / n
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return max(0.0, centre - half), min(1.0, centre + half)


def rate(words: Mapping[str, Word], lost: Collection[str], counted: Collection[str]) -> Rate:
    """`counted`: the sealed episodes with an exchange; `lost`: those with an unrecovered failure."""
    poisoned = {name for name in counted if words.get(name) is Word.POISONED}
    return Rate(poisoned=len(poisoned), lost=len({*lost} & {*counted} - poisoned), episodes=len(counted))
