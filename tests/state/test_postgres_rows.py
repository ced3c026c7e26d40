"""Only new versions of rows are fetched; a scripted database says what it was asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from replayproxy.state.postgres_rows import Held, Source, in_query, quoted, read
from replayproxy.state.postgres_tables import Column, Table
from replayproxy.state.postgres_values import reader


def table(*, keys: tuple[str, ...] = ("id",)) -> Table:
    columns = [
        Column(name=c, kind=k, element=None, scaled=False, read=reader(k)) for c, k in (("id", "int4"), ("v", "text"))
    ]
    return Table(schema="s", name="t", label="t", only=True, columns=tuple(columns), keys=keys)


class Database:
    """Rows as (ctid, xmin, id, v); answers the three statements that a reading makes."""

    def __init__(self, rows: list[tuple[str, ...]]) -> None:
        self.rows = rows
        self.fetched: list[int] = []

    def __call__(self, text: str, bound: Sequence[Any]) -> list[tuple[Any, ...]]:
        if '"v"' not in text:
            return [row[:2] for row in self.rows]
        found = [row for row in self.rows if "ANY" not in text or row[0] in bound[-1]]
        self.fetched.append(len(found))
        return found


def many(count: int) -> list[tuple[str, ...]]:
    return [(f"(0,{n})", "700", str(n), "old") for n in range(1, count + 1)]


def test_of_a_changed_table_only_new_versions_are_fetched() -> None:
    database, source = Database(many(100)), Source(table=table())
    first = read(database, source, 1, None)
    database.rows[4] = ("(0,101)", "701", "5", "new")  # an update makes a new version elsewhere
    del database.rows[9]
    database.rows.append(("(0,10)", "702", "999", "in the place of the one that went"))
    then = read(database, source, 2, first)
    assert database.fetched == [100, 2]
    assert then.rows["5"] == {"id": 5, "v": "new"}
    assert "10" not in then.rows
    assert then.rows["999"]["v"].startswith("in the place")
    assert then.places["5"] == {"at": [0, 101]}
    whole = read(database, source, 2, None)
    assert (then.rows, then.places, then.keys, then.versions) == (whole.rows, whole.places, whole.keys, whole.versions)
    assert first.rows["5"] == {"id": 5, "v": "old"}


def test_an_unchanged_table_is_not_asked_for() -> None:
    database, source = Database(many(3)), Source(table=table())
    first = read(database, source, 1, None)
    assert read(database, source, 1, first) is first
    assert database.fetched == [3]


def test_much_that_is_new_and_tables_without_a_key_are_read_as_a_whole() -> None:
    database = Database(many(100))
    first = read(database, Source(table=table()), 1, None)
    database.rows = [(place, "701", key, "new") for place, _, key, _ in many(100)]
    read(database, Source(table=table()), 2, first)
    unkeyed = Source(table=table(keys=()))
    read(database, unkeyed, 2, read(database, unkeyed, 1, None))
    assert database.fetched == [100, 100, 100, 100]


def test_names_are_quoted_and_conditions_joined() -> None:
    assert quoted("a", 'b"%') == '"a"."b""%"'
    assert in_query("b%") == '"b%%"'
    assert (
        Source(table=table(), where="x = %s", bound=["1"]).clause("y") == 'FROM ONLY "s"."t" t WHERE (x = %s) AND (y)'
    )
    assert Held().rows == {}
