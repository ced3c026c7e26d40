"""`sqlite:` snapshots: every kind of table and value comes back, and the environment's writes never fail."""

from __future__ import annotations

import math
import os
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from replayproxy.core import prolly
from replayproxy.errors import WrongUsage
from replayproxy.state import Changes, KeepsAside, Provider, Reading, RestoreFailed, StateUnreadable
from replayproxy.state.conformance import conform, failures
from replayproxy.state.growing import GrowingState
from replayproxy.state.loader import load

SCHEMA = """
CREATE TABLE deals (id INTEGER PRIMARY KEY AUTOINCREMENT, title TEXT NOT NULL, amount REAL, stage TEXT COLLATE NOCASE);
CREATE TABLE notes (body, n INTEGER);
CREATE TABLE pairs (a TEXT, b INTEGER, v, PRIMARY KEY (a, b)) WITHOUT ROWID;
CREATE TABLE words (word TEXT PRIMARY KEY, deal INTEGER REFERENCES deals (id) ON DELETE CASCADE);
CREATE TABLE log (at INTEGER PRIMARY KEY, what TEXT);
CREATE TABLE sums (id INTEGER PRIMARY KEY, a INTEGER CHECK (a > 0), twice INTEGER GENERATED ALWAYS AS (a * 2) STORED);
CREATE VIEW big AS SELECT * FROM deals WHERE amount > 10;
CREATE TRIGGER logged AFTER INSERT ON deals BEGIN INSERT INTO log (what) VALUES ('new ' || new.title); END;
CREATE TRIGGER cleaned AFTER DELETE ON deals BEGIN DELETE FROM log; END;
INSERT INTO deals (title, amount, stage) VALUES ('a', 1.5, 'New'), ('b', 2.0, 'won'), ('c', NULL, NULL);
DELETE FROM deals WHERE title = 'c';
INSERT INTO notes VALUES (1, 1), (1.0, 2), ('1', 3), (x'ff00', 4), (NULL, 5), (9e999, 6), (1e20, 7),
  ('é' || char(0), 8);
INSERT INTO pairs VALUES ('x', 1, 'v'), ('x', 2, 2), ('y', 1, 0.1);
INSERT INTO words VALUES ('zebra', 1), ('apple', 2), (NULL, 1), (NULL, 2), ('[1]', NULL);
INSERT INTO sums (a) VALUES (1), (2);
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    where = tmp_path / "a b?#.db"
    with closing(sqlite3.connect(where)) as made:
        made.executescript(SCHEMA)
    return where


def provider(path: Path) -> Provider:
    return load("crm", f"sqlite:{path}").provider


def execute(path: Path, script: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("PRAGMA foreign_keys = ON;" + script)


def state(path: Path) -> dict[str, Any]:
    rows = provider(path).capture().rows
    assert isinstance(rows, dict)
    return rows


def restored(path: Path, reading: Reading) -> None:
    assert not isinstance(reading.aside, Changes)
    assert not isinstance(reading.rows, Changes)
    cast("KeepsAside", provider(path)).restore_whole(through(reading.rows), through(reading.aside))


def through(rows: Any) -> Any:
    """Rows as they come out of a store."""
    tree = prolly.build(rows)
    return prolly.exact(tree.root, tree.nodes.__getitem__)


def dump(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return sorted(connection.iterdump())


def test_it_meets_the_contract(path: Path) -> None:
    checks = conform(
        lambda: provider(path), write=True,
        change=lambda: execute(path, "DELETE FROM deals WHERE id = 1; INSERT INTO deals (title) VALUES ('new')"),
        broken=lambda: provider(path.with_name("none.db")),
    )  # fmt: skip
    assert [check for check in checks if check.outcome != "ok"] == []


@pytest.mark.parametrize("mode", ["DELETE", "TRUNCATE", "PERSIST", "WAL"])
def test_it_meets_the_contract_in_every_journal_mode(path: Path, mode: str) -> None:
    with closing(sqlite3.connect(path)) as env:
        env.execute(f"PRAGMA journal_mode = {mode}")
        env.execute("INSERT INTO log (what) VALUES ('open')")
        env.commit()

        def change() -> None:
            env.execute("UPDATE deals SET title = 'changed' WHERE id = 2")
            env.commit()

        checks = conform(lambda: provider(path), write=True, change=change)
    assert failures(checks) == []


def test_rows_have_their_primary_key_else_their_rowid(path: Path) -> None:
    rows = state(path)
    assert list(rows["deals"]) == ["1", "2"]
    assert rows["deals"]["2"] == {"id": 2, "title": "b", "amount": 2.0, "stage": "won"}
    assert list(rows["notes"]) == ["1", "2", "3", "4", "5", "6", "7", "8"]
    assert list(rows["pairs"]) == ['["x",1]', '["x",2]', '["y",1]']
    assert set(rows["words"]) == {"zebra", "apple", '[null,{"rowid":3}]', '[null,{"rowid":4}]', '["[1]"]'}
    assert rows["sqlite_sequence"] == {"deals": {"name": "deals", "seq": 3}}
    assert rows["sums"]["2"] == {"id": 2, "a": 2}
    assert "big" not in rows


def test_every_value_comes_back_with_its_type(path: Path) -> None:
    before = dump(path)
    with closing(sqlite3.connect(path)) as connection:
        types = "SELECT typeof(body), quote(body) FROM notes ORDER BY rowid"
        wanted = connection.execute(types).fetchall()
        reading = provider(path).capture()
        connection.executescript("DELETE FROM notes; DELETE FROM deals; UPDATE pairs SET v = 'other'")
        restored(path, reading)
        assert connection.execute(types).fetchall() == wanted
        assert [kind for kind, _ in wanted[:4]] == ["integer", "real", "text", "blob"]
    assert dump(path) == before


def test_triggers_cascades_and_checks_do_not_act_on_a_restore(path: Path) -> None:
    reading = provider(path).capture()
    assert len(state(path)["log"]) == 0
    execute(path, "DELETE FROM deals; INSERT INTO deals (title) VALUES ('x'); INSERT INTO log (what) VALUES ('y')")
    restored(path, reading)
    assert prolly.build(state(path)).root == prolly.build(reading.rows).root
    assert state(path)["log"] == {}
    assert len(state(path)["words"]) == 5


def test_the_next_id_after_a_restore_is_the_recorded_one(path: Path) -> None:
    reading = provider(path).capture()
    execute(path, "INSERT INTO deals (title) VALUES ('x'), ('y'); DELETE FROM deals")
    restored(path, reading)
    execute(path, "INSERT INTO deals (title) VALUES ('next')")
    assert sorted(state(path)["deals"]) == ["1", "2", "4"]


def test_a_scan_gives_rows_in_the_recorded_order_after_a_restore(path: Path) -> None:
    query = "SELECT word FROM words"
    with closing(sqlite3.connect(path)) as connection:
        wanted = connection.execute(query).fetchall()
        reading = provider(path).capture()
        connection.executescript("DELETE FROM words; INSERT INTO words VALUES ('q', NULL)")
        restored(path, reading)
        assert connection.execute(query).fetchall() == wanted


def test_tables_made_or_dropped_since_are_put_right(path: Path) -> None:
    reading = provider(path).capture()
    execute(path, "CREATE TABLE later (x); INSERT INTO later VALUES (1); DROP TABLE sums; DROP TABLE log")
    restored(path, reading)
    assert prolly.build(state(path)).root == prolly.build(reading.rows).root


def test_full_text_tables_come_back(tmp_path: Path) -> None:
    path = tmp_path / "fts.db"
    execute(path, "CREATE VIRTUAL TABLE docs USING fts5(body); INSERT INTO docs VALUES ('hello world'), ('other')")
    reading = provider(path).capture()
    execute(path, "DELETE FROM docs; INSERT INTO docs VALUES ('gone')")
    restored(path, reading)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT body FROM docs WHERE docs MATCH 'hello'").fetchall() == [("hello world",)]
        assert connection.execute("SELECT count(*) FROM docs").fetchone() == (2,)


def test_text_that_is_not_utf8_comes_back(path: Path) -> None:
    execute(path, "INSERT INTO notes VALUES (CAST(x'ff61' AS TEXT), 9)")
    reading = provider(path).capture()
    execute(path, "DELETE FROM notes")
    restored(path, reading)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT typeof(body), hex(body) FROM notes WHERE n = 9").fetchone() == (
            "text",
            "FF61",
        )


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


WRITER = """
import sqlite3, sys
path, mode, sync, stop = sys.argv[1:]
connection = sqlite3.connect(path, timeout=0, isolation_level=None)
connection.execute(f"PRAGMA journal_mode = {mode}")
connection.execute(f"PRAGMA synchronous = {sync}")
print("ready", flush=True)
import os
n = 0
while not os.path.exists(stop):
    n += 1
    connection.execute("BEGIN")
    connection.execute("UPDATE account SET balance = balance - 1 WHERE id = 1")
    connection.execute("UPDATE account SET balance = balance + 1, pad = ? WHERE id = 900", (str(n) * 40,))
    connection.execute("COMMIT")
