"""`postgres:` snapshots against a database of this test's own."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any, cast
from uuid import uuid4

import psycopg
import pytest

from replayproxy.core import prolly
from replayproxy.errors import WrongUsage
from replayproxy.state import Changes, KeepsAside, Provider, Reading, RestoreFailed, StateUnreadable
from replayproxy.state.conformance import conform
from replayproxy.state.growing import GrowingState
from replayproxy.state.loader import load
from tests.needs import absent

pytestmark = pytest.mark.postgres

SERVER = "postgresql://postgres@127.0.0.1:5432"

SCHEMA = """
CREATE TYPE stage AS ENUM ('new', 'won');
CREATE DOMAIN cents AS integer CHECK (VALUE >= 0);
CREATE TABLE deals (
    id serial PRIMARY KEY, title text NOT NULL, amount numeric(10, 2), exact numeric, ratio double precision,
    stage stage, at timestamptz, day date, took interval, tags text[], grid int[], data jsonb, raw json, bin bytea,
    ok boolean, price cents, who uuid, twice int GENERATED ALWAYS AS (length(title) * 2) STORED
);
CREATE TABLE notes (deal integer REFERENCES deals (id) ON DELETE CASCADE, body text);
CREATE TABLE pairs (a text, b bigint, v text, PRIMARY KEY (a, b));
CREATE TABLE audit (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, what text);
CREATE TABLE parts (id int, region text, PRIMARY KEY (id, region)) PARTITION BY LIST (region);
CREATE TABLE parts_eu PARTITION OF parts FOR VALUES IN ('eu');
CREATE VIEW won AS SELECT * FROM deals WHERE stage = 'won';
CREATE FUNCTION logged() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN INSERT INTO audit (what) VALUES (TG_OP); RETURN NULL; END $$;
CREATE TRIGGER logged AFTER INSERT OR UPDATE OR DELETE ON deals FOR EACH ROW EXECUTE FUNCTION logged();
INSERT INTO deals (title, amount, exact, ratio, stage, at, day, took, tags, grid, data, raw, bin, ok, price, who) VALUES
    ('a', 1.50, 1.50, 0.1, 'new', '2024-01-31 12:00:00.123456+02', '2024-02-29', '1 day 2 hours',
     ARRAY['x', 'y "q", \\ {z}', NULL, 'NULL', ''], '{{1,2},{3,4}}', '{"b": 1.0, "a": [null, "é"]}',
     '{"z": 1,  "z": 2}',
     '\\x00ff', true, 5, 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'),
    ('b', NULL, 'NaN', 'Infinity', NULL, 'infinity', NULL, NULL, '{}', '[2:3]={7,8}', 'null', 'null', '',
     false, 0, NULL),
    ('c\tt\n\\.', 7, 12345678901234567890.123, 1e300, 'won', NULL, NULL, NULL, NULL, NULL, '[]', '"s"',
     NULL, NULL, NULL, NULL);
INSERT INTO notes VALUES (1, 'twice'), (1, 'twice'), (2, NULL), (NULL, 'x');
INSERT INTO pairs VALUES ('x', 1, 'v'), ('x', 9007199254740993, NULL), ('[', 1, 'w');
INSERT INTO parts VALUES (1, 'eu');
"""


def connected(dsn: str) -> Any:
    return psycopg.connect(dsn, autocommit=True, connect_timeout=5)


@pytest.fixture(scope="module")
def server() -> str:
    try:
        connected(f"{SERVER}/postgres").close()
    except psycopg.OperationalError as error:
        absent(f"PostgreSQL on 127.0.0.1:5432: {str(error).splitlines()[0]}")
    return SERVER


@pytest.fixture(scope="module")
def database(server: str) -> Iterator[str]:
    name = f"replayproxy_test_{uuid4().hex[:12]}"
    with connected(f"{server}/postgres") as admin:
        admin.execute(f"CREATE DATABASE {name}")
    yield f"{server}/{name}"
    with connected(f"{server}/postgres") as admin:
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def dsn(database: str) -> str:
    execute(database, "DROP SCHEMA public CASCADE; DROP SCHEMA IF EXISTS other CASCADE; CREATE SCHEMA public")
    execute(database, SCHEMA)
    return database


def execute(dsn: str, script: str) -> list[Any]:
    with connected(dsn) as live:
        cursor = live.execute(script)
        return cursor.fetchall() if cursor.description else []


def provider(dsn: str, **context: str) -> Provider:
    return load("crm", f"postgres:{dsn}", context=context).provider


def state(dsn: str) -> dict[str, Any]:
    return cast("dict[str, Any]", provider(dsn).capture().rows)


def through(rows: Any) -> Any:
    """Rows as they come out of a store."""
    tree = prolly.build(rows)
    return prolly.exact(tree.root, tree.nodes.__getitem__)


def restored(dsn: str, reading: Reading, **context: str) -> None:
    cast("KeepsAside", provider(dsn, **context)).restore_whole(through(reading.rows), through(reading.aside))


def dump(dsn: str) -> Any:
    tables = ("deals", "notes", "pairs", "audit", "parts")
    return [execute(dsn, f"SELECT t.*::text FROM {table} t") for table in tables]


CHANGE = """
DELETE FROM deals WHERE id = 2; UPDATE deals SET title = 'changed' WHERE id = 1;
INSERT INTO deals (title) VALUES ('new'); INSERT INTO pairs VALUES ('y', 1, ''); DELETE FROM notes WHERE body = 'x';
"""


def test_it_meets_the_contract(dsn: str) -> None:
    checks = conform(
        lambda: provider(dsn),
        write=True,
        change=lambda: cast("None", execute(dsn, CHANGE)),
        broken=lambda: provider("postgresql://postgres@127.0.0.1:9/none"),
    )
    assert [check for check in checks if check.outcome != "ok"] == []


def test_rows_hold_exact_values(dsn: str) -> None:
    rows = through(provider(dsn).capture().rows)
    assert set(rows) == {"deals", "notes", "pairs", "audit", "parts", "sequences"}
    a, b, c = (rows["deals"][key] for key in "123")
    assert (str(a["amount"]), str(a["exact"]), str(a["ratio"]), a["price"]) == ("1.5", "1.5", "0.1", 5)
    assert (a["at"], a["day"], a["took"]) == ("2024-01-31 10:00:00.123456+00", "2024-02-29", "P1DT2H")
    assert a["tags"] == ["x", 'y "q", \\ {z}', None, "NULL", ""]
    assert (a["grid"], b["grid"], b["tags"]) == ([[1, 2], [3, 4]], "[2:3]={7,8}", [])
    assert (a["data"], a["raw"]) == ({"a": [None, "é"], "b": 1}, {"$text": '{"z": 1,  "z": 2}'})
    assert (b["data"], c["data"], b["at"]) == ({"$json": None}, [], "infinity")
    assert (a["bin"], b["bin"], c["bin"], a["ok"], b["ok"], c["ok"]) == (b"\0\xff", b"", None, True, False, None)
    assert str(c["exact"]) == "12345678901234567890.123"
    assert c["title"] == "c\tt\n\\."
    assert "twice" not in a
    assert set(rows["pairs"]) == {'["x",1]', '["x",9007199254740993]', '["[",1]'}
    assert rows["parts"] == {'[1,"eu"]': {"id": 1, "region": "eu"}}
    assert rows["sequences"]["deals_id_seq"] == {"last_value": 3, "is_called": True}


def test_equal_rows_of_a_table_without_a_key_are_counted(dsn: str) -> None:
    notes = state(dsn)["notes"]
    assert len(notes) == 4
    twice = [key for key, row in notes.items() if row["body"] == "twice"]
    assert twice[1] == f"{twice[0]}#2"
    execute(dsn, "DELETE FROM notes WHERE ctid IN (SELECT ctid FROM notes WHERE body = 'twice' LIMIT 1)")
    assert len(state(dsn)["notes"]) == 3


def test_a_restore_brings_back_every_byte_and_the_order_of_a_scan(dsn: str) -> None:
    execute(dsn, "UPDATE deals SET price = price WHERE id = 1")  # moves the row behind the others
    before, reading = dump(dsn), provider(dsn).capture()
    assert list(reading.rows["deals"]) == ["2", "3", "1"]
    execute(dsn, CHANGE + "DELETE FROM parts; SELECT setval('deals_id_seq', 999)")
    assert dump(dsn) != before
    restored(dsn, reading)
    assert dump(dsn) == before
    assert execute(dsn, "INSERT INTO deals (title) VALUES ('next') RETURNING id") == [(4,)]


def test_triggers_and_cascades_do_not_act_on_a_restore(dsn: str) -> None:
    reading = provider(dsn).capture()
    entries = execute(dsn, "SELECT count(*) FROM audit")
    restored(dsn, reading)
    assert execute(dsn, "SELECT count(*) FROM audit") == entries
    execute(dsn, "UPDATE deals SET price = 1")
    assert execute(dsn, "SELECT count(*) FROM audit") != entries


def test_changes_always_add_up_to_the_whole_state(dsn: str) -> None:
    one, grown = provider(dsn), GrowingState()
    grown.take(one.capture())
    steps = [
        CHANGE,
        "",
        "VACUUM FULL",
        "DELETE FROM notes",
        "CREATE TABLE later (x int); INSERT INTO later VALUES (1)",
        "ALTER TABLE pairs ADD COLUMN w int",
        "UPDATE pairs SET w = 1 WHERE b = 1",
        "DROP TABLE later",
        "TRUNCATE deals CASCADE",
    ]
    for step in steps:
        if step:
            execute(dsn, step)
        seen, fresh = grown.take(one.capture()), GrowingState().take(provider(dsn).capture())
        assert (seen.root, seen.rows, seen.aside) == (fresh.root, fresh.rows, fresh.aside), step


def test_only_changed_rows_are_given_after_the_first_reading(dsn: str) -> None:
    one = provider(dsn)
    one.capture()
    assert one.capture().rows == Changes()
    execute(dsn, "UPDATE pairs SET v = 'other' WHERE b = 1 AND a = 'x'")
    assert [(change.table, change.key) for change in one.capture().rows.rows] == [("pairs", '["x",1]')]


def test_a_reading_is_of_one_instant(dsn: str) -> None:
    execute(dsn, "CREATE TABLE bank (id int PRIMARY KEY, balance int)")
    execute(dsn, "INSERT INTO bank SELECT n, 100 FROM generate_series(1, 50) n")
    stop = threading.Event()

    def transfer() -> None:
        with connected(dsn) as live:
            while not stop.is_set():
                with live.transaction():
                    live.execute("UPDATE bank SET balance = balance - 1 WHERE id = 1")
                    live.execute("UPDATE bank SET balance = balance + 1 WHERE id = 50")

    thread = threading.Thread(target=transfer)
    thread.start()
    try:
        totals = {sum(row["balance"] for row in state(dsn)["bank"].values()) for _ in range(10)}
    finally:
        stop.set()
        thread.join()
    assert totals == {5000}


def test_a_restore_works_beside_an_open_transaction(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reading = provider(dsn).capture()
    execute(dsn, "INSERT INTO pairs VALUES ('z', 1, 'v')")
    with psycopg.connect(dsn) as env:
        env.execute("SELECT * FROM deals")  # and the environment goes on thinking
        restored(dsn, reading)
        assert env.execute("SELECT count(*) FROM pairs").fetchone() == (3,)
    assert prolly.build(state(dsn)).root == prolly.build(reading.rows).root


def test_no_session_stays_in_the_database(dsn: str) -> None:
    one = provider(dsn)
    one.capture()
    query = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE application_name = 'replayproxy snapshot' AND datname = current_database()"
    )
    for _ in range(50):
        if execute(dsn, query) == [(0,)]:
            break
    assert execute(dsn, query) == [(0,)]


def test_schemas_tables_and_rows_can_be_chosen(dsn: str) -> None:
    execute(dsn, "CREATE SCHEMA other; CREATE TABLE other.pairs (tenant text PRIMARY KEY, v int)")
    execute(dsn, "INSERT INTO other.pairs VALUES ('e1', 1), ('e2', 2), ('it''s', 3)")
    assert set(state(f"{dsn}?schema=other")) == {"pairs", "sequences"}
    assert {"public.deals", "other.pairs"} <= set(state(f"{dsn}?schema=public,other"))
    assert set(state(f"{dsn}?exclude=p*,notes&exclude=*_seq")) == {"deals", "audit", "sequences"}
    assert state(f"{dsn}?exclude=*_seq")["sequences"] == {}
    one = provider(f"{dsn}?schema=other&where=tenant={{episode}}", episode="it's")
    assert one.scope == "episode"
    reading = one.capture()
    assert reading.rows == {"pairs": {"it's": {"tenant": "it's", "v": 3}}}
    execute(dsn, "UPDATE other.pairs SET v = v + 10")
    restored(f"{dsn}?schema=other&where=tenant={{episode}}", reading, episode="it's")
    assert execute(dsn, "SELECT tenant, v FROM other.pairs ORDER BY tenant") == [("e1", 11), ("e2", 12), ("it's", 3)]


def test_odd_names_are_no_trouble(dsn: str) -> None:
    execute(dsn, """CREATE TABLE "50%s ""x"" " ("a b" serial PRIMARY KEY, "%s" text); CREATE TABLE sequences (n int)""")
    execute(dsn, """INSERT INTO "50%s ""x"" " ("%s") VALUES ('v')""")
    one = provider(dsn)
    reading = one.capture()
    assert reading.rows['50%s "x" '] == {"1": {"a b": 1, "%s": "v"}}
    assert (reading.rows["sequences"], "deals_id_seq" in reading.rows["sequences (all)"]) == ({}, True)
    execute(dsn, """UPDATE "50%s ""x"" " SET "%s" = 'w'""")
    assert [change.after["%s"] for change in one.capture().rows.rows] == ["w"]
    restored(dsn, reading)
    assert prolly.build(state(dsn)).root == prolly.build(reading.rows).root


def test_a_value_in_braces_is_never_sql(dsn: str) -> None:
    evil = "x' OR '1'='1'; DROP TABLE deals; --"
    rows = provider(f"{dsn}?where=a={{task}} AND v LIKE '%25v'", task=evil).capture().rows
    assert rows["pairs"] == {}
    assert len(rows["deals"]) == 3


def test_where_without_a_column_is_refused(dsn: str) -> None:
    with pytest.raises(StateUnreadable, match="names no column"):
        provider(f"{dsn}?where=tenant = 'deals'").capture()


def test_what_cannot_be_read_is_no_state(dsn: str) -> None:
    with pytest.raises(StateUnreadable, match="does not exist"):
        provider(f"{dsn}_none").capture()
    with pytest.raises(StateUnreadable, match="no table in schema"):
        provider(f"{dsn}?schema=nope").capture()


def test_a_restore_is_all_or_nothing(dsn: str) -> None:
    before = dump(dsn)
    with pytest.raises(RestoreFailed, match="no table nope"):
        provider(dsn).restore({"nope": {}})
    with pytest.raises(RestoreFailed, match="no column nope"):
        provider(dsn).restore({"pairs": {"k": {"nope": 1}}})
    with pytest.raises(psycopg.Error):
        provider(dsn).restore({"pairs": {"k": {"a": "x", "b": "no number"}}})
    assert dump(dsn) == before


def test_a_user_without_the_right_is_told_what_it_takes(dsn: str) -> None:
    role = f"rp_{uuid4().hex[:8]}"
    execute(dsn, f"CREATE ROLE {role} LOGIN; GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}")
    try:
        theirs = dsn.replace("postgres@", f"{role}@")
        with pytest.raises(RestoreFailed, match="session_replication_role"):
            provider(theirs).restore({})
    finally:
        execute(dsn, f"DROP OWNED BY {role}; DROP ROLE {role}")


@pytest.mark.parametrize(
    "spec", ["postgres:", "postgres:postgresql://h:port/db", "postgres:host=x nope=1", "postgres:nonsense"]
)
def test_a_bad_spec_is_refused_in_one_line(spec: str) -> None:
    with pytest.raises(WrongUsage) as caught:
        load("crm", spec)
    assert "\n" not in str(caught.value)


def test_without_psycopg_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(WrongUsage, match=r"replayproxy\[postgres\]"):
        load("crm", "postgres:postgresql://h/db")


def test_a_password_from_a_variable_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PW", "p@ss/w?rd=1")
    one = cast("Any", load("crm", "postgres:postgresql://me:env:PW@h:5433/db?schema=a&sslmode=disable").provider)
    assert one._conninfo["password"] == "p@ss/w?rd=1"
    assert (one._conninfo["host"], one._conninfo["port"], one._conninfo["sslmode"]) == ("h", "5433", "disable")
    monkeypatch.setenv("DSN", "host=h dbname=db password='p ?'")
    assert "postgres://" not in load("crm", "postgres:env:DSN").spec
