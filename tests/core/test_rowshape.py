from __future__ import annotations

from typing import Any

import pytest

from replayproxy.core.rowshape import natural, noun_of, shape
from tests.core.world import World


def row(seed: int, **more: Any) -> dict[str, Any]:
    world = World(seed, start_ms=seed * 1000)
    return {"id": seed, "ref": world.id("x"), "at": world.iso(), "stamp": 1_700_000_000 + seed, "text": "hello"} | more


def test_rows_of_one_shape_differ_in_ids_and_times_only() -> None:
    assert shape("notes", row(1)) == shape("notes", row(2))


@pytest.mark.parametrize("more", [{"text": "bye"}, {"extra": 1}, {"hash": "4f1c2b7a9d3e5a6b"}, {"n": 17}])
def test_anything_else_is_another_shape(more: dict[str, Any]) -> None:
    assert shape("notes", row(1, **more)) != shape("notes", row(2))


def test_digests_are_part_of_a_shape() -> None:
    assert shape("files", row(1, hash="4f1c2b7a9d3e5a6b")) != shape("files", row(1, hash="0a9f8e7d6c5b4a39"))


def test_keys_and_tables_as_they_are_read() -> None:
    assert sorted(["10", "9", "1"], key=natural) == ["1", "9", "10"]
    assert noun_of("helpdesk.tickets") == "tickets"
