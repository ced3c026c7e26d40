"""What a PostgreSQL schema consists of, as far as a state is concerned; and the keys of its rows.

Queries only: the connection is the provider's, and psycopg's.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from replayproxy.core.rowcode import encode
from replayproxy.core.values import Row
from replayproxy.state.postgres_values import Read, loses, reader

type Query = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]

# Partitions are read through their parent; views are no state of their own.
_TABLES = """
SELECT c.oid, n.nspname, c.relname, c.relkind FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = ANY(%s) AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence <> 't'
ORDER BY n.nspname, c.relname
"""
# A domain is read as what it is a domain of. A scale is part of the type: (precision << 16) | scale, plus 4.
_COLUMNS = """
SELECT a.attrelid, a.attname, b.typname, e.typname, (a.atttypmod > 4) FROM pg_attribute a
JOIN pg_type t ON t.oid = a.atttypid JOIN pg_type b ON b.oid = CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.oid END
LEFT JOIN pg_type e ON e.oid = b.typelem AND b.typcategory = 'A' AND b.typinput = 'array_in'::regproc
WHERE a.attrelid = ANY(%s) AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY a.attrelid, a.attnum
"""
_KEYS = """
SELECT i.indrelid, a.attname FROM pg_index i CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k (num, at)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.num
WHERE i.indisprimary AND i.indrelid = ANY(%s) ORDER BY i.indrelid, k.at
"""
_SEQUENCES = """
SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = ANY(%s) AND c.relkind = 'S' AND c.relpersistence <> 't' ORDER BY n.nspname, c.relname
"""


@dataclass(frozen=True, kw_only=True)
class Column:
    """`kind` is the type's name; of an array, `element` that of its elements. `scaled`: its digits are the type's."""

    name: str
    kind: str
    element: str | None
    scaled: bool
    read: Read

    def loses(self, text: str) -> bool:
        return loses(self.element or self.kind, text, fixed_scale=self.scaled)


@dataclass(frozen=True, kw_only=True)
class Table:
    """`label` is its name in the state; `only`: rows of tables that inherit from it are theirs."""

    schema: str
    name: str
    label: str
    only: bool
    columns: tuple[Column, ...]
    keys: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Scheme:
    """Which schemas are read, and which tables and sequences of them are not."""

    schemas: tuple[str, ...]
    exclude: tuple[str, ...] = ()

    def label(self, schema: str, name: str) -> str:
        """The name alone where there is one schema."""
        return name if len(self.schemas) == 1 else f"{schema}.{name}"

    def tables(self, query: Query) -> list[Table]:
        found = [row for row in query(_TABLES, (list(self.schemas),)) if not self._excluded(row[1], row[2])]
        oids = [row[0] for row in found]
        columns: dict[int, list[Column]] = {oid: [] for oid in oids}
        keys: dict[int, list[str]] = {oid: [] for oid in oids}
        for oid, name, kind, element, scaled in query(_COLUMNS, (oids,)):
            read = reader(kind, element=element)
            columns[oid].append(Column(name=name, kind=kind, element=element, scaled=scaled, read=read))
        for oid, name in query(_KEYS, (oids,)):
            keys[oid].append(name)
        return [
            Table(
                schema=schema,
                name=name,
                label=self.label(schema, name),
                only=kind in ("r", b"r"),
                columns=tuple(columns[oid]),
                keys=tuple(keys[oid]),
            )
            for oid, schema, name, kind in found
        ]

    def sequences(self, query: Query) -> list[tuple[str, str]]:
        """(schema, name) of each."""
        found = query(_SEQUENCES, (list(self.schemas),))
        return [(schema, name) for schema, name in found if not self._excluded(schema, name)]

    def _excluded(self, schema: str, name: str) -> bool:
        return any(fnmatchcase(f"{schema}.{name}" if "." in glob else name, glob) for glob in self.exclude)


def key_of(table: Table, row: Mapping[str, Row], texts: Sequence[str | None], taken: Container[str]) -> str:
    """The primary key's text, of several columns a JSON array; else the row's hash, numbered where rows are equal."""
    if len(table.keys) == 1:
        at = next(at for at, column in enumerate(table.columns) if column.name == table.keys[0])
        return texts[at] or ""
    if table.keys:
        return encode([row[key] for key in table.keys]).decode("utf-8", "surrogatepass")
    name = hashlib.sha256(encode(dict(row))).hexdigest()[:24]
    key, copies = name, 1
    while key in taken:
        copies += 1
        key = f"{name}#{copies}"
    return key


_WORD = re.compile(r'"([^"]+)"|(?<![:\w])([A-Za-z_]\w*)\b(?!\s*\()')


def columns_named(condition: str, tables: Sequence[Table]) -> set[str]:
    """The columns, of whichever table, that a condition names; texts in quotes are no names."""
    known = {column.name for table in tables for column in table.columns}
    text = re.sub(r"'(?:[^']|'')*'|\{[^{}]*\}", " ", condition)
    return {quoted or bare.lower() for quoted, bare in _WORD.findall(text)} & known
