from __future__ import annotations

from decimal import Decimal
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replayproxy.storage.loose import pack, unpack

few = settings(max_examples=50)
leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=2**62, max_value=2**70)
    | st.floats(allow_nan=False)
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec=None))
    | st.binary()
)
names = st.text(st.characters(codec=None), max_size=4) | st.just("$")
trees = st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(names, inner), max_leaves=20)


def kinds(value: Any) -> Any:
    """The tree with the type of every leaf: 1, 1.0, Decimal(1) and True are equal to Python, and must not be here."""
    if isinstance(value, dict):
        return {name: kinds(item) for name, item in value.items()}
    if isinstance(value, list):
        return [kinds(item) for item in value]
    return type(value), repr(value)


@few
@given(trees)
def test_every_value_comes_back_as_it_was(value: Any) -> None:
    assert kinds(unpack(orjson.loads(orjson.dumps(pack(value))))) == kinds(value)


def test_a_number_that_is_none_comes_back() -> None:
    assert repr(unpack(orjson.loads(orjson.dumps(pack([float("nan"), float("-inf")]))))) == "[nan, -inf]"


def test_what_json_can_carry_is_left_as_it_is() -> None:
    document = {"a": [1, 2.5, "ü", None, True], "b": {}}
    assert pack(document) == document


def test_a_tuple_comes_back_as_a_list() -> None:
    assert unpack(pack((1, (2,)))) == [1, [2]]


@pytest.mark.parametrize("value", [object(), {1: 2}, {b"a": 1}, {"a": {3}}])
def test_what_is_no_value_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="cannot be stored"):
        pack(value)


def test_exact_decimals_keep_their_zeros() -> None:
    assert str(unpack(pack(Decimal("1.10")))) == "1.10"
