"""Kinto on PostgreSQL: record, replay with the server gone, re-drive against the same, a changed and a dirty one."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psycopg
import pytest

from tests.e2e.conftest import SERVERS, Lab, NoContact, Resetter, free_port, server_python
from tests.needs import absent

pytestmark = [pytest.mark.e2e, pytest.mark.postgres, pytest.mark.timeout(240)]

ADMIN = "postgresql://postgres@127.0.0.1:5432/postgres"
TABLES = ("objects", "timestamps", "access_control_entries", "user_principals", "metadata")
# The recording holds a token in the place of what the agent's Basic credential held.
CREDENTIAL = ("--credential", "Authorization=agent:pass")
AGENT = [sys.executable, str(SERVERS / "kinto_agent.py")]
INI = """
[app:main]
use = egg:kinto
kinto.storage_backend = kinto.core.storage.postgresql
kinto.storage_url = {dsn}
kinto.permission_backend = kinto.core.permission.postgresql
kinto.permission_url = {dsn}
kinto.cache_backend = kinto.core.cache.memory
kinto.userid_hmac_secret = not-a-secret
kinto.bucket_create_principals = system.Authenticated
multiauth.policies = basicauth
multiauth.policy.basicauth.use = kinto.core.authentication.BasicAuthAuthenticationPolicy
[server:main]
use = egg:waitress#main
host = 127.0.0.1
port = %(http_port)s
[loggers]
keys = root
[handlers]
keys =
[formatters]
keys =
[logger_root]
level = WARNING
handlers =
"""
# A changed environment: whatever amount is stored, the database doubles it.
TRIGGER = """
CREATE FUNCTION double_amount() RETURNS trigger AS $$
BEGIN
  IF NEW.data ? 'amount' THEN
    NEW.data := jsonb_set(NEW.data, '{amount}', to_jsonb((NEW.data->>'amount')::int * 2));
  END IF;
  RETURN NEW;
