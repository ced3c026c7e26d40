from __future__ import annotations

import asyncio
from typing import Any

import pytest

from replayproxy.core.values import Episode
from replayproxy.session.lives import Live, instance_of, only_listens, sharing
from replayproxy.testing import MS, exchange, request


def live(name: str = "e", **given: Any) -> Live:
    return Live(episode=Episode(key=1, run_key=1, name=name, **given), last_active=0)


def flown(one: Live, *spans: tuple[int, int], target: str = "/x", lane: str = "main") -> None:
    """Exchanges with these (start, end) in ms, in order of time."""
    points = sorted([(a, 0, i) for i, (a, _) in enumerate(spans)] + [(b, 1, i) for i, (_, b) in enumerate(spans)])
    made = [exchange("GET", target, at_ms=a, took_ms=b - a, lane=lane) for a, b in spans]
    for at, what, i in points:
        if what == 0:
            one.arrive(made[i].order, lane, at * MS)
        else:
            one.land(made[i], at * MS)


def test_exchanges_one_after_the_other_are_never_ambiguous() -> None:
    one = live()
    flown(one, (0, 5), (6, 9), (10, 12))
    assert (one.lane_ambiguous(), len(one.overlaps), one.exchanges) == (0, 0, 3)


def test_an_episode_whose_requests_always_overlap_keeps_no_more_than_what_is_under_way() -> None:
    one, most = live(), 0
    for number in range(5_000):
        made = exchange("GET", f"/x/{number // 2}", at_ms=number * 10, took_ms=25)
        one.arrive(made.order, "main", made.times.head)
        over = exchange("GET", f"/x/{(number - 3) // 2}", at_ms=(number - 3) * 10, took_ms=25)
        one.land(over, over.times.head + 25 * MS)
        most = max(most, len(one.overlaps))
    assert one.lane_ambiguous() == 2_498
    assert most < 1_000


def test_identical_requests_that_overlap_in_one_lane_are_ambiguous() -> None:
    one = live()
    flown(one, (0, 10), (5, 15))
    assert one.lane_ambiguous() == 1


def test_identical_requests_that_overlap_in_two_lanes_are_not() -> None:
    one = live()
    a, b = exchange(at_ms=0, took_ms=10, lane="a"), exchange(at_ms=5, took_ms=10, lane="b")
    one.arrive(a.order, "a", 0)
    one.arrive(b.order, "b", 5 * MS)
    one.land(a, 10 * MS)
    one.land(b, 15 * MS)
    assert one.lane_ambiguous() == 0


def test_different_requests_that_overlap_are_not_ambiguous() -> None:
    one = live()
    a, b = exchange(target="/a", at_ms=0, took_ms=10), exchange(target="/b", at_ms=5, took_ms=10)
    for each in (a, b):
        one.arrive(each.order, "main", each.times.head)
    for each in (a, b):
        one.land(each, 20 * MS)
    assert one.lane_ambiguous() == 0


def test_what_is_in_flight_overlaps_a_reading_but_not_the_write_that_it_follows() -> None:
    one = live()
    one.arrive((1, 0), "a", 1)
    one.arrive((2, 0), "b", 2)
    assert one.overlapping(10, 20, after=(1, 0)) == ((2, 0),)
    assert one.overlapping(10, 20, after=None) == ((1, 0), (2, 0))


def test_a_held_answer_whose_effect_was_over_does_not_overlap() -> None:
    one = live()
    one.arrive((1, 0), "a", 1)
    one.flights[1, 0].ended = 5
    assert one.overlapping(6, 9, after=None) == ()
    assert one.overlapping(5, 9, after=None) == ((1, 0),)


def test_what_arrived_after_the_reading_does_not_overlap() -> None:
    one = live()
    one.arrive((30, 0), "a", 30)
    assert one.overlapping(10, 20, after=None) == ()


async def test_what_landed_during_a_reading_still_overlaps_it_and_is_then_forgotten() -> None:
    one = live()
    reading = asyncio.create_task(asyncio.sleep(0))
    one.readings[reading] = None
    ended = exchange(at_ms=1, took_ms=5)
    one.arrive(ended.order, "main", 1 * MS)
    one.land(ended, 6 * MS)
    assert one.overlapping(3 * MS, 20 * MS, after=None) == (ended.order,)
    one.reading_over(reading)
    await reading
    assert one.overlapping(3 * MS, 20 * MS, after=None) == ()


def test_a_read_that_listens_for_events_tears_nothing() -> None:
    stream = request("GET", "/mcp", headers={"Accept": "application/json, Text/Event-Stream"})
    assert only_listens(stream)
    assert not only_listens(request("POST", "/mcp", headers={"Accept": "text/event-stream"}))
    assert not only_listens(request("GET", "/mcp"))
    one = live()
    one.arrive((1, 0), "a", 1)
    one.flights[1, 0].listens = True
    assert one.overlapping(5, 6, after=None) == ()


async def test_settling_waits_for_the_last_exchange_and_has_a_limit() -> None:
    one = live()
    assert await one.settle(0)
    ended = exchange()
    one.arrive(ended.order, "main", 0)
    assert not await one.settle(0.001)
    waiting = asyncio.create_task(one.settle(5))
    await asyncio.sleep(0)
    one.land(ended, 1)
    assert await waiting


def test_an_instance_is_the_harness_s_word_else_the_upstream() -> None:
    assert instance_of(live(instance={"crm": "pod-1"}, envs={"crm": "http://x"}).episode, "crm") == "pod-1"
    assert instance_of(live(envs={"crm": "http://x"}).episode, "crm") == "http://x"
    assert instance_of(live().episode, "crm") == ""


@pytest.mark.parametrize(
    ("other", "env", "shared"),
    [
        (live("o"), "crm", ("o",)),
        (live("o", instance={"crm": "2"}), "crm", ()),
        (live("o", instance={"crm": "2"}), None, ("o",)),
        (live("o", opened=50), "crm", ()),
    ],
)
def test_a_state_is_shared_with_what_was_open_on_the_same_instance(
    other: Live, env: str | None, shared: tuple[str, ...]
) -> None:
    one = live("e")
    assert sharing(one, [one, other], env, 10, 20) == shared


def test_an_episode_that_ended_before_the_reading_shares_nothing() -> None:
    one, other = live("e"), live("o")
    other.ended_at = 5
    assert sharing(one, [other], "crm", 10, 20) == ()
    other.ended_at = 15
    assert sharing(one, [other], "crm", 10, 20) == ("o",)


def test_the_context_of_a_spec_names_only_what_is_known() -> None:
    one = live("e", task="t", meta={"step": 3})
    assert one.context == {"episode": "e", "task": "t", "meta.step": "3"}
