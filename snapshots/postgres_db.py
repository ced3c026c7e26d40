"""`postgres:DSN[?schema=..&where=..&exclude=..]`: the rows of a PostgreSQL schema, read in one transaction.

A row's key is its primary key, else a hash of it all; sequences are part of the state, in the table `sequences`.
`where` is a condition for the tables that have all columns it names; in it braces are bound as parameters. After
the first reading only new versions of rows are fetched.

A restore empties the tables and copies the rows in, in one transaction in which no trigger fires and no foreign key
is checked. It needs the right to set `session_replication_role`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode

from replayproxy.errors import WrongUsage
from replayproxy.state import Changes, Reading, RestoreFailed, Row, Rows, Scope, Spec, StateUnreadable
from replayproxy.state.delta import changes_between
from replayproxy.state.postgres_rows import Held, Source, in_query, quoted, read
from replayproxy.state.postgres_tables import Column, Query, Scheme, Table, columns_named
from replayproxy.state.postgres_values import written
from replayproxy.state.spec import BRACES

if TYPE_CHECKING:
    from psycopg import Connection

OURS = ("schema", "where", "exclude")
TIMEOUT = 25
"""Seconds for a statement: less than a snapshot may take, so that the reason is the database's own."""
SETTINGS = (
    "SET datestyle = 'ISO, YMD'; SET timezone = 'UTC'; SET intervalstyle = 'iso_8601'; SET bytea_output = 'hex';"
    " SET extra_float_digits = 1; SET xmloption = 'content'; SET client_min_messages = 'error';"
    " SET row_security = off"
)

type _Connection = Connection[tuple[Any, ...]]


class PostgresDb:
    """`where`: a condition as typed, with what its braces stand for."""

    atomic = True
    can_restore = True

    def __init__(self, conninfo: dict[str, Any], scheme: Scheme, where: str, spec: Spec) -> None:
        self._conninfo = conninfo
        self._scheme = scheme
        self._where = where
        self._bound = [spec.value(word) for word in BRACES.findall(where)]
        self.scope: Scope = spec.scope
        self._seen: dict[str, Held] | None = None
        self._columns: dict[str, Any] = {}

    def capture(self) -> Reading:
        before, columns, seen = self._seen, self._columns, {}
        with self._session() as live:
            live.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            tables = self._tables(live)
            self._columns = {label: [(c.name, c.kind) for c in table.columns] for label, table in tables.items()}
            for label, table in tables.items():
                source = self._source(table)
                (total,) = _query(live)(source.total(), source.bound)
                same = before is not None and columns.get(label) == self._columns[label]
                seen[label] = read(_query(live), source, total, before.get(label) if before and same else None)
            if not self._where:  # else they count for rows, too, that are not of this state
                seen[_sequences_label(tables)] = Held(rows=self._sequences(live))
            live.execute("COMMIT")
        self._seen = seen
        return _reading(before, seen)

    def restore(self, rows: Rows) -> None:
        self.restore_whole(rows, {})

    def restore_whole(self, rows: Rows, aside: Rows) -> None:
        with self._session() as live:
            live.execute("BEGIN")
            self._without_triggers(live)
            tables = self._tables(live)
            sequences = _sequences_label(tables)
            if missing := sorted(set(rows) - set(tables) - {sequences}):
                raise RestoreFailed(f"the database has no table {missing[0]}", hint="start the environment once")
            self._empty(live, list(tables.values()))
            for label, table in tables.items():
                self._fill(live, table, rows.get(label, {}), aside.get(label, {}))
            # Last: a sequence that was set stays set, whatever becomes of the transaction.
            self._set_sequences(live, rows.get(sequences, {}))
            live.execute("COMMIT")

    def close(self) -> None:
        self._seen = None

    @contextmanager
    def _session(self) -> Iterator[_Connection]:
        """A session of its own each time: an environment that drops or copies its database must find nobody in it."""
        import psycopg

        try:
            live: _Connection = psycopg.connect(**self._conninfo, autocommit=True)
        except psycopg.OperationalError as error:
            raise StateUnreadable(_line(error)) from error
        with live:
            live.execute(f"{SETTINGS}; SET statement_timeout = '{TIMEOUT}s'")
            path = ", ".join(map(quoted, self._scheme.schemas))
            live.execute("SELECT set_config('search_path', %s, false)", (path,))
            yield live

    def _tables(self, live: _Connection) -> dict[str, Table]:
        tables = self._scheme.tables(_query(live))
        if not tables:
            raise StateUnreadable(f"there is no table in schema {', '.join(self._scheme.schemas)}", hint="?schema=NAME")
        if self._where and not columns_named(self._where, tables):
            raise StateUnreadable("where names no column of any table")
        self._named = columns_named(self._where, tables)
        return {table.label: table for table in tables}

    def _filters(self, table: Table) -> bool:
        return bool(self._where) and self._named <= {column.name for column in table.columns}

    def _source(self, table: Table) -> Source:
        if not self._filters(table):
            return Source(table=table)
        return Source(table=table, where=BRACES.sub("%s", self._where.replace("%", "%%")), bound=self._bound)

    def _sequences(self, live: _Connection) -> dict[str, Row]:
        state: dict[str, Row] = {}
        for schema, name in self._scheme.sequences(_query(live)):
            for last, called in _query(live)(f"SELECT last_value, is_called FROM {in_query(schema, name)}", ()):
                state[self._scheme.label(schema, name)] = {"last_value": last, "is_called": called}
        return state

    def _without_triggers(self, live: _Connection) -> None:
        import psycopg

        try:
            live.execute("SET LOCAL session_replication_role = replica")
        except psycopg.errors.InsufficientPrivilege as error:
            raise RestoreFailed(
                "the database user may not set session_replication_role",
                hint="be a superuser, or GRANT SET ON PARAMETER session_replication_role TO the user",
            ) from error

    def _empty(self, live: _Connection, tables: Sequence[Table]) -> None:
        import psycopg

        rest = [table for table in tables if self._filters(table)]
        whole = [table for table in tables if not self._filters(table)]
        names = ", ".join(f"{'ONLY ' if t.only else ''}{in_query(t.schema, t.name)}" for t in whole)
        try:
            if whole:
                with live.transaction():
                    live.execute("SET LOCAL lock_timeout = '2s'")
                    _query(live)(f"TRUNCATE {names}", ())
        except (psycopg.errors.LockNotAvailable, psycopg.errors.FeatureNotSupported):
            # A session of the environment sits in an open transaction, or a table that is left out refers to one of
            # these: deleting row by row waits for neither.
            rest = list(tables)
        for table in rest:
            source = self._source(table)
            _query(live)(f"DELETE {source.clause()}", source.bound)

    def _fill(self, live: _Connection, table: Table, rows: Any, places: Any) -> None:
        if not rows:
            return
        known = {column.name: column for column in table.columns}
        columns = list(next(iter(rows.values())))
        if unknown := [column for column in columns if column not in known]:
            raise RestoreFailed(f"table {table.label} has no column {unknown[0]}")
        into = f"COPY {quoted(table.schema, table.name)} ({', '.join(map(quoted, columns))}) FROM STDIN"
        with live.cursor() as cursor, cursor.copy(into.encode()) as copy:
            for key in sorted(rows, key=lambda key: (key not in places, places[key]["at"] if key in places else [])):
                texts = places.get(key, {}).get("text", {})
                copy.write_row([_text(known[c], rows[key][c], texts.get(c)) for c in columns])

    def _set_sequences(self, live: _Connection, wanted: Any) -> None:
        for schema, name in self._scheme.sequences(_query(live)):
            state = wanted.get(self._scheme.label(schema, name))
            if state is not None:
                values = (quoted(schema, name), state["last_value"], state["is_called"])
                live.execute("SELECT setval(%s, %s, %s)", values)


