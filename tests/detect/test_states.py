from __future__ import annotations

import pytest

from replayproxy.core import prolly
from replayproxy.core.values import SnapshotStatus
from replayproxy.detect.states import (
    SCALARS,
    Series,
    States,
    TooMuchChanged,
    envs_of,
    listing_of,
    opened,
    records,
    usable,
    whole,
)
from replayproxy.testing import run, snapshot


def test_an_opaque_document_is_opened_into_tables() -> None:
    document = {
        "deals": {"1": {"stage": "lead"}}, "tickets": [{"id": 7, "status": "open"}], "user": {"name": "Ada"},
        "counter": 3, "tags": ["a"], "none": [],
    }  # fmt: skip
    assert opened({"document": {"": document}}) == {
        "deals": {"1": {"stage": "lead"}}, "tickets": {"7": {"id": 7, "status": "open"}},
        "user": {"": {"name": "Ada"}}, SCALARS: {"": {"counter": 3, "tags": ["a"]}}, "none": {},
    }  # fmt: skip
    rows = {"deals": {"1": {"stage": "lead"}}}
    assert opened(rows) is rows


def test_a_document_that_is_one_list_is_the_table_that_its_url_names() -> None:
    url = "http:http://127.0.0.1:8888/v1/buckets/crm/records?_limit=9,header=Authorization:env:KEY"
    wired = run(snapshots={"app": url, "file": "sqlite:records.db"})
    assert listing_of(wired, "app") == "records"
    assert listing_of(wired, "file") == listing_of(wired, "other") == ""
    for document in ({"data": [{"id": "a"}], "next": None}, [{"id": "a"}, {"id": "b"}]):
        tree = prolly.build({"document": {"": document}})
        tables = States(tree.nodes.__getitem__).tables(tree.root, "records")
        place = tables.place(b"/v1/buckets/crm/records/a")
        assert place is not None
        assert (place.key, place.table in ("data", "document")) == ("a", True)
    tree = prolly.build({"deals": {"1": {}}, "tickets": {"1": {}}})
    assert States(tree.nodes.__getitem__).tables(tree.root, "records").place(b"/records/1") is None


def test_a_change_of_an_opaque_document_is_a_change_of_its_rows() -> None:
    a = prolly.build({"document": {"": {"deals": {"1": {"stage": "lead"}, "2": {"stage": "lead"}}, "n": 1}}})
    b = prolly.build({"document": {"": {"deals": {"1": {"stage": "won"}, "2": {"stage": "lead"}}, "n": 1}}})
    states = States({**a.nodes, **b.nodes}.__getitem__)
    (change,) = states.changes(a.root, b.root)
    assert (change.table, change.key, change.before, change.after) == (
        "deals", "1", {"stage": "lead"}, {"stage": "won"},
    )  # fmt: skip


def test_a_state_that_changed_as_a_whole_is_not_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replayproxy.detect.states.MAX_CHANGES", 10)
    a = prolly.build({"t": {str(n): {"v": 0} for n in range(20)}})
    b = prolly.build({"t": {str(n): {"v": 1} for n in range(20)}})
    with pytest.raises(TooMuchChanged):
        States({**a.nodes, **b.nodes}.__getitem__).changes(a.root, b.root)


def test_a_snapshot_belongs_to_the_environment_it_is_named_after_or_to_all() -> None:
    two = run(envs=("crm", "cal"))
    assert envs_of(two, "crm.cache") == {"crm"}
    assert envs_of(two, "database") == {"crm", "cal"}


def test_a_second_view_of_an_environment_is_no_system_of_record_beside_the_first() -> None:
    crm, cache = Series(name="crm", envs=frozenset({"crm"})), Series(name="crm.cache", envs=frozenset({"crm"}))
    assert records([crm, cache]) == [crm]
    assert records([cache]) == [cache]


def test_a_torn_snapshot_tells_of_rows_but_not_of_a_state() -> None:
    root = prolly.build({}).root
    torn = snapshot(0, root, status=SnapshotStatus.TORN)
    assert usable(torn)
    assert not whole(torn)
    assert not usable(snapshot(0, None))