print(n, flush=True)
"""


@pytest.mark.parametrize(
    ("mode", "sync"),
    [
        ("DELETE", "FULL"),
        ("DELETE", "OFF"),
        ("PERSIST", "NORMAL"),
        ("TRUNCATE", "OFF"),
        ("WAL", "NORMAL"),
        ("MEMORY", "OFF"),
    ],
)
def test_a_writer_that_never_waits_never_fails_and_no_copy_is_torn(tmp_path: Path, mode: str, sync: str) -> None:
    path, stop = tmp_path / "bank.db", tmp_path / "stop"
    execute(path, "CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER, pad TEXT)")
    with closing(sqlite3.connect(path)) as made:
        made.executemany("INSERT INTO account VALUES (?, 100, 'x')", [(n,) for n in range(1, 1001)])
        made.commit()
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), mode, sync, str(stop)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    one, grown, roots = provider(path), GrowingState(), set()
    nodes: dict[bytes, bytes] = {}
    for _ in range(20):
        try:
            seen = grown.take(one.capture())
        except StateUnreadable as missed:
            # Transactions of a few microseconds without a pause may leave no room on a loaded machine.
            assert sync == "OFF"
            if "without a pause" not in str(missed) and "locked by a writer" not in str(missed):
                raise
            break
        nodes.update(seen.nodes)
        roots.add(seen.root)
        rows = prolly.rows(seen.root, nodes.__getitem__)["account"]
        assert sum(row["balance"] for row in rows.values()) == 100_000
    stop.touch()
    written, _ = process.communicate(timeout=10)
    assert process.returncode == 0, "a write of the environment failed"
    assert int(written) > 10
    assert len(roots) > 5 or sync == "OFF"
    one.close()


def test_the_state_before_an_unfinished_transaction_is_read(path: Path) -> None:
    before = prolly.build(state(path)).root
    with closing(sqlite3.connect(path, isolation_level=None)) as env:
        env.execute("PRAGMA cache_size = 5")
        env.execute("PRAGMA cache_spill = 1")
        env.execute("BEGIN IMMEDIATE")
        env.executemany("INSERT INTO notes VALUES (?, ?)", [("x" * 500, n) for n in range(2000)])
        assert path.with_name(path.name + "-journal").stat().st_size > 1000
        assert path.stat().st_size > 500_000
        assert prolly.build(state(path)).root == before
        env.execute("COMMIT")
    assert len(state(path)["notes"]) == 2008


def test_a_crashed_environment_leaves_a_state_that_can_be_read(path: Path) -> None:
    before = prolly.build(state(path)).root
    crash = """
