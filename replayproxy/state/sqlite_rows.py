"""Tables of a SQLite database as rows: what identifies a row, how its values are carried, and what changed."""

from __future__ import annotations

import base64
import math
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from itertools import repeat
from typing import Any

from replayproxy.core.rowcode import Float, encode
from replayproxy.core.values import Row
from replayproxy.state.sqlite_pages import Span

TEXT, INTEGER, REAL, NUMERIC, NONE = "text", "integer", "real", "numeric", "none"
_NOT_UTF8 = "$text"
"""The tag of text that is not valid UTF-8; no column holds an object, so nothing else looks like it."""
_WIDEST = 1997
"""Columns above which a query has no room for what is asked besides them: SQLite gives 2,000."""
_LONGEST = 20
"""Columns of a key above which SQLite takes too long to plan a join."""
_SMALLEST = -(2.0**63)
"""The one number that a column of integers may hold as a real too, and that is then the same to SQLite."""
_COLLATIONS = ("BINARY", "NOCASE", "RTRIM")


@dataclass(frozen=True)
class Table:
    """`columns`: name -> affinity, generated columns left out. `keys`: those of the primary key, in its order.

    `rowid`: a name by which the rowid can be had; None for WITHOUT ROWID, or where columns hide all three names.
    `ordered`: whether its key finds a row: not where the key may be NULL, or is in an order that only the environment
    knows.
    """

    name: str
    columns: dict[str, str]
    keys: tuple[str, ...]
    rowid: str | None
    ordered: bool = True

    @property
    def joins(self) -> bool:
        """Whether a row of two copies can be told to be the same, in one query."""
        told = self.rowid is not None or (0 < len(self.keys) <= _LONGEST and self.ordered)
        return told and len(self.columns) <= _WIDEST

    @cached_property
    def _selected(self) -> list[str]:
        return list(map(name, self.columns))

    @cached_property
    def _same(self) -> str:
        """The join of two copies. By rowid where there is one: a primary key may hold NULL, and more than once."""
        if self.rowid is not None:
            return f"n.{self.rowid} = o.{self.rowid}"
        # By the column's collation, which may be the key's own, for an index to be of use; and to the letter, for a key
        # may tell apart what its column takes for the same.
        return " AND ".join(f"n.{k} = o.{k} AND n.{k} COLLATE BINARY = o.{k}" for k in map(name, self.keys))

    def _differs(self, columns: Iterable[str], or_if: str) -> str:
        # By default the column's own collation compares: NOCASE would not see that a letter has changed.
        tests = [f"n.{name(column)} COLLATE BINARY IS NOT o.{name(column)}" for column in columns]
        # 1 IS 1.0, but only a column that keeps what it is given can hold both.
        tests += [f"typeof(n.{name(c)}) <> typeof(o.{name(c)})" for c in columns if self.columns[c] == NONE]
        return _any([or_if, *tests])

    def _columns(self, side: str) -> str:
        rowid = f"{side}.{self.rowid}" if self.rowid is not None else "NULL"
        return ", ".join([rowid, *(f"{side}.{column}" for column in self._selected)])

    @cached_property
    def _absent(self) -> str:
        return self.rowid if self.rowid is not None else name(self.keys[0])

    def read(self, memory: sqlite3.Connection, schema: str) -> Iterator[Sequence[Any]]:
        """(rowid, values ..) of every row."""
        source = f" FROM {schema}.{name(self.name)} n"
        if len(self.columns) <= _WIDEST:
            return _rows(memory, f"SELECT {self._columns('n')}{source}")
        ordered = source if self.rowid is None else f"{source} ORDER BY n.{self.rowid}"
        rows = _rows(memory, f"SELECT {', '.join(self._selected)}{ordered}")
        rowids = repeat((None,)) if self.rowid is None else _rows(memory, f"SELECT n.{self.rowid}{ordered}")
        return ((rowid, *values) for (rowid,), values in zip(rowids, rows, strict=False))

    def changed(
        self, memory: sqlite3.Connection, older: str, newer: str, spans: Iterable[Span] | None
    ) -> tuple[list[Sequence[Any]], list[Sequence[Any]]]:
        """Rows that are no longer there, or no longer under their key, as they were; and rows that are new or changed,
        as they are in the newer copy. `spans`: the rowids that are looked at; None: all."""
        gone: list[Sequence[Any]] = []
        came: list[Sequence[Any]] = []
        for span in [None] if spans is None or self.rowid is None else spans:
            gone_there, came_there = self._changed(memory, older, newer, span)
            gone += gone_there
            came += came_there
        return gone, came

    def _changed(
        self, memory: sqlite3.Connection, older: str, newer: str, span: Span | None
    ) -> tuple[list[Sequence[Any]], list[Sequence[Any]]]:
        more = f", o.{self._absent} IS NULL, {self._differs(self.keys, '0')}"
        came: list[Sequence[Any]] = []
        new, has_moved = 0, False
        for *row, is_new, moved in _rows(memory, self._unlike("n", newer, "o", older, self.columns, span, more)):
            came.append(row)
            new += is_new
            has_moved |= moved and not is_new
        # Where no key has moved each row has one partner or none, and the numbers tell whether any row is gone: then
        # the other join of all rows, which would find which, is not needed.
        if has_moved or self._count(memory, older, span) + new != self._count(memory, newer, span):
            return list(_rows(memory, self._unlike("o", older, "n", newer, self.keys, span))), came
        return [], came

    def _unlike(
        self, side: str, schema: str, other: str, other_schema: str, columns: Iterable[str], span: Span | None,
        more: str = "",
    ) -> str:  # fmt: skip
        """The query of one copy's rows that the other copy has not, or has with other values."""
        table = name(self.name)
        return (
            f"SELECT {self._columns(side)}{more} FROM {schema}.{table} {side}"
            f" LEFT JOIN {other_schema}.{table} {other} ON {self._same}"
            f" WHERE {self._differs(columns, f'{other}.{self._absent} IS NULL')}{self._within(side, span)}"
        )

    def _count(self, memory: sqlite3.Connection, schema: str, span: Span | None) -> int:
        query = f"SELECT count(*) FROM {schema}.{name(self.name)} n WHERE 1{self._within('n', span)}"
        found: int = memory.execute(query).fetchone()[0]
        return found

    def can_join(self, connection: sqlite3.Connection, schema: str) -> bool:
        """Whether the connection can compare keys: a column's collation may be one that it has not."""
        table = f"{schema}.{name(self.name)}"
        try:
            connection.execute(f"EXPLAIN SELECT 1 FROM {table} n JOIN {table} o ON {self._same}")
        except sqlite3.OperationalError:
            return False
        return True

    def _within(self, side: str, span: Span | None) -> str:
        return "" if span is None else f" AND {side}.{self.rowid} BETWEEN {span[0]} AND {span[1]}"


