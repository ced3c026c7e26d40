from __future__ import annotations

from typing import Any

from replayproxy.core import prolly
from replayproxy.detect.cells import Row, Tables
from replayproxy.detect.history import NEVER
from replayproxy.detect.ops import PRESENCE, op_of
from replayproxy.detect.states import States
from replayproxy.detect.timeline import Shot, Timeline, cell, columns
from replayproxy.detect.views import Views
from replayproxy.testing import exchange, run, snapshot
from tests.detect.hand import with_interval

TABLES = Tables(["deals"], {})


def deals(**stages: str) -> dict[str, Any]:
    return {"deals": {key: {"id": key, "stage": stage} for key, stage in stages.items()}}


def timeline(shots: list[tuple[float, dict[str, Any]]], *writes: Any) -> Timeline:
    nodes: dict[bytes, bytes] = {}
    made = []
    for number, (at, state) in enumerate(shots):
        tree = prolly.build(state)
        nodes |= tree.nodes
        made.append(Shot(episode="e", snapshot=snapshot(number, tree.root, at_ms=at)))
    ops = [op_of(run(), "e", one, TABLES, Views()) for one in writes]
    return Timeline(made, ops, States(nodes.__getitem__), paths=False)


def patch(at: float, key: str = "a", seq: int = 1, **more: Any) -> Any:
    return exchange("PATCH", f"/deals/{key}", sent={"stage": "won"}, at_ms=at, seq=seq, **more)


def test_a_lone_write_between_two_snapshots_did_all_that_changed_and_nothing_else() -> None:
    line = timeline([(0, deals(a="lead", b="lead")), (20, deals(a="won", b="lead"))], patch(10))
    (change,) = line.changes
    assert (change.row, change.explained) == (Row("deals", "a"), True)
    assert change.by is not None
    assert line.accounted == {("e", 1)}
    assert [(w.row.key, w.column, w.value) for w in line.effects()] == [("a", "stage", "'won")]
    assert (line.explained, len(line.changes)) == (1, 1)


def test_two_writes_in_one_gap_explain_a_change_without_naming_its_writer() -> None:
    line = timeline([(0, deals(a="lead")), (20, deals(a="won"))], patch(5), patch(12, "b", 2))
    (change,) = line.changes
    assert change.by is None
    assert change.explained
    assert line.accounted == set()


def test_a_write_beside_a_snapshot_is_in_both_gaps() -> None:
    beside = with_interval(patch(9), 9, 11)
    line = timeline([(0, deals(a="lead")), (10, deals(a="won")), (20, deals(a="lost"))], beside)
    assert [change.explained for change in line.changes] == [True, True]
    assert line.accounted == set()


def test_a_change_without_a_write_is_not_explained() -> None:
    line = timeline([(0, deals(a="lead")), (20, deals(a="won"))])
    assert (line.explained, len(line.changes)) == (0, 1)


def test_a_write_that_may_act_later_is_possible_for_its_own_row_ever_after() -> None:
    lost = patch(5, status=500)
    line = timeline([(0, deals(a="lead", b="x")), (10, deals(a="lead", b="x")), (20, deals(a="won", b="y"))], lost)
    by_row = {change.row.key: change for change in line.changes}
    assert by_row["a"].explained
    assert not by_row["b"].explained
    assert line.writes.floating[0].end == NEVER


def test_values_of_a_cell_are_told_where_they_begin() -> None:
    states = [(0, deals(a="lead")), (10, deals(a="lead")), (20, deals(a="won")), (30, {"deals": {}})]
    line = timeline(states)
    assert line.values(Row("deals", "a"), "stage") == [(0, "'lead"), (2, "'won"), (3, "(no value)")]
    assert line.values(Row("deals", "a"), PRESENCE) == [(0, "present"), (3, "absent")]
    assert line.values(Row("deals", "a"), "id") == [(0, "'a"), (3, "(no value)")]
    assert line.values(Row("deals", "never"), PRESENCE) == [(0, "absent")]
    assert line.row_at(Row("deals", "a"), 1) == {"id": "a", "stage": "lead"}
    assert line.row_at(Row("deals", "a"), 3) is None


def test_quiet_is_where_nothing_was_written_between_read_and_snapshot() -> None:
    line = timeline([(0, deals(a="lead")), (20, deals(a="won"))], patch(10))
    row, ms = Row("deals", "a"), 1_000_000
    assert list(line.near(5 * ms, 6 * ms)) == [0, 1]
    assert line.quiet(row, 5 * ms, 6 * ms, 0)
    assert not line.quiet(row, 5 * ms, 6 * ms, 1)
    assert not line.quiet(row, 10 * ms, 11 * ms, 0)


def test_a_row_without_members_has_only_its_presence() -> None:
    assert columns(5, None) == {PRESENCE}
    assert cell(5, PRESENCE) == "present"
    assert cell(5, "x") == "(no value)"
    assert cell({"x": None}, "x") == "null"


def test_a_write_that_failed_may_have_had_effects_on_other_rows_while_it_was_under_way() -> None:
    lost = patch(5, status=500)
    line = timeline([(0, deals(a="lead", b="x")), (10, deals(a="won", b="y")), (20, deals(a="won", b="z"))], lost)
    assert [(change.row.key, change.gap, change.explained) for change in line.changes] == [
        ("a", 0, True), ("b", 0, True), ("b", 1, False),
    ]  # fmt: skip
