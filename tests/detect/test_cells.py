from __future__ import annotations

import json

import pytest

from replayproxy.core.canonical import body_of, view
from replayproxy.detect.cells import Paths, Place, Row, Tables, asks_for_the_past, created, shown

TABLES = Tables(["deals", "crm.tickets", "settings"], {"settings": "1"})
JSON = ((b"Content-Type", b"application/json"),)


def document(value: object):
    return view(JSON, body_of(json.dumps(value).encode()))


def rows(target: bytes, value: object, tables: Tables = TABLES):
    return [(one.row.table, one.row.key, one.at, dict(one.members)) for one in
            shown(document(value), tables.place(target), tables)]  # fmt: skip


@pytest.mark.parametrize(
    ("target", "place"),
    [
        (b"/deals/42", Place(table="deals", key="42")),
        (b"/api/v1/deals/42/", Place(table="deals", key="42")),
        (b"/deal/D%2D1?full=1", Place(table="deals", key="D-1")),
        (b"/deals", Place(table="deals", key=None)),
        (b"/tickets/17/notes", Place(table="crm.tickets", key="17", rest=("notes",))),
        (b"/deals/42/tickets/17", Place(table="crm.tickets", key="17")),
        (b"/settings", Place(table="settings", key=None, only="1")),
        (b"/reports/42", None),
        (b"/", None),
    ],
)
def test_a_path_names_a_table_and_a_row(target: bytes, place: Place | None) -> None:
    assert TABLES.place(target) == place


def test_the_object_of_a_row_may_be_wrapped() -> None:
    deal = {"id": 42, "stage": "lead"}
    assert rows(b"/deals/42", deal) == [("deals", "42", "", deal)]
    assert rows(b"/deals/42", {"data": deal}) == [("deals", "42", "/data", deal)]
    assert rows(b"/deals/42", {"ok": True, "deal": deal, "owner": {"id": 7}}) == [("deals", "42", "/deal", deal)]
    assert rows(b"/deals/42", {"stage": "lead"}) == [("deals", "42", "", {"stage": "lead"})]
    assert rows(b"/deals/42/notes", [deal]) == []


def test_a_collection_is_a_list_or_the_one_list_of_an_envelope_or_an_object_by_key() -> None:
    items = [{"id": 1, "stage": "lead"}, {"id": 2, "stage": "won"}]
    wanted = [("1", "lead"), ("2", "won")]
    for value in (items, {"items": items, "count": 2}, {"1": {"stage": "lead"}, "2": {"stage": "won"}}):
        assert [(key, members["stage"]) for _, key, _, members in rows(b"/deals", value)] == wanted
    assert rows(b"/deals", {"items": items})[1][2] == "/items/1"
    assert rows(b"/deals", {"a": items, "b": items}) == []


def test_the_path_of_a_table_with_one_row_stands_for_that_row_but_not_for_another() -> None:
    assert rows(b"/settings", {"theme": "dark"}) == [("settings", "1", "", {"theme": "dark"})]
    assert rows(b"/settings", {"id": 1, "theme": "dark"})[0][1] == "1"
    assert rows(b"/settings", {"id": 2, "theme": "dark"}) == []
    assert [one[1] for one in rows(b"/settings", [{"id": 1}, {"id": 2}])] == ["1", "2"]


def test_a_created_row_is_named_by_the_id_in_the_answer() -> None:
    place = TABLES.place(b"/deals")
    made = created(document({"id": 7, "stage": "lead"}), place, TABLES)
    assert made is not None
    assert made.row == Row("deals", "7")
    assert created(document({"id": 7}), TABLES.place(b"/deals/7"), TABLES) is None
    assert created(document({"stage": "lead"}), place, TABLES) is None


def test_without_a_state_the_path_itself_is_the_row() -> None:
    paths = Paths()
    assert rows(b"/deals/42", {"stage": "lead"}, paths) == [("/deals/42", "", "", {"stage": "lead"})]
    listed = rows(b"/deals", [{"id": 42, "stage": "lead"}], paths)
    assert listed == [("/deals/42", "", "/0", {"id": 42, "stage": "lead"})]
    made = created(document({"id": 42}), paths.place(b"/deals"), paths)
    assert made is not None
    assert made.row == Row("/deals/42", "")


def test_a_read_that_names_a_version_or_a_time_asks_for_the_past() -> None:
    for query in (b"version=1", b"as_of=2020-01-01", b"x=1&snapshot=3", b"at=5"):
        assert asks_for_the_past(b"/deals/42?" + query), query
    for target in (b"/deals/42", b"/deals?state=open", b"/deals?format=json", b"/versions/1"):
        assert not asks_for_the_past(target), target


def test_what_is_no_json_shows_nothing() -> None:
    assert shown(view((), body_of(b"<p>42</p>")), TABLES.place(b"/deals/42"), TABLES) == []
    assert rows(b"/deals/42", [1, 2]) == []
    assert rows(b"/deals", [1, "x", None]) == []
