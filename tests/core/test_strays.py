from __future__ import annotations

from typing import Any

from replayproxy.core.renaming import Names
from replayproxy.core.strays import strays
from replayproxy.testing import exchange
from tests.core.world import World

A, B = World(0).id("deal"), World(1).id("deal")


def names() -> Names:
    known = Names({})
    known.fresh.admit(A, B)
    known.of("ticket").admit("17", "18")
    return known


def found(a: Any, b: Any, path: str = "/x", known: Names | None = None) -> list[tuple[str, Any, Any]]:
    pair = exchange("GET", path, body=a), exchange("GET", path, body=b)
    return [(d.pointer, d.a, d.b) for _, d in strays([pair], known or names(), {})]


def test_a_value_that_kept_its_old_name_is_found_where_it_stands() -> None:
    assert found({"deal": {"id": A}}, {"deal": {"id": A}}) == [("body/deal/id", A, A)]
    assert found({"deal": {"id": B}}, {"deal": {"id": B}}) == [("body/deal/id", B, B)]


def test_what_is_renamed_as_it_should_be_is_no_stray() -> None:
    assert found({"deal": {"id": A}}, {"deal": {"id": B}}) == []
    assert found({"n": 1}, {"n": 1}) == []


def test_small_ids_are_strays_only_as_what_they_name() -> None:
    assert found({"id": 17}, {"id": 17}, "/tickets") == [("body/id", 17, 17)]
    assert found({"id": 17, "amount": 17}, {"id": 17, "amount": 17}, "/deals") == []


def test_without_a_renaming_nothing_is_looked_for() -> None:
    assert found({"id": A}, {"id": A}, known=Names({})) == []


def test_a_path_that_names_the_other_runs_value_is_found() -> None:
    assert found({}, {}, f"/deals/{A}") == [("request/path", f"/deals/{A}", f"/deals/{A}")]
