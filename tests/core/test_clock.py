from __future__ import annotations

import pytest

from replayproxy.core.clock import Clock, is_elapsed, span_of
from replayproxy.core.times import SECOND, Instant
from replayproxy.testing import MS, WALL0, exchange

A0, B0 = 1_700_000_000 * SECOND, 1_800_000_000 * SECOND


def ms(base: int, at: float, took: float = 5) -> tuple[int, int]:
    return base + round(at * MS), base + round((at + took) * MS)


def instant(at: int, grain: int = MS, form: str = "isoTZ") -> Instant:
    return Instant(at, grain, form)


STEPS_A, STEPS_B = (0, 1000, 5000), (0, 400, 900)


@pytest.fixture
def clock() -> Clock:
    return Clock([(ms(A0, x), ms(B0, y)) for x, y in zip(STEPS_A, STEPS_B, strict=True)])


def test_a_value_of_the_exchange_itself_keeps_its_offset(clock: Clock) -> None:
    hour = 3600 * SECOND
    for offset in (0, hour, -2 * hour):
        x, y = instant(A0 + 5002 * MS + offset), instant(B0 + 903 * MS + offset)
        assert clock.explains(x, y, ms(A0, 5000), ms(B0, 900))


def test_a_value_that_was_stored_before_belongs_to_an_earlier_pair(clock: Clock) -> None:
    x, y = instant(A0 + 1002 * MS), instant(B0 + 402 * MS)
    assert clock.explains(x, y, ms(A0, 5000), ms(B0, 900))


def test_drift_a_standing_clock_and_another_exchange_are_differences(clock: Clock) -> None:
    here = ms(A0, 5000), ms(B0, 900)
    assert not clock.explains(instant(A0 + 5002 * MS), instant(B0 + 2900 * MS), *here)
    assert not clock.explains(instant(A0 + 5002 * MS), instant(A0 + 5002 * MS + 1), *here)
    assert not clock.explains(instant(A0 + 5002 * MS), instant(B0 + 402 * MS), *here)  # stale


def test_two_forms_are_two_values(clock: Clock) -> None:
    here = ms(A0, 0), ms(B0, 0)
    assert not clock.explains(instant(A0, form="isoTZ"), instant(B0, form="isoT+"), *here)
    assert clock.explains(instant(A0, form="epoch-s"), instant(B0, form="epoch-s."), *here)


def test_what_a_reset_wrote_shortly_before_the_episode_is_the_clock(clock: Clock) -> None:
    here = ms(A0, 0), ms(B0, 0)
    assert clock.explains(instant(A0 - 2 * SECOND), instant(B0 - 50 * SECOND), *here)
    assert not clock.explains(instant(A0 - 2 * SECOND), instant(B0 - 120 * SECOND), *here)


def test_a_date_keeps_its_distance_in_days() -> None:
    day = 86400 * SECOND
    monday = (A0 // day) * day
    clock = Clock([])
    spans = (monday + 10 * SECOND, monday + 11 * SECOND), (monday + 3 * day, monday + 3 * day)

    def date(days: int) -> Instant:
        return Instant(monday + days * day, day, "date")

    assert clock.explains(date(0), date(3), *spans)
    assert clock.explains(date(7), date(10), *spans)
    assert not clock.explains(date(7), date(11), *spans)


def test_the_span_of_an_exchange_is_wall_time() -> None:
    assert span_of(exchange(at_ms=20, took_ms=5)) == (WALL0 + 20 * MS, WALL0 + 25 * MS)


@pytest.mark.parametrize(
    ("member", "value", "took_ms", "elapsed"),
    [
        ("elapsed_ms", 12, 20, True), ("elapsedMs", 12, 20, True), ("took", 12, 20, True), ("elapsed", 12, 20, True),
        ("elapsed_ms", 30, 20, False), ("elapsed_ms", -1, 20, False), ("response_time_us", 20_000, 20, True),
        ("duration", 12, 20, False), ("amount", 12, 20, False), ("elapsed_seconds", 1, 20, False),
    ],
)  # fmt: skip
def test_how_long_an_exchange_took(member: str, value: int, took_ms: float, elapsed: bool) -> None:
    assert is_elapsed(member, value, ms(A0, 0, took_ms)) == elapsed
