"""The tree of a state: one shape per state, changes cost what changed, and a diff loads only what differs."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replayproxy.core import prolly
from replayproxy.core.jsonvalue import same
from replayproxy.core.rowcode import Float
from replayproxy.core.values import RowChange

scalars = st.none() | st.booleans() | st.integers(-5, 2**70) | st.text(max_size=5) | st.floats() | st.binary(max_size=5)
objects = st.dictionaries(st.text(max_size=3), scalars, max_size=3)
values = objects | st.lists(scalars, max_size=2) | st.binary(max_size=9)
states = st.dictionaries(st.text(max_size=2), st.dictionaries(st.text(max_size=3), values, max_size=30), max_size=4)


def table(count: int, size: int = 1) -> dict[str, Any]:
    return {str(n): {"id": n, "text": f"row {n} " * size} for n in range(count)}


class Store:
    """Nodes by address, counting what is loaded."""

    def __init__(self, *trees: prolly.Tree) -> None:
        self.nodes: dict[bytes, bytes] = {}
        self.loads = 0
        for tree in trees:
            self.nodes.update(tree.nodes)

    def __call__(self, address: bytes) -> bytes:
        self.loads += 1
        return self.nodes[address]


def changes(before: dict[str, dict[str, Any]], after: dict[str, dict[str, Any]]) -> list[RowChange]:
    a, b = prolly.build(before), prolly.build(after)
    return list(prolly.diff(a.root, b.root, Store(a, b)))


@settings(max_examples=60, deadline=None)
@given(states)
def test_a_state_comes_back_as_it_was(state: dict[str, dict[str, Any]]) -> None:
    tree = prolly.build(state)
    back = prolly.exact(tree.root, Store(tree))
    assert prolly.build(back).root == tree.root
    assert {name: set(content) for name, content in back.items()} == {n: set(c) for n, c in state.items()}
    assert tree.rows == sum(map(len, state.values())) == prolly.count(tree.root, Store(tree))


@settings(max_examples=60, deadline=None)
@given(states, st.randoms(use_true_random=False))
def test_the_root_does_not_depend_on_the_order_of_the_rows(state: dict[str, Any], rng: random.Random) -> None:
    shuffled = [(name, list(content.items())) for name, content in state.items()]
    rng.shuffle(shuffled)
    for _, content in shuffled:
        rng.shuffle(content)
    assert prolly.build({name: dict(content) for name, content in shuffled}).root == prolly.build(state).root


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 400), st.integers(1, 30),
    st.lists(st.tuples(st.integers(0, 450), st.integers(0, 60) | st.none()), max_size=200),
)  # fmt: skip
def test_changes_applied_give_the_tree_of_the_changed_state(
    count: int, size: int, edits: list[tuple[int, int | None]]
) -> None:
    before = {"a": table(count, size), "b": table(3)}
    tree = prolly.build(before)
    after = {name: dict(content) for name, content in before.items()}
    wanted = []
    for number, value in edits:
        row = None if value is None else {"v": "x" * value * 40}
        wanted.append(RowChange(table="a", key=str(number), before=None, after=row))
        if row is None:
            after["a"].pop(str(number), None)
        else:
            after["a"][str(number)] = row
    changed = prolly.apply(tree.root, wanted, Store(tree))
    whole = prolly.build(after)
    assert changed.root == whole.root
    assert changed.rows == whole.rows
    store = Store(tree)
    store.nodes.update(changed.nodes)
    assert prolly.exact(changed.root, store) == prolly.exact(whole.root, Store(whole))


@settings(max_examples=60, deadline=None)
@given(states, states)
def test_a_diff_names_exactly_the_rows_that_differ(a: dict[str, Any], b: dict[str, Any]) -> None:
    found = changes(a, b)
    wanted = {
        (name, key)
        for name in a.keys() | b.keys()
        for key in a.get(name, {}).keys() | b.get(name, {}).keys()
        if prolly.build({"t": {"k": a[name][key]}} if key in a.get(name, {}) else {}).root
        != prolly.build({"t": {"k": b[name][key]}} if key in b.get(name, {}) else {}).root
    }
    unclear = {(name, "") for name in a.keys() | b.keys()}  # a table that came or went reads like a row of key ""
    assert {(c.table, c.key) for c in found} - unclear == wanted - unclear
    assert wanted <= {(c.table, c.key) for c in found}
    assert found == sorted(found, key=lambda c: (c.table.encode(), c.key.encode()))


@pytest.mark.parametrize("edited", [1, 10])
def test_a_diff_loads_nodes_in_proportion_to_the_changes(edited: int) -> None:
    before = table(20_000)
    after = before | {str(n * 997): {"id": n, "text": "other"} for n in range(edited)}
    a, b = prolly.build({"t": before}), prolly.build({"t": after})
    store = Store(a, b)
    assert len(list(prolly.diff(a.root, b.root, store))) == edited
    assert store.loads <= 2 + edited * 2 * 6
    assert len(a.nodes) > 300


def test_a_diff_of_an_inserted_run_loads_little_more_than_the_run() -> None:
    before = {f"{n:06}": {"id": n} for n in range(20_000)}
    after = before | {f"{n:06}x": {"id": n} for n in range(10_000, 10_100)}
    a, b = prolly.build({"t": before}), prolly.build({"t": after})
    store = Store(a, b)
    assert len(list(prolly.diff(a.root, b.root, store))) == 100
    assert store.loads <= 40


def test_equal_roots_are_compared_without_a_load() -> None:
    tree = prolly.build({"t": table(100)})
    store = Store(tree)
    assert list(prolly.diff(tree.root, tree.root, store)) == []
    assert store.loads == 0


def test_one_changed_row_adds_only_the_path_to_it() -> None:
    tree = prolly.build({"t": table(20_000)})
    store = Store(tree)
    changed = prolly.apply(tree.root, [RowChange(table="t", key="777", before=None, after={"id": 0})], store)
    assert len(changed.nodes) <= 6
    assert store.loads <= 10


def test_no_change_gives_the_same_root_and_no_node() -> None:
    tree = prolly.build({"t": table(10)})
    assert prolly.apply(tree.root, [], Store(tree)) == prolly.Tree(root=tree.root, nodes={}, rows=10)


def test_nodes_are_about_four_kibibytes() -> None:
    tree = prolly.build({"t": table(20_000)})
    sizes = sorted(map(len, tree.nodes.values()))
    assert 1500 < sum(sizes) / len(sizes) < 8000
    assert sizes[-1] < 64 * 1024


def test_long_keys_end_in_a_root() -> None:
    state = {"t": {f"{n}" + "k" * 9000: n for n in range(200)}}
    tree = prolly.build(state)
    assert prolly.exact(tree.root, Store(tree)) == state


def test_a_table_without_rows_is_part_of_the_state() -> None:
    assert prolly.build({"t": {}}).root != prolly.build({}).root
    assert changes({}, {"t": {}}) == [RowChange(table="t", key="", before=None, after={})]
    assert changes({"t": {}}, {}) == [RowChange(table="t", key="", before={}, after=None)]
    assert changes({"t": {}}, {"t": {"1": 5}}) == [RowChange(table="t", key="1", before=None, after=5)]
    assert changes({}, {"t": {"1": 5}}) == [RowChange(table="t", key="1", before=None, after=5)]


def test_a_table_stays_when_its_last_row_goes() -> None:
    tree = prolly.build({"t": {"1": 5}})
    after = prolly.apply(tree.root, [RowChange(table="t", key="1", before=5, after=None)], Store(tree))
    assert after.root == prolly.build({"t": {}}).root


def test_what_json_cannot_hold_comes_back_equal() -> None:
    row = {"reward": math.nan, "hp": math.inf, "low": -math.inf, "seed": 2**70, 3: "x", "raw": b"\xff\x00", 2: [b"a"]}
    tree = prolly.build({"t": {"k": row}})
    back = prolly.exact(tree.root, Store(tree))["t"]["k"]
    assert math.isnan(back.pop("reward"))
    del row["reward"]
    assert back == row
    assert back[3] == "x"
    assert isinstance(back["raw"], bytes)


def test_what_is_compared_and_shown_is_json() -> None:
    a, b = prolly.build({"t": {"k": {"n": Float(1), "x": b"\0"}}}), prolly.build({"t": {"k": {"n": 1, "x": math.nan}}})
    store = Store(a, b)
    shown = {"n": {"$number": "1.0"}, "x": {"$bytes": "AA=="}}, {"n": 1, "x": {"$number": "NaN"}}
    assert prolly.rows(a.root, store)["t"]["k"] == prolly.row(a.root, "t", "k", store) == shown[0]
    assert [(c.before, c.after) for c in prolly.diff(a.root, b.root, store)] == [shown]
    raw = prolly.build({"t": {"k": b"\xff"}})
    assert prolly.rows(raw.root, Store(raw)) == {"t": {"k": {"$bytes": "/w=="}}}


def test_a_float_that_must_stay_one_does_when_it_is_written_again() -> None:
    tree = prolly.build({"t": {"k": [Float(1), Float("nan"), 1]}})
    back = prolly.exact(tree.root, Store(tree))
    assert prolly.build(back).root == tree.root
    assert repr(back["t"]["k"]) == "[1.0, nan, 1]"
    assert tree.root != prolly.build({"t": {"k": [1, math.nan, 1]}}).root


def test_an_object_that_looks_like_a_tag_comes_back_as_it_was() -> None:
    for row in ({"$bytes": "aGk="}, {"a": {"$number": "NaN"}}, {"$literal": {"$map": []}}, {"$bytes": b"x"}):
        tree = prolly.build({"t": {"k": row}})
        assert prolly.exact(tree.root, Store(tree))["t"]["k"] == row


def test_one_is_neither_true_nor_another_number_of_it() -> None:
    root: Callable[[Any], bytes] = lambda value: prolly.build({"t": {"k": {"v": value}}}).root  # noqa: E731
    assert root(1) == root(1.0)
    assert root(1) != root(True)
    assert root(0.1) == root(0.1)
    assert root("1") != root(1)


@pytest.mark.parametrize("row", [None, {"a": {1, 2}}, {"when": object()}])
def test_what_is_no_row_is_refused_by_name(row: Any) -> None:
    with pytest.raises(prolly.NoRow) as caught:
        prolly.build({"t": {"k": row}})
    assert str(caught.value)


def test_a_large_value_is_stored_in_pieces_that_equal_values_share() -> None:
    content = random.Random(1).randbytes(300_000)
    a = prolly.build({"f": {"a": content}})
    b = prolly.build({"f": {"b": content, "c": content + b"more"}})
    shared = a.nodes.keys() & b.nodes.keys()
    assert len(shared) >= 4
    assert max(map(len, a.nodes.values())) <= 64 * 1024 + 2
    assert prolly.exact(b.root, Store(b))["f"]["c"] == content + b"more"
    large = {"text": "é" * 100_000}
    assert same(prolly.exact((t := prolly.build({"d": {"": large}})).root, Store(t))["d"][""], large)


def test_a_large_document_that_changes_in_one_place_keeps_most_of_its_pieces() -> None:
    deals = [{"id": n, "name": f"deal {n}", "amount": n * 7 % 1000} for n in range(20_000)]
    a = prolly.build({"document": {"": deals}})
    deals.insert(9_000, {"id": -1, "name": "new", "amount": 0})
    b = prolly.build({"document": {"": deals}})
    assert len(b.nodes) >= 20
    assert len(b.nodes.keys() - a.nodes.keys()) <= 4


def test_children_name_every_node_of_a_tree() -> None:
    tree = prolly.build({"t": table(3000), "f": {"a": b"x" * 200_000}})
    seen, todo = set(), [tree.root]
    while todo:
        address = todo.pop()
        seen.add(address)
        todo += prolly.children(tree.nodes[address])
    assert seen == set(tree.nodes)
    assert prolly.node_addresses(tree.root, tree.nodes.__getitem__) < seen


def test_one_row_is_found_by_one_path() -> None:
    tree = prolly.build({"t": table(20_000), "u": {"": [1]}})
    store = Store(tree)
    assert prolly.row(tree.root, "t", "12345", store) == table(12346)["12345"]
    assert prolly.row(tree.root, "u", "", store) == [1]
    assert prolly.row(tree.root, "t", "none", store) is None
    assert store.loads <= 15


@pytest.mark.parametrize("damaged", [b"", b"\x09\x00", b"\x01\x00\x00\x00", b"\x01\xffpiece"])
def test_bytes_that_are_no_node_are_refused(damaged: bytes) -> None:
    with pytest.raises(prolly.UnknownNode):
        prolly.exact(b"", lambda _: damaged)


def test_the_bytes_of_a_node_are_those_of_format_1() -> None:
    tree = prolly.build({"t": {"1": {"b": 1, "a": "x"}}})
    mark = "00000001" + "ffffffff" + "00000000" + b"t".hex()
    row = "00000001" + "00000001" + "00000010" + b"t1".hex() + b'j{"a":"x","b":1}'.hex()
    assert tree.nodes[tree.root].hex() == "0100" + mark + row
    assert tree.root.hex() == "0b9477023546a27c38a634349eb13edb4c5516fed19b2acbec5d5ccd1b7a3bad"
