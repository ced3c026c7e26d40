"""Which episode of one run belongs to which of another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from replayproxy.core.values import Episode


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """Episodes of two runs that belong together. `by_order`: how many were told apart by nothing but their order."""

    pairs: Sequence[tuple[Episode, Episode]]
    only_a: Sequence[Episode] = ()
    only_b: Sequence[Episode] = ()
    by_order: int = 0


def pair_episodes(a: Sequence[Episode], b: Sequence[Episode]) -> Paired:
    """By task, seed and attempt, else by name.

    Where several episodes of a run have one task, seed and attempt, those of one name meet first, the rest in the
    order in which they were opened.
    """
    left, right = list(a), list(b)
    pairs: list[tuple[Episode, Episode]] = []
    by_order = 0
    groups_b: dict[Any, list[Episode]] = {}
    for episode in right:
        groups_b.setdefault(_identity(episode), []).append(episode)
    groups_a: dict[Any, list[Episode]] = {}
    for episode in left:
        groups_a.setdefault(_identity(episode), []).append(episode)
    for identity, group in groups_a.items():
        others = groups_b.get(identity, [])
        named = _by_name(group, others)
        pairs += named
        rest_a = [e for e in group if all(e is not x for x, _ in named)]
        rest_b = [e for e in others if all(e is not y for _, y in named)]
        if rest_a and rest_b:
            by_order += min(len(rest_a), len(rest_b)) if len(group) > 1 or len(others) > 1 else 0
            pairs += zip(rest_a, rest_b, strict=False)
    taken = {id(e) for pair in pairs for e in pair}
    last = _by_name([e for e in left if id(e) not in taken], [e for e in right if id(e) not in taken])
    pairs += last
    taken |= {id(e) for pair in last for e in pair}
    order = {id(e): n for n, e in enumerate(left)}
    return Paired(
        pairs=sorted(pairs, key=lambda pair: order[id(pair[0])]),
        only_a=[e for e in left if id(e) not in taken],
        only_b=[e for e in right if id(e) not in taken],
        by_order=by_order,
    )


def _identity(episode: Episode) -> Any:
    if episode.task is None:
        return ("name", episode.name)
    return ("task", episode.task, episode.seed, episode.attempt)


def _by_name(a: Sequence[Episode], b: Sequence[Episode]) -> list[tuple[Episode, Episode]]:
    names = {episode.name: episode for episode in b}
    return [(x, names[x.name]) for x in a if x.name in names and not _contradict(x, names[x.name])]


def _contradict(a: Episode, b: Episode) -> bool:
    """Whether both say what they are of, and say different things."""
    return any(
        x is not None and y is not None and x != y
        for x, y in ((a.task, b.task), (a.seed, b.seed), (a.attempt, b.attempt))
    )
