from __future__ import annotations

from typing import Any

from replayproxy.core.episodepairs import pair_episodes
from replayproxy.core.values import Episode
from replayproxy.testing import episode


def named(name: str, **more: Any) -> Episode:
    return episode(name, **more)


def names(pairs: Any) -> list[tuple[str, str]]:
    return [(x.name, y.name) for x, y in pairs]


def test_task_seed_and_attempt_pair_whatever_the_names_are() -> None:
    a = [named("x1", task="t", seed=1, attempt=1), named("x2", task="t", seed=1, attempt=2)]
    b = [named("y2", task="t", seed=1, attempt=2), named("y1", task="t", seed=1, attempt=1)]
    paired = pair_episodes(a, b)
    assert (names(paired.pairs), paired.by_order) == ([("x1", "y1"), ("x2", "y2")], 0)


def test_else_names_pair_unless_what_they_are_of_contradicts() -> None:
    a = [named("same"), named("other", task="t"), named("fight", task="t", seed=1)]
    b = [named("same", task="u"), named("other"), named("fight", task="t", seed=2)]
    paired = pair_episodes(a, b)
    assert names(paired.pairs) == [("same", "same"), ("other", "other")]
    assert ([e.name for e in paired.only_a], [e.name for e in paired.only_b]) == (["fight"], ["fight"])


def test_siblings_pair_by_name_first_and_then_by_their_order() -> None:
    a = [named(name, task="t", seed=1) for name in ("p", "q", "r")]
    b = [named(name, task="t", seed=1) for name in ("z", "q")]
    paired = pair_episodes(a, b)
    assert (names(paired.pairs), paired.by_order) == ([("p", "z"), ("q", "q")], 1)
    assert [e.name for e in paired.only_a] == ["r"]
