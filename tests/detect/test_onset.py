"""Since when it went wrong."""

from __future__ import annotations

from math import comb

from hypothesis import given
from hypothesis import strategies as st

from replayproxy.detect.onset import fisher, onset


def told(bad: str, meta=None):
    """`.` is a good episode, `x` a bad one."""
    return onset([char == "x" for char in bad], meta or [{}] * len(bad))


def test_the_rate_rose_at_the_first_bad_one_after_a_long_clean_stretch() -> None:
    found = told("." * 60 + "xx.x.xxx.x")
    assert found is not None
    assert (found.at, found.before, found.since) == (60, (0, 60), (7, 10))
    assert found.p < 1e-4


def test_a_few_early_ones_do_not_hide_the_rise() -> None:
    found = told("." * 30 + "x" + "." * 30 + "xxxxxxxxxx")
    assert found is not None
    assert (found.at, found.before) == (61, (1, 61))


def test_no_rise_is_told_where_there_is_none() -> None:
    for bad in ("", "...", "xxx", "xxx....", ".x", "x.x.x.x.x.x.x.x", ("." * 9 + "x") * 12, "xxxxx" + "." * 40):
        assert told(bad) is None, bad


def test_what_changed_at_that_moment_is_named_and_a_counter_is_not() -> None:
    meta = [
        {"env_commit": "9f3c" if n < 40 else "a07d", "step": n // 4, "host": f"h{n % 2}", "flag": n >= 20}
        for n in range(60)
    ]
    found = told("." * 40 + "x" * 20, meta)
    assert found is not None
    assert found.changed == {"env_commit": ("9f3c", "a07d")}


def test_an_episode_still_in_flight_with_the_old_version_does_not_hide_the_change() -> None:
    meta = [{"env_commit": "old" if n < 40 or n == 42 else "new"} for n in range(60)]
    found = told("." * 40 + "xx.xxxxxxxxxxxxxxxxx", meta)
    assert found is not None
    assert found.changed == {"env_commit": ("old", "new")}


def test_a_key_that_only_appears_then_has_changed() -> None:
    found = told("." * 20 + "x" * 10, [{} if n < 20 else {"patch": True} for n in range(30)])
    assert found is not None
    assert found.changed == {"patch": (None, True)}


@given(st.integers(0, 12), st.integers(0, 12), st.integers(0, 12), st.integers(0, 12))
def test_fisher_is_the_tail_of_the_hypergeometric(a: int, more_a: int, b: int, more_b: int) -> None:
    a_of, b_of = a + more_a, b + more_b
    hits = a + b
    exact = sum(
        comb(b_of, k) * comb(a_of, hits - k) for k in range(b, min(hits, b_of) + 1) if hits - k <= a_of
    ) / comb(a_of + b_of, hits)  # fmt: skip
    assert abs(fisher(a, a_of, b, b_of) - exact) < 1e-9
