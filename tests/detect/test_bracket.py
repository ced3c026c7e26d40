"""A read that was sent again between two snapshots: when it proves, and when it does not."""

from __future__ import annotations

from typing import Any

from replayproxy.core.values import Exchange
from replayproxy.testing import exchange
from tests.detect.hand import Hand
from tests.detect.test_stale_read import NEW, OLD, deals, get, patch

HIDDEN = deals(D_1="won", D_2="someone else's")


def again(stage: str, at: float = 50) -> Exchange:
    return get(at, stage, is_probe=True, carrier="probe")


def found(*more: Exchange, states: list[Any]) -> list[tuple[str, int, list[str]]]:
    hand = Hand()
    hand.episode("e", [get(10), patch(), get(30), *more], [(0, OLD), (22, NEW), *states])
    return [(f.grade.value, f.count, [w.role for w in f.exchanges]) for f in hand.findings()]


def test_a_second_read_that_shows_the_old_value_between_two_equal_states_proves_it() -> None:
    around = [(40.0, HIDDEN), (60.0, HIDDEN)]
    assert found(again("lead"), states=around) == [("proven", 1, ["write", "read", "witness"])]
    assert found(states=around) == [("suspected", 1, ["write", "read"])], "no second read, and hidden writers"


def test_a_second_read_that_shows_the_new_value_proves_nothing() -> None:
    assert found(again("won"), states=[(40, HIDDEN), (60, HIDDEN)]) == [("suspected", 1, ["write", "read"])]


def test_a_state_that_changed_meanwhile_proves_nothing() -> None:
    changed = deals(D_1="lost", D_2="someone else's")
    assert found(again("lead"), states=[(40, HIDDEN), (60, changed)]) == [], "nobody wrote what the state shows"


def test_a_write_meanwhile_proves_nothing() -> None:
    other = exchange("POST", "/jobs", status=201, body={"ok": True}, at_ms=55)
    said = found(again("lead"), other, states=[(40, HIDDEN), (60, HIDDEN)])
    assert [grade for grade, _, _ in said if grade == "proven"] == []
    elsewhere = patch(55, "won", target="/deals/D-2", body={"id": "D-2", "stage": "won"})
    known = deals(D_1="won", D_2="won")
    said = found(again("lead"), elsewhere, states=[(40, HIDDEN), (60, known)])
    assert [grade for grade, _, _ in said] == ["proven"], "a write that says that it set another row is none of it"


def test_a_second_read_without_a_snapshot_after_it_proves_nothing() -> None:
    assert found(again("lead"), states=[(40, HIDDEN)]) == [("suspected", 1, ["write", "read"])]


def test_the_probe_itself_is_no_read_of_the_agent() -> None:
    hand = Hand()
    hand.episode("e", [get(10), patch(), get(30, "won"), again("lead")], [(0, OLD), (22, NEW), (40, NEW), (60, NEW)])
    assert hand.findings() == ()
