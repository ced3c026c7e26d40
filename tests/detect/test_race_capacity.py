"""More holders than there is room for: found in one snapshot; silent for rooms, waiting lists, retries and refusals."""

from __future__ import annotations

from typing import Any

import pytest

from replayproxy.detect.finding import Grade, Kind
from replayproxy.testing import exchange
from tests.detect.bench import Bench
from tests.detect.booking import Booking
from tests.detect.hand import Hand, with_interval


def state(*holders: str, capacity: int | None = 1, parent: str = "events", child: str = "bookings", **more: Any):
    column = parent[:-1] + "_id"
    thing = {"id": "E", "title": "Talk"} | ({} if capacity is None else {"capacity": capacity})
    rows = {key: {"id": key, column: "E", "status": "confirmed", **more.get(key, {})} for key in holders}
    return {parent: {"E": thing, "F": {**thing, "id": "F"}}, child: rows}


def enrol(at: float, key: str, end: float, *, status: int = 201, parent: str = "events", child: str = "bookings",
          **more: Any) -> Any:  # fmt: skip
    asked = {parent[:-1] + "_id": "E"}
    said = {"id": key, **asked} if status == 201 else {"error": "full"}
    made = exchange("POST", f"/{child}", sent=asked, status=status, at_ms=at, lane=key, body=said, **more)
    return with_interval(made, at, end)


BOTH = [enrol(10, "B1", 16), enrol(12, "B2", 18)]


def told(exchanges: list[Any], *states: tuple[float, Any]) -> list[tuple[str, str, str]]:
    hand = Hand()
    hand.episode("e", exchanges, list(states))
    return [(f.kind.value, f.sub, f.grade.value) for f in hand.findings()]


OVER = [("race", "over-capacity", "proven")]


def test_two_rows_in_the_place_of_one_are_more_than_there_is_room_for() -> None:
    hand = Hand()
    hand.episode("e", BOTH, [(0, state()), (30, state("B1", "B2"))])
    (found,) = hand.findings()
    assert (found.kind, found.sub, found.grade) == (Kind.RACE, "over-capacity", Grade.PROVEN)
    assert [(w.role, w.address) for w in found.exchanges] == [("claim", "r/e#1"), ("claim", "r/e#2")]
    assert (found.pointer, found.values) == ("/events/E/capacity", (1, 2))
    assert found.snapshots == ("r/e/s1",)
    assert "bookings/B1, bookings/B2" in found.ruled_out[0]


@pytest.mark.parametrize(
    ("case", "exchanges", "states"),
    [
        ("room for two", BOTH, [(0, state(capacity=2)), (30, state("B1", "B2", capacity=2))]),
        ("one 201 and one 409", [BOTH[0], enrol(12, "B2", 18, status=409)], [(0, state()), (30, state("B1"))]),
        ("a repeat that made no second row", [BOTH[0], enrol(12, "B1", 18)], [(0, state()), (30, state("B1"))]),
        ("one of them was cancelled", BOTH,
         [(0, state()), (30, state("B1", "B2", B1={"status": "cancelled"}))]),
        ("one of them is deleted softly", BOTH,
         [(0, state()), (30, state("B1", "B2", B1={"deleted_at": "2024-01-01T00:00:00Z"}))]),
        ("one of them waits", BOTH, [(0, state()), (30, state("B1", "B2", B2={"status": "waitlisted"}))]),
        ("it was overbooked before", [enrol(10, "B3", 16)], [(0, state("B1", "B2")), (30, state("B1", "B2", "B3"))]),
        ("the room itself grew", BOTH, [(0, state()), (30, state("B1", "B2", capacity=2))]),
        ("nobody knows who made them", [exchange("POST", "/jobs", at_ms=10, lane="x", body={}), BOTH[0]],
         [(0, state()), (30, state("B1", "B9"))]),
    ],
)  # fmt: skip
def test_what_a_correct_environment_may_hold_is_silent(case: str, exchanges: list[Any], states: list[Any]) -> None:
    assert told(exchanges, *states) == [], case


def test_a_hotel_room_for_one_may_be_booked_for_many_nights() -> None:
    both = [enrol(10, "B1", 16, parent="rooms"), enrol(12, "B2", 18, parent="rooms")]
    assert told(both, (0, state(parent="rooms")), (30, state("B1", "B2", parent="rooms"))) == []


def test_notes_about_a_thing_do_not_hold_it() -> None:
    both = [enrol(10, "B1", 16, child="notes"), enrol(12, "B2", 18, child="notes")]
    assert told(both, (0, state(child="notes")), (30, state("B1", "B2", child="notes"))) == []


def test_one_after_the_other_may_be_a_policy_until_a_refusal_shows_that_it_is_not() -> None:
    later = [BOTH[0], enrol(20, "B2", 22)]
    states = [(0, state()), (18, state("B1")), (30, state("B1", "B2"))]
    assert told(later, *states) == []
    assert told([BOTH[0], enrol(19, "B0", 19.5, status=409), enrol(20, "B2", 22)], *states) == OVER
    # One that came only when there were two already is what a service does that lets in one more than it has room for.
    beyond = told([*later, enrol(40, "B3", 41, status=409)], *states)
    assert beyond == [("race", "over-capacity", "suspected")]


