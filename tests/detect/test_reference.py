from __future__ import annotations

from typing import Any

from replayproxy.core import prolly
from replayproxy.core.values import Episode
from replayproxy.detect.reference import Reference, References, Start, group_of
from replayproxy.detect.states import States

GROUP = ("t", 1, "")
WALL = 1_767_600_000_000_000_000


def references(*values: Any, **more: Any) -> tuple[References, list[Start]]:
    """One start per value; each in a state that holds it."""
    nodes: dict[bytes, bytes] = {}
    starts = []
    for number, value in enumerate(values):
        tree = prolly.build({"t": {"1": {"v": value}}})
        nodes |= tree.nodes
        starts.append(Start(episode=f"e{number}", group=GROUP, series="app", root=tree.root, wall=WALL + number))
    return References(States(nodes.__getitem__), starts, **more), starts


def test_more_than_half_of_three_starts_are_a_reference() -> None:
    found, starts = references("a", "b", "a")
    reference = found.of(GROUP, "app")
    assert reference == Reference(root=starts[0].root, wall=WALL, agree=2, starts=3)
    residue = found.residue(reference, starts[1])
    assert residue is not None
    assert [(change.before, change.after) for change in residue.changes] == [({"v": "a"}, {"v": "b"})]


def test_two_starts_and_half_of_them_are_none() -> None:
    assert references("a", "a")[0].of(GROUP, "app") is None
    assert references("a", "a", "b", "b")[0].of(GROUP, "app") is None
    assert references("a", "a", "a")[0].of(("t", 2, ""), "app") is None


def test_starts_that_differ_in_clocks_and_fresh_ids_agree() -> None:
    stamps = [f"2026-01-05T08:00:0{n}Z" for n in range(3)]
    reference = references(*stamps)[0].of(GROUP, "app")
    assert reference is not None
    assert (reference.agree, reference.starts) == (3, 3)


def test_without_task_and_seed_there_is_none() -> None:
    found, _ = references("a", "a", "a")
    assert found.of((None, None, ""), "app") is None


def test_a_named_reference_goes_before_a_majority() -> None:
    named = Reference(root=b"x", wall=0, agree=1, starts=1, given=True)
    assert references("a", "a", "a", given={(("t", 1), "app"): named})[0].of(GROUP, "app") == named
    assert references("a", given={(None, "app"): named})[0].of(("other", None, ""), "app") == named
    assert references("a", given={(("t", 2), "app"): named})[0].of(GROUP, "app") is None


def test_a_group_is_task_seed_and_the_build_of_the_environment() -> None:
    episode = Episode(key=1, run_key=1, name="e", task="t", seed=1, meta={"env_commit": "a07d"})
    assert group_of(episode) == ("t", 1, "a07d")
