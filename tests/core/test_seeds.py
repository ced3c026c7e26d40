from __future__ import annotations

from collections.abc import Callable

from replayproxy.core import prolly
from replayproxy.core.seeds import MOST_ROWS, Seeds
from replayproxy.core.values import Rows, Snapshot
from replayproxy.testing import snapshot
from tests.core.world import World

ANN, BOB = World(0).id("ann"), World(0).id("bob")


def test_a_value_of_the_other_runs_start_is_seeded() -> None:
    rows: Rows = {"users": {ANN: {"links": [{"to": f"/users/{BOB}"}]}}}
    tree = prolly.build(rows)
    start = [(snapshot(0, tree.root, when="start", rows=1), tree.nodes.__getitem__)]
    seeds = Seeds([], start)
    assert seeds.seeded(ANN, "new")
    assert seeds.seeded(BOB, "new")
    assert not seeds.seeded("new", ANN), "it stood in B's own start"
    assert Seeds(start, []).seeded("new", ANN)


def test_a_row_that_both_runs_began_with_stands_where_the_keys_of_its_table_are_the_same() -> None:
    def start(keys: str) -> list[tuple[Snapshot, Callable[[bytes], bytes]]]:
        tree = prolly.build({"crm.deals": {key: {} for key in keys}, "users": {"7": {}}})
        return [(snapshot(0, tree.root, when="start", rows=len(keys) + 1), tree.nodes.__getitem__)]

    same, moved = Seeds(start("123"), start("123")), Seeds(start("123"), start("345"))
    assert same.standing(["deal"], "3", "4")
    assert same.standing(None, "9", "1")
    assert not same.standing(["deal"], "4", "5")
    assert not same.standing(["deal"], "7", "8"), "a user's number is no deal's"
    assert not moved.standing(["deal"], "3", "4"), "a reset counted on"
    assert moved.standing(["user"], "7", "8")


def test_a_very_large_state_is_not_searched() -> None:
    def load(address: bytes) -> bytes:
        raise AssertionError("read")

    start = [(snapshot(0, b"x" * 32, when="start", rows=MOST_ROWS + 1), load)]
    assert not Seeds(start, start).seeded(ANN, BOB)