import os, sqlite3, sys
env = sqlite3.connect(sys.argv[1], isolation_level=None)
env.execute("PRAGMA cache_size = 5")
env.execute("BEGIN")
env.executemany("INSERT INTO notes VALUES (?, ?)", [("x" * 500, n) for n in range(2000)])
os._exit(1)
"""
    assert subprocess.run([sys.executable, "-c", crash, str(path)], check=False).returncode == 1
    journal = path.with_name(path.name + "-journal")
    assert journal.exists()
    assert prolly.build(state(path)).root == before
    assert journal.exists(), "repairing the database is its environment's business"


def test_a_lock_of_our_own_process_survives_a_reading(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as env:
        env.execute("BEGIN IMMEDIATE")
        provider(path).capture()
        other = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('BEGIN IMMEDIATE')"
        found = subprocess.run([sys.executable, "-c", other, str(path)], capture_output=True, text=True, check=False)
        assert "database is locked" in found.stderr
        env.execute("ROLLBACK")


def test_a_database_that_is_replaced_is_read_anew(path: Path) -> None:
    one = provider(path)
    one.capture()
    other = path.with_name("other.db")
    execute(other, "CREATE TABLE t (id INTEGER PRIMARY KEY); INSERT INTO t VALUES (5)")
    os.replace(other, path)
    assert one.capture().rows == {"t": {"5": {"id": 5}}}


ENCODINGS = ["UTF-8", "UTF-16le", "UTF-16be"]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_every_encoding_of_text_is_read_and_restored(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "x.db"
    execute(path, f"PRAGMA encoding = '{encoding}'; {SCHEMA}")
    one, grown = provider(path), GrowingState()
    before = one.capture()
    grown.take(before)
    assert state(path)["notes"]["8"]["body"] == "é\0"
    execute(path, "UPDATE notes SET body = 'ö😀' WHERE n = 8")
    changed = one.capture()
    grown.take(changed)
    assert isinstance(changed.rows, Changes)
    assert [(row.key, row.after) for row in changed.rows.rows] == [("8", {"body": "ö😀", "n": 8})]
    restored(path, before)
    assert grown.take(one.capture()).root == prolly.build(cast("Any", before.rows)).root


@pytest.mark.parametrize("first", ENCODINGS)
@pytest.mark.parametrize("second", ENCODINGS)
def test_a_database_may_be_replaced_by_one_of_another_encoding(tmp_path: Path, first: str, second: str) -> None:
    path, other, table = tmp_path / "x.db", tmp_path / "y.db", "CREATE TABLE t (k PRIMARY KEY, v)"
    execute(path, f"PRAGMA encoding = '{first}'; {table}; INSERT INTO t VALUES ('a', 'ä'), ('b', 'b')")
    execute(other, f"PRAGMA encoding = '{second}'; {table}; INSERT INTO t VALUES ('a', 'ö'), ('c', 'c')")
    one, grown = provider(path), GrowingState()
    grown.take(one.capture())
    os.replace(other, path)
    assert grown.take(one.capture()).root == prolly.build(state(path)).root


def test_after_a_reading_that_failed_the_next_is_not_taken_for_unchanged(path: Path) -> None:
    one = provider(path)
    one.capture()
    sound = path.read_bytes()
    path.write_bytes(sound[:4096] + b"?" * (len(sound) - 4096))
    for _ in range(2):
        with pytest.raises(sqlite3.DatabaseError):
            one.capture()
    path.write_bytes(sound)
    assert one.capture().rows == state(path)


def test_an_empty_file_is_an_empty_database(tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    assert state(tmp_path / "empty.db") == {}


def test_what_is_no_database_is_unreadable(tmp_path: Path) -> None:
    with pytest.raises(StateUnreadable, match="there is no database"):
        provider(tmp_path / "none.db").capture()
    (tmp_path / "text.db").write_text("hello")
    with pytest.raises(StateUnreadable, match="no SQLite database"):
        provider(tmp_path / "text.db").capture()
    with pytest.raises(StateUnreadable):
        provider(tmp_path).capture()


def test_a_restore_is_all_or_nothing(path: Path) -> None:
    before = dump(path)
    with pytest.raises(RestoreFailed, match="no column"):
        provider(path).restore({"deals": {"1": {"id": 1, "title": "x", "nope": 1}}})
    with pytest.raises(RestoreFailed, match="no table"):
        provider(path).restore({"nope": {}})
    assert dump(path) == before


def test_a_restore_waits_for_the_environments_transaction(path: Path) -> None:
    reading = provider(path).capture()
    env = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    env.execute("BEGIN IMMEDIATE")
    env.execute("DELETE FROM deals")
    threading.Timer(0.2, lambda: env.execute("COMMIT")).start()
    restored(path, reading)
    assert len(state(path)["deals"]) == 2
    env.close()


def test_the_path_is_filled_in_and_cannot_lead_elsewhere(tmp_path: Path) -> None:
    execute(tmp_path / "e1.db", "CREATE TABLE t (x)")
    one = load("crm", f"sqlite:{tmp_path}/{{episode}}.db", context={"episode": "e1"}).provider
    assert one.capture().rows == {"t": {}}
    assert one.scope == "episode"
    with pytest.raises(WrongUsage, match="lead elsewhere"):
        load("crm", f"sqlite:{tmp_path}/{{task}}.db", context={"task": "../x"})


def test_a_database_in_memory_is_refused() -> None:
    with pytest.raises(WrongUsage, match="in memory"):
        load("crm", "sqlite::memory:")


def test_infinity_is_a_number(path: Path) -> None:
    assert math.isinf(through(state(path))["notes"]["6"]["body"])
