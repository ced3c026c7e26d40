"""Episodes as the control API tells of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from replayproxy.core.values import Episode


def ended_document(episode: Episode, judged: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to `end`: what became of the episode, and the verdict as it is known now (`check` may see more)."""
    return {**judged, "episode": episode.name, "state": str(episode.state), "faults": list(episode.faults)}


def row(episode: Episode, exchanges: int) -> dict[str, Any]:
    """An episode in the list of all. The secrets are out of it already."""
    return {
        "episode": episode.name, "task": episode.task, "seed": episode.seed, "attempt": episode.attempt,
        "group": episode.group, "meta": dict(episode.meta), "envs": dict(episode.envs),
        "instance": dict(episode.instance), "declared": episode.declared, "state": str(episode.state),
        "ended_by": episode.ended_by, "reward": episode.reward, "outcome": episode.outcome,
        "exchanges": exchanges, "faults": list(episode.faults), "aliases": [list(one) for one in episode.aliases],
    }  # fmt: skip
