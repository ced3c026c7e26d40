"""Where a spec leads to: nothing that is not on this machine may pass for something that is."""

from __future__ import annotations

import pytest

from replayproxy.state.hosts import spec_hosts

FAR = "203.0.113.9"


@pytest.mark.parametrize(
    "spec",
    [
        f"http:http://{FAR}/state",
        f'http:http://127.0.0.1/state,restore="PUT http://{FAR}/state"',
        f"postgres:postgresql://u:p@{FAR}/db",
        f"postgres://u:p@{FAR}:5433/db",
        f"postgres:postgresql://127.0.0.1,{FAR}/db",
        f"postgres:postgresql://u@127.0.0.1:5432,{FAR}:5432/db",
        f"postgres:postgresql:///db?host={FAR}",
        f"postgres:postgresql://127.0.0.1/db?hostaddr={FAR}",
        f"postgres:postgresql://127.0.0.1/db?%68ost={FAR}",
        f"postgres:host={FAR} dbname=db",
        f"postgres:dbname=db host = {FAR}",
        f"postgres:host='{FAR}'",
        f"postgres:host=127.0.0.1,{FAR} dbname=db",
        f"postgres:host=localhost hostaddr={FAR}",
        f"redis:redis://{FAR}/0",
        f"redis://{FAR}/0",
        "postgres:env:DSN_FAR",
    ],
)
def test_a_far_host_is_seen_however_it_is_written(spec: str) -> None:
    assert FAR in spec_hosts(spec, {"DSN_FAR": f"host={FAR}"})


@pytest.mark.parametrize(
    "spec", ["sqlite:/tmp/x.db", "dir:/tmp", "./mine.py:x", "postgres:dbname=db", "postgres:postgresql:///db",
             "postgres:host=/run/postgresql", "postgres:postgresql://%2Frun%2Fpostgresql/db"]
)  # fmt: skip
def test_files_and_sockets_lead_nowhere(spec: str) -> None:
    assert spec_hosts(spec, {}) == []


@pytest.mark.parametrize("variables", [{"PGHOST": FAR}, {"PGHOSTADDR": FAR}])
def test_what_is_not_said_comes_from_the_variables_of_libpq(variables: dict[str, str]) -> None:
    assert spec_hosts("postgres:dbname=db", variables) == [FAR]
    assert spec_hosts("postgres:host=127.0.0.1", variables) == ["127.0.0.1"]


def test_a_service_file_may_lead_anywhere() -> None:
    assert spec_hosts("postgres:service=prod", {}) == ["service prod"]
    assert spec_hosts("postgres:dbname=db", {"PGSERVICE": "prod"}) == ["service prod"]


def test_every_host_of_a_url_is_read_without_its_port() -> None:
    assert spec_hosts("postgres:postgresql://u@[::1]:1,localhost:2,127.0.0.1/db", {}) == [
        "::1", "localhost", "127.0.0.1",
    ]  # fmt: skip
