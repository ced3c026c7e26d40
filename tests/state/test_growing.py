"""The tree of a provider's readings: whole or by changes, and only what is new is handed on."""

from __future__ import annotations

from typing import Any

import pytest

from replayproxy.core import prolly
from replayproxy.state import Changes, Reading, RowChange, StateUnreadable
from replayproxy.state.growing import GrowingState, GrowingTree

ROWS: dict[str, Any] = {"t": {str(n): {"n": n} for n in range(2000)}}


def changed(key: str, after: Any) -> Changes:
    return Changes(rows=[RowChange(table="t", key=key, before=None, after=after)])


def test_a_whole_state_gives_all_its_nodes_and_the_next_only_new_ones() -> None:
    tree = GrowingTree()
    first, fresh = tree.take(ROWS)
    assert fresh == first.nodes
    assert tree.take(ROWS)[1] == {}
    _, fresh = tree.take({"t": {**ROWS["t"], "77": {"n": 0}}})
    assert 0 < len(fresh) <= 4


def test_changes_grow_the_tree_and_old_nodes_are_forgotten() -> None:
    tree, rows = GrowingTree(), dict(ROWS["t"])
    tree.take(ROWS)
    for number in range(400):
        rows[str(number)] = {"n": -number}
        found, _ = tree.take(changed(str(number), {"n": -number}))
        assert found.rows == 2000
    assert found.root == prolly.build({"t": rows}).root
    assert len(tree._nodes) < 400


def test_changes_need_a_state_to_change() -> None:
    with pytest.raises(StateUnreadable, match="before it gave a whole state"):
        GrowingTree().take(Changes())


def test_a_large_value_is_handed_on_once() -> None:
    tree = GrowingTree()
    tree.take({"t": {"a": b"x" * 100_000}})
    _, fresh = tree.take(changed("b", b"x" * 100_000))
    assert sum(map(len, fresh.values())) < 2000


def test_what_is_kept_aside_has_a_tree_of_its_own() -> None:
    state = GrowingState()
    first = state.take(Reading(rows={"t": {}}, aside={"times": {"a": 1}}))
    again = state.take(Reading(rows=Changes(), aside=Changes()))
    assert (again.root, again.aside) == (first.root, first.aside)
    other = state.take(
        Reading(rows=Changes(), aside=Changes(rows=[RowChange(table="times", key="a", before=1, after=2)]))
    )
    assert other.root == first.root
    assert other.aside not in (None, first.aside)
    assert state.take(Reading(rows={"t": {}})).aside is None


def test_without_anything_aside_there_is_no_second_tree() -> None:
    state = GrowingState()
    assert state.take(Reading(rows={"t": {}})).aside is None
    assert state.take(Reading(rows=Changes(), aside=Changes())).aside is None
