from __future__ import annotations

from typing import Any

from replayproxy.core import prolly
from replayproxy.core.rules import Rule, RuleBook
from replayproxy.detect.residue import residue
from replayproxy.detect.states import States

SECOND = 1_000_000_000
DAY = 86400 * SECOND
WALL = 1_767_600_000 * SECOND  # 2026-01-05T08:00:00Z
IDS = [
    "6f1c2a52-8a0f-4d0f-9a55-1d4d5cf0a1b2", "0b7cfa7e-9d55-4c54-b1c5-57b1f7a1c9d3",
    "c9a0f3de-17b2-4e4b-8a63-0f1e2d3c4b5a", "e3b6d9c4-2f8a-4b7e-91d0-6a5b4c3d2e1f",
]  # fmt: skip


def left(a: dict[str, Any], b: dict[str, Any], later: int = 3600 * SECOND) -> list[tuple[str, str]]:
    one, two = prolly.build(a), prolly.build(b)
    nodes = {**one.nodes, **two.nodes}
    found = residue(States(nodes.__getitem__), one.root, two.root, WALL, WALL + later)
    return [(change.table, change.key) for change in found.changes]


def word(a: dict[str, Any], b: dict[str, Any], later: int = 3600 * SECOND) -> tuple[str, bool]:
    one, two = prolly.build(a), prolly.build(b)
    found = residue(States({**one.nodes, **two.nodes}.__getitem__), one.root, two.root, WALL, WALL + later)
    return found.word, found.ties


def test_equal_states_leave_nothing() -> None:
    state = {"deals": {"1": {"id": 1, "stage": "lead"}}}
    assert left(state, state) == []


def test_a_row_too_many_a_row_missing_and_a_changed_value_are_residue() -> None:
    base = {"deals": {"1": {"stage": "lead"}, "2": {"stage": "lead"}}}
    other = {"deals": {"1": {"stage": "won"}, "3": {"stage": "new"}}}
    assert left(base, other) == [("deals", "1"), ("deals", "2"), ("deals", "3")]


def test_stamps_that_keep_their_distance_to_the_reset_are_clocks() -> None:
    base = {"deals": {"1": {"made": "2026-01-05T07:59:58Z", "due": 1_767_600_000 + 7 * 86400}}}
    other = {"deals": {"1": {"made": "2026-01-05T08:59:57.5Z", "due": 1_767_600_000 + 3600 + 7 * 86400}}}
    assert left(base, other) == []


def test_a_stamp_that_did_not_move_with_the_reset_is_residue() -> None:
    base = {"deals": {"1": {"closed_at": "2026-01-05T07:59:58Z"}}}
    other = {"deals": {"1": {"closed_at": "2026-01-05T08:30:00Z"}}}
    assert left(base, other) == [("deals", "1")]


def test_rows_with_fresh_ids_are_one_renaming_with_what_refers_to_them() -> None:
    def state(deal: str, contact: str) -> dict[str, Any]:
        return {
            "contacts": {contact: {"id": contact, "name": "Ada"}},
            "deals": {deal: {"id": deal, "contact_id": contact, "stage": "lead"}},
        }

    assert left(state(IDS[0], IDS[1]), state(IDS[2], IDS[3])) == []


def test_a_reference_that_points_to_another_row_is_no_renaming() -> None:
    def state(ids: list[str], to: int) -> dict[str, Any]:
        return {
            "contacts": {ids[0]: {"id": ids[0], "name": "Ada"}, ids[1]: {"id": ids[1], "name": "Grace"}},
            "deals": {"1": {"contact_id": ids[to], "stage": "lead"}},
        }

    assert left(state(IDS[:2], 0), state(IDS[2:], 0)) == []
    assert left(state(IDS[:2], 0), state(IDS[2:], 1)) == [("deals", "1")]


def test_a_reference_changed_to_another_row_that_was_there_is_residue() -> None:
    def state(contact: str) -> dict[str, Any]:
        return {"contacts": {key: {"name": key[:3]} for key in IDS}, "deals": {"1": {"contact_id": contact}}}

    assert left(state(IDS[0]), state(IDS[1])) == [("deals", "1")]
    assert left({"deals": {"1": {"contact_id": 1}}}, {"deals": {"1": {"contact_id": 2}}}) == [("deals", "1")]


def test_a_fresh_token_that_names_no_row_is_a_fresh_id() -> None:
    assert left({"users": {"1": {"token": IDS[0]}}}, {"users": {"1": {"token": IDS[1]}}}) == []


