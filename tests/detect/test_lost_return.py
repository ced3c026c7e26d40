"""A value that comes back in the order of a row's versions was put back by a write that had read the row before."""

from __future__ import annotations

from typing import Any

import pytest

from replayproxy.core.values import Outcome
from replayproxy.detect.finding import Grade
from replayproxy.testing import exchange
from tests.detect.hand import Hand, with_interval


def rooms(version: int, rate: int = 1, state: str = "open") -> dict[str, Any]:
    return {"rooms": {"R1": {"id": "R1", "rate": rate, "state": state, "version": version},
                      "R2": {"id": "R2", "rate": 9, "state": "open", "version": 1}}}  # fmt: skip


def patch(at: float, end: float, sent: dict[str, Any], version: int, lane: str, **more: Any) -> Any:
    shown = {"id": "R1", "rate": more.pop("rate", 1), "state": more.pop("state", "open"), **sent, "version": version}
    more.setdefault("body", shown)
    made = exchange(more.pop("method", "PATCH"), "/rooms/R1", sent=sent, at_ms=at, lane=lane, **more)
    return with_interval(made, at, end)


BEGIN = [patch(1, 2, {"rate": 2}, 2, "a"), patch(4, 5, {"state": "shut"}, 3, "a", rate=2)]
STATES = [(0, rooms(1)), (2.2, rooms(2, 2)), (5.2, rooms(3, 2, "shut"))]
"""Two writes that came through: the columns are what the answers say they are."""

FIRST = patch(9, 19, {"rate": 40}, 4, "d", state="shut")
RATE = patch(10, 20, {"rate": 50}, 5, "a", state="shut")
BACK = patch(11, 21, {"state": "done"}, 6, "b", rate=40)
AGAIN = patch(12, 22, {"rate": 70}, 7, "c", state="done")
AFTER = [(30, rooms(7, 70, "done"))]


def told(exchanges: list[Any], states: list[Any] = AFTER) -> list[Any]:
    hand = Hand()
    hand.episode("e", [*BEGIN, FIRST, *exchanges], [*STATES, *states])
    return [f for f in hand.findings() if f.kind == "lost-update"]


def test_a_change_that_the_next_version_does_not_have_any_more_is_suspected_to_be_written_over() -> None:
    """Another write hid it from every snapshot."""
    (found,) = told([RATE, BACK, AGAIN])
    assert (found.sub, found.grade, found.pointer, found.values) == (
        "lost-update", Grade.SUSPECTED, "/rooms/R1/rate", (50, 40),
    )  # fmt: skip
    assert [(w.role, w.address) for w in found.exchanges] == [("witness", "r/e#4"), ("write", "r/e#5")]
    assert found.effect["versions"] == ["5", "6"]


def back(version: int = 6, rate: int = 40, method: str = "PATCH") -> Any:
    return patch(11, 21, {"state": "done"}, version, "b", rate=rate, method=method)


UNANSWERED = patch(9, 10, {"rate": 40}, 9, "f", status=None, outcome=Outcome.TIMED_OUT)
FELL = patch(26, 27, {"state": "new"}, 6, "g", rate=70)


@pytest.mark.parametrize(
    ("case", "exchanges", "states"),
    [
        ("the change is in the next version", [RATE, back(rate=50), AGAIN], AFTER),
        ("the other came first", [patch(10, 20, {"rate": 50}, 6, "a", state="done"), back(5), AGAIN], AFTER),
        ("somebody set the old value again", [RATE, back(7), patch(12, 22, {"rate": 40}, 6, "c", state="shut")],
         [(30, rooms(7, 40, "done"))]),
        ("a write without an answer may have", [RATE, BACK, AGAIN, UNANSWERED], AFTER),
        ("a PUT may set what it does not name", [RATE, back(method="PUT"), AGAIN], AFTER),
        ("a value that the cell never held", [RATE, back(rate=33), AGAIN], AFTER),
        ("the state has it: the answer was old", [RATE, BACK], [(30, rooms(6, 50, "done"))]),
        ("two writes with one version have no order", [RATE, back(5), AGAIN], AFTER),
        ("a version that fell is no counter", [RATE, BACK, patch(12, 30, {"rate": 70}, 7, "c", state="done"), FELL],
         [(40, rooms(7, 70, "new"))]),
    ],
)  # fmt: skip
def test_what_something_may_explain_is_silent(case: str, exchanges: list[Any], states: list[Any]) -> None:
    assert told(exchanges, states) == [], case


def test_one_loss_is_told_once_where_a_snapshot_shows_it() -> None:
    (found,) = told([RATE, back(rate=2)], [(30, rooms(6, 2, "done"))])
    assert (found.grade, found.pointer, found.values) == (Grade.PROVEN, "/rooms/R1/rate", (50, 2))
    assert "which of the writes of this cell came last" in found.cannot_say
