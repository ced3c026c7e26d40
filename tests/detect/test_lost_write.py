"""Writes that were acknowledged and then lost: found with what undid them; silent where something may have set it."""

from __future__ import annotations

from typing import Any

import pytest

from replayproxy.core.values import Outcome
from replayproxy.detect.finding import Grade, Kind
from replayproxy.testing import exchange
from tests.detect.bench import Bench
from tests.detect.booking import Booking
from tests.detect.hand import Hand, with_interval


def items(title: str = "old", place: str = "shelf") -> dict[str, Any]:
    return {"items": {"a": {"id": "a", "title": title, "place": place}, "b": {"id": "b", "title": "x", "place": "y"}}}


def patch(at: float, end: float, sent: dict[str, Any], *, lane: str = "one", key: str = "a", **more: Any) -> Any:
    more.setdefault("body", {"id": key, "title": "old", "place": "shelf", **sent})
    made = exchange(more.pop("method", "PATCH"), more.pop("target", f"/items/{key}"), sent=sent, at_ms=at, lane=lane,
                    **more)  # fmt: skip
    return with_interval(made, at, end)


EARLIER = [patch(2, 3, {"title": "older"}), patch(4, 5, {"place": "box"})]
BEGIN = [(0, items("first", "first")), (3.2, items("older", "first")), (5.2, items("older", "box"))]
"""Two writes that came through: the columns are what the answers say they are."""


def told(exchanges: list[Any], states: list[Any]) -> list[tuple[str, str, str]]:
    hand = Hand()
    hand.episode("e", [*EARLIER, *exchanges], [*BEGIN, *states])
    return [(f.kind.value, f.sub, f.grade.value) for f in hand.findings()]


TITLE = patch(10, 16, {"title": "new"})
PLACE = patch(12, 18, {"place": "desk"}, lane="two")
UNDONE = [(7, items("older", "box")), (20, items("older", "desk"))]
LOST = [("lost-update", "lost-update", "proven")]


def test_a_write_that_another_lanes_write_of_another_column_undid_is_a_lost_update() -> None:
    hand = Hand()
    hand.episode("e", [*EARLIER, TITLE, PLACE], [*BEGIN, *UNDONE])
    (found,) = hand.findings()
    assert (found.kind, found.sub, found.grade) == (Kind.LOST_UPDATE, "lost-update", Grade.PROVEN)
    assert [(w.role, w.address) for w in found.exchanges] == [("write", "r/e#3"), ("witness", "r/e#4")]
    assert (found.pointer, found.values) == ("/items/a/title", ("new", "older"))
    assert found.snapshots == ("r/e/s3", "r/e/s4")
    assert {"write_s", "rival_s", "snapshot_s"} <= set(found.times)


@pytest.mark.parametrize(
    ("case", "exchanges", "states"),
    [
        ("both came through", [TITLE, PLACE], [(7, items("older", "box")), (20, items("new", "desk"))]),
        ("the rival was refused", [TITLE, patch(12, 18, {"place": "desk"}, lane="two", status=412, body={})],
         [(7, items("older", "box")), (20, items("new", "box"))]),
        ("the rival replaced the row", [TITLE, patch(12, 18, {"place": "desk"}, lane="two", method="PUT")], UNDONE),
        ("the rival set the same cell", [TITLE, patch(12, 18, {"title": "older"}, lane="two")],
         [(7, items("older", "box")), (20, items("older", "box"))]),
        ("an action of the row may have set it",
         [TITLE, patch(12, 18, {"by": 1}, lane="two", method="POST", target="/items/a/revert", body={})], UNDONE),
        ("a write without an answer may have set it",
         [TITLE, PLACE, patch(8, 9, {"title": "older"}, status=None, outcome=Outcome.TIMED_OUT)], UNDONE),
        ("a write that names no row may have set it",
         [TITLE, PLACE, patch(11, 12, {"all": True}, lane="x", method="POST", target="/undo", body={})], UNDONE),
        ("it came late", [TITLE, PLACE], [*UNDONE, (40, items("new", "desk"))]),
        ("it was refused", [patch(10, 16, {"title": "new"}, status=409, body={})], [(20, items("older", "box"))]),
        ("a value that nobody wrote is another question", [TITLE, PLACE],
         [(7, items("older", "box")), (20, items("?", "desk"))]),
        ("no snapshot followed", [TITLE, PLACE], [(7, items("older", "box"))]),
    ],
)  # fmt: skip
def test_what_something_may_explain_is_silent(case: str, exchanges: list[Any], states: list[Any]) -> None:
    assert [f for f in told(exchanges, states) if f[0] == "lost-update"] == [], case


def test_a_write_beside_it_that_set_another_value_explains_nothing() -> None:
    """What is shown is the old value; it may have come from whoever set it again, and not from one who set a third."""
    third = patch(13, 21, {"title": "third"}, lane="three")
    assert told([TITLE, PLACE, third], UNDONE) == LOST
    again = patch(13, 21, {"title": "older"}, lane="three")
    assert told([TITLE, PLACE, again], UNDONE) == []


