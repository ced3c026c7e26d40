"""Keys of rows and the columns that a condition names, without a database."""

from __future__ import annotations

from typing import Any

import pytest

from replayproxy.state.postgres_tables import Column, Scheme, Table, columns_named, key_of
from replayproxy.state.postgres_values import reader


def table(*columns: str, keys: tuple[str, ...] = (), name: str = "t") -> Table:
    made = tuple(Column(name=c, kind="text", element=None, scaled=False, read=reader("text")) for c in columns)
    return Table(schema="public", name=name, label=name, only=True, columns=made, keys=keys)


def test_one_key_is_its_text_and_several_are_an_array() -> None:
    row: dict[str, Any] = {"a": 1, "b": "x"}
    assert key_of(table("a", "b", keys=("b",)), row, ["1", "x"], {}) == "x"
    assert key_of(table("a", "b", keys=("b", "a")), row, ["1", "x"], {}) == '["x",1]'


def test_without_a_key_equal_rows_are_numbered() -> None:
    taken: dict[str, Any] = {}
    for _ in range(3):
        taken[key_of(table("a"), {"a": "x"}, ["x"], taken)] = 1
    first = next(iter(taken))
    assert list(taken) == [first, f"{first}#2", f"{first}#3"]


@pytest.mark.parametrize(
    ("condition", "named"),
    [
        ("tenant = {episode}", {"tenant"}), ("Tenant = 'state'", {"tenant"}), ("lower(tenant) = {task}", {"tenant"}),
        ('"Odd one" = 1 AND state IS NULL', {"Odd one", "state"}), ("t.tenant = 1", {"tenant"}), ("x.y = 1", set()),
        ("tenant::state = 1", {"tenant"}),
    ],
)  # fmt: skip
def test_columns_of_a_condition_are_found(condition: str, named: set[str]) -> None:
    tables = [table("tenant", "state"), table("Odd one", name="u")]
    assert columns_named(condition, tables) == named


def test_one_schema_is_left_out_of_labels() -> None:
    assert Scheme(schemas=("a",)).label("a", "t") == "t"
    assert Scheme(schemas=("a", "b")).label("a", "t") == "a.t"