def tables_of(connection: sqlite3.Connection, schema: str) -> list[Table]:
    """All tables that hold rows of their own; of SQLite's own tables only `sqlite_sequence`."""
    made = connection.execute(f"SELECT name, sql FROM {schema}.sqlite_master WHERE type = 'table' ORDER BY name")
    return [
        _table(connection, schema, table)
        for table, sql in made.fetchall()
        if not (sql or "").upper().startswith("CREATE VIRTUAL")
        and (not table.lower().startswith("sqlite_") or table == "sqlite_sequence")
    ]


def _table(connection: sqlite3.Connection, schema: str, table: str) -> Table:
    info = connection.execute(f"PRAGMA {schema}.table_xinfo({name(table)})").fetchall()
    columns = {column: _affinity(declared) for _, column, declared, _, _, _, hidden in info if not hidden}
    keys = [column for _, column in sorted((position, column) for _, column, _, _, _, position, _ in info if position)]
    if table == "sqlite_sequence":
        keys = ["name"]
    rowid = _rowid(connection, schema, table, {column.lower() for column in columns})
    # With a rowid that is hidden a key may be NULL, and more than once.
    return Table(table, columns, tuple(keys), rowid, not {column.lower() for column in columns} >= set(_ROWIDS))


def understood(connection: sqlite3.Connection, schema: str, table: Table) -> Table:
    """The table as it can be read on this connection. Without rowids its rows stand in the order of its key; where
    that is an order of the environment's own (a collation) SQLite reads nothing at all. So the connection is given
    one by that name: in which order the rows are read says nothing, but none must be looked up by it."""
    if table.rowid is not None or not table.keys:
        return table
    ordered = table.ordered
    for _, index, _, origin, _ in connection.execute(f"PRAGMA {schema}.index_list({name(table.name)})").fetchall():
        if origin == "pk":
            for _, _, _, _, collation, _ in connection.execute(
                f"PRAGMA {schema}.index_xinfo({name(index)})"
            ).fetchall():
                if collation.upper() not in _COLLATIONS:
                    connection.create_collation(collation, lambda one, other: (one > other) - (one < other))
                    ordered = False
    table = replace(table, ordered=ordered)
    return replace(table, ordered=table.joins and table.can_join(connection, schema))


