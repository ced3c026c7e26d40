from __future__ import annotations

from decimal import Decimal

import pytest

from replayproxy.core.times import DAY, SECOND, Instant, parse_number, parse_text

NOON = 1_795_953_600 * SECOND  # 2026-11-29T12:00:00Z


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2026-11-29T12:00:00Z", Instant(NOON, SECOND, "isoTZ")),
        ("2026-11-29T12:00:00.250Z", Instant(NOON + SECOND // 4, SECOND // 1000, "isoTZ")),
        ("2026-11-29T14:00:00+02:00", Instant(NOON, SECOND, "isoT+")),
        ("2026-11-29T10:30:00-0130", Instant(NOON, SECOND, "isoT+")),
        ("2026-11-29 12:00:00", Instant(NOON, SECOND, "iso ")),
        ("2026-11-29T12:00Z", Instant(NOON, 60 * SECOND, "isoTZ")),
        ("2026-11-29", Instant(NOON - DAY // 2, DAY, "date")),
        ("20261129T120000Z", Instant(NOON, SECOND, "compactZ")),
        ("Sun, 29 Nov 2026 12:00:00 GMT", Instant(NOON, SECOND, "http ")),
        ("Sun, 29-Nov-2026 12:00:00 GMT", Instant(NOON, SECOND, "http-")),
    ],
)
def test_instants_in_texts(text: str, instant: Instant) -> None:
    assert parse_text(text) == instant


@pytest.mark.parametrize(
    "text", ["2026-13-29", "2026-11-29T25:00:00Z", "12:00", "2026-11-29T12:00:00Z ", "", "20261129"]
)
def test_other_texts_are_none(text: str) -> None:
    assert parse_text(text) is None


@pytest.mark.parametrize(
    ("number", "form", "grain"),
    [
        (1_795_953_600, "epoch-s", SECOND),
        (1_795_953_600_123, "epoch-ms", 10**6),
        ("1795953600123", "epoch-ms", 10**6),
        (Decimal("1795953600.12"), "epoch-s.", SECOND // 100),
        (1_795_953_600_123_456, "epoch-us", 1000),
    ],
)
def test_numbers_near_the_exchange_are_instants(number: int | Decimal | str, form: str, grain: int) -> None:
    found = parse_number(number, NOON)
    assert found is not None
    assert (found.form, found.grain) == (form, grain)
    assert abs(found.at - NOON) < SECOND


@pytest.mark.parametrize("number", [17, 120_000, 10**9, 9_999_999_999, Decimal("1e15"), True, 2**70, "abc"])
def test_numbers_far_from_the_exchange_are_none(number: int | Decimal | str) -> None:
    assert parse_number(number, NOON) is None
