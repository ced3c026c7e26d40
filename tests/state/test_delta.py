"""Changes between two whole states are exactly those that make one tree from the other."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from replayproxy.core import prolly
from replayproxy.state.delta import changes_between

scalars = st.sampled_from(
    [None, True, False, 0, 1, 2**70, "", "a", Decimal("1.0"), Decimal("-0"), Decimal(0), 0.0, -0.0]
)
values = st.dictionaries(st.sampled_from("abc"), scalars | st.lists(scalars, max_size=2), max_size=3)
states = st.fixed_dictionaries({"t": st.dictionaries(st.sampled_from("123456"), values), "u": st.just({})})


@settings(max_examples=200, deadline=None)
@given(states, states)
def test_changes_make_the_one_state_from_the_other(a: dict[str, Any], b: dict[str, Any]) -> None:
    changes = changes_between(a, b)
    assert changes is not None
    tree = prolly.build(a)
    assert prolly.apply(tree.root, changes, tree.nodes.__getitem__).root == prolly.build(b).root


def test_equal_states_have_no_changes() -> None:
    state = {"t": {"1": {"a": [1, {"b": Decimal("1.50")}], "c": None}}}
    assert changes_between(state, {"t": {"1": {"a": [1, {"b": Decimal("1.50")}], "c": None}}}) == ()


def test_a_table_that_came_or_went_is_for_a_new_tree() -> None:
    assert changes_between({"t": {}}, {}) is None
    assert changes_between({}, {"t": {}}) is None
