"""PostgreSQL's texts as values, and back to a text that PostgreSQL reads as the same value."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replayproxy.state.postgres_values import loses, reader, written


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("int8", "9007199254740993", 9007199254740993), ("bool", "t", True), ("bool", "false", False),
        ("text", "007", "007"), ("bytea", "\\x00ff", b"\x00\xff"), ("timestamptz", "infinity", "infinity"),
        ("json", "null", {"$json": None}), ("jsonb", '{"$text": 1}', {"$json": {"$text": 1}}),
        ("json", '{"a":1,"a":2}', {"$text": '{"a":1,"a":2}'}), ("jsonb", "[]", []),
    ],
)  # fmt: skip
def test_a_text_becomes_a_value_and_the_value_the_text(kind: str, text: str, value: Any) -> None:
    assert reader(kind)(text) == value
    back = written(value, kind)
    assert back is not None
    assert reader(kind)(back) == value


def test_numbers_are_exact() -> None:
    assert str(reader("numeric")("12345678901234567890.123")) == "12345678901234567890.123"
    assert written(reader("float8")("1e-300"), "float8") == "1E-300"
    assert written(reader("numeric")("NaN"), "numeric") == "NaN"
    assert written(reader("float8")("-Infinity"), "float8") == "-Infinity"


@pytest.mark.parametrize(
    ("kind", "text", "lost"),
    [
        ("numeric", "1.50", True), ("numeric", "1.5", False), ("numeric", "100", False), ("jsonb", '{"a": 1.0}', True),
        ("jsonb", '{"a": 1.05, "b": 10}', False), ("json", "{}", True), ("text", "1.0", False),
    ],
)  # fmt: skip
def test_what_a_value_does_not_say_is_known(kind: str, text: str, lost: bool) -> None:
    assert loses(kind, text) is lost


def test_a_fixed_scale_says_it_all() -> None:
    assert not loses("numeric", "1.50", fixed_scale=True)


items = st.none() | st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=6)


@settings(max_examples=100, deadline=None)
@given(st.recursive(st.lists(items, max_size=4), lambda inner: st.lists(inner, min_size=1, max_size=3), max_leaves=6))
def test_an_array_comes_back_from_its_text(value: list[Any]) -> None:
    text = written(value, "_text", "text")
    assert text is not None
    assert reader("_text", element="text")(text) == value


def test_an_array_that_does_not_count_from_one_stays_text() -> None:
    assert reader("_int4", element="int4")("[2:3]={7,8}") == "[2:3]={7,8}"
    assert written("[2:3]={7,8}", "_int4", "int4") == "[2:3]={7,8}"
