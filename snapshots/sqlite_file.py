"""`sqlite:PATH`: the rows of a SQLite database.

A table's key is its primary key, else its rowid; `sqlite_sequence` is part of the state (the next id is), views and
the planner's statistics are not. Numbers that SQLite tells apart (1 and 1.0 in a column without a type) stay apart.
After the first reading only the rows that changed are read out: two copies in memory are joined by key.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from replayproxy.errors import WrongUsage
from replayproxy.state import Changes, Reading, RestoreFailed, Row, RowChange, Rows, Scope, Spec
from replayproxy.state.spec import as_path
from replayproxy.state.sqlite_copy import SqliteCopy
from replayproxy.state.sqlite_pages import Pages, Span
from replayproxy.state.sqlite_rows import Table, key_of, name, row_of, stored, tables_of, understood

SCHEMA = "schema"
"""The table of `aside` with what makes the tables, by name; `rowid:TABLE` holds rowids that the key does not say."""
ENCODINGS = {1: "UTF-8", 2: "UTF-16le", 3: "UTF-16be"}
"""By the number in a file's header."""
SEQUENCE = "sqlite_sequence"
BUSY = 30.0


class SqliteFile:
    """Two copies in memory, `a` and `b`, take turns in being the newer one."""

    atomic = True
    can_restore = True

    def __init__(self, path: Path, scope: Scope) -> None:
        self._path = path
        self.scope: Scope = scope
        self._copy = SqliteCopy(path)
        self._pages = Pages()
        self._memory: sqlite3.Connection | None = None
        self._encoding = 0
        self._newer = "b"
        self._schema: list[Any] | None = None
        self._tables: list[Table] = []
        self._by_key = False  # whether each row of the last whole reading is known by its key

    def capture(self) -> Reading:
        whole = self._copy.take()
        if whole is None:
            return Reading(rows=Changes(), aside=Changes())
        try:
            return self._read(whole)
        except BaseException:
            # Else the next reading would find the file unchanged, and tell of no change since the one before this.
            self._copy.close()
            self._schema = None
            raise

    def _read(self, whole: bytes | bytearray) -> Reading:
        memory = self._opened_for(whole)
        older, newer = self._newer, "a" if self._newer == "b" else "b"
        memory.execute(f"DETACH {newer}")
        memory.execute(f"ATTACH ':memory:' AS {newer}")
        if whole:
            memory.deserialize(whole, name=newer)
        schema = memory.execute(f"SELECT type, name, sql FROM {newer}.sqlite_master ORDER BY name").fetchall()
        trees = dict(memory.execute(f"SELECT name, rootpage FROM {newer}.sqlite_master WHERE rootpage").fetchall())
        spans = self._pages.take(whole, list(trees.values()))
        known, self._schema, self._newer = self._schema, schema, newer
        if schema == known and self._by_key and not self._unclear(memory, newer):
            where = None if spans is None else {table: spans.get(root, ()) for table, root in trees.items()}
            return self._changed(memory, older, newer, where)
        self._tables = [understood(memory, newer, table) for table in tables_of(memory, newer)]
        return self._whole(memory, newer, schema)

    def _unclear(self, memory: sqlite3.Connection, newer: str) -> bool:
        """Whether `sqlite_sequence` has no rows: then it is left out, which changes of rows cannot say. Or names a
        table twice: what such rows have for a key depends on all of them."""
        known = any(table.name == SEQUENCE for table in self._tables)
        query = f"SELECT count(*) = 0 OR count(*) > count(DISTINCT name) FROM {newer}.{SEQUENCE}"
        return known and bool(memory.execute(query).fetchone()[0])

    def _opened_for(self, whole: bytes | bytearray) -> sqlite3.Connection:
        """A connection has one encoding of text for all that is attached to it: that of its first database."""
        encoding = int.from_bytes(whole[56:60], "big") or 1
        if self._memory is None or encoding != self._encoding:
            self._forget()
            self._memory = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            self._memory.execute(f"PRAGMA encoding = '{ENCODINGS.get(encoding, 'UTF-8')}'")
            self._memory.executescript("ATTACH ':memory:' AS a; ATTACH ':memory:' AS b")
            self._encoding = encoding
        return self._memory

    def _forget(self) -> None:
        self._schema = None
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    def _whole(self, memory: sqlite3.Connection, newer: str, schema: list[Any]) -> Reading:
        rows: dict[str, dict[str, Row]] = {}
        aside: dict[str, dict[str, Row]] = {SCHEMA: {made: sql for _, made, sql in schema if sql}}
        self._by_key = all(table.joins for table in self._tables)
        for table in self._tables:
            content = rows.setdefault(table.name, {})
            rowids = aside.setdefault(f"rowid:{table.name}", {})
            for rowid, *values in table.read(memory, newer):
                key = key_of(table, rowid, values)
                while key in content:
                    key += "+"  # a table with neither key nor rowid may hold a row twice
                    self._by_key = False
                content[key] = row_of(table, values)
                if rowid is not None and key != str(rowid):
                    rowids[key] = rowid
        if not rows.get(SEQUENCE, True):
            del rows[SEQUENCE]  # it cannot be dropped, so that it is there without rows says nothing
        return Reading(rows=rows, aside=aside)

    def _changed(
        self, memory: sqlite3.Connection, older: str, newer: str, where: Mapping[str, Sequence[Span] | None] | None
    ) -> Reading:
        """`where`: by table, the rowids between which rows may differ; None: anywhere."""
        rows: list[RowChange] = []
        aside: list[RowChange] = []
        for table in self._tables:
            after: dict[str, Row | None] = {}
            rowids: dict[str, Row | None] = {}
            gone, came = table.changed(memory, older, newer, None if where is None else where[table.name])
            for rowid, *values in gone:
                key = key_of(table, rowid, values)
                after[key] = rowids[key] = None
            for rowid, *values in came:
                key = key_of(table, rowid, values)
                after[key] = row_of(table, values)
                rowids[key] = rowid if rowid is not None and key != str(rowid) else None
            rows += [RowChange(table=table.name, key=key, before=None, after=row) for key, row in after.items()]
            aside += [RowChange(table=f"rowid:{table.name}", key=k, before=None, after=r) for k, r in rowids.items()]
        return Reading(rows=Changes(rows=rows), aside=Changes(rows=aside))

    def restore(self, rows: Rows) -> None:
        self.restore_whole(rows, {})

    def restore_whole(self, rows: Rows, aside: Rows) -> None:
        if not self._path.is_file():
            raise RestoreFailed(f"there is no database {self._path}", hint="start the environment once")
        target = f"file:{quote(str(self._path))}?mode=rw"
        with closing(sqlite3.connect(target, uri=True, timeout=BUSY, isolation_level=None)) as live:
            # The recorded rows are what triggers, cascades and checks have left behind: none may act on them again.
            live.setconfig(sqlite3.SQLITE_DBCONFIG_ENABLE_TRIGGER, False)
            live.executescript("PRAGMA foreign_keys = OFF; PRAGMA ignore_check_constraints = ON")
            live.execute("BEGIN IMMEDIATE")
            try:
                _write(live, rows, aside)
                live.execute("COMMIT")
            except BaseException:
                if live.in_transaction:
                    live.execute("ROLLBACK")
                raise

    def close(self) -> None:
        self._copy.close()
        self._forget()