def _any(tests: Sequence[str]) -> str:
    """One test of all: SQLite takes a chain of 1,000 for too deep."""
    if len(tests) == 1:
        return tests[0]
    half = len(tests) // 2
    return f"({_any(tests[:half])} OR {_any(tests[half:])})"


_ROWIDS = ("rowid", "_rowid_", "oid")


def _rowid(connection: sqlite3.Connection, schema: str, table: str, columns: set[str]) -> str | None:
    for rowid in _ROWIDS:
        if rowid not in columns:
            try:
                connection.execute(f"SELECT {rowid} FROM {schema}.{name(table)} LIMIT 0")
            except sqlite3.OperationalError:
                return None  # WITHOUT ROWID
            return rowid
    return None


def _affinity(declared: str) -> str:
    """SQLite's own rules, in their order; ANY (of STRICT tables) keeps what it is given."""
    kind = declared.upper()
    if "INT" in kind:
        return INTEGER
    if any(word in kind for word in ("CHAR", "CLOB", "TEXT")):
        return TEXT
    if not kind or "BLOB" in kind or kind == "ANY":
        return NONE
    if any(word in kind for word in ("REAL", "FLOA", "DOUB")):
        return REAL
    return NUMERIC


def _rows(connection: sqlite3.Connection, query: str) -> Iterator[Sequence[Any]]:
    connection.text_factory = str
    try:
        return iter(connection.execute(query).fetchall())
    except sqlite3.OperationalError as error:
        if "UTF-8" not in str(error):
            raise
    connection.text_factory = _text
    return iter(connection.execute(query).fetchall())


def _text(raw: bytes) -> Any:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return {_NOT_UTF8: base64.b64encode(raw).decode("ascii")}


def row_of(table: Table, values: Sequence[Any]) -> Row:
    """The values by column, each so that it comes back as the same SQLite value."""
    row = dict(zip(table.columns, values, strict=True))
    for column, value in row.items():
        if type(value) is float:
            row[column] = _number(value, table.columns[column])
    return row


def _number(value: float, affinity: str) -> Any:
    if _is_smallest(value, affinity):
        return int(value)
    if math.isfinite(value) and value == int(value) and affinity != REAL:
        return Float(value + 0.0)  # written as 1, it would come back as an integer
    return value + 0.0  # SQLite has one zero


def _is_smallest(value: Any, affinity: str) -> bool:
    return type(value) is float and value == _SMALLEST and affinity in (INTEGER, NUMERIC)


def stored(value: Any) -> tuple[str, Any]:
    """(place holder, value) with which a carried value is written."""
    if isinstance(value, Decimal):
        return "?", float(value)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return "?", float(value)  # of a REAL column: no integer of SQLite is so large
    if isinstance(value, dict):
        return "CAST(? AS TEXT)", base64.b64decode(value[_NOT_UTF8])
    return "?", value


def key_of(table: Table, rowid: int | None, values: Sequence[Any]) -> str:
    """The row's key: the primary key's text, a JSON array where one text would not tell it, else the rowid."""
    if not table.keys:
        return str(rowid) if rowid is not None else encode([row_of(table, values)]).decode()
    row = dict(zip(table.columns, values, strict=True))
    parts = [int(part) if _is_smallest(part := row[key], table.columns[key]) else part for key in table.keys]
    if len(parts) == 1 and (natural := _natural(parts[0], table.columns[table.keys[0]])) is not None:
        return natural
    if None in parts:
        parts.append({"rowid": rowid})  # NULL is no key: several rows may have it
    carried = [Float(part + 0.0) if isinstance(part, float) else part for part in parts]
    return encode(carried).decode("utf-8", "surrogatepass")


def _natural(value: Any, affinity: str) -> str | None:
    """The plain text of a single key, where no other value of the column has the same."""
    if isinstance(value, str) and not value.startswith("["):
        return value
    return str(value) if isinstance(value, int) and affinity in (INTEGER, NUMERIC) else None


def name(identifier: str) -> str:
    """An identifier as SQL."""
    return '"' + identifier.replace('"', '""') + '"'
