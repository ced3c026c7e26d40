from __future__ import annotations

import copy
import random
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from replayproxy.core import jsonvalue, treediff
from replayproxy.core.treediff import ABSENT, INNER, Change, tree_diff
from tests.core.world import relaxed, trees


def places(value: Any, at: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    inner: list[tuple[str | int, ...]] = []
    if isinstance(value, dict):
        inner = [p for name, item in value.items() for p in places(item, (*at, name))]
    elif isinstance(value, list):
        inner = [p for index, item in enumerate(value) for p in places(item, (*at, index))]
    return inner or [at]


def planted(value: Any, at: tuple[str | int, ...], new: Any) -> Any:
    if not at:
        return new
    changed = copy.deepcopy(value)
    spot = changed
    for token in at[:-1]:
        spot = spot[token]
    spot[at[-1]] = new
    return changed


def shuffled(value: Any, seed: int) -> Any:
    if isinstance(value, dict):
        names = list(value)
        random.Random(seed).shuffle(names)
        return {name: shuffled(value[name], seed) for name in names}
    return [shuffled(item, seed) for item in value] if isinstance(value, list) else value


@relaxed
@given(trees)
def test_a_tree_does_not_differ_from_itself(tree: Any) -> None:
    assert tree_diff(tree, copy.deepcopy(tree)) == []


@relaxed
@given(trees, trees, st.data())
def test_arrays_that_are_spelled_alike_are_passed_over_to_the_same_end(a: Any, other: Any, data: Any) -> None:
    left = {"x": a, "y": [a, other], "z": [[other], a]}
    spot = data.draw(st.sampled_from(places(left)))
    right = planted(left, spot, data.draw(trees))
    quick = tree_diff(left, right)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(treediff._Diff, "spelled_alike", lambda *_: False)
        assert tree_diff(left, right) == quick


@relaxed
@given(trees, st.integers())
def test_the_order_of_members_is_no_difference(tree: Any, seed: int) -> None:
    assert tree_diff(tree, shuffled(tree, seed)) == []


@relaxed
@given(trees, trees)
def test_two_trees_differ_exactly_when_their_canonical_forms_do(a: Any, b: Any) -> None:
    assert bool(tree_diff(a, b)) == (jsonvalue.canonical(a) != jsonvalue.canonical(b))


@relaxed
@given(trees, trees)
def test_a_difference_is_seen_from_both_sides(a: Any, b: Any) -> None:
    assert bool(tree_diff(a, b)) == bool(tree_diff(b, a))


@relaxed
@given(trees, st.data())
def test_a_planted_change_is_found_at_its_pointer(tree: Any, data: st.DataObject) -> None:
    at = data.draw(st.sampled_from(places(tree)))
    changed = planted(tree, at, "planted")
    assume(jsonvalue.canonical(tree) != jsonvalue.canonical(changed))
    (change,) = tree_diff(tree, changed)
    assert (change.a_path, change.b_path) == (at, at)
    assert change.b == "planted"


@relaxed
@given(st.lists(st.integers(), min_size=2, max_size=12, unique=True), st.randoms(use_true_random=False))
def test_an_array_in_another_order_is_one_change(items: list[int], chance: random.Random) -> None:
    moved = list(items)
    chance.shuffle(moved)
    assume(moved != items)
    assert tree_diff({"x": items}, {"x": moved}) == [Change("order", ("x",), ("x",), items, moved)]


@relaxed
@given(st.lists(st.integers(0, 5), max_size=12), st.integers(0, 12), st.integers(0, 5))
def test_an_extra_element_is_one_addition(items: list[int], at: int, extra: int) -> None:
    (change,) = tree_diff(items, [*items[:at], extra, *items[at:]])
    assert (change.kind, change.a, change.b) == ("added", ABSENT, extra)


def test_numbers_are_exact() -> None:
    assert tree_diff({"n": 1}, {"n": Decimal("1.0")}) == []
    assert tree_diff({"n": 2**64}, {"n": 2**64 + 1}) == [Change("value", ("n",), ("n",), 2**64, 2**64 + 1)]
    assert [c.kind for c in tree_diff({"n": 1}, {"n": True})] == ["type"]
    assert [c.kind for c in tree_diff({"n": "1200.00"}, {"n": Decimal("1200.0")})] == ["type"]


def test_null_and_absent_are_two_things() -> None:
    assert tree_diff({"x": None}, {}) == [Change("removed", ("x",), ("x",), None, ABSENT)]
    assert tree_diff({"x": None}, {"x": 1}) == [Change("value", ("x",), ("x",), None, 1)]


def rows(*ids: int, **more: Any) -> list[dict[str, Any]]:
    return [{"id": number, "title": f"deal {number}", "amount": 10 * number, **more} for number in ids]


def test_elements_join_by_their_key_wherever_they_stand() -> None:
    a, b = rows(1, 2, 3, 4, 5), rows(2, 3, 4, 5, 6)
    b[1]["amount"] = 99
    assert [(c.kind, c.a_path, c.b_path) for c in tree_diff(a, b)] == [
        ("removed", (0,), (0,)), ("value", (2, "amount"), (1, "amount")), ("added", (4,), (4,)),
    ]  # fmt: skip


def test_keyed_elements_in_another_order_are_an_order_and_their_own_changes() -> None:
    a, b = rows(1, 2, 3), rows(3, 2, 1)
    b[0]["amount"] = 99
    assert [(c.kind, c.a_path) for c in tree_diff(a, b)] == [("order", ()), ("value", (2, "amount"))]


def test_softening_steers_which_elements_meet_and_hides_nothing() -> None:
    renamed = {"u1": "v1", "u2": "v2"}
    a = [{"ref": "u1", "n": 1}, {"ref": "u2", "n": 2}]
    b = [{"ref": "new", "n": 0}, {"ref": "v1", "n": 1}, {"ref": "v2", "n": 2}]
    changes = tree_diff(a, b, lambda leaf, of_a: renamed.get(leaf, leaf) if of_a else leaf)
    found = [(c.kind, c.a, c.b) for c in changes]
    assert found == [("added", ABSENT, b[0]), ("value", "u1", "v1"), ("value", "u2", "v2")]


def test_a_document_inside_a_text_is_compared_as_one() -> None:
    a, b = {"text": '{"id": 1, "at": [1, 2]}'}, {"text": '{"at":[1,3],"id":1}'}
    assert tree_diff(a, b) == [Change("value", ("text", INNER, "at", 1), ("text", INNER, "at", 1), 2, 3)]


def test_the_same_document_in_another_spelling_inside_a_text_is_another_text() -> None:
    assert [c.kind for c in tree_diff({"text": '{"id": 1}'}, {"text": '{"id":1}'})] == ["value"]


def test_long_arrays_cost_no_quadratic_time() -> None:
    a = [{"n": index, "tag": f"t{index % 7}"} for index in range(20_000)]
    b = [item for item in a if item["n"] % 997]
    assert len(tree_diff(a, b)) == len(a) - len(b)


def test_arrays_that_are_spelled_alike_need_no_numbers_and_true_is_not_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tree_diff({"x": [1]}, {"x": [True]}) == [Change("type", ("x", 0), ("x", 0), 1, True)]
    assert tree_diff({"x": [Decimal("1.0")]}, {"x": [1]}) == []
    monkeypatch.setattr(treediff._Numbers, "give", lambda *_: pytest.fail("numbered"))
    assert tree_diff({"x": [{"n": [1, "a"]}], "y": 1}, {"x": [{"n": [1, "a"]}], "y": 2}) == [
        Change("value", ("y",), ("y",), 1, 2)
    ]
