"""What is left is enough, nothing of it can be spared, and what it needs is never left out."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from replayproxy.session.minimise import closed, minimise


class Oracle:
    """Shows it when all of `causes` are there, and never without what they need."""

    def __init__(self, causes: Iterable[int], needs: dict[int, set[int]]) -> None:
        self.causes, self.needs = closed(causes, needs), needs
        self.asked: list[frozenset[int]] = []

    async def shows(self, chosen: frozenset[int]) -> bool:
        assert closed(chosen, self.needs) == chosen, "a consumer was tried without its producer"
        assert chosen
        assert chosen not in self.asked
        self.asked.append(chosen)
        return self.causes <= chosen


async def test_one_exchange_of_many_is_found_in_few_tries() -> None:
    oracle = Oracle({17}, {})
    found = await minimise(range(1, 65), oracle.shows, needs={})
    assert (found.kept, found.finished) == (frozenset({17}), True)
    assert found.tries <= 24


async def test_a_good_guess_needs_one_try() -> None:
    oracle = Oracle({17}, {17: {3}})
    found = await minimise(range(1, 65), oracle.shows, needs={17: {3}}, first=[{17}])
    assert found.kept == {3, 17}
    assert oracle.asked[0] == {3, 17}
    assert found.tries <= 3  # the producer alone is tried too


async def test_a_wrong_guess_costs_one_try_and_nothing_else() -> None:
    oracle = Oracle({5, 40}, {})
    found = await minimise(range(1, 65), oracle.shows, needs={}, first=[{9}, {5, 9, 40}])
    assert found.kept == {5, 40}


async def test_it_stops_at_its_limit_with_what_it_has() -> None:
    oracle = Oracle({5, 40, 50}, {})
    found = await minimise(range(1, 65), oracle.shows, needs={}, most=6)
    assert not found.finished
    assert found.kept >= {5, 40, 50}
    assert found.tries == 6


@given(st.sets(st.integers(0, 19), min_size=1, max_size=4), st.data())
async def test_whatever_the_causes_the_rest_goes(causes: set[int], data: st.DataObject) -> None:
    needs = {
        consumer: data.draw(st.sets(st.integers(0, consumer - 1), max_size=2))
        for consumer in data.draw(st.sets(st.integers(1, 19), max_size=6))
    }
    oracle = Oracle(causes, needs)
    found = await minimise(range(20), oracle.shows, needs=needs, most=1000)
    assert found.finished
    assert found.kept == oracle.causes
