"""Episodes as the control API tells of them."""

from __future__ import annotations

from typing import Any

from replayproxy.core.values import Episode

KINDS = ("stale-read", "state-bleed", "dirty-reset", "nondeterminism", "race", "lost-update")


def ended_document(episode: Episode) -> dict[str, Any]:
    """The answer to `end`. Nothing is judged while recording: the verdict is `check`'s."""
    return {
        "episode": episode.name,
        "state": str(episode.state),
        "verdict": "unknown",
        "mask": False,
        "reasons": [],
        "coverage": {"checked": [], "not_checked": dict.fromkeys(KINDS, "run check")},
        "faults": list(episode.faults),
    }


def row(episode: Episode, exchanges: int) -> dict[str, Any]:
    """An episode in the list of all. The secrets are out of it already."""
    return {
        "episode": episode.name, "task": episode.task, "seed": episode.seed, "attempt": episode.attempt,
        "group": episode.group, "meta": dict(episode.meta), "envs": dict(episode.envs),
        "instance": dict(episode.instance), "declared": episode.declared, "state": str(episode.state),
        "ended_by": episode.ended_by, "reward": episode.reward, "outcome": episode.outcome,
        "exchanges": exchanges, "faults": list(episode.faults), "aliases": [list(one) for one in episode.aliases],
    }  # fmt: skip
