"""Groups of rollouts that a trainer compares among themselves, and what masking leaves of them.

A GRPO baseline is the mean of a group: a group that loses siblings has another one, one of which a single rollout is
left has none, and one whose rewards are all equal gives no gradient. So each is named.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from replayproxy.core.values import Episode

type Key = tuple[str | None, str | None, int | None]
"""(group, None, None), or (None, task, seed) where the episodes carry no group."""


def key_of(episode: Episode) -> Key | None:
    """None: neither group nor task is known, so nobody is its sibling."""
    if episode.group is not None:
        return episode.group, None, None
    return (None, episode.task, episode.seed) if episode.task is not None else None


@dataclass(slots=True)
class Spread:
    """The lowest and the highest of the rewards seen."""

    low: float | None = None
    high: float | None = None

    def see(self, reward: float) -> None:
        self.low = reward if self.low is None else min(self.low, reward)
        self.high = reward if self.high is None else max(self.high, reward)

    @property
    def varies(self) -> bool:
        return self.low != self.high


@dataclass(slots=True)
class Group:
    """One group: how many rollouts it has, how many are left, and whether their rewards differ."""

    key: Key
    rollouts: int = 0
    left: int = 0
    before: Spread | None = None
    after: Spread | None = None

    @property
    def lost(self) -> int:
        return self.rollouts - self.left

    @property
    def alone(self) -> bool:
        """Masking leaves fewer than two that could be compared."""
        return self.lost > 0 and self.left < 2 <= self.rollouts

    @property
    def flat(self) -> bool:
        """The rewards differed, and those that are left do not."""
        before, after = self.before, self.after
        return self.left >= 2 and before is not None and before.varies and after is not None and not after.varies

    def to_json(self) -> dict[str, Any]:
        group, task, seed = self.key
        return {
            "group": group, "task": task, "seed": seed, "rollouts": self.rollouts, "masked": self.lost,
            "left": self.left, "alone": self.alone, "no_variance": self.flat,
        }  # fmt: skip

    @property
    def name(self) -> str:
        group, task, seed = self.key
        return group if group is not None else f"{task} seed {seed}" if seed is not None else f"{task}"


class Groups:
    """All groups of the rollouts seen. Memory is that of the groups."""

    def __init__(self) -> None:
        self._groups: dict[Key, Group] = {}

    def see(self, episode: Episode, reward: Any, *, masked: bool) -> None:
        key = key_of(episode)
        if key is None:
            return
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group(key=key)
        group.rollouts += 1
        group.left += not masked
        if isinstance(reward, int | float) and not isinstance(reward, bool) and reward == reward:
            group.before = group.before or Spread()
            group.before.see(reward)
            if not masked:
                group.after = group.after or Spread()
                group.after.see(reward)

    def __len__(self) -> int:
        return len(self._groups)

    def losing(self) -> list[Group]:
        """Those that lose rollouts, the worst off first."""
        touched = [group for group in self._groups.values() if group.lost]
        return sorted(touched, key=lambda g: (not g.alone, not g.flat, -g.lost, g.name))
