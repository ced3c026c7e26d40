"""The rows of one PostgreSQL table: all of them, or those whose versions are new since the last reading.

A version of a row is told by where it lies and which transaction wrote it (`ctid`, `xmin`): it never changes in place.
So unchanged tables are known by a sum over their versions, and of a changed one only the new versions are fetched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from replayproxy.core.values import Row
from replayproxy.state.postgres_tables import Query, Table, key_of

MOST_NEW = 0.3
"""With a larger part of the rows new, fetching all is quicker."""


def quoted(*names: str) -> str:
    """A name as SQL."""
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)


def in_query(*names: str) -> str:
    """A name in a statement that is given parameters: there, % begins one."""
    return quoted(*names).replace("%", "%%")


@dataclass(frozen=True, kw_only=True)
class Source:
    """A table, and which of its rows are of this state: `where` with its parameters, or all."""

    table: Table
    where: str = ""
    bound: Sequence[str] = ()

    def clause(self, more: str = "") -> str:
        """`FROM .. [WHERE ..]`; the table is called t."""
        name = in_query(self.table.schema, self.table.name)
        conditions = " AND ".join(f"({one})" for one in (self.where, more) if one)
        return f"FROM {'ONLY ' if self.table.only else ''}{name} t{f' WHERE {conditions}' if conditions else ''}"

    def total(self) -> str:
        """A statement that gives what the versions of all rows add up to."""
        version = "t.tableoid::text || t.ctid::text || t.xmin::text"
        return f"SELECT count(*), sum(hashtextextended({version}, 0)::numeric) {self.clause()}"


@dataclass(frozen=True, kw_only=True)
class Held:
    """Rows as they were read. `places`: of each, where it lies and what its values do not say; kept aside."""

    total: Any = None
    rows: Mapping[str, Row] = field(default_factory=dict)
    places: Mapping[str, Row] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)  # ctid -> xmin
    keys: Mapping[str, str] = field(default_factory=dict)  # ctid -> key


def read(query: Query, source: Source, total: Any, before: Held | None) -> Held:
    """The table's rows now; `before` is what the reading before gave, of the same columns."""
    if before is not None and before.total == total:
        return before
    # Without a key of its own a row's name depends on its equals: such tables are read as a whole.
    if before is None or not source.table.keys or not source.table.only:
        return _whole(query, source, total)
    versions: dict[str, str] = dict(query(f"SELECT t.ctid::text, t.xmin::text {source.clause()}", source.bound))
    new = [place for place, version in versions.items() if before.versions.get(place) != version]
    if len(new) > MOST_NEW * len(versions) + 10:
        return _whole(query, source, total)
    rows, places, keys = dict(before.rows), dict(before.places), dict(before.keys)
    for place in [place for place in before.versions if versions.get(place) != before.versions[place]]:
        key = keys.pop(place)
        del rows[key], places[key]
    for found in _fetched(query, source, "t.ctid = ANY(%s::tid[])", new) if new else ():
        _take(source.table, found, rows, places, keys)
    return Held(total=total, rows=rows, places=places, versions=versions, keys=keys)


def _whole(query: Query, source: Source, total: Any) -> Held:
    rows: dict[str, Row] = {}
    places: dict[str, Row] = {}
    versions: dict[str, str] = {}
    keys: dict[str, str] = {}
    for found in _fetched(query, source):
        _take(source.table, found, rows, places, keys)
        versions[found[0]] = found[1]
    return Held(total=total, rows=rows, places=places, versions=versions, keys=keys)


def _fetched(query: Query, source: Source, more: str = "", places: list[str] | None = None) -> list[tuple[Any, ...]]:
    columns = "".join(f", t.{in_query(column.name)}::text" for column in source.table.columns)
    bound = [*source.bound, places] if more else source.bound
    return query(f"SELECT t.ctid::text, t.xmin::text{columns} {source.clause(more)}", bound)


def _take(table: Table, found: Sequence[Any], rows: Any, places: Any, keys: dict[str, str]) -> None:
    place, _, *texts = found
    row = {c.name: None if t is None else c.read(t) for c, t in zip(table.columns, texts, strict=True)}
    key = key_of(table, row, texts, rows)
    rows[key] = row
    # The order of a scan: an environment may show it in its lists.
    places[key] = {"at": [int(number) for number in place[1:-1].split(",")]}
    exact = {c.name: t for c, t in zip(table.columns, texts, strict=True) if t is not None and c.loses(t)}
    if exact:
        places[key]["text"] = exact
    keys[place] = key
