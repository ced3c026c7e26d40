"""Kinto on PostgreSQL, reset between episodes: a reset that forgets one table is found, and an honest one is not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import test_kinto
from tests.e2e.conftest import SERVERS, Lab, free_port, server_python

pytestmark = [pytest.mark.e2e, pytest.mark.postgres, pytest.mark.timeout(240)]

dsn = test_kinto.dsn
# The rights are in a table of their own; who may do what must not depend on which tables a reset forgets.
INI = test_kinto.INI.replace(
    "multiauth.policies", "kinto.bucket_write_principals = system.Authenticated\nmultiauth.policies"
)


def start(lab: Lab, dsn: str) -> str:
    python = Path(server_python("kinto"))
    ini = lab.path / "kinto.ini"
    ini.write_text(INI.format(dsn=dsn))
    kinto = str(python.parent / "kinto")
    subprocess.run([kinto, "migrate", "--ini", str(ini)], check=True, capture_output=True, timeout=60)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    lab.serve([kinto, "start", "--ini", str(ini), "--port", str(port)], f"{url}/v1/", env={"PYTHONHASHSEED": "0"})
    return url


def checked(lab: Lab, dsn: str, leaky: int) -> Any:
    ran = lab.run(
        "record", "--env", f"kinto={start(lab, dsn)}", "--snapshot", f"kinto=postgres:{dsn}", "--run", "nightly",
        "--json", "--", sys.executable, str(SERVERS / "kinto_harness.py"),
        env={"KINTO_DSN": dsn, "LEAKY": str(leaky)},
    )  # fmt: skip
    assert ran.code == 0, ran.out + ran.err
    assert (ran.json["episodes"], ran.json["snapshots"]["missing"]) == (5, 0)
    return lab.run("check", "nightly", "--json").json


def test_a_reset_that_forgets_a_table_is_found_with_who_wrote_what_was_read(lab: Lab, dsn: str) -> None:
    report = checked(lab, dsn, leaky=3)
    assert {f["kind"] for f in report["findings"]} <= {"state-bleed", "dirty-reset"}
    bleeds = [f for f in report["findings"] if f["kind"] == "state-bleed"]
    assert [(f["episode"], f["sub"], f["grade"], f["blame"]) for f in bleeds] == [
        ("e3", "residue", "proven", "environment"),
    ]  # fmt: skip
    (found,) = bleeds
    written = {w["address"]: w for w in found["exchanges"] if w["role"] == "write"}
    (read,) = [w for w in found["exchanges"] if w["role"] == "read"]
    assert {w["method"] for w in written.values()} <= {"PUT", "POST"}
    assert {address.partition("#")[0] for address in written} == {"nightly/e2"}
    assert read["address"] == "nightly/e3#4", "its first look after the bucket was its own again"
    assert read["target"].endswith("/deals/records")
    assert any("objects" in row for row in found["effect"]["rows"])
    assert found["effect"]["inputs"] == {"task": "open-deals", "seed": 1}
    assert [root["class"] for root in found["effect"]["roots"]] == ["reference", "content"]
    assert {name for name, word in report["verdicts"].items() if word == "poisoned"} == {"e3"}
    assert report["verdicts"]["e4"] == "clean", "a clean start was seen again"


def test_an_honest_reset_gives_no_finding(lab: Lab, dsn: str) -> None:
    report = checked(lab, dsn, leaky=-1)
    assert report["findings"] == []
    assert set(report["verdicts"].values()) == {"clean"}
    assert {"state-bleed", "dirty-reset"} <= set(report["coverage"]["e4"]["checked"])
