"""JSON documents as states, and back."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replayproxy.state import StateUnreadable
from replayproxy.state.document import document_of, read_document, rows_of, write_document

names = st.sampled_from(["", "document", "a", "b"])
trees = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=100, deadline=None)
@given(trees.filter(lambda tree: tree is not None))
def test_every_document_comes_back(document: Any) -> None:
    rows = rows_of(document)
    assert document_of(rows) == document
    assert all(isinstance(content, dict) for content in rows.values())


@pytest.mark.parametrize(
    ("document", "is_rows"),
    [
        ({"deals": {"1": {}}}, True), ({"deals": {}}, True), ({}, True), ({"deals": {"1": 5}}, False),
        ({"deals": [1]}, False), ({"deals": {"1": {}}, "step": 3}, False), ([], False), ("x", False), (0, False),
    ],
)  # fmt: skip
def test_tables_of_objects_are_rows(document: Any, is_rows: bool) -> None:
    assert (rows_of(document) == document) is is_rows
    if not is_rows:
        assert rows_of(document) == {"document": {"": document}}


def test_null_is_no_state() -> None:
    with pytest.raises(StateUnreadable):
        rows_of(None)


def test_numbers_are_exact_and_what_is_beyond_json_is_let_pass() -> None:
    assert str(read_document(b"[0.10]")[0]) == "0.10"
    assert read_document(b"\xef\xbb\xbf[18446744073709551616]") == [2**64]
    assert math.isnan(read_document(b"[NaN, -Infinity]")[0])


@pytest.mark.parametrize("body", [b"", b"{", b"<a>", b'{"a":1,"a":2}', b'{"a":NaN,"a":2}', b"\xff", b"[" * 100_000])
def test_what_is_not_json_is_no_state(body: bytes) -> None:
    with pytest.raises(StateUnreadable, match="not JSON"):
        read_document(body)


def test_a_document_is_written_as_json() -> None:
    assert write_document(read_document(b'{"b": 0.10, "a": [null, true]}')) == b'{"a":[null,true],"b":0.1}'
