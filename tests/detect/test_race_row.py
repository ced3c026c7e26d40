"""One row under overlapping writes: torn reads, writes that did not see each other, conditions that were not kept."""

from __future__ import annotations

from typing import Any

import pytest

from replayproxy.detect.finding import Grade, Kind
from replayproxy.testing import exchange
from tests.detect.hand import Hand, with_interval


def row(title: str, place: str) -> dict[str, Any]:
    return {"items": {"a": {"id": "a", "title": title, "place": place}}}


def patch(at: float, end: float, sent: dict[str, Any], lane: str = "one", body: Any = None, **more: Any) -> Any:
    made = exchange("PATCH", "/items/a", sent=sent, body={"id": "a", **(sent if body is None else body)}, at_ms=at,
                    lane=lane, **more)  # fmt: skip
    return with_interval(made, at, end)


def get(at: float, end: float, title: str, place: str) -> Any:
    body = {"id": "a", "title": title, "place": place}
    return with_interval(exchange("GET", "/items/a", body=body, at_ms=at, lane="reader"), at, end)


KNOWN = [patch(2, 3, {"title": "t0", "place": "p0"})]
BEGIN = [(0, row("-", "-")), (4, row("t0", "p0"))]


def told(exchanges: list[Any], *states: Any) -> list[tuple[str, str, str]]:
    hand = Hand()
    hand.episode("e", [*KNOWN, *exchanges], [*BEGIN, *states])
    return [(f.kind.value, f.sub, f.grade.value) for f in hand.findings()]


BOTH = patch(10, 20, {"title": "t1", "place": "p1"})


def test_a_read_that_shows_half_of_a_write_is_torn() -> None:
    hand = Hand()
    hand.episode("e", [*KNOWN, BOTH, get(12, 14, "t1", "p0")], [*BEGIN, (30, row("t1", "p1"))])
    (found,) = hand.findings()
    assert (found.kind, found.sub, found.grade) == (Kind.RACE, "torn-read", Grade.PROVEN)
    assert [(w.role, w.address) for w in found.exchanges] == [("write", "r/e#2"), ("read", "r/e#3")]
    assert "-wr title->" in found.effect["cycle"]
    assert "-rw place->" in found.effect["cycle"]


@pytest.mark.parametrize("shows", [("t0", "p0"), ("t1", "p1"), ("t9", "p0")])
def test_a_read_beside_a_write_may_show_the_row_before_or_after_it(shows: tuple[str, str]) -> None:
    assert told([BOTH, get(12, 14, *shows)], (30, row("t1", "p1"))) == []


def test_a_read_beside_two_writes_may_show_one_of_them() -> None:
    one, two = patch(10, 20, {"title": "t1"}), patch(10, 20, {"place": "p1"}, "two")
    assert told([one, two, get(12, 14, "t1", "p0")], (30, row("t1", "p1"))) == []


BLIND = [
    patch(10, 16, {"title": "t1"}, body={"title": "t1", "place": "p0"}),
    patch(12, 18, {"place": "p1"}, "two", body={"title": "t0", "place": "p1"}),
]
LATER = patch(19, 20, {"title": "t2", "place": "p2"}, "three")


def test_writes_that_did_not_see_each_other_are_suspected_where_no_snapshot_shows_what_is_left() -> None:
    hand = Hand()
    hand.episode("e", [*KNOWN, *BLIND, LATER], [*BEGIN, (30, row("t2", "p2"))])
    (found,) = hand.findings()
    assert (found.kind, found.sub, found.grade) == (Kind.LOST_UPDATE, "G2", Grade.SUSPECTED)
    assert found.effect["cycle"] in ("#2 -rw place-> #3 -rw title-> #2", "#3 -rw title-> #2 -rw place-> #3")


def test_with_one_version_for_both_they_are_proven() -> None:
    versions = [
        patch(10, 16, {"title": "t1"}, body={"title": "t1", "place": "p0", "version": 2}),
        patch(12, 18, {"place": "p1"}, "two", body={"title": "t0", "place": "p1", "version": 2}),
    ]
    assert told([*versions, LATER], (30, row("t2", "p2"))) == [("lost-update", "G2", "proven")]


def test_where_the_snapshot_shows_both_only_the_answers_were_early() -> None:
    assert told(BLIND, (30, row("t1", "p1"))) == []


def test_where_the_snapshot_shows_the_loss_it_is_told_once() -> None:
    assert told(BLIND, (30, row("t0", "p1"))) == [("lost-update", "lost-update", "proven")]


