"""`sqlite:` snapshots after the first: the changes that are told add up to the whole state."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from replayproxy.state import Changes, Reading
from replayproxy.state.growing import GrowingState
from tests.snapshots.sqlite_kit import SCHEMA, execute, provider, state


def test_an_unchanged_database_is_not_read_again(path: Path) -> None:
    one = provider(path)
    one.capture()
    again = one.capture()
    assert again == Reading(rows=Changes(), aside=Changes())


def test_only_changed_rows_are_given_after_the_first_reading(path: Path) -> None:
    one = provider(path)
    one.capture()
    execute(path, "UPDATE deals SET stage = 'WON' WHERE id = 2; UPDATE words SET word = 'Zebra' WHERE word = 'zebra'")
    changes = one.capture().rows
    assert isinstance(changes, Changes)
    found = {(change.table, change.key): change.after for change in changes.rows}
    assert found[("deals", "2")] == {"id": 2, "title": "b", "amount": 2.0, "stage": "WON"}
    assert found[("words", "zebra")] is None
    assert found[("words", "Zebra")] == {"word": "Zebra", "deal": 1}
    assert len(found) == 3


CASES = """
CREATE TABLE cases (a TEXT COLLATE NOCASE, v, PRIMARY KEY (a COLLATE BINARY)) WITHOUT ROWID;
INSERT INTO cases VALUES ('x', 1), ('X', 2), ('y', 3);
"""
"""Here one row is compared with several: the column's collation takes them for the same, the key's does not."""

STATEMENTS = [
    "INSERT INTO deals (title, amount) VALUES ('t{0}', {0}.0)", "DELETE FROM deals WHERE id % 3 = {0}",
    "UPDATE deals SET stage = 'S{0}', amount = amount + 1", "UPDATE OR REPLACE deals SET id = id + 100 WHERE id = {0}",
    "INSERT INTO notes VALUES ({0}, {0})", "UPDATE notes SET body = 1.0 WHERE body = 1 AND n % 2",
    "UPDATE notes SET body = 1 WHERE body = 1.0", "DELETE FROM notes WHERE n = {0}",
    "INSERT OR REPLACE INTO pairs VALUES ('x', {0}, {0})", "UPDATE OR REPLACE pairs SET a = upper(a) WHERE b = {0}",
    "INSERT OR REPLACE INTO words VALUES ('w{0}', NULL)", "UPDATE words SET word = NULL WHERE deal = {0}",
    "DELETE FROM words WHERE word IS NULL", "UPDATE words SET deal = {0} WHERE word > 'b'", "VACUUM",
    "UPDATE OR REPLACE cases SET a = 'X' WHERE v = {0}", "INSERT OR IGNORE INTO cases VALUES ('y', {0}), ('Z', {0})",
    "DELETE FROM cases WHERE v = {0}", "CREATE TABLE IF NOT EXISTS late{0} (x)", "DROP TABLE IF EXISTS late{0}",
    "DELETE FROM deals", "DELETE FROM sqlite_sequence", "PRAGMA journal_mode = WAL", "PRAGMA journal_mode = DELETE",
]  # fmt: skip


@settings(max_examples=40, deadline=None)
@example([[("INSERT INTO cases VALUES ('Z', 4)", 0), ("DELETE FROM cases WHERE v = 2", 0)],
          [("UPDATE cases SET a = 'X' WHERE v = 4", 0)]])  # fmt: skip
@given(st.lists(st.lists(st.tuples(st.sampled_from(STATEMENTS), st.integers(0, 4)), max_size=4), max_size=6))
def test_changes_always_add_up_to_the_whole_state(steps: list[list[tuple[str, int]]]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.db"
        execute(path, SCHEMA + CASES)
        one, grown = provider(path), GrowingState()
        grown.take(one.capture())
        for step in steps:
            for statement, number in step:
                # Switching away from WAL fails while a reader is connected; that it may is documented.
                with closing(sqlite3.connect(path, timeout=0)) as connection:
                    try:
                        connection.execute(statement.format(number))
                        connection.commit()
                    except sqlite3.OperationalError:
                        assert "journal_mode" in statement
            seen = grown.take(one.capture())
            fresh = GrowingState().take(provider(path).capture())
            assert (seen.root, seen.aside, seen.rows) == (fresh.root, fresh.aside, fresh.rows)
        one.close()


def told(path: Path, steps: list[str]) -> None:
    """After each step the changes add up to what a reading of its own finds."""
    one, grown = provider(path), GrowingState()
    grown.take(one.capture())
    for step in steps:
        execute(path, step)
        seen, fresh = grown.take(one.capture()), GrowingState().take(provider(path).capture())
        assert (seen.root, seen.aside, seen.rows) == (fresh.root, fresh.aside, fresh.rows), step
    one.close()


@pytest.mark.parametrize(
    ("schema", "steps"),
    [
        # Zero has one sign, in values and in keys.
        ("t (k PRIMARY KEY, v); INSERT INTO t VALUES (0.0, 0.0)",
         ["UPDATE t SET v = -1e-999", "UPDATE t SET k = -1e-999", "UPDATE t SET v = 2"]),
        ("t (k PRIMARY KEY, v) WITHOUT ROWID; INSERT INTO t VALUES (0.0, 1)",
         ["UPDATE t SET k = -1e-999", "UPDATE t SET v = 2", "DELETE FROM t"]),
        # The smallest integer is a real too, in columns that make integers of all others.
        ("t (k INT PRIMARY KEY, v NUMERIC); INSERT INTO t VALUES (-9223372036854775808, -9223372036854775808)",
         ["UPDATE t SET v = -9223372036854775808.0", "UPDATE t SET k = -9223372036854775808.0", "UPDATE t SET v = 1"]),
        # Keys that are told apart by all rows of their table.
        ("t (id INTEGER PRIMARY KEY AUTOINCREMENT, v); INSERT INTO t VALUES (1, 1)",
         ["INSERT INTO sqlite_sequence VALUES ('t', 9)", "UPDATE sqlite_sequence SET seq = 20 WHERE rowid = 2",
          "INSERT INTO t (v) VALUES (1)", "DELETE FROM sqlite_sequence WHERE rowid = 1",
          "INSERT INTO t (v) VALUES (1)"]),
        ("t (rowid, oid, _rowid_, k PRIMARY KEY); INSERT INTO t VALUES (1, 1, 1, NULL), (2, 2, 2, NULL)",
         ["UPDATE t SET rowid = 7 WHERE oid = 1", "UPDATE t SET rowid = 8 WHERE oid = 2", "DELETE FROM t WHERE oid = 1",
          "INSERT INTO t VALUES (4, 4, 4, NULL)"]),
    ],
)  # fmt: skip
def test_changes_are_those_of_two_whole_readings(tmp_path: Path, schema: str, steps: list[str]) -> None:
    path = tmp_path / "x.db"
    execute(path, f"CREATE TABLE {schema}")
    told(path, steps)


@pytest.mark.parametrize("kind", ["", "TEXT"])
@pytest.mark.parametrize("key", ["id INTEGER PRIMARY KEY", "id TEXT", "id TEXT PRIMARY KEY"])
@pytest.mark.parametrize("count", [600, 1002, 1996, 1999])
def test_tables_may_be_as_wide_as_sqlite_lets_them(tmp_path: Path, key: str, kind: str, count: int) -> None:
    path = tmp_path / "x.db"
    columns = ", ".join(f"c{n} {kind}" for n in range(count))
    execute(path, f"CREATE TABLE t ({key}, {columns}); INSERT INTO t (id, c3) VALUES (7, 'a'), (8, 'b')")
    told(path, ["UPDATE t SET c5 = 'c' WHERE id = 8", "DELETE FROM t WHERE id = 7", "INSERT INTO t (c3) VALUES ('d')"])
    assert next(iter(state(path)["t"].values()))["c5"] == "c"


def test_a_key_may_have_all_columns_of_a_wide_table(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    columns = ", ".join(f"c{n}" for n in range(1200))
    execute(path, f"CREATE TABLE t ({columns}, PRIMARY KEY ({columns})) WITHOUT ROWID")
    values = ", ".join("1" for _ in range(1200))
    told(path, [f"INSERT INTO t VALUES ({values})", "UPDATE t SET c7 = 2", "UPDATE t SET c7 = 2.0", "DELETE FROM t"])


@pytest.mark.parametrize(
    "table",
    [
        "(k TEXT COLLATE backwards PRIMARY KEY, v) WITHOUT ROWID",
        "(k TEXT COLLATE backwards, v, PRIMARY KEY (k COLLATE binary)) WITHOUT ROWID",
        '(k TEXT, v, PRIMARY KEY (v, k COLLATE "back""wards")) WITHOUT ROWID',
        "(k TEXT COLLATE backwards PRIMARY KEY, v)",
        "(rowid, oid, _rowid_, k TEXT COLLATE backwards PRIMARY KEY, v)",
    ],
)
def test_keys_in_an_order_of_the_environments_own_are_read(tmp_path: Path, table: str) -> None:
    path = tmp_path / "x.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as env:
        for collation in ("backwards", 'back"wards'):
            env.create_collation(collation, lambda one, other: (one < other) - (one > other))
        env.execute("PRAGMA synchronous = OFF")
        env.execute(f"CREATE TABLE t {table}")
        env.executemany("INSERT INTO t (k, v) VALUES (?, 1)", [(f"key {n}",) for n in range(50)])
        one, grown = provider(path), GrowingState()
        grown.take(one.capture())
        for statement in [
            "UPDATE t SET v = 2 WHERE k = 'key 7'", "DELETE FROM t WHERE k >= 'key 30'",
            "INSERT INTO t (k, v) VALUES ('new', 3)",
            "UPDATE t SET k = 'KEY 5' WHERE k = 'key 5'",
        ]:  # fmt: skip
            env.execute(statement)
            seen, fresh = grown.take(one.capture()), GrowingState().take(provider(path).capture())
            assert (seen.root, seen.aside, seen.rows) == (fresh.root, fresh.aside, fresh.rows), statement
        rows = state(path)["t"].values()
        assert sorted(row["k"] for row in rows) == sorted(k for (k,) in env.execute("SELECT k FROM t"))
        one.close()
