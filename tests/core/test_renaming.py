from __future__ import annotations

import pytest

from replayproxy.core.renaming import (
    Identifiers,
    Names,
    Renaming,
    is_digest,
    owners,
    path_ids,
    row_id,
    singular,
    table_noun,
)


def test_a_renaming_is_injective() -> None:
    names = Renaming(chains=True)
    assert names.admit("a", "x")
    assert names.admit("a", "x"), "the same again"
    assert not names.admit("a", "y")
    assert not names.admit("b", "x")
    assert names.admit("x", "z"), "a counter moves by one: 17 is 18, 18 is 19"


def test_a_fresh_value_is_never_seen_on_the_other_side() -> None:
    names = Renaming(chains=False)
    assert names.admit("a", "x")
    assert not names.admit("x", "b")
    assert not names.admit("b", "a")
    assert not Renaming(chains=False, seeded=lambda a, b: a == "old").admit("old", "new")


@pytest.mark.parametrize(
    ("word", "noun"),
    [("deals", "deal"), ("Deal", "deal"), ("companies", "company"), ("boxes", "box"), ("statuses", "status"),
     ("class", "class"), ("helpDesks", "help_desk"), ("gas", "ga")],
)  # fmt: skip
def test_one_noun_for_one_thing(word: str, noun: str) -> None:
    assert singular(word) == noun


def test_what_a_path_names() -> None:
    assert list(path_ids("/api/deals/17/notes/5")) == [("api", "deals"), ("deal", "17"), ("note", "5")]


@pytest.mark.parametrize(
    ("tokens", "path", "nouns", "defining"),
    [
        (("body", "id"), "/deals", ("deal",), True),
        (("body", "id"), "/deals/17/close", ("close", "deal"), True),
        (("body", "items", 3, "id"), "/deals", ("deal",), True),
        (("body", "deal", "id"), "/search", ("deal", "search"), True),
        (("body", "deal_id"), "/notes", ("deal",), False),
        (("body", "dealId"), "/deals", ("deal",), True),
        (("body", "balance"), "/deals", (), False),
        (("state", "helpdesk.tickets", "17", "id"), "/tickets", ("ticket",), True),
        (("state", "tickets", "17", "deal_id"), "/tickets", ("deal",), False),
        (("state", "tickets", "17"), "/tickets", (), False),
    ],
)
def test_what_an_id_at_a_place_names(
    tokens: tuple[str | int, ...], path: str, nouns: tuple[str, ...], defining: bool
) -> None:
    assert owners(tokens, path) == (nouns, defining)


@pytest.mark.parametrize("member", ["hash", "sha256", "content_hash", "fileDigest", "md5", "checksum"])
def test_members_made_from_content(member: str) -> None:
    assert is_digest(member)
    assert not is_digest(f"{member}tag_id")


def test_rows_are_read_only_when_no_path_tells() -> None:
    asked = []

    def rows() -> list[tuple[str, str]]:
        asked.append(1)
        return [("helpdesk.tickets", '["17"]')]

    identifiers = Identifiers(rows)
    identifiers.add_path("/deals/5")
    assert identifiers.has("deal", "5")
    assert asked == []
    assert identifiers.has("ticket", "17")
    assert not identifiers.has("ticket", "18")
    assert asked == [1]


def test_keys_and_tables_as_traffic_would_spell_them() -> None:
    assert [row_id(key) for key in ("17", '["17"]', "[17]", '"a"')] == ["17", "17", "17", "a"]
    assert row_id("[1, 2]") == "[1, 2]"
    assert table_noun("helpdesk.tickets") == "ticket"


def test_prefixed_ids_are_known_whatever_they_name_and_mere_numbers_are_not() -> None:
    names = Names({})
    names.of("deal").admit("D-1", "D-2")
    names.of("deal").admit("1", "2")
    assert names.anywhere("D-1", "D-2")
    assert not names.anywhere("1", "2")
