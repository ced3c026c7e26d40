from __future__ import annotations

from decimal import Decimal

import pytest

from replayproxy.core.spelling import is_jitter, is_number, is_url, own_pattern


@pytest.mark.parametrize(
    ("text", "out"),
    [
        ("http://app.test:80/x", "@/x"),
        ("see app.test:80.", "see @."),
        ("https://app.test/x", "@/x"),
        ("http://app.test.evil/x", "http://app.test.evil/x"),
        ("http://myapp.test/x", "http://myapp.test/x"),
        ("http%3A%2F%2Fapp.test%3A80%2Fx", "@%2Fx"),
        ("http://other.test/x", "http://other.test/x"),
        ("app.test:8080", "@:8080"),
    ],
)
def test_only_the_environments_own_address_is_taken_out(text: str, out: str) -> None:
    assert own_pattern(["app.test:80", "app.test"]).sub("@", text) == out


def test_without_an_address_nothing_is_taken_out() -> None:
    assert own_pattern([]).sub("@", "http://app.test/") == "http://app.test/"


@pytest.mark.parametrize(
    ("a", "b", "noise"),
    [
        ("0.30000000000000004", "0.3", True),
        ("1.0000000000000002", "1", True),
        ("1000000000.01", "1000000000.02", False),
        ("0.1", "0.2", False),
        ("123456789012345", "123456789012346", True),
        ("1.00000001", "1.00000002", False),
    ],
)
def test_noise_shows_in_the_last_of_many_digits(a: str, b: str, noise: bool) -> None:
    assert is_jitter(Decimal(a), Decimal(b)) == noise


def test_true_is_no_number_and_words_are_no_url() -> None:
    assert [is_number(value) for value in (1, Decimal("1.5"), True, "1", None)] == [True, True, False, False, False]
    assert [is_url(text) for text in ("/deals/1", "https://x/y", "deals/1", "/a b")] == [True, True, False, False]
