from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from replayproxy.core import jsonvalue, prolly
from replayproxy.core.clock import Clock
from replayproxy.core.explain import Explainer
from replayproxy.core.renaming import Identifiers
from replayproxy.core.rules import RuleBook
from replayproxy.core.statediff import States
from replayproxy.core.validators import Validators
from replayproxy.core.values import Rows
from replayproxy.testing import snapshot
from tests.core.world import World, relaxed

SPAN = (0, 1)


class Pair:
    """Two states side by side, compared step by step."""

    def __init__(self) -> None:
        self.nodes: dict[bytes, bytes] = {}
        self.explained: list[tuple[str, frozenset[str]]] = []
        self.explainer = Explainer(
            clock=Clock([]), rules=RuleBook([]), validators=Validators([]), authorities=((), ()), bindings={},
            identifiers=(Identifiers(lambda: [("tickets", str(n)) for n in range(100)]),) * 2,
        )  # fmt: skip
        self.states = States(self.explainer, lambda d, classes: self.explained.append((d.pointer, classes)),
                             self.nodes.__getitem__, self.nodes.__getitem__)  # fmt: skip

    def step(self, a: Rows, b: Rows) -> tuple[list[tuple[str, str]], int]:
        roots = [self.keep(rows) for rows in (a, b)]
        differences, rows = self.states.step(snapshot(0, roots[0]), snapshot(0, roots[1]), (SPAN, SPAN))
        return [(d.pointer, d.kind) for d in differences], rows

    def keep(self, rows: Rows) -> bytes:
        tree = prolly.build(rows)
        self.nodes.update(tree.nodes)
        return tree.root


rows = st.dictionaries(
    st.sampled_from("abcdef"), st.fixed_dictionaries({"v": st.sampled_from(["x", "y", "z"])}), max_size=6
)


@relaxed
@given(st.lists(st.tuples(rows, rows), min_size=1, max_size=6))
def test_step_by_step_finds_the_rows_that_differ_as_a_comparison_of_the_whole_does(
    story: list[tuple[Any, Any]],
) -> None:
    walked = Pair()
    for a, b in story:
        _, count = walked.step({"t": a}, {"t": b})
        differing = {key for key in a.keys() | b.keys() if not jsonvalue.same(a.get(key, 0), b.get(key, 0))}
        assert count == len(differing)


def test_a_difference_is_told_once_and_again_only_when_it_changes() -> None:
    pair = Pair()
    same: Rows = {"t": {"1": {"v": "x"}}}
    first: Rows = {"t": {"1": {"v": "y"}}}
    second: Rows = {"t": {"1": {"v": "z"}}}
    assert pair.step(same, same) == ([], 0)
    assert pair.step(same, first) == ([("state/t/1/v", "value")], 1)
    assert pair.step(same, first) == ([], 1)
    assert pair.step(same, second) == ([("state/t/1/v", "value")], 1)
    assert pair.step(second, second) == ([], 0)


def test_rows_that_only_one_side_has_are_added_and_removed() -> None:
    pair = Pair()
    found, count = pair.step({"t": {"1": {"v": "x"}}}, {"t": {"lead": {"v": "other"}}})
    assert (sorted(found), count) == ([("state/t/1", "removed"), ("state/t/lead", "added")], 2)


def test_rows_with_fresh_keys_meet_by_what_they_hold() -> None:
    pair, a, b = Pair(), World(0), World(1)

    def notes(world: World, *texts: str) -> Rows:
        return {"notes": {world.id(text): {"id": world.id(text), "text": text} for text in texts}}

    assert pair.step(notes(a, "one", "two"), notes(b, "one", "two")) == ([], 0)
    assert {classes for _, classes in pair.explained} == {frozenset({"fresh-id"})}
    found, count = pair.step(notes(a, "one", "two", "three"), notes(b, "one", "two"))
    assert (found, count) == ([(f"state/notes/{a.id('three')}", "removed")], 1)
    assert pair.step(notes(a, "one", "two", "three"), notes(b, "one", "two", "three")) == ([], 0)


def test_rows_that_met_stay_together_when_they_change() -> None:
    pair = Pair()

    def ticket(number: int, priority: str) -> Rows:
        return {"tickets": {str(number): {"id": number, "priority": priority}}}

    assert pair.step(ticket(4, "low"), ticket(7, "low")) == ([], 0)
    assert pair.step(ticket(4, "high"), ticket(7, "high")) == ([], 0)
    assert pair.step(ticket(4, "high"), ticket(7, "low")) == ([("state/tickets/4/priority", "value")], 1)


def test_a_digest_in_a_row_is_content_and_no_fresh_id() -> None:
    pair, a, b = Pair(), World(0), World(1)
    files = [{"files": {"a.txt": {"size": 3, "hash": world.id("x").replace("-", "")}}} for world in (a, b)]
    assert pair.step(files[0], files[1]) == ([("state/files/a.txt/hash", "value")], 1)


def test_a_long_story_costs_what_it_changed() -> None:
    pair = Pair()
    loads = [0]
    read = pair.nodes.__getitem__

    def load(address: bytes) -> bytes:
        loads[0] += 1
        return read(address)

    pair.states._load = (load, load)
    big = {str(n): {"v": "x" * 50} for n in range(500)}
    pair.step({"t": big}, {"t": big})
    for n in range(12):
        big = {**big, str(n): {"v": "changed"}}
        pair.step({"t": big}, {"t": {**big, "9999": {"v": "new"}}})
    assert loads[0] < 12 * 30