def orders(ids: list[str], to: tuple[int, int]) -> dict[str, Any]:
    """Two contacts, and two orders that are alike in all but whom they are of."""
    return {
        "contacts": {ids[n]: {"id": ids[n], "name": name} for n, name in enumerate(("Ada", "Grace"))},
        "orders": {ids[2 + n]: {"id": ids[2 + n], "contact_id": ids[to[n]], "sum": 5} for n in (0, 1)},
    }


FRESH = [f"{n:08x}-8a0f-4d0f-9a55-1d4d5cf0a1b2" for n in (0x6F1C2A52, 0x0B7CFA7E, 0xC9A0F3DE, 0xE3B6D9C4)]
OTHERS = [f"{n:08x}-17b2-4e4b-8a63-0f1e2d3c4b5a" for n in (0x91D06A5B, 0x4C3D2E1F, 0x77AA3B9C, 0x1E2D3C4B)]


def test_rows_that_are_alike_are_told_apart_by_what_they_refer_to() -> None:
    assert word(orders(FRESH, (0, 1)), orders(OTHERS, (1, 0))) == ("renaming", False)
    assert word(orders(FRESH, (0, 0)), orders(OTHERS, (0, 1)))[0] == "content"
    assert {table for table, _ in left(orders(FRESH, (0, 0)), orders(OTHERS, (0, 1)))} == {"contacts", "orders"}


def test_rows_that_nothing_tells_apart_are_equal_up_to_ties() -> None:
    assert word(orders(FRESH, (0, 0)), orders(OTHERS, (0, 0))) == ("renaming", True)


def test_each_class_that_means_nothing_has_its_word() -> None:
    stamps = [{"t": {"1": {"at": f"2026-01-05T0{7 + n}:59:58Z"}}} for n in (0, 1)]
    assert word(*stamps) == ("clock-only", False)
    tags = [{"t": {"1": {"tags": list(order)}}} for order in ("abc", "cab")]
    assert word(*tags) == ("order", False)
    assert word({"t": {"1": {"tags": ["a", "b"]}}}, {"t": {"1": {"tags": ["a", "c"]}}}) == ("content", False)
    members = [{"t": {"1": {"of": [{"id": a, "n": 1}, {"id": b, "n": 2}]}}} for a, b in (FRESH[:2], OTHERS[:2])]
    members[1]["t"]["1"]["of"].reverse()
    assert word(*members) == ("order", False)
    assert word({"t": {}}, {"t": {}}) == ("equal", False)


def test_one_leftover_row_with_a_fresh_id_is_residue() -> None:
    base = {"deals": {IDS[0]: {"id": IDS[0], "stage": "lead"}}}
    other = {"deals": {IDS[1]: {"id": IDS[1], "stage": "lead"}, IDS[2]: {"id": IDS[2], "stage": "won"}}}
    assert left(base, other) == [("deals", IDS[2])]


def test_numbers_that_go_on_are_one_renaming_too() -> None:
    base = {"deals": {"1": {"id": 1, "name": "a"}, "2": {"id": 2, "name": "b"}},
            "notes": {"1": {"id": 1, "deal_id": 2}}}  # fmt: skip
    other = {"deals": {"11": {"id": 11, "name": "a"}, "12": {"id": 12, "name": "b"}},
             "notes": {"7": {"id": 7, "deal_id": 12}}}  # fmt: skip
    assert left(base, other) == []


def test_a_changed_number_that_is_no_id_is_residue() -> None:
    assert left({"deals": {"1": {"id": 1, "amount": 5}}}, {"deals": {"1": {"id": 1, "amount": 6}}}) == [("deals", "1")]


def test_sequences_of_ids_alone_are_told_apart() -> None:
    one, two = (prolly.build({"counters": {"deals": {"next_id": number}}}) for number in (5, 9))
    states = States({**one.nodes, **two.nodes}.__getitem__)
    assert residue(states, one.root, two.root, WALL, WALL).only_counters
    assert left({"sqlite_sequence": {"deals": {"seq": 4}}}, {"sqlite_sequence": {"deals": {"seq": 9}}}) == []


def test_what_a_rule_declares_may_differ() -> None:
    rules = RuleBook(
        [
            Rule(name="tick", pointer="state/app/*/tick", reason="a counter of reads"),
            Rule(name="log", pointer="state/log", reason="the access log"),
        ]
    )
    one = prolly.build({"app": {"1": {"tick": 1, "mode": "a"}, "2": {"tick": 5}}, "log": {"1": {"x": 1}}})
    two = prolly.build({"app": {"1": {"tick": 2, "mode": "b"}, "2": {"tick": 6}}, "log": {"7": {"x": 2}}})
    states = States({**one.nodes, **two.nodes}.__getitem__)
    (change,) = residue(states, one.root, two.root, WALL, WALL, rules).changes
    assert (change.table, change.key, change.after) == ("app", "1", {"tick": 1, "mode": "b"})
