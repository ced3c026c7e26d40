"""Which texts are ids by their form, and whose id a member's name means."""

from __future__ import annotations

import pytest

from replayproxy.core.opaque import collection_of, is_opaque, noun, singular


@pytest.mark.parametrize(
    "token",
    [
        "3f2a9c1e-1234-4bcd-8ef0-0123456789ab", "d41d8cd98f00b204e9800998ecf8427e", "01HF3Z5QK8R4T2V6W9X0Y1Z2A3",
        "sess_9fK2mXq81LpZ0aVb", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
    ],
)  # fmt: skip
def test_what_a_machine_made_up_is_an_id(token: str) -> None:
    assert is_opaque(token)


@pytest.mark.parametrize(
    "token",
    [
        "", "42", "D-9f41", "deal42", "resolved-by-customer-request", "quarterly-forecast-2026", "InProgressByUser",
        "2026-11-29", "2026-11-29T17:40:12.123456Z", "1712000000123", "0.12345678901234567", "two words of prose",
        "00000000-0000-0000-0000-000000000000", "http://127.0.0.1/items/3f2a9c1e-1234-4bcd-8ef0-0123456789ab",
        "/items/3f2a9c1e-1234-4bcd-8ef0-0123456789ab",
    ],
)  # fmt: skip
def test_words_times_numbers_and_urls_are_none(token: str) -> None:
    assert not is_opaque(token)


@pytest.mark.parametrize(
    ("path", "owner"),
    [
        (("deal_id",), "deal"), (("dealId",), "deal"), (("dealIds", 0), "deal"), (("deals", 0, "id"), "deal"),
        (("deal", "id"), "deal"), (("data", 0, "id"), "note"), (("id",), "note"), (("companies", 1, "id"), "company"),
        (("valid",), None), (("paid",), None), (("amount",), None), ((), None), ((0,), None),
    ],
)  # fmt: skip
def test_the_name_of_a_member_says_whose_id_it_holds(path: tuple[str | int, ...], owner: str | None) -> None:
    assert collection_of(path, "note") == owner


def test_plural_and_singular_are_one_collection() -> None:
    assert {singular(word) for word in ("deals", "Deal", "deal")} == {"deal"}
    assert [singular(word) for word in ("status", "companies", "boxes")] == ["status", "company", "box"]


def test_a_tool_is_about_its_noun() -> None:
    assert {noun(tool) for tool in ("create_note", "listNotes", "notes.get", "get_note_by_id")} == {"note"}
