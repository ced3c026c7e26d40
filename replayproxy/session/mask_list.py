"""`mask` without rollouts: the episodes that the trainer should leave out, and what is left of their groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from replayproxy.core.shown import count
from replayproxy.core.values import Episode
from replayproxy.errors import Exit, worst
from replayproxy.session.mask_groups import Groups
from replayproxy.session.mask_marks import Demands, Mark, Marks
from replayproxy.session.mask_verdicts import Verdicts


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """The masked episodes in the order of opening, with their marks, and the groups of all."""

    judged: Verdicts
    demands: Demands
    masked: Sequence[tuple[Episode, Mark]]
    groups: Groups
    verdicts: Counter[str]
    lost: int  # episodes that lost an exchange to a failure, and are not masked

    @property
    def share(self) -> float:
        return len(self.masked) / len(self.judged.episodes) if self.judged.episodes else 0.0

    def failures(self) -> list[tuple[Exit, str]]:
        of = len(self.judged.episodes)
        if not of:
            return [(Exit.UNJUDGED, "the run holds no episode")]
        if self.share > self.demands.max_masked:
            are = "is" if len(self.masked) == 1 else "are"
            told = f"{len(self.masked):,} of {count(of, 'episode')} {are} masked ({self.share:.1%})"
            return [(Exit.DIFFERENT, f"{told}, more than --max-masked {self.demands.max_masked:g}")]
        return []

    @property
    def why(self) -> list[str]:
        return [why for _, why in self.failures()]

    @property
    def exit(self) -> int:
        return worst(*(code for code, _ in self.failures()))


def mask_list(judged: Verdicts, demands: Demands) -> Listed:
    """Which episodes are masked."""
    marks, groups, verdicts = Marks(judged, demands), Groups(), Counter[str]()
    masked, lost = [], 0
    for episode in judged.episodes:
        mark = marks.of(episode)
        verdicts[mark.verdict] += 1
        groups.see(episode, episode.reward, masked=mark.masked)
        lost += mark.lost and not mark.masked
        if mark.masked:
            masked.append((episode, mark))
    return Listed(judged=judged, demands=demands, masked=masked, groups=groups, verdicts=verdicts, lost=lost)