def test_answers_that_show_the_others_write_both_ways_may_have_been_read_late() -> None:
    seen = [
        patch(10, 16, {"title": "t1"}, body={"title": "t1", "place": "p1"}),
        patch(12, 18, {"place": "p1"}, "two", body={"title": "t1", "place": "p1"}),
    ]
    assert told([*seen, LATER], (30, row("t2", "p2"))) == []


def demand(at: float, end: float, title: str, lane: str, tag: str, *, match: str = '"1"', status: int = 200) -> Any:
    made = exchange("PATCH", "/items/a", sent={"title": title}, status=status, at_ms=at, lane=lane,
                    body={"id": "a", "title": title} if status == 200 else {},
                    headers={"Content-Type": "application/json", "ETag": tag},
                    request_headers={"Content-Type": "application/json", "If-Match": match})  # fmt: skip
    return with_interval(made, at, end)


FIRST = demand(10, 16, "t1", "one", '"2"')


def test_two_that_demanded_one_version_and_were_both_done_show_that_the_demand_is_ignored() -> None:
    hand = Hand()
    second = demand(12, 18, "t2", "two", '"3"')
    hand.episode("e", [*KNOWN, FIRST, second], [*BEGIN, (30, row("t2", "p0"))])
    (found,) = hand.findings()
    assert (found.kind, found.sub, found.grade) == (Kind.LOST_UPDATE, "condition-ignored", Grade.PROVEN)
    assert [w.address for w in found.exchanges] == ["r/e#2", "r/e#3"]


@pytest.mark.parametrize(
    ("case", "second"),
    [
        ("it was kept", [demand(12, 18, "t2", "two", '"2"', status=412)]),
        ("each demanded its own", [demand(20, 22, "t2", "two", '"3"', match='"2"')]),
        ("any version", [demand(12, 18, "t2", "two", '"3"', match="*")]),
        ("the version came back", [patch(17, 18, {"title": "t0"}, "x"), demand(20, 22, "t2", "two", '"3"')]),
    ],
)
def test_a_demand_that_was_kept_or_may_have_been_is_silent(case: str, second: list[Any]) -> None:
    last = "t1" if case == "it was kept" else "t2"
    assert told([FIRST, *second], (30, row(last, "p0"))) == [], case


def put(at: float, title: str, place: str, lane: str = "reader", **more: Any) -> Any:
    body = {"id": "a", "title": title, "place": place}
    return exchange("PUT", "/items/a", sent={"title": title, "place": place}, body=body, at_ms=at, lane=lane, **more)


MOVED = patch(15, 16, {"place": "p1"})


def test_a_row_put_back_whole_over_anothers_change_is_suspected_and_not_the_environments_fault() -> None:
    hand = Hand()
    hand.episode("e", [*KNOWN, get(10, 11, "t0", "p0"), MOVED, put(20, "t1", "p0")],
                 [*BEGIN, (17, row("t0", "p1")), (30, row("t1", "p0"))])  # fmt: skip
    (found,) = hand.findings()
    assert (found.sub, found.grade, found.blame.value) == ("G-single", Grade.SUSPECTED, "undecided")
    assert [(w.role, w.address) for w in found.exchanges] == [
        ("read", "r/e#2"), ("witness", "r/e#3"), ("write", "r/e#4"),
    ]  # fmt: skip
    assert found.values == ("p1", "p0")


@pytest.mark.parametrize(
    ("case", "exchanges", "last"),
    [
        ("it was read again", [get(10, 11, "t0", "p0"), MOVED, get(17.5, 18, "t0", "p1"), put(20, "t1", "p1")],
         ("t1", "p1")),
        ("nothing but the other's change is taken back", [get(10, 11, "t0", "p0"), MOVED, put(20, "t0", "p0")],
         ("t0", "p0")),
        ("it demanded the version that it had read",
         [get(10, 11, "t0", "p0"), MOVED,
          put(20, "t1", "p0", request_headers={"Content-Type": "application/json", "If-Match": '"7"'})], ("t1", "p0")),
        ("the other began before the read had ended",
         [get(10, 15.5, "t0", "p0"), MOVED, put(20, "t1", "p0")], ("t1", "p0")),
    ],
)  # fmt: skip
def test_a_row_put_back_as_it_may_be_meant_is_silent(case: str, exchanges: list[Any], last: tuple[str, str]) -> None:
    assert told(exchanges, (17, row("t0", "p1")), (30, row(*last))) == [], case
