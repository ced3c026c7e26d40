from __future__ import annotations

import random
import uuid

import pytest

from replayproxy.core.redact_token import Minter
from replayproxy.core.tokens import FRESH_BITS, bits, fresh_alike, long_tokens, short_form, skeleton, tokens_among

CHANCE = random.Random(1)
UUIDS = [str(uuid.UUID(int=CHANCE.getrandbits(128), version=4)) for _ in range(2)]


@pytest.mark.parametrize(
    "words",
    [
        "customer-support-team",
        "how-to-make-a-good-cup-of-tea",
        "top-10-ways-to-make-a-good-cup-of-tea",
        "ACME_CORP",
        "customerSupportTeamLead2024",
        "internationalization",
        "00000000-0000-0000-0000-000000000000",
        "D-9f41",
        "aaaaaaaaaaaaaaaaaaaaaaaa",
        "release-2026-11-29",
        "+1-555-010-9999",
        "deal42",
    ],
)
def test_words_hold_too_little_chance_for_an_id(words: str) -> None:
    assert bits(words) < FRESH_BITS


@pytest.mark.parametrize(
    "token",
    [
        UUIDS[0],
        UUIDS[0].replace("-", ""),
        "01ARZ3NDEKTSV4RRFFQ69G5FAV",
        "V1StGXR8_Z5jdHi6B-myT",
        "sess_9aZk31LmQ2x8",
        "4f1c2b7a9d3e",
        "eyJhbGciOiJIUzI1NiJ9",
    ],
)
def test_ids_hold_enough(token: str) -> None:
    assert bits(token) >= FRESH_BITS


def test_two_fresh_values_of_one_origin_have_one_form() -> None:
    assert fresh_alike(*UUIDS)
    assert not fresh_alike(UUIDS[0], UUIDS[1].replace("-", ""))
    assert not fresh_alike("4f1c2b7a9d3e4f1c", "4f1c2b7a9d3e4f1c2b7a")
    assert not fresh_alike(UUIDS[0], "customer-support-team")
    assert fresh_alike("V1StGXR8_Z5jdHi6B-myT", "x9StGXR8_Q5jdHi6B-123")


@pytest.mark.parametrize(
    ("token", "form"),
    [
        ("17", ("", "#")),
        ("D-9f41", ("D-", "#")),
        ("T-17", ("T-", "#")),
        ("crm_00017", ("crm_", "#")),
        ("u1", ("u", "#")),
        ("lead", None),
        ("a b 1", None),
        ("high", None),
    ],
)
def test_the_form_of_a_short_id(token: str, form: tuple[str, ...] | None) -> None:
    assert short_form(token) == form


def test_a_text_is_its_tokens_and_what_stands_between() -> None:
    text = f"Created {UUIDS[0]} at 2026-11-29T10:00:00.5Z by ann, http://h/x/17"
    parts = skeleton(text)
    assert UUIDS[0] in parts.tokens
    assert "2026-11-29T10:00:00.5Z" in parts.tokens
    assert parts.rest[0] + "".join(t + r for t, r in zip(parts.tokens, parts.rest[1:], strict=True)) == text


def test_long_tokens_are_those_that_may_be_renamed_by_value() -> None:
    assert long_tokens(f"deal {UUIDS[0]} of customer-support-team, 17") == [UUIDS[0]]
    assert tokens_among(f"{UUIDS[1]} {UUIDS[0]} {UUIDS[1]}", {UUIDS[1]}) == [UUIDS[1]]


def test_the_token_of_a_secret_is_an_id_whatever_its_letters() -> None:
    """Without a digit in it, which happens once in a hundred and fifty, it was taken for words, and a fresh session
    cookie for a difference."""
    tokens = [Minter(bytes([n] * 32)).token(b"a session").decode() for n in range(256)]
    wordy = [token for token in tokens if not any(c.isdigit() for c in token)]
    assert wordy
    assert all(bits(token) >= FRESH_BITS for token in tokens)
    assert fresh_alike(wordy[0], tokens[0])
