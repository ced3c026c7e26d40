"""Which episodes of a run were open at the same time, and on the same instance of an environment.

The monotonic clock begins anew when a machine does. Two episodes of one run are compared by it only if their clocks
and the wall clock tell the same distance; otherwise they did not overlap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from replayproxy.core.values import Episode, Run
from replayproxy.detect.history import NEVER

SAME_CLOCK_NS = 600 * 1_000_000_000
"""A wall clock that was set by more than this between two episodes makes them separate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """An episode's place in time and on instances. `instances`: environment -> the instance that served it."""

    name: str
    opened: int
    ended: int
    opened_wall: int
    instances: Mapping[str, str]

    def same_clock(self, other: Span) -> bool:
        return abs((self.opened_wall - self.opened) - (other.opened_wall - other.opened)) <= SAME_CLOCK_NS

    def overlaps(self, other: Span) -> bool:
        return self.same_clock(other) and self.opened <= other.ended and other.opened <= self.ended

    def before(self, other: Span) -> bool:
        """Whether this one had ended before the other was opened."""
        if self.same_clock(other):
            return self.ended < other.opened
        return self.opened_wall < other.opened_wall

    def shares(self, other: Span, envs: Iterable[str]) -> bool:
        """Whether they used one instance of one of the environments."""
        return any(self.instances.get(env, "") == other.instances.get(env, env) for env in envs)


def span_of(run: Run, episode: Episode) -> Span:
    return Span(
        name=episode.name,
        opened=episode.opened,
        ended=NEVER if episode.ended is None else episode.ended,
        opened_wall=episode.opened_wall,
        instances={env: _instance(run, episode, env) for env in run.envs},
    )


def _instance(run: Run, episode: Episode, env: str) -> str:
    """The harness's own word, else the upstream that the episode was sent to."""
    return episode.instance.get(env) or episode.envs.get(env) or run.envs[env].upstream


def in_time(spans: Iterable[Span]) -> list[Span]:
    return sorted(spans, key=lambda span: (span.opened_wall, span.opened, span.name))
