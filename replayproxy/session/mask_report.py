"""What `mask` found in a file of rollouts, in numbers, and whether that is within the limits."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from dataclasses import field as member
from typing import Any

from replayproxy.core.shown import count
from replayproxy.errors import Exit
from replayproxy.session.mask_groups import Groups
from replayproxy.session.mask_marks import Demands, Mark
from replayproxy.session.rollouts import MISSING
from replayproxy.session.rollouts_join import Match
from replayproxy.session.rollouts_shapes import contradict

SHOWN = 1000
"""Lines that a report lists one by one; the rest is counted."""


@dataclass(slots=True, kw_only=True)
class Report:
    """What was found in a file of rollouts, in numbers. `lines` are those that hold a rollout."""

    unit: str = "line"  # "row" of a table
    lines: int = 0
    blank: int = 0
    masked: int = 0  # by these verdicts
    given: int = 0  # by somebody else before, whatever the verdict
    matched: int = 0
    ambiguous: int = 0
    unmatched: int = 0
    lost: int = 0  # of episodes that lost an exchange to a failure, and not masked
    other_reward: int = 0  # the rollout's reward is not the one that its episode has
    verdicts: Counter[str] = member(default_factory=Counter)
    kinds: Counter[str] = member(default_factory=Counter)
    lacking: Counter[str] = member(default_factory=Counter)
    episodes: set[str] = member(default_factory=set)
    first_unmatched: list[int] = member(default_factory=list)
    first_ambiguous: list[tuple[int, list[str]]] = member(default_factory=list)
    shown: list[tuple[int, Mark]] = member(default_factory=list)
    groups: Groups = member(default_factory=Groups)

    def see(self, number: int, match: Match, mark: Mark, reward: Any, *, given: bool) -> None:
        """Counts one rollout. One that was masked already has left its group before."""
        self.lines += 1
        self.given += given
        if len(match.episodes) == 1:
            (episode,) = match.episodes
            self.matched += 1
            self.verdicts[mark.verdict] += 1
            self.episodes.add(episode.name)
            self.lost += mark.lost and not mark.masked
            self.other_reward += contradict(reward, episode.reward)
            if not given:
                self.groups.see(episode, episode.reward if reward is MISSING else reward, masked=mark.masked)
        elif match.episodes:
            self.ambiguous += 1
            if len(self.first_ambiguous) < 5:
                self.first_ambiguous.append((number, [one.name for one in match.episodes[:5]]))
        else:
            self.unmatched += 1
            self.lacking.update([match.lacks] if match.lacks else ())
            if len(self.first_unmatched) < 5:
                self.first_unmatched.append(number)
        if mark.masked:
            self.masked += 1
            self.kinds.update({one["kind"] for one in mark.reasons})
            if len(self.shown) < SHOWN:
                self.shown.append((number, mark))

    @property
    def share_masked(self) -> float:
        return self.masked / self.lines if self.lines else 0.0

    @property
    def share_unmatched(self) -> float:
        """Lines that are not of exactly one episode, of all."""
        return (self.unmatched + self.ambiguous) / self.lines if self.lines else 0.0

    def failures(self, demands: Demands) -> list[tuple[Exit, str]]:
        """Why nothing may be written; empty when it may."""
        if not self.lines:
            return [(Exit.UNJUDGED, "it holds no rollout")]
        found = []
        if self.share_masked > demands.max_masked:
            told = f"{self.masked:,} of {count(self.lines, self.unit)} would be masked ({self.share_masked:.1%})"
            found.append((Exit.DIFFERENT, f"{told}, more than --max-masked {demands.max_masked:g}"))
        if self.share_unmatched > demands.max_unmatched:
            told = f"{self.unmatched + self.ambiguous:,} of {count(self.lines, self.unit)} are not of one episode"
            limit = f"({self.share_unmatched:.1%}), more than --max-unmatched {demands.max_unmatched:g}"
            found.append((Exit.UNJUDGED, f"{told} {limit}"))
        return found
