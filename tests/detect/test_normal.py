from __future__ import annotations

from decimal import Decimal

import pytest

from replayproxy.detect.normal import normal


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (True, 1), (False, 0), (12, "12"), (Decimal("12.50"), 12.5), ("1200.00", Decimal(1200)),
        ('{"b": 1, "a": [2]}', {"a": [2], "b": 1}), ("[1, 2]", [1, 2]),
        ("2026-01-05 09:00:00", "2026-01-05T09:00:00Z"), ("2026-01-05T09:00:00.100Z", "2026-01-05T09:00:00.1+00:00"),
    ],
)  # fmt: skip
def test_one_value_in_two_spellings_is_one(a: object, b: object) -> None:
    assert normal(a) == normal(b)


@pytest.mark.parametrize(
    ("a", "b"),
    [("lead", "won"), (None, "null"), (None, ""), ("01", 1), ("", 0), ("a", "A"), ([1], [1, 1]), ("{x", {"x": 1}),
     ("2026-01-05T09:00:00Z", "2026-01-05T09:00:00+02:00"), (2**70, 2**70 + 1)],
)  # fmt: skip
def test_two_values_stay_two(a: object, b: object) -> None:
    assert normal(a) != normal(b)