def _write(live: sqlite3.Connection, rows: Rows, aside: Rows) -> None:
    if SCHEMA in aside:
        _match_schema(live, aside[SCHEMA])
    tables = {table.name: table for table in tables_of(live, "main")}
    if missing := sorted(set(rows) - set(tables) - {SEQUENCE}):
        raise RestoreFailed(f"the database has no table {missing[0]}", hint="start the environment once")
    # Last, because every insert into a table with AUTOINCREMENT writes to it.
    for table in sorted(tables.values(), key=lambda table: table.name == SEQUENCE):
        live.execute(f"DELETE FROM {name(table.name)}")
        content, rowids = rows.get(table.name, {}), aside.get(f"rowid:{table.name}", {})
        for statement, values in _inserts(table, content, rowids):
            live.execute(statement, values)


def _match_schema(live: sqlite3.Connection, wanted: Any) -> None:
    """Makes what an environment makes only when it first needs it, and drops what it had made since."""
    there = live.execute("SELECT name, type, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    for extra, kind, _ in sorted(there, key=lambda made: _rank(made[2])):
        if extra not in wanted and kind == "table" and not extra.startswith("sqlite_"):
            live.execute(f"DROP TABLE IF EXISTS {name(extra)}")
    for made, sql in sorted(wanted.items(), key=lambda item: _rank(item[1])):
        known = live.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (made,)).fetchone()
        if not known and not made.startswith("sqlite_"):
            live.execute(sql)


def _rank(sql: str) -> int:
    """The order of making and dropping: a virtual table brings its shadow tables and takes them along."""
    kinds = ("CREATE VIRTUAL", "CREATE TABLE")
    return next((at for at, words in enumerate(kinds) if sql.upper().startswith(words)), len(kinds))


def _inserts(table: Table, content: Any, rowids: Any) -> Iterator[tuple[str, list[Any]]]:
    for key, row in content.items():
        if unknown := [column for column in row if column not in table.columns]:
            raise RestoreFailed(f"table {table.name} has no column {unknown[0]}")
        columns, places, values = list(map(name, row)), [], []
        for value in row.values():
            place, held = stored(value)
            places.append(place)
            values.append(held)
        rowid = rowids.get(key) if table.keys or table.rowid is None else int(key)
        if table.rowid is not None and rowid is not None:
            columns, places, values = [table.rowid, *columns], ["?", *places], [rowid, *values]
        yield f"INSERT INTO {name(table.name)} ({', '.join(columns)}) VALUES ({', '.join(places)})", values


def provider(spec: Spec) -> SqliteFile:
    path = Path(spec.filled(spec.target, as_path)).expanduser()
    if str(path) == ":memory:":
        raise WrongUsage("a database in memory can be read by nobody else", hint="give it a file")
    return SqliteFile(path.absolute(), spec.scope)
