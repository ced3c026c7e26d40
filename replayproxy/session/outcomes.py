"""Repetitions by what came of them: which are alike, and how many of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence


def classes[T](repetitions: Sequence[T], alike: Callable[[T, T], bool]) -> list[list[T]]:
    """The repetitions by outcome, the most frequent first; each is compared with the first of each class only."""
    found: list[list[T]] = []
    for one in repetitions:
        like = next((group for group in found if alike(group[0], one)), None)
        if like is None:
            found.append([one])
        else:
            like.append(one)
    return sorted(found, key=len, reverse=True)


def told_histogram(counts: Sequence[int]) -> str:
    """`3 + 2 of 5`."""
    return f"{' + '.join(map(str, counts))} of {sum(counts)}"


def in_order(groups: Sequence[Sequence[int]]) -> bool:
    """Whether no outcome came back after another one: so does what is carried from one repetition to the next, and
    chance seldom. Two repetitions say nothing."""
    total = sum(map(len, groups))
    return len(groups) > 1 and total > 2 and all(max(group) - min(group) + 1 == len(group) for group in groups)
