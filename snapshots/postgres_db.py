"""`postgres:DSN[?schema=..&where=..&exclude=..]`: the rows of a PostgreSQL schema, read in one transaction.

A row's key is its primary key, else a hash of it all; sequences are part of the state, in the table `sequences`.
`where` is a condition for the tables that have all columns it names; in it braces are bound as parameters. A table
whose rows add up to the same hash as before is not fetched again.

A restore empties the tables and copies the rows in, in one transaction in which no trigger fires and no foreign key
is checked. It needs the right to set `session_replication_role`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode

from replayproxy.errors import WrongUsage
from replayproxy.state import Changes, Reading, RestoreFailed, Row, Rows, Scope, Spec, StateUnreadable
from replayproxy.state.delta import changes_between
from replayproxy.state.postgres_tables import Column, Scheme, Table, columns_named, key_of
from replayproxy.state.postgres_values import written
from replayproxy.state.spec import BRACES

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.sql import Composable

OURS = ("schema", "where", "exclude")
TIMEOUT = 25
"""Seconds for a statement: less than a snapshot may take, so that the reason is the database's own."""
SETTINGS = (
    "SET datestyle = 'ISO, YMD'; SET timezone = 'UTC'; SET intervalstyle = 'iso_8601'; SET bytea_output = 'hex';"
    " SET extra_float_digits = 1; SET xmloption = 'content'; SET client_min_messages = 'error';"
    " SET row_security = off"
)

type _Connection = Connection[tuple[Any, ...]]


