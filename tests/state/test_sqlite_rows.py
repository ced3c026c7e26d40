"""How SQLite's values and keys are carried."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from replayproxy.core.rowcode import Float
from replayproxy.state.sqlite_rows import Table, key_of, name, row_of, stored, tables_of


@pytest.fixture
def memory() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as connection:
        yield connection


def only(memory: sqlite3.Connection, statement: str) -> Table:
    memory.execute(statement)
    (table,) = tables_of(memory, "main")
    return table


@pytest.mark.parametrize(
    ("statement", "keys", "rowid"),
    [
        ("CREATE TABLE t (a)", (), "rowid"),
        ("CREATE TABLE t (id INTEGER PRIMARY KEY)", ("id",), "rowid"),
        ("CREATE TABLE t (a, b, PRIMARY KEY (b, a))", ("b", "a"), "rowid"),
        ("CREATE TABLE t (a PRIMARY KEY) WITHOUT ROWID", ("a",), None),
        ("CREATE TABLE t (rowid TEXT, oid TEXT)", (), "_rowid_"),
        ("CREATE TABLE t (rowid, oid, _rowid_)", (), None),
        ('CREATE TABLE "od""d t" ("a b" PRIMARY KEY)', ("a b",), "rowid"),
    ],
)
def test_what_identifies_a_row_is_found(
    memory: sqlite3.Connection, statement: str, keys: tuple[str, ...], rowid: str | None
) -> None:
    table = only(memory, statement)
    assert (table.keys, table.rowid) == (keys, rowid)
    assert list(table.read(memory, "main")) == []


@pytest.mark.parametrize(
    ("declared", "affinity"),
    [("BIGINT", "integer"), ("VARCHAR(9)", "text"), ("", "none"), ("BLOB", "none"), ("DOUBLE", "real"),
     ("DECIMAL", "numeric"), ("CHARINT", "integer"), ("FLOATING POINT", "integer"), ("ANY", "none")],
)  # fmt: skip
def test_affinities_are_sqlites_own(memory: sqlite3.Connection, declared: str, affinity: str) -> None:
    assert only(memory, f"CREATE TABLE t (a {declared})").columns == {"a": affinity}


def test_a_float_stays_one_where_the_column_would_not_make_it_one(memory: sqlite3.Connection) -> None:
    table = only(memory, "CREATE TABLE t (a REAL, b)")
    assert [type(value) for value in row_of(table, (1.0, 1.0)).values()] == [float, Float]
    assert str(row_of(table, (-0.0, 1.5))) == "{'a': 0.0, 'b': 1.5}"


def test_keys_do_not_collide(memory: sqlite3.Connection) -> None:
    table = only(memory, "CREATE TABLE t (k PRIMARY KEY)")
    values: list[Any] = ["1", 1, 1.5, b"1", "[1]", '["1"]', "", "a", None]
    keys = [key_of(table, n, (value,)) for n, value in enumerate(values)]
    assert len(set(keys)) == len(values)
    assert keys[0] == "1"
    assert key_of(table, 10, (None,)) != key_of(table, 11, (None,))


def test_integers_beyond_sqlites_are_floats() -> None:
    assert stored(2**63) == ("?", float(2**63))
    assert stored(2**63 - 1) == ("?", 2**63 - 1)


def test_names_are_quoted() -> None:
    assert name('a"b') == '"a""b"'
