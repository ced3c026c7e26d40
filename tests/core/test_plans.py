from __future__ import annotations

from replayproxy.core.plans import LEFT_OUT, in_turn, only
from replayproxy.core.schedule import Plan, plan
from replayproxy.testing import exchange


def overlapping() -> Plan:
    return plan([
        exchange("GET", "/a", seq=1, at_ms=0, took_ms=50), exchange("GET", "/b", seq=2, at_ms=10, took_ms=5, lane="x"),
        exchange("GET", "/c", seq=3, at_ms=20, took_ms=90, lane="x"), exchange("GET", "/d", seq=4, at_ms=60),
    ])  # fmt: skip


def test_what_is_left_out_keeps_its_place_in_the_order() -> None:
    some = only(overlapping(), {2, 4})
    assert [(step.seq, step.skip) for step in some.steps] == [(1, LEFT_OUT), (2, ""), (3, LEFT_OUT), (4, "")]
    assert [step.after for step in some.steps] == [step.after for step in overlapping().steps]
    assert [step.seq for step in some.skipped] == [1, 3]
    assert not any(step.undecided for step in some.steps)


def test_in_turn_nothing_overlaps() -> None:
    steps = in_turn(overlapping()).steps
    assert [set(step.after) for step in steps] == [set(), {1}, {2}, {3}]
    assert [step.seq for step in steps] == [1, 2, 3, 4]
