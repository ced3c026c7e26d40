"""Rows as canonical JSON: the quick way gives the bytes of the exact one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replayproxy.core.jsonvalue import canonical
from replayproxy.core.rowcode import Float, NoRow, decode, encode

scalars = st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.text(), scalars))
def test_a_flat_row_is_written_as_canonical_json(row: dict[str, Any]) -> None:
    if not (len(row) == 1 and next(iter(row)) in ("$bytes", "$number", "$map", "$literal")):
        assert encode(row) == canonical(row)


@pytest.mark.parametrize(
    "number", [0.0, -0.0, 1.0, 1e16, 1e22, 1e-4, 1e-5, 123456789.125, 5e-324, 1.7976931348623157e308]
)
def test_floats_of_every_size_are_written_as_canonical_json(number: float) -> None:
    assert encode({"n": number}) == canonical({"n": number})
    assert float(decode(encode({"n": number}))["n"]) == number


def test_a_lone_surrogate_and_a_huge_integer_come_back() -> None:
    row = {"a": "\ud800", "n": 2**64, "b": "é\x00"}
    assert decode(encode(row)) == row


def test_a_float_that_must_stay_one_is_no_plain_number() -> None:
    assert encode({"n": Float(1)}) == b'{"n":{"$number":"1.0"}}'
    assert isinstance(decode(encode({"n": Float(1)}))["n"], Float)


def test_what_is_refused_is_named() -> None:
    with pytest.raises(NoRow, match="date is no JSON value"):
        import datetime

        encode({"when": datetime.date(2024, 1, 1)})