END $$ LANGUAGE plpgsql;
CREATE TRIGGER doubled BEFORE INSERT ON objects FOR EACH ROW EXECUTE FUNCTION double_amount();
"""


@pytest.fixture
def dsn() -> Iterator[str]:
    try:
        admin = psycopg.connect(ADMIN, autocommit=True, connect_timeout=5)
    except psycopg.OperationalError as error:
        absent(f"PostgreSQL is not on 127.0.0.1:5432: {error}")
    name = f"rp_kinto_{uuid.uuid4().hex[:10]}"
    admin.execute(f"CREATE DATABASE {name}")
    try:
        yield f"postgresql://postgres@127.0.0.1:5432/{name}"
    finally:
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
        admin.close()


def start_kinto(lab: Lab, dsn: str) -> tuple[str, int]:
    python = Path(server_python("kinto"))
    ini = lab.path / "kinto.ini"
    if not ini.exists():
        ini.write_text(INI.format(dsn=dsn))
        lab_run = [str(python.parent / "kinto"), "migrate", "--ini", str(ini)]
        subprocess.run(lab_run, check=True, capture_output=True, timeout=60)
    port = free_port()
    words = [str(python.parent / "kinto"), "start", "--ini", str(ini), "--port", str(port)]
    # Kinto lists principals in the order of a set: without a fixed seed that order is another in each process.
    lab.serve(words, f"http://127.0.0.1:{port}/v1/", env={"PYTHONHASHSEED": "0"})
    lab.urls["kinto"] = (f"http://127.0.0.1:{port}", port)
    return lab.urls["kinto"]


def recorded(lab: Lab, dsn: str) -> int:
    if not lab.servers:
        start_kinto(lab, dsn)
    url, port = lab.urls["kinto"]
    ran = lab.run(
        "record", "--env", f"kinto={url}", "--snapshot", f"kinto=postgres:{dsn}", "--run", "nightly",
        "--episode", "e1", "--json", "--", *AGENT,
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert ran.json["exchanges"] >= 15
    assert ran.json["unattributed"] == 0
    assert ran.json["snapshots"]["missing"] == 0
    return port


def test_kinto_replays_with_the_server_stopped(lab: Lab, dsn: str, no_contact: Callable[[int], NoContact]) -> None:
    port = recorded(lab, dsn)
    lab.stop_all()
    counter = no_contact(port)
    ran = lab.run("replay", "nightly/e1", "--json", "--", *AGENT)
    assert ran.code == 0, ran.out + ran.err
    assert ran.json["reproduced"] is True
    assert ran.json["upstream_contacts"] == 0
    assert counter.count() == 0


def test_kinto_redriven_to_the_restored_server_is_the_same(lab: Lab, dsn: str) -> None:
    recorded(lab, dsn)
    lab.stop_all()
    url, _ = start_kinto(lab, dsn)
    ran = lab.run(
        "redrive", "nightly/e1", *CREDENTIAL, "--env", f"kinto={url}", "--snapshot", f"kinto=postgres:{dsn}", "--json"
    )
    assert ran.code == 0, ran.out + ran.err
    assert ran.json["verdict"] == "same"


def test_a_trigger_in_the_database_is_a_difference_with_exchange_pointer_and_row(lab: Lab, dsn: str) -> None:
    recorded(lab, dsn)
    lab.stop_all()
    url, _ = start_kinto(lab, dsn)
    with psycopg.connect(dsn, autocommit=True) as db:
        db.execute(TRIGGER)
    ran = lab.run(
        "redrive", "nightly/e1", *CREDENTIAL, "--env", f"kinto={url}", "--snapshot", f"kinto=postgres:{dsn}", "--json"
    )
    assert ran.code == 1, ran.out + ran.err
    assert ran.json["verdict"] == "different"
    first = ran.json["roots"][0]
    assert first["a"] == "nightly/e1#4"
    assert first["pointer"].endswith("/data/amount")
    assert first["values"] == [1200, 2400]
    assert "objects" in ran.out


def test_a_reset_that_leaves_a_changed_row_is_refused_with_that_row(
    lab: Lab, dsn: str, resetter: Callable[[Callable[[], None]], Resetter]
) -> None:
    url, _ = start_kinto(lab, dsn)
    httpx.put(f"{url}/v1/buckets/base", json={"data": {"colour": "green"}}, auth=("admin", "a")).raise_for_status()
    start = saved_rows(dsn)
    recorded(lab, dsn)

    def leaves_one_row_changed() -> None:
        put_back(dsn, start)
        with psycopg.connect(dsn, autocommit=True) as db:
            db.execute("SET session_replication_role = replica")  # the trigger must not renew the time as well
            db.execute("""UPDATE objects SET data = data || '{"colour": "red"}' WHERE id = 'base'""")

    reset = resetter(leaves_one_row_changed)
    ran = lab.run(
        "redrive", "nightly/e1", *CREDENTIAL, "--env", f"kinto={url}", "--snapshot", f"kinto=postgres:{dsn}",
        "--reset", f"kinto=POST {reset.url}",
    )  # fmt: skip
    assert ran.code == 3, ran.out + ran.err
    assert reset.calls == 1
    assert "objects" in ran.err
    assert "base" in ran.err
    assert "/data/colour" in ran.err
    assert "red" in ran.err


def saved_rows(dsn: str) -> dict[str, list[tuple[str]]]:
    with psycopg.connect(dsn, autocommit=True) as db:
        return {table: db.execute(f"SELECT t::text FROM {table} t").fetchall() for table in TABLES}


def put_back(dsn: str, rows: dict[str, list[tuple[str]]]) -> None:
    with psycopg.connect(dsn, autocommit=True) as db:
        db.execute("SET session_replication_role = replica")
        for table, texts in rows.items():
            db.execute(f"TRUNCATE {table}")
            for (text,) in texts:
                db.execute(f"INSERT INTO {table} SELECT (%s::{table}).*", (text,))
