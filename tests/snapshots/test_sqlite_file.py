"""`sqlite:` snapshots: every kind of table and value comes back."""

from __future__ import annotations

import math
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from replayproxy.core import prolly
from replayproxy.errors import WrongUsage
from replayproxy.state import RestoreFailed, StateUnreadable
from replayproxy.state.conformance import conform, failures
from replayproxy.state.loader import load
from tests.snapshots.sqlite_kit import dump, execute, provider, restored, state, through


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
