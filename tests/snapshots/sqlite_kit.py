"""A SQLite database with every kind of table, and what the tests do with it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, cast

from replayproxy.core import prolly
from replayproxy.state import Changes, KeepsAside, Provider, Reading
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
