from __future__ import annotations

import time
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from replayproxy.core.align import align, common, match_lanes
from tests.core.world import relaxed

keys = st.lists(st.integers(0, 6), max_size=40)


def longest(a: list[int], b: list[int]) -> int:
    row = [0] * (len(b) + 1)
    for x in a:
        before = list(row)
        for index, y in enumerate(b, 1):
            row[index] = before[index - 1] + 1 if x == y else max(before[index], row[index - 1])
    return row[-1]


@relaxed
@given(keys, keys)
def test_what_is_common_is_a_subsequence_of_both(a: list[int], b: list[int]) -> None:
    pairs = common(a, b)
    assert all(a[x] == b[y] for x, y in pairs)
    assert all(x < u and y < v for (x, y), (u, v) in pairwise(pairs))


@relaxed
@given(st.lists(st.integers(0, 2), max_size=30), st.lists(st.integers(0, 2), max_size=30))
def test_without_anchors_the_longest_is_found(a: list[int], b: list[int]) -> None:
    doubled_a, doubled_b = [*a, 7, 7, *a], [*b, 8, 8, *b]  # nothing is unique on both sides
    if all(doubled_a.count(x) > 1 or doubled_b.count(x) > 1 for x in doubled_a):
        assert len(common(doubled_a, doubled_b)) == longest(doubled_a, doubled_b)


@relaxed
@given(keys, st.integers(0, 40), st.integers(0, 6))
def test_one_extra_step_is_one_insertion(a: list[int], at: int, extra: int) -> None:
    at = min(at, len(a))
    out = align(a, [*a[:at], extra, *a[at:]], lambda x, y: 0)
    assert sum(x is None for x, _ in out) == 1
    assert sum(y is None for _, y in out) == 0


@relaxed
@given(keys, keys)
def test_an_alignment_holds_every_step_once_and_in_order(a: list[int], b: list[int]) -> None:
    out = align(a, b, lambda x, y: 1 if (a[x] + b[y]) % 2 else 0)
    assert [x for x, _ in out if x is not None] == list(range(len(a)))
    assert [y for _, y in out if y is not None] == list(range(len(b)))


def test_a_near_miss_between_two_matches_is_a_pair() -> None:
    out = align(["a", "x1", "b"], ["a", "new", "x2", "b"], lambda x, y: 1 if (x, y) == (1, 2) else 0)
    assert out == [(0, 0), (None, 1), (1, 2), (2, 3)]


def test_a_gap_wider_than_the_window_is_paired_from_its_ends() -> None:
    size = 1000
    out = align([f"a{x}" for x in range(size)], [f"b{y}" for y in range(size)], lambda x, y: 1 if x == y else 0)
    assert out == [(x, x) for x in range(size)]


def test_sequences_with_nothing_in_common_cost_no_quadratic_time() -> None:
    size = 50_000
    began = time.perf_counter()
    assert common([x % 7 for x in range(size)], [7 + y % 7 for y in range(size)]) == []
    assert len(common([x % 7 for x in range(size)], [y % 5 for y in range(size)])) > 0
    assert time.perf_counter() - began < 5


def test_lanes_meet_by_name_then_by_what_they_share() -> None:
    a = {"main": [1, 2], "x": [3, 4, 5], "lost": [9]}
    b = {"main": [8], "p": [3, 5], "q": [4], "new": [6]}
    assert match_lanes(a, b) == [("main", "main"), ("x", "p"), ("lost", None), (None, "q"), (None, "new")]