def test_a_slot_is_for_one_although_nothing_says_so_which_is_suspected_until_a_refusal_shows_it() -> None:
    both = [enrol(10, "B1", 16, parent="slots"), enrol(12, "B2", 18, parent="slots")]
    states = [(0, state(parent="slots", capacity=None)), (30, state("B1", "B2", parent="slots", capacity=None))]
    assert told(both, *states) == [("race", "over-capacity", "suspected")]
    late = told([*both, enrol(40, "B3", 41, status=409, parent="slots")], *states)
    assert late == [("race", "over-capacity", "suspected")], "it may be for two"
    first = [(0, state(parent="slots", capacity=None)), (4, state("B0", parent="slots", capacity=None)),
             (9, state("B0", parent="slots", capacity=None, B0={"status": "cancelled"})),
             (30, state("B0", "B1", "B2", parent="slots", capacity=None, B0={"status": "cancelled"}))]  # fmt: skip
    refused = [enrol(2, "B0", 3, parent="slots"), enrol(5, "B9", 6, status=409, parent="slots"),
               exchange("DELETE", "/bookings/B0", status=204, at_ms=7, lane="B0")]  # fmt: skip
    assert told([*refused, *both], *first) == OVER


def test_two_episodes_it_falls_on_the_later() -> None:
    hand = Hand()
    states = [(0, state()), (30, state("B1", "B2"))]
    hand.episode("one", BOTH[:1], states, ended_ms=40)
    hand.episode("two", BOTH[1:], states, ended_ms=40)
    (found,) = hand.findings()
    assert (found.episode, [w.address for w in found.exchanges]) == ("two", ["r/one#1", "r/two#1"])


def test_a_list_of_holders_longer_than_the_capacity_and_fewer_than_none_left() -> None:
    def row(**members: Any) -> dict[str, Any]:
        return {"events": {"E": {"id": "E", **members}}}

    def act(at: float, end: float, lane: str) -> Any:
        return with_interval(exchange("POST", "/events/E/join", at_ms=at, lane=lane, body={"ok": True}), at, end)

    both = [act(10, 16, "a"), act(12, 18, "b")]
    full = [(0, row(capacity=1, attendees=[])), (30, row(capacity=1, attendees=["a", "b"]))]
    assert told(both, *full) == OVER
    assert told(both, (0, row(seats_left=1)), (30, row(seats_left=-1))) == OVER
    assert told(both, (0, row(seats_left=2)), (30, row(seats_left=0))) == []
    assert told([both[0], act(20, 22, "b")], *full) == [], "one after the other: a policy may allow it"


def guest(who: str):
    def agent():
        for n in (2, 1):
            yield "GET", "/events", None
            yield "POST", f"/events/E-{n}/bookings", {"who": who, "once": f"{who}/{n}"}
            yield "POST", f"/events/E-{n}/bookings", {"who": who, "once": f"{who}/{n}"}

    return agent


def talks(seed: int, lanes: int, *faults: str, mode: str = "hold"):
    bench = Bench(seed, mode=mode)
    service = bench.deployment("i", *faults, kind=Booking, gap_ms=5.0)
    bench.episode("e0", service, {f"lane-{n}": guest(f"w{n}") for n in range(lanes)})
    return bench.judge(), service


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("lanes", [2, 4, 8])
def test_a_correct_service_with_retries_and_room_for_two_is_silent(seed: int, lanes: int) -> None:
    judged, _ = talks(seed, lanes, mode="free" if seed % 2 else "hold")
    assert judged.findings == ()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("lanes", [2, 4, 8])
def test_each_overbooked_event_is_told(seed: int, lanes: int) -> None:
    judged, service = talks(seed, lanes, "gap", mode="free" if seed % 2 else "hold")
    rows = {row for _, row in service.lost}
    assert {f.pointer.split("/")[2] for f in judged.findings} == rows
    assert {(f.kind, f.sub, f.grade) for f in judged.findings} <= {(Kind.RACE, "over-capacity", Grade.PROVEN)}


def test_rows_whose_name_says_nothing_hold_a_thing_once_a_refusal_came_when_they_filled_it() -> None:
    both = [enrol(10, "B1", 16, child="chairs"), enrol(12, "B2", 18, child="chairs")]
    states = [(0, state(child="chairs")), (30, state("B1", "B2", child="chairs"))]
    assert told(both, *states) == []
    hand = Hand()
    full = enrol(1010, "B9", 1011, child="chairs", status=409)
    hand.episode("e", both, states)
    hand.episode("f", [full], [(1000, state("B8", child="chairs"))], opened_ms=999)
    (found,) = hand.findings()
    assert (found.sub, found.grade, found.values) == ("over-capacity", Grade.PROVEN, (1, 2))


def test_rows_made_by_joining_a_thing_hold_it_whatever_their_table_is_called() -> None:
    def join(at: float, key: str, end: float, action: str = "join") -> Any:
        made = exchange(
            "POST", f"/events/E/{action}", status=201, body={"id": key, "event_id": "E"}, at_ms=at, lane=key
        )
        return with_interval(made, at, end)

    states = [(0, state(child="chairs")), (30, state("B1", "B2", child="chairs"))]
    assert told([join(10, "B1", 16), join(12, "B2", 18)], *states) == OVER
    assert told([join(10, "B1", 16, "remark"), join(12, "B2", 18, "remark")], *states) == []