@dataclass(kw_only=True)
class Seen:
    """A reading: what each table adds up to, the rows, and of each where it lies and what its values do not say."""

    hashes: dict[str, Any] = field(default_factory=dict)
    rows: dict[str, dict[str, Row]] = field(default_factory=dict)
    places: dict[str, dict[str, Row]] = field(default_factory=dict)


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
        self._seen: Seen | None = None

    def capture(self) -> Reading:
        before, seen = self._seen, Seen()
        with self._session() as live:
            live.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            tables = self._tables(live)
            seen.hashes = self._hashes(live, tables)
            for label, table in tables.items():
                if before is not None and before.hashes.get(label) == seen.hashes[label]:
                    seen.rows[label], seen.places[label] = before.rows[label], before.places[label]
                else:
                    seen.rows[label], seen.places[label] = self._fetched(live, table)
            if not self._where:  # else they count for rows, too, that are not of this state
                seen.rows[_sequences_label(tables)] = self._sequences(live)
            live.execute("COMMIT")
        self._seen = seen
        changes = changes_between(before.rows, seen.rows) if before is not None else None
        if before is None or changes is None:
            return Reading(rows=dict(seen.rows), aside=dict(seen.places))
        return Reading(
            rows=Changes(rows=changes), aside=Changes(rows=changes_between(before.places, seen.places) or ())
        )

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
        from psycopg.sql import Identifier

        try:
            live: _Connection = psycopg.connect(**self._conninfo, autocommit=True)
        except psycopg.OperationalError as error:
            raise StateUnreadable(_line(error)) from error
        with live:
            live.execute(f"{SETTINGS}; SET statement_timeout = '{TIMEOUT}s'")
            path = ", ".join(Identifier(schema).as_string(live) for schema in self._scheme.schemas)
            live.execute("SELECT set_config('search_path', %s, false)", (path,))
            yield live

    def _tables(self, live: _Connection) -> dict[str, Table]:
        tables = self._scheme.tables(_query(live))
        if not tables:
            raise StateUnreadable(f"there is no table in schema {', '.join(self._scheme.schemas)}", hint="?schema=NAME")
        if self._where and not columns_named(self._where, tables):
            raise StateUnreadable("where names no column of any table")
        self._columns = columns_named(self._where, tables)
        return {table.label: table for table in tables}

    def _filters(self, table: Table) -> bool:
        return bool(self._where) and self._columns <= {column.name for column in table.columns}

    def _from(self, table: Table) -> tuple[Composable, list[str]]:
        """`FROM .. [WHERE ..]` with its parameters."""
        from psycopg.sql import SQL, Identifier

        clause = SQL("FROM ONLY {} t" if table.only else "FROM {} t").format(Identifier(table.schema, table.name))
        if not self._filters(table):
            return clause, []
        condition = BRACES.sub("%s", self._where.replace("%", "%%"))
        return clause + SQL(" WHERE (") + SQL(condition) + SQL(")"), self._bound

    def _hashes(self, live: _Connection, tables: dict[str, Table]) -> dict[str, Any]:
        """Per table: what its rows, and their places, add up to. One statement for all."""
        from psycopg.sql import SQL, Literal

        parts: list[Composable] = []
        bound: list[str] = []
        for label, table in tables.items():
            clause, values = self._from(table)
            total = SQL("sum(hashtextextended(t.ctid::text || (t.*)::text, 0)::numeric)")
            parts.append(SQL("SELECT {}::text, count(*), ").format(Literal(label)) + total + SQL(" ") + clause)
            bound += values
        found = live.execute(SQL(" UNION ALL ").join(parts), bound).fetchall()
        return {label: (n, total, [(c.name, c.kind) for c in tables[label].columns]) for label, n, total in found}

    def _fetched(self, live: _Connection, table: Table) -> tuple[dict[str, Row], dict[str, Row]]:
        """The rows by key; and where each lies: the order of a scan, which an environment may show in its lists."""
        from psycopg.sql import SQL, Identifier

        chosen = [SQL("t.ctid::text"), *(SQL("t.{}::text").format(Identifier(c.name)) for c in table.columns)]
        clause, bound = self._from(table)
        rows: dict[str, Row] = {}
        places: dict[str, Any] = {}
        for place, *texts in live.execute(SQL("SELECT {} ").format(SQL(", ").join(chosen)) + clause, bound):
            row = {c.name: None if t is None else c.read(t) for c, t in zip(table.columns, texts, strict=True)}
            key = key_of(table, row, texts, rows)
            rows[key] = row
            places[key] = {"at": [int(number) for number in place[1:-1].split(",")]}
            exact = {c.name: t for c, t in zip(table.columns, texts, strict=True) if t is not None and c.loses(t)}
            if exact:
                places[key]["text"] = exact
        return rows, places

    def _sequences(self, live: _Connection) -> dict[str, Row]:
        from psycopg.sql import SQL, Identifier

        state: dict[str, Row] = {}
        for schema, name in self._scheme.sequences(_query(live)):
            query = SQL("SELECT last_value, is_called FROM {}").format(Identifier(schema, name))
            for last, called in live.execute(query):
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
        from psycopg.sql import SQL, Identifier

        rest = [table for table in tables if self._filters(table)]
        whole = [table for table in tables if not self._filters(table)]
        names = [SQL("ONLY {}" if t.only else "{}").format(Identifier(t.schema, t.name)) for t in whole]
        try:
            if whole:
                with live.transaction():
                    live.execute("SET LOCAL lock_timeout = '2s'")
                    live.execute(SQL("TRUNCATE ") + SQL(", ").join(names))
        except (psycopg.errors.LockNotAvailable, psycopg.errors.FeatureNotSupported):
            # A session of the environment sits in an open transaction, or a table that is left out refers to one of
            # these: deleting row by row waits for neither.
            rest = list(tables)
        for table in rest:
            clause, bound = self._from(table)
            live.execute(SQL("DELETE ") + clause, bound)

    def _fill(self, live: _Connection, table: Table, rows: Any, places: Any) -> None:
        from psycopg.sql import SQL, Identifier

        if not rows:
            return
        known = {column.name: column for column in table.columns}
        columns = list(next(iter(rows.values())))
        if unknown := [column for column in columns if column not in known]:
            raise RestoreFailed(f"table {table.label} has no column {unknown[0]}")
        names = SQL(", ").join(map(Identifier, columns))
        into = SQL("COPY {} ({}) FROM STDIN").format(Identifier(table.schema, table.name), names)
        with live.cursor() as cursor, cursor.copy(into) as copy:
            for key in sorted(rows, key=lambda key: (key not in places, places[key]["at"] if key in places else [])):
                texts = places.get(key, {}).get("text", {})
                copy.write_row([_text(known[c], rows[key][c], texts.get(c)) for c in columns])

    def _set_sequences(self, live: _Connection, wanted: Any) -> None:
        from psycopg.sql import Identifier

        for schema, name in self._scheme.sequences(_query(live)):
            state = wanted.get(self._scheme.label(schema, name))
            if state is not None:
                sequence = Identifier(schema, name).as_string(live)
                live.execute("SELECT setval(%s, %s, %s)", (sequence, state["last_value"], state["is_called"]))


def _query(live: _Connection) -> Any:
    return lambda text, bound: live.execute(text, bound).fetchall()


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
