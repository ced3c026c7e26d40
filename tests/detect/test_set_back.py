"""What writes about other rows may have done to a cell: a suspicion where the state speaks against it, never proof."""

from __future__ import annotations

from typing import Any

from replayproxy.testing import exchange
from tests.detect.hand import Hand, with_interval

type State = dict[str, Any]


def deals(first: str, second: str, third: str = "lead") -> State:
    stages = {"D-1": first, "D-2": second, "D-3": third}
    return {"deals": {key: {"id": key, "stage": stage} for key, stage in stages.items()}}


def get(at: float, stage: str):
    return exchange("GET", "/deals/D-1", body={"id": "D-1", "stage": stage}, at_ms=at)


def patch(key: str, stage: str, begun: float, ended: float, **more: Any):
    body = {"id": key, "stage": stage}
    made = exchange("PATCH", f"/deals/{key}", sent={"stage": stage}, body=body, at_ms=begun, **more)
    return with_interval(made, begun, ended)


def told(last: State, *beside: Any, read: str = "lead") -> list[tuple[str, str]]:
    """D-1 becomes "won"; other writes run; D-1 is read; a snapshot follows."""
    hand = Hand()
    exchanges = [get(10, "lead"), patch("D-1", "won", 20, 21), *beside, get(60, read)]
    hand.episode("e", exchanges, [(0, deals("lead", "lead")), (30, deals("won", "lead")), (80, last)])
    return [(f.sub, f.grade.value) for f in hand.findings() if f.kind.value == "stale-read"]


SECOND = patch("D-2", "open", 40, 45), patch("D-3", "open", 42, 47)
LAST = deals("won", "open", "open")


def test_what_only_writes_of_other_rows_can_have_set_back_and_forth_is_suspected() -> None:
    assert told(deals("won", "lead")) == [("RYW", "proven")], "with no other write beside it"
    assert told(LAST, *SECOND) == [("RYW", "suspected")]


def test_the_newest_value_is_not_out_of_date() -> None:
    assert told(LAST, *SECOND, read="won") == []


def test_nothing_is_said_where_the_state_shows_the_value_that_was_read() -> None:
    assert told(deals("lead", "open", "open"), *SECOND) == []


def test_a_write_that_may_be_about_the_row_is_no_write_of_another() -> None:
    own = exchange("POST", "/deals/D-1/advance", status=200, body={"ok": True}, at_ms=40)
    assert told(LAST, *SECOND, with_interval(own, 40, 50)) == []
