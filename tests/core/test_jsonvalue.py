"""Exact JSON: numbers, canonical bytes, pointers."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replayproxy.core import jsonvalue

scalars = st.none() | st.booleans() | st.integers() | st.text() | st.decimals(allow_nan=False, allow_infinity=False)
documents = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=20
)


@pytest.mark.parametrize("text", ["1", "1.0", "1e0", "10e-1", "0.1e1"])
def test_one_number_has_one_text(text: str) -> None:
    assert jsonvalue.canonical(jsonvalue.parse(text)) == b"1"


@pytest.mark.parametrize(
    ("a", "b"),
    [("1", "true"), ("0", "false"), ("0", "null"), ('"1"', "1"), ("1", "1.0000000000000000000001"), ("0", "-0"),
     ("18446744073709551616", "18446744073709551617"), ("0.1", "0.10000000000000001"), ("[]", "{}")],
)  # fmt: skip
def test_different_values_are_never_the_same(a: str, b: str) -> None:
    assert not jsonvalue.same(jsonvalue.parse(a), jsonvalue.parse(b))


def test_no_digit_is_lost() -> None:
    assert jsonvalue.parse("18446744073709551616") == 2**64
    assert jsonvalue.parse("0.1234567890123456789012345") == Decimal("0.1234567890123456789012345")


def test_a_huge_exponent_stays_short() -> None:
    assert jsonvalue.canonical(jsonvalue.parse("1e1000000")) == b"1e1000000"


def test_an_integer_of_ten_thousand_digits_is_a_value() -> None:
    digits = "9" * 10_000
    assert jsonvalue.canonical(jsonvalue.parse(digits)).decode() == digits


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", '{"a":1,"a":2}', "{", "", "01", "'a'", b"\xff"])
def test_what_is_not_json_is_refused(text: str) -> None:
    with pytest.raises(jsonvalue.NotJson):
        jsonvalue.parse(text)


def test_deep_nesting_is_refused_and_not_a_crash() -> None:
    with pytest.raises(jsonvalue.NotJson):
        jsonvalue.parse("[" * 100_000 + "]" * 100_000)
    nested: list[object] = []
    for _ in range(jsonvalue.MAX_DEPTH + 1):
        nested = [nested]
    with pytest.raises(jsonvalue.NotJson):
        jsonvalue.canonical(nested)


@given(documents)
def test_canonical_bytes_parse_back_to_the_same_value(value: object) -> None:
    text = jsonvalue.canonical(value)
    assert jsonvalue.canonical(jsonvalue.parse(text.decode("utf-8", "surrogatepass"))) == text


@given(st.dictionaries(st.text(), st.integers(), max_size=6))
def test_member_order_and_white_space_make_no_difference(members: dict[str, int]) -> None:
    turned = dict(reversed(list(members.items())))
    a = jsonvalue.parse(json.dumps(members))
    b = jsonvalue.parse(json.dumps(turned, indent=3))
    assert jsonvalue.same(a, b)


@given(st.lists(st.text()))
def test_pointers_come_apart_as_they_were_put_together(tokens: list[str]) -> None:
    assert jsonvalue.tokens(jsonvalue.pointer(*tokens)) == tuple(tokens)


def test_a_pointer_finds_its_value() -> None:
    document = {"items": [{"a/b": 1}, {"~": None}]}
    assert jsonvalue.resolve(document, "/items/0/a~1b") == 1
    assert jsonvalue.resolve(document, "/items/1/~0") is None
    assert jsonvalue.resolve(document, "") is document
    with pytest.raises(KeyError):
        jsonvalue.resolve(document, "/items/2")


def test_leaves_name_every_scalar_and_every_empty_container() -> None:
    found = dict(jsonvalue.leaves({"a": [1, {}], "b": {"c": "x"}}))
    assert found == {("a", 0): 1, ("a", 1): {}, ("b", "c"): "x"}
