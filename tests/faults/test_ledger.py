"""The truth that detectors are held against, held against what is plain."""

from __future__ import annotations

from tests.faults.figures import Share, at_most
from tests.faults.ledger import Cell, Ledger, differing


def told(*values: tuple[int, int, str | None]) -> Ledger:
    """A ledger of one row whose column `c` came to hold each value in [lo, hi]; None: the row went."""
    ledger = Ledger()
    state: dict[str, dict[str, dict[str, str]]] = {"t": {}}
    for number, (lo, hi, value) in enumerate(values):
        after = {"t": {} if value is None else {"k": {"c": value}}}
        ledger.changed(state, after, lo, hi, f"e~l~{number}")
        state = after
    return ledger


CELL = Cell("t", "k", "c")


def test_a_value_may_have_been_held_until_its_overwriting_was_surely_done() -> None:
    ledger = told((10, 10, "a"), (20, 30, "b"))
    assert ledger.could_hold(CELL, "a", 30, 40)
    assert not ledger.could_hold(CELL, "a", 31, 40)
    assert ledger.could_hold(CELL, "b", 5, 20)
    assert not ledger.could_hold(CELL, "b", 5, 19)


def test_a_value_that_came_back_is_held_again() -> None:
    ledger = told((10, 10, "a"), (20, 20, "b"), (30, 30, "a"))
    assert ledger.could_hold(CELL, "a", 40, 50)
    assert not ledger.could_hold(CELL, "a", 21, 29)


def test_of_a_row_that_nobody_wrote_nothing_is_held() -> None:
    assert not Ledger().could_hold(CELL, "a", 0, 5)
    assert Ledger().could_hold(Cell("t", "k"), False, 0, 5)


def test_a_row_is_there_from_its_making_to_its_deletion() -> None:
    ledger = told((10, 10, "a"), (20, 20, None))
    row = Cell("t", "k")
    assert ledger.could_hold(row, False, 0, 5)
    assert not ledger.could_hold(row, False, 11, 19)
    assert not ledger.could_hold(row, True, 21, 30)


def test_the_write_that_was_missed_is_the_one_that_ended_the_value() -> None:
    ledger = told((10, 10, "a"), (20, 20, "b"), (30, 30, "c"))
    missed = ledger.overwriter(CELL, "a", before=40)
    assert missed is not None
    assert missed.mark == "e~l~1"


def test_a_row_too_many_differs_as_a_row_and_a_changed_one_by_its_column() -> None:
    right = {"t": {"k": {"c": 1, "d": 1}}}
    got = {"t": {"k": {"c": 2, "d": 1}, "more": {"c": 1}}}
    assert list(differing(right, got)) == [Cell("t", "k", "c"), Cell("t", "more")]


def test_no_false_alarm_in_300_bounds_the_rate_at_one_in_a_hundred() -> None:
    assert 0.0099 < at_most(0, 300) < 0.01
    assert at_most(3, 3) == 1.0
    assert at_most(1, 59) > at_most(0, 59) > 0.049


def test_a_share_of_nothing_is_no_figure() -> None:
    assert str(Share(0, 0)) == "none occurred"
    assert str(Share(3, 4)).startswith("3/4 = 0.750 [")
