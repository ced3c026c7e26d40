from __future__ import annotations

from replayproxy.core import prolly
from replayproxy.core.seeds import MOST_ROWS, Seeds
from replayproxy.core.values import Rows
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


def test_a_very_large_state_is_not_searched() -> None:
    def load(address: bytes) -> bytes:
        raise AssertionError("read")

    start = [(snapshot(0, b"x" * 32, when="start", rows=MOST_ROWS + 1), load)]
    assert not Seeds(start, start).seeded(ANN, BOB)