def _query(live: _Connection) -> Query:
    def ask(text: str, bound: Sequence[Any]) -> list[tuple[Any, ...]]:
        cursor = live.execute(text.encode(), bound)
        return cursor.fetchall() if cursor.description else []

    return ask


def _reading(before: dict[str, Held] | None, seen: dict[str, Held]) -> Reading:
    rows = {label: held.rows for label, held in seen.items()}
    places = {label: held.places for label, held in seen.items()}
    changes = None
    if before is not None:
        changes = changes_between({label: held.rows for label, held in before.items()}, rows)
        moves = changes_between({label: held.places for label, held in before.items()}, places)
    if changes is None:
        return Reading(rows=rows, aside=places)
    return Reading(rows=Changes(rows=changes), aside=Changes(rows=moves or ()))


def _sequences_label(tables: dict[str, Table]) -> str:
    return "sequences" if "sequences" not in tables else "sequences (all)"


def _text(column: Column, value: Any, exact: str | None) -> str | None:
    """The text to write: the one that was read, where it is this value's."""
    if exact is not None and column.read(exact) == value:
        return exact
    return written(value, column.kind, column.element)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


def provider(spec: Spec) -> PostgresDb:
    try:
        import psycopg
        from psycopg.conninfo import conninfo_to_dict
    except ImportError as error:
        raise WrongUsage("psycopg is not installed", hint="pip install 'replayproxy[postgres]'") from error
    dsn, ours = taken_apart(spec.target)
    try:
        conninfo: dict[str, Any] = dict(conninfo_to_dict(dsn))
    except psycopg.Error as error:
        raise WrongUsage("the DSN cannot be read", hint="postgresql://USER@HOST/DB, or host=.. dbname=..") from error
    # Each part by itself, after the DSN was read: a value cannot become another part.
    conninfo = {name: spec.filled(value, str) if isinstance(value, str) else value for name, value in conninfo.items()}
    if not str(conninfo.get("port", "5432")).isdigit():
        raise WrongUsage(f"{conninfo['port']!r} is no port")
    conninfo.setdefault("connect_timeout", 10)
    conninfo.setdefault("application_name", "replayproxy snapshot")
    schemas = [spec.filled(name, str) for given in ours["schema"] for name in given.split(",") if name]
    exclude = [glob for given in ours["exclude"] for glob in given.split(",") if glob]
    scheme = Scheme(schemas=tuple(schemas or ["public"]), exclude=tuple(exclude))
    return PostgresDb(conninfo, scheme, " AND ".join(f"({one})" for one in ours["where"]), spec)


def taken_apart(target: str) -> tuple[str, dict[str, list[str]]]:
    """The DSN without our own parameters, and these. A DSN of the form `host=..` may hold a ? of its own."""
    if target.startswith("//"):
        target = f"postgresql:{target}"  # written as postgres://.., the kind being the scheme
    is_url = re.match(r"postgres(ql)?://", target)
    dsn, query, *_ = [*re.split(r"\?" if is_url else r"\?(?=(?:schema|where|exclude)=)", target, maxsplit=1), ""]
    given = parse_qsl(query, keep_blank_values=True)
    ours = {name: [value for key, value in given if key == name] for name in OURS}
    theirs = [(key, value) for key, value in given if key not in ours]
    if theirs and not is_url:
        raise WrongUsage(f"{theirs[0][0]}= is none of {', '.join(OURS)}")
    return (f"{dsn}?{urlencode(theirs)}" if theirs else dsn), ours
