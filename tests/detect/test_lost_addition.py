"""Additions that do not add up: learned where an action ran alone, judged where several ran side by side."""

from __future__ import annotations

from typing import Any

import pytest

from replayproxy.detect.finding import Blame, Grade, Kind
from replayproxy.testing import exchange
from tests.detect.bench import Bench
from tests.detect.booking import Booking
from tests.detect.hand import Hand, with_interval


def state(refunded: int) -> dict[str, Any]:
    return {"invoices": {"7": {"id": 7, "refunded": refunded, "amount": 500}, "8": {"id": 8}}}


def refund(at: float, end: float, amount: int, *, lane: str = "one", **more: Any) -> Any:
    made = exchange("POST", "/invoices/7/refund", sent={"amount": amount}, at_ms=at, lane=lane,
                    body=more.pop("body", {"ok": True}), **more)  # fmt: skip
    return with_interval(made, at, end)


ALONE = [refund(2, 3, 10), refund(6, 7, 20)]
BEFORE = [(0, state(5)), (4, state(15)), (8, state(35))]


def told(exchanges: list[Any], last: int) -> list[tuple[str, str, str]]:
    hand = Hand()
    hand.episode("e", [*ALONE, *exchanges], [*BEFORE, (40, state(last))])
    return [(f.kind.value, f.sub, f.grade.value) for f in hand.findings()]


PAIR = [refund(10, 16, 50), refund(12, 18, 50, lane="two")]


def test_two_additions_of_which_one_is_missing_are_a_lost_update() -> None:
    hand = Hand()
    hand.episode("e", [*ALONE, *PAIR], [*BEFORE, (40, state(85))])
    (found,) = hand.findings()
    assert (found.kind, found.sub, found.grade) == (Kind.LOST_UPDATE, "lost-addition", Grade.PROVEN)
    assert (found.pointer, found.values) == ("/invoices/7/refunded", (135, 85))
    assert [w.address for w in found.exchanges] == ["r/e#3", "r/e#4"]


@pytest.mark.parametrize(
    ("case", "exchanges", "last"),
    [
        ("both are in it", PAIR, 135),
        ("one was refused", [PAIR[0], refund(12, 18, 50, lane="two", status=409)], 85),
        ("a number that no sum gives has another writer", PAIR, 99),
        ("somebody may have set it", [*PAIR, exchange("PATCH", "/invoices/7", sent={"refunded": 85}, at_ms=20)], 85),
        ("a repeat under one key", [refund(10, 16, 50, request_headers={"Idempotency-Key": "k"}),
                                    refund(12, 18, 50, lane="two", request_headers={"Idempotency-Key": "k"})], 85),
        ("one without an answer was not done", [PAIR[0], refund(12, 18, 70, lane="two", status=500)], 85),
    ],
)  # fmt: skip
def test_what_adds_up_or_may_is_silent(case: str, exchanges: list[Any], last: int) -> None:
    assert told(exchanges, last) == [], case


def test_what_was_answered_as_failed_and_done_and_then_done_again_is_told() -> None:
    hand = Hand()
    failed = refund(10, 16, 50, status=500)
    hand.episode("e", [*ALONE, failed, refund(20, 22, 50)], [*BEFORE, (40, state(135))])
    (found,) = hand.findings()
    assert (found.kind, found.sub, found.blame) == (Kind.RACE, "applied-twice", Blame.ENVIRONMENT)
    assert found.values == (85, 135)


def test_an_action_that_was_never_seen_alone_is_not_known_to_add() -> None:
    hand = Hand()
    hand.episode("e", PAIR, [(8, state(35)), (40, state(85))])
    assert hand.findings() == ()


def test_an_action_that_once_left_the_number_alone_is_not_known_to_add() -> None:
    hand = Hand()
    idle = refund(30, 31, 5)
    hand.episode("e", [*ALONE, *PAIR, idle], [*BEFORE, (25, state(85)), (40, state(85))])
    assert hand.findings() == ()


def adder(n: int):
    def agent():
        for turn in range(3):
            yield "POST", f"/items/I-{turn + 1}/add", {"by": 3 + n}
            yield "GET", f"/items/I-{turn + 1}", None

    return agent


def sums(seed: int, lanes: int, *faults: str):
    bench = Bench(seed)
    service = bench.deployment("i", *faults, kind=Booking, gap_ms=5.0)
    bench.episode("e-1", service, {"main": adder(0)})
    bench.run()
    bench.episode("e0", service, {f"lane-{n}": adder(n) for n in range(lanes)})
    return bench.judge(), service


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("lanes", [2, 4, 8])
def test_a_correct_counter_is_silent_and_a_broken_one_is_found(seed: int, lanes: int) -> None:
    judged, _ = sums(seed, lanes)
    assert judged.findings == ()
    judged, service = sums(seed, lanes, "count")
    rows = {row for _, row in service.lost}
    named = {f.pointer.split("/")[2] for f in judged.findings}
    assert named <= rows
    assert {(f.kind, f.grade) for f in judged.findings} <= {(Kind.LOST_UPDATE, Grade.PROVEN)}
    assert len(named) >= 0.5 * len(rows), "the others are wrong by what several of them add"


def test_an_answer_that_shows_another_value_plus_what_was_asked_tells_that_the_action_adds() -> None:
    # Nobody ran alone; the third and fourth show what they found there, and what they made of it.
    side = [
        refund(10, 16, 50, body={"refunded": 85}), refund(12, 18, 40, lane="two", body={"refunded": 75}),
        refund(20, 26, 3, body={"refunded": 78}), refund(21, 27, 4, lane="two", body={"refunded": 82}),
    ]  # fmt: skip
    hand = Hand()
    hand.episode("e", side, [(8, state(35)), (19, state(75)), (40, state(82))])
    (found,) = hand.findings()
    assert (found.sub, found.grade, found.values) == ("lost-addition", Grade.PROVEN, (125, 75))


def test_an_action_whose_name_alone_says_that_it_adds_is_suspected() -> None:
    side = [refund(10, 16, 50, body={"refunded": 50}), refund(12, 18, 40, lane="two", body={"refunded": 40})]
    hand = Hand()
    hand.episode("e", side, [(8, state(0)), (40, state(40))])
    (found,) = hand.findings()
    assert (found.sub, found.grade, found.pointer) == ("lost-addition", Grade.SUSPECTED, "/invoices/7/refunded")
    assert "beside its name" in found.cannot_say


def test_a_rows_version_is_no_sum_and_one_answer_that_fits_by_chance_teaches_nothing() -> None:
    def counted(refunded: int, count: int) -> dict[str, Any]:
        return {"invoices": {"7": {"id": 7, "refunded": refunded, "version": count, "uses": count}}}

    def act(at: float, amount: int, refunded: int, count: int, lane: str = "one") -> Any:
        return refund(at, at + 6, amount, lane=lane, body={"refunded": refunded, "version": count, "uses": count})

    # Once (#2) the count is what was asked more than a count that was seen; it grows by one all the same.
    side = [act(10, 40, 40, 3), act(20, 2, 42, 5), act(21, 30, 72, 6, "two")]
    hand = Hand()
    hand.episode("e", side, [(8, counted(0, 2)), (18, counted(40, 3)), (40, counted(72, 5))])
    assert hand.findings() == ()
