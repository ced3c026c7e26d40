"""Double claims of one slot: found with both claims named, and silent wherever only one can have held it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from replayproxy.core.values import EnvWiring, Outcome
from replayproxy.detect.finding import Grade, Kind
from replayproxy.testing import exchange, run
from tests.detect.bench import Bench
from tests.detect.booking import Booking
from tests.detect.hand import Hand, with_interval


def slots(**holders: str | None) -> dict[str, Any]:
    return {"slots": {key: {"id": key, "holder": who} for key, who in holders.items()}}


FREE = slots(a=None, b=None)


def book(at: float, who: str, end: float, *, status: int = 201, lane: str = "", slot: str = "a", **more: Any) -> Any:
    said = more.pop("body", {"id": slot, "holder": who})
    made = exchange("POST", f"/slots/{slot}/book", sent={"holder": who}, status=status, body=said, at_ms=at,
                    lane=lane or who, **more)  # fmt: skip
    return with_interval(made, at, end)


def told(exchanges: list[Any], states: list[Any], **more: Any) -> list[tuple[str, str, str]]:
    hand = Hand()
    hand.episode("e", exchanges, states, **more)
    return [(f.kind.value, f.sub, f.grade.value) for f in hand.findings()]


DOUBLE = [("race", "double-claim", "proven")]
AFTER = [(0, FREE), (30, slots(a="bob", b=None))]


def test_two_that_were_both_granted_one_slot_side_by_side_are_a_double_claim() -> None:
    hand = Hand()
    hand.episode("e", [book(10, "ann", 16), book(12, "bob", 18)], AFTER)
    (found,) = hand.findings()
    assert (found.kind, found.sub, found.grade) == (Kind.RACE, "double-claim", Grade.PROVEN)
    assert [(w.role, w.address, w.value) for w in found.exchanges] == [
        ("claim", "r/e#1", "ann"), ("claim", "r/e#2", "bob"),
    ]  # fmt: skip
    assert found.pointer == "/slots/a/holder"
    assert found.values == ("ann", "bob")
    assert found.lane == "bob"
    assert found.snapshots == ("r/e/s0", "r/e/s1")
    assert found.reproduce == "replayproxy race r/e --env app=URL"
    assert {"rival_s", "claim_s"} <= set(found.times)


@pytest.mark.parametrize(
    ("case", "exchanges"),
    [
        ("one 201 and one 409", [book(10, "ann", 16), book(12, "bob", 18, status=409, body={"holder": "ann"})]),
        ("a precondition failed", [book(10, "bob", 16), book(12, "ann", 18, status=412, body={})]),
        ("another slot", [book(10, "ann", 16, slot="b"), book(12, "bob", 18)]),
        ("the same one again", [book(10, "bob", 16, lane="x"), book(12, "bob", 18, lane="y")]),
        (
            "a release that may have come between",
            [book(10, "ann", 16), exchange("POST", "/slots/a/release", at_ms=17, body={"id": "a", "holder": None}),
             book(20, "bob", 22)],
        ),
        (
            "a release by another table's row",
            [book(10, "ann", 16), exchange("DELETE", "/holds/7", status=204, at_ms=17, sent={"slot": "a"}),
             book(20, "bob", 22)],
        ),
        (
            "a release whose answer never came",
            [book(10, "ann", 16),
             exchange("DELETE", "/slots/a/hold", status=None, outcome=Outcome.TIMED_OUT, at_ms=8),
             book(20, "bob", 22)],
        ),
        ("a claim without an answer", [book(10, "ann", 16, status=500, body={}), book(12, "bob", 18)]),
    ],
)  # fmt: skip
def test_what_a_correct_environment_may_answer_is_silent(case: str, exchanges: list[Any]) -> None:
    holds = {"holds": {"7": {"id": 7, "slot": "a"}}}
    assert told(exchanges, [(0, FREE | holds), (30, slots(a="bob", b=None) | holds)]) == [], case


def test_a_repeat_under_one_idempotency_key_is_the_same_claim() -> None:
    key = {"Idempotency-Key": "k1", "Content-Type": "application/json"}
    first, again = (book(at, who, at + 6, request_headers=key) for at, who in ((10, "ann"), (12, "bob")))
    assert told([first, again], AFTER) == []


def test_a_snapshot_that_shows_the_slot_free_between_ends_the_first_claim() -> None:
    states = [(0, FREE), (17, slots(a="ann", b=None)), (19, FREE), (30, slots(a="bob", b=None))]
    assert [kind for kind, _, _ in told([book(10, "ann", 16), book(22, "bob", 24)], states)] == []


def test_taking_over_one_after_the_other_is_suspected_and_proven_once_a_refusal_shows_the_rule() -> None:
    states = [(0, FREE), (17, slots(a="ann", b=None)), (30, slots(a="bob", b=None))]
    taken = [book(10, "ann", 16), book(22, "bob", 24)]
    assert told(taken, states) == [("race", "double-claim", "suspected")]
    refused = book(18, "cy", 19, status=409, body={"id": "a", "holder": "ann"})
    assert told([*taken, refused], states) == DOUBLE
    late = book(40, "cy", 41, status=409, body={"id": "a", "holder": "bob"})
    assert told([*taken, late], states) == [("race", "double-claim", "suspected")], "two may have it, and three not"


def owned(owner: str | None) -> dict[str, Any]:
    return {"deals": {"D": {"id": "D", "owner": owner}, "E": {"id": "E", "owner": "zed"}}}


def assign(at: float, who: str, status: int = 200, key: str = "D") -> Any:
    made = exchange("PATCH", f"/deals/{key}", sent={"owner": who}, body={"id": key, "owner": who}, at_ms=at, lane=who,
                    status=status)  # fmt: skip
    return with_interval(made, at, at + 6)


def test_an_owner_may_change_hands_unless_the_environment_refuses_that() -> None:
    states = [(0, owned(None)), (30, owned("bob"))]
    taken = [assign(10, "ann"), assign(12, "bob")]
    assert told(taken, states) == []
    assert told([*taken, assign(40, "cy", status=409, key="E")], states) == DOUBLE


def test_the_holders_own_second_try_counts_only_where_repeats_are_refused() -> None:
    twice = [book(10, "agent", 16, lane="x"), book(12, "agent", 18, lane="y")]
    states = [(0, FREE), (30, slots(a="agent", b=None))]
    assert told(twice, states) == []
    refused = book(40, "agent", 41, status=409, body={"id": "a", "holder": "agent"})
    assert told([*twice, refused], states) == DOUBLE


def test_without_proof_of_the_state_it_is_suspected_and_says_why() -> None:
    hand = Hand()
    hidden = {**slots(a="bob", b=None), "deals": {"D": {"id": "D"}}}
    hand.episode("e", [book(10, "ann", 16), book(12, "bob", 18)],
                 [(0, {**FREE, "deals": {}}), (30, slots(a="bob", b=None)), (40, hidden)])  # fmt: skip
    (found,) = hand.findings()
    assert found.grade is Grade.SUSPECTED
    assert "only 1 of 2 state changes" in found.cannot_say


def test_a_hold_that_may_have_ended_by_itself_lowers_the_grade() -> None:
    def held(who: str | None) -> dict[str, Any]:
        return {"slots": {"a": {"id": "a", "holder": who, "expires_at": who and "2023-11-14T22:13:30Z"}}}

    late = [book(10, "ann", 16), book(9000, "bob", 9006)]
    refused = book(100, "cy", 101, status=409, body={"holder": "ann"})
    states = [(0, held(None)), (17, held("ann")), (9100, held("bob"))]
    assert told([*late, refused], states) == [("race", "double-claim", "suspected")]


def test_between_two_episodes_it_falls_on_the_later_claim_and_names_both() -> None:
    hand = Hand()
    states = [(0, FREE), (30, slots(a="bob", b=None))]
    hand.episode("one", [book(10, "ann", 16)], states, ended_ms=40)
    hand.episode("two", [book(12, "bob", 18)], states, ended_ms=40)
    (found,) = hand.findings()
    assert (found.episode, found.grade) == ("two", Grade.PROVEN)
    assert [w.address for w in found.exchanges] == ["r/one#1", "r/two#1"]


def booker(who: str):
    def agent():
        for n in (1, 2, 3, 4):
            yield "GET", "/slots", None
            status, _ = yield "POST", f"/slots/S-{n}/book", {"holder": who}
            if status == 201 and n % 2:
                yield "POST", f"/slots/S-{n}/release", None

    return agent


def bookings(seed: int, lanes: int, *faults: str, mode: str = "hold", gap: float = 5.0, releases: bool = True):
    bench = Bench(seed, mode=mode)
    service = bench.deployment("i", *faults, kind=Booking, gap_ms=gap)
    agents = {f"lane-{n}": booker(f"w{n}") if releases else taker(f"w{n}") for n in range(lanes)}
    bench.episode("e0", service, agents)
    return bench.judge(), service


def taker(who: str):
    def agent():
        for n in (1, 2, 3, 4):
            yield "GET", "/slots", None
            yield "POST", f"/slots/S-{n}/book", {"holder": who}

    return agent


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("lanes", [2, 4, 8])
def test_a_correct_booking_service_is_silent_however_contended(seed: int, lanes: int) -> None:
    judged, _ = bookings(seed, lanes, mode="free" if seed % 2 else "hold")
    assert judged.findings == ()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("lanes", [2, 4, 8])
def test_each_slot_that_was_given_twice_is_told_once(seed: int, lanes: int) -> None:
    judged, service = bookings(seed, lanes, "gap", mode="free" if seed % 2 else "hold", releases=False)
    rows = {row for _, row in service.lost}
    assert rows
    assert {f.pointer.split("/")[2] for f in judged.findings} == rows
    assert len(judged.findings) == len(rows)
    assert {(f.kind, f.sub, f.grade) for f in judged.findings} == {(Kind.RACE, "double-claim", Grade.PROVEN)}


def test_what_was_looked_at_and_what_not_is_said() -> None:
    hand = Hand()
    hand.episode("one", [book(10, "ann", 16)], AFTER)
    hand.episode("two", [book(1010, "ann", 1016), book(1012, "bob", 1018, status=409, body={})],
                 [(1000, FREE), (1030, slots(a="ann", b=None))], opened_ms=999)  # fmt: skip
    judged = hand.judge()
    assert judged.coverage["one"].not_checked["race"] == "one lane only"
    assert "race" in judged.coverage["two"].checked


def test_without_snapshots_two_grants_of_one_path_are_suspected_and_what_could_not_be_looked_at_is_said() -> None:
    hand = Hand()
    hand.episode("e", [book(10, "ann", 16), book(12, "bob", 18)])
    (found,) = hand.findings()
    assert (found.sub, found.grade, found.pointer) == ("double-claim", Grade.SUSPECTED, "/holder")
    assert "there are no snapshots" in found.cannot_say
    free = exchange("DELETE", "/slots/a/book", status=204, at_ms=17, lane="ann")
    assert told([book(10, "ann", 16), free, book(12, "bob", 18)], []) == []
    hand = Hand()
    hand.episode("e", [book(10, "ann", 16), book(12, "bob", 18, slot="b")])
    judged = hand.judge()
    assert judged.findings == ()
    assert judged.coverage["e"].not_checked["race"] == "no snapshots, and no two claims of one thing were granted"
    assert judged.coverage["e"].not_checked["lost-update"] == "no snapshots"


def test_a_column_of_any_name_is_a_holder_where_the_config_declares_it() -> None:
    def desk(who: str | None) -> dict[str, Any]:
        return {"desks": {"d": {"id": "d", "steward": who}}}

    def take(at: float, who: str) -> Any:
        made = exchange(
            "PATCH", "/desks/d", sent={"steward": who}, body={"id": "d", "steward": who}, at_ms=at, lane=who
        )
        return with_interval(made, at, at + 1)

    def judged(claims: tuple[str, ...]) -> list[str]:
        wiring = EnvWiring(name="app", upstream="http://app.test", claims=claims)
        hand = Hand(replace(run(), envs={"app": wiring}))
        hand.episode("e", [take(10, "ann"), take(20, "bob")], [(0, desk(None)), (15, desk("ann")), (30, desk("bob"))])
        return [f"{f.sub} {f.grade}" for f in hand.findings()]

    assert judged(()) == []
    assert judged(("desks.steward",)) == ["double-claim proven"]


def test_a_slot_with_room_for_two_is_for_two_and_one_that_was_shared_before_may_be() -> None:
    roomy = [(0, {"slots": {"a": {"id": "a", "holder": None, "capacity": 2}}}),
             (30, {"slots": {"a": {"id": "a", "holder": "bob", "capacity": 2}}})]  # fmt: skip
    assert told([book(10, "ann", 16), book(12, "bob", 18)], roomy) == []
    shared = [book(30, "ann", 31, slot="b"), book(40, "bob", 41, slot="b"), book(50, "cy", 51, slot="b", status=409)]
    states = [(0, FREE), (20, slots(a="bob", b=None)), (35, slots(a="bob", b="ann")), (60, slots(a="bob", b="bob"))]
    assert told([book(10, "ann", 16), book(12, "bob", 18), *shared], states) == [
        ("race", "double-claim", "suspected"), ("race", "double-claim", "suspected"),
    ]  # fmt: skip
