"""Answers that contradict the state: refused and done, failed and done twice, refused for a holder that is none."""

from __future__ import annotations

from typing import Any

import pytest

from replayproxy.core.values import Outcome
from replayproxy.detect.finding import Blame, Grade, Kind
from replayproxy.testing import exchange
from tests.detect.hand import Hand, with_interval


def told(exchanges: list[Any], *states: Any) -> list[tuple[str, str, str]]:
    hand = Hand()
    hand.episode("e", exchanges, list(states))
    return [(f.kind.value, f.sub, f.grade.value) for f in hand.findings()]


def deal(stage: str) -> dict[str, Any]:
    return {"deals": {"D": {"id": "D", "stage": stage}, "E": {"id": "E", "stage": "lead"}}}


REFUSED = exchange("PATCH", "/deals/D", sent={"stage": "won"}, status=409, body={"error": "no"}, at_ms=10)


def test_a_refused_write_whose_value_is_there_afterwards_was_done_all_the_same() -> None:
    hand = Hand()
    hand.episode("e", [REFUSED], [(0, deal("lead")), (20, deal("won"))])
    (found,) = hand.findings()
    assert (found.kind, found.sub, found.grade) == (Kind.RACE, "refused-but-done", Grade.PROVEN)
    assert (found.values, found.pointer) == (("lead", "won"), "/deals/D/stage")
    assert [w.address for w in found.exchanges] == ["r/e#1"]


@pytest.mark.parametrize(
    ("case", "exchanges", "last"),
    [
        ("it was not done", [REFUSED], "lead"),
        ("another did it", [REFUSED, exchange("PATCH", "/deals/D", sent={"stage": "won"}, at_ms=12, body={})], "won"),
        ("another value", [REFUSED], "lost"),
        ("one without an answer may have", [exchange("PATCH", "/deals/D", sent={"stage": "won"}, status=500, at_ms=5),
                                            REFUSED], "won"),
    ],
)  # fmt: skip
def test_what_another_may_have_done_is_silent(case: str, exchanges: list[Any], last: str) -> None:
    assert told(exchanges, (0, deal("lead")), (20, deal(last))) == [], case


def orders(*keys: str) -> dict[str, Any]:
    return {"orders": {key: {"id": key, "sku": "s", "count": 2} for key in keys}}


def order(at: float, key: str, *, status: int | None = 201, lane: str = "main", **more: Any) -> Any:
    body = {"id": key, "sku": "s", "count": 2} if status == 201 else {}
    made = exchange("POST", "/orders", sent={"sku": "s", "count": 2}, status=status, body=body, at_ms=at, lane=lane,
                    **more)  # fmt: skip
    return with_interval(made, at, at + 1)


BOTH = [order(10, "", status=500), order(20, "o2")]


def test_a_write_that_failed_and_was_done_and_was_sent_again_is_done_twice() -> None:
    hand = Hand()
    hand.episode("e", BOTH, [(0, orders("o0")), (15, orders("o0", "o1")), (30, orders("o0", "o1", "o2"))])
    (found,) = hand.findings()
    assert (found.kind, found.sub, found.grade, found.blame) == (
        Kind.RACE, "applied-twice", Grade.PROVEN, Blame.ENVIRONMENT,
    )  # fmt: skip
    assert [w.address for w in found.exchanges] == ["r/e#1", "r/e#2"]
    assert found.effect["rows"] == ["orders/o1", "orders/o2"]


def test_an_answer_that_was_lost_is_nobodys_fault_in_the_environment_unless_a_key_was_given() -> None:
    states = [(0, orders("o0")), (30, orders("o0", "o1", "o2"))]
    for headers, blame in ((None, Blame.INFRASTRUCTURE), ({"Idempotency-Key": "k", "Content-Type": "application/json"},
                                                           Blame.ENVIRONMENT)):  # fmt: skip
        hand = Hand()
        lost = order(10, "", status=None, outcome=Outcome.TIMED_OUT, request_headers=headers)
        hand.episode("e", [lost, order(20, "o2", request_headers=headers)], states)
        (found,) = hand.findings()
        assert (found.sub, found.blame) == ("applied-twice", blame)


@pytest.mark.parametrize(
    ("case", "exchanges", "keys"),
    [
        ("it failed and was not done", BOTH, ("o0", "o2")),
        ("two were ordered", [order(10, "o1"), order(20, "o2")], ("o0", "o1", "o2")),
        ("another lane's order is no repeat", [BOTH[0], order(20, "o2", lane="two")], ("o0", "o1", "o2")),
        ("another one made it", [*BOTH, order(22, "o1", lane="two")], ("o0", "o1", "o2")),
    ],
)
def test_what_is_there_once_or_may_be_anothers_is_silent(case: str, exchanges: list[Any], keys: Any) -> None:
    assert told(exchanges, (0, orders("o0")), (30, orders(*keys))) == [], case