def test_what_a_write_had_set_after_the_last_snapshot_may_be_what_came_back() -> None:
    """At several lanes a snapshot overlaps writes: what the cell held before is known from the answer alone."""
    first = patch(6, 9, {"title": "mid"}, lane="three")
    states = [(5.8, items("older", "box")), (20, items("mid", "desk"))]
    assert told([first, TITLE, PLACE], states) == LOST
    beside = patch(6, 11, {"title": "mid"}, lane="three")
    assert told([beside, TITLE, PLACE], states) == [], "it may have acted last"


def test_a_column_that_no_write_was_seen_to_set_is_not_known_to_be_what_is_answered() -> None:
    hand = Hand()
    hand.episode("e", [TITLE, PLACE], UNDONE)
    assert hand.findings() == ()


def test_a_write_that_nobody_undid_is_suspected_because_a_job_may_have() -> None:
    hand = Hand()
    hand.episode("e", [*EARLIER, TITLE], [*BEGIN, (7, items("older", "box")), (20, items("older", "box"))])
    (found,) = hand.findings()
    assert (found.sub, found.grade) == ("lost-write", Grade.SUSPECTED)
    assert "a job" in found.cannot_say


def test_a_created_row_that_never_came_to_be_is_lost_to_the_one_beside_it() -> None:
    def state(*keys: str) -> dict[str, Any]:
        return {"notes": {key: {"id": key, "text": key} for key in keys}}

    def post(at: float, end: float, key: str) -> Any:
        made = exchange("POST", "/notes", sent={"text": key}, status=201, body={"id": key, "text": key}, at_ms=at,
                        lane=key)  # fmt: skip
        return with_interval(made, at, end)

    hand = Hand()
    hand.episode("e", [post(2, 3, "m"), post(10, 16, "n"), post(12, 18, "o")],
                 [(0, state("l")), (5, state("l", "m")), (20, state("l", "m", "o"))])  # fmt: skip
    (found,) = hand.findings()
    assert (found.sub, found.grade, found.values) == ("lost-update", Grade.PROVEN, ("present", "absent"))
    assert [w.address for w in found.exchanges] == ["r/e#2", "r/e#3"]


def keeper(n: int):
    """Titles of its own, in columns that others do not write."""

    def agent():
        for turn in range(4):
            yield "GET", "/items/I-1", None
            yield "PATCH", f"/items/I-{turn % 3 + 1}", {("title", "place")[n % 2]: f"by {n} in {turn}"}

    return agent


def shelf(seed: int, lanes: int, *faults: str, mode: str = "hold"):
    bench = Bench(seed, mode=mode)
    service = bench.deployment("i", *faults, kind=Booking, gap_ms=4.0)
    bench.episode("e0", service, {f"lane-{n}": keeper(n) for n in range(lanes)})
    return bench.judge(), service


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("lanes", [1, 2, 4, 8])
def test_a_correct_environment_loses_nothing(seed: int, lanes: int) -> None:
    judged, _ = shelf(seed, lanes, mode="free" if seed % 2 else "hold")
    assert judged.findings == ()


def test_at_two_lanes_writes_that_were_swallowed_are_found_and_nothing_else_is_named() -> None:
    found = swallowed = 0
    for seed in range(12):
        judged, service = shelf(seed, 2, "merge")
        rows = {row for _, row in service.lost}
        named = {f.pointer.split("/")[2] for f in judged.findings if f.grade is Grade.PROVEN}
        assert named <= rows
        assert {f.kind for f in judged.findings} <= {Kind.LOST_UPDATE}
        found, swallowed = found + len(named), swallowed + len(rows)
    assert swallowed
    assert found >= 0.5 * swallowed, "the others were overwritten again before a snapshot showed them"


def test_a_value_that_a_snapshot_showed_and_that_went_back_under_a_write_of_another_column_is_lost() -> None:
    shown = [(7, items("older", "box")), (16.5, items("new", "box")), (20, items("older", "desk"))]
    hand = Hand()
    hand.episode("e", [*EARLIER, TITLE, PLACE], [*BEGIN, *shown])
    (found,) = hand.findings()
    assert (found.sub, found.grade, found.values) == ("lost-update", Grade.PROVEN, ("new", "older"))
    assert [w.address for w in found.exchanges] == ["r/e#3", "r/e#4"]
    later = patch(17, 18, {"place": "desk"}, lane="two")
    assert told([TITLE, later], shown) == [("lost-update", "lost-update", "suspected")], "a job may have done it"
    back = patch(17, 18, {"title": "older"}, lane="two")
    assert told([TITLE, PLACE, back], shown) == [], "another one set it back"


def test_snapshots_whose_readings_overlapped_tell_no_order_so_nothing_went_back() -> None:
    """Eight lanes that overlap, each with a snapshot after each of its writes: what began later may show the earlier
    state, so that a cell seems to go back and forth."""
    bench = Bench(60)

    def edits(lane: int) -> Any:
        def agent() -> Any:
            _, made = yield "POST", "/deals", {"stage": "lead", "owner": f"lane-{lane}", "amount": lane}
            for amount in range(4):
                yield "PATCH", f"/deals/{made['id']}", {"amount": amount}

        return agent

    plans = (
        {"name": f"e{n}", "deployment": where, "agents": {f"lane-{m}": edits(m) for m in range(8)}}
        for where in [bench.deployment()] for n in range(30)
    )  # fmt: skip
    bench.in_turn(plans)
    assert [(f.kind.value, f.title) for f in bench.judge().findings] == []