def slots(a: str | None) -> dict[str, Any]:
    return {"slots": {"a": {"id": "a", "holder": a}, "b": {"id": "b", "holder": None}}}


SHOWN = exchange("GET", "/slots", body={"items": [{"id": "a", "holder": None}, {"id": "b", "holder": None}]}, at_ms=5)
TAKEN = exchange("POST", "/slots/a/book", sent={"holder": "me"}, status=409, body={"id": "a", "holder": "x"}, at_ms=20)


def test_a_refusal_for_a_holder_that_the_state_never_had_is_a_phantom() -> None:
    hand = Hand()
    held = {"slots": {**slots(None)["slots"], "c": {"id": "c", "holder": "y"}}}
    hand.episode("e", [SHOWN, TAKEN], [(0, held), (30, held)])
    (found,) = hand.findings()
    assert (found.kind, found.sub, found.grade) == (Kind.RACE, "phantom-conflict", Grade.PROVEN)
    assert [(w.role, w.address) for w in found.exchanges] == [("read", "r/e#1"), ("claim", "r/e#2")]


def test_where_no_snapshot_ever_shows_a_holder_it_may_be_kept_elsewhere() -> None:
    hand = Hand()
    hand.episode("e", [SHOWN, TAKEN], [(0, slots(None)), (30, slots(None))])
    (found,) = hand.findings()
    assert (found.sub, found.grade) == ("phantom-conflict", Grade.SUSPECTED)
    assert "no snapshot ever shows a holder" in found.cannot_say


def test_it_said_available_is_no_finding_where_a_rivals_claim_can_have_come_between() -> None:
    rival = exchange("POST", "/slots/a/book", sent={"holder": "x"}, status=201, body={"id": "a", "holder": "x"},
                     at_ms=12, lane="rival")  # fmt: skip
    assert told([SHOWN, rival, TAKEN], (0, slots(None)), (30, slots("x"))) == []
    lost = exchange("POST", "/slots/a/book", sent={"holder": "x"}, status=500, at_ms=2, lane="rival")
    assert told([lost, SHOWN, TAKEN], (0, slots(None)), (30, slots(None))) == []


def test_it_said_available_of_what_was_taken_long_before_is_a_stale_read_and_told_once() -> None:
    rival = exchange("POST", "/slots/a/book", sent={"holder": "x"}, status=201, body={"id": "a", "holder": "x"},
                     at_ms=2, lane="rival")  # fmt: skip
    late = exchange(
        "GET", "/slots", body={"items": [{"id": "a", "holder": None}, {"id": "b", "holder": None}]}, at_ms=9
    )
    early = exchange(
        "GET", "/slots", body={"items": [{"id": "a", "holder": None}, {"id": "b", "holder": None}]}, at_ms=1
    )
    found = told([early, rival, late, TAKEN], (0, slots(None)), (5, slots("x")), (30, slots("x")))
    assert [kind for kind, _, _ in found] == ["stale-read"]


def test_what_was_answered_500_and_stands_in_the_state_was_done() -> None:
    hand = Hand()
    hand.episode("e", [BOTH[0]], [(0, orders("o0")), (15, orders("o0", "o1"))])
    (found,) = hand.findings()
    assert (found.sub, found.grade, found.blame) == ("failed-but-done", Grade.PROVEN, Blame.ENVIRONMENT)
    assert [w.address for w in found.exchanges] == ["r/e#1"]
    assert "race" in hand.judge().coverage["e"].checked, "what was found was looked for"
    assert told([BOTH[0]], (0, orders("o0")), (15, orders("o0"))) == [], "it was not done"
    lost = order(10, "", status=None, outcome=Outcome.TIMED_OUT)
    assert told([lost], (0, orders("o0")), (15, orders("o0", "o1"))) == [], "without an answer that is lawful"
    assert told([BOTH[0], order(12, "o1")], (0, orders("o0")), (15, orders("o0", "o1"))) == [], "its repeat made it"


def test_one_key_granted_twice_with_two_rows_is_done_twice() -> None:
    key = {"Idempotency-Key": "k", "Content-Type": "application/json"}
    pair = [order(10, "o1", request_headers=key), order(20, "o2", request_headers=key)]
    states = [(0, orders("o0")), (15, orders("o0", "o1")), (30, orders("o0", "o1", "o2"))]
    assert told(pair, *states) == [("race", "applied-twice", "proven")]
    again = [pair[0], order(20, "o1", request_headers=key)]
    assert told(again, *states[:2]) == [], "answered with what it had got"
    hand = Hand()
    hand.episode("e", again, states[:2])
    assert "race" in hand.judge().coverage["e"].checked
    other = {"Idempotency-Key": "other", "Content-Type": "application/json"}
    assert told([pair[0], order(20, "o2", request_headers=other)], *states) == []
