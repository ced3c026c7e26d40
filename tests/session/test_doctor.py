from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web

from replayproxy.session import doctor, doctor_listeners
from replayproxy.session.camera import Plan
from replayproxy.session.canary import wanted
from replayproxy.session.diagnosis import Check, Diagnosis
from replayproxy.session.record_options import RecordOptions
from replayproxy.session.wiring import EnvSpec, Reset
from replayproxy.state.loader import load


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        link = f"http://{request.headers['Host']}/next"
        return web.json_response({"next": link}, headers={"Set-Cookie": "session=1"})

    runner = web.ServerRunner(web.Server(answer), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"  # type: ignore[union-attr]
    await runner.cleanup()


@pytest.fixture(autouse=True)
def only_our_own_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other clients are processes, and not what these tests are about."""
    monkeypatch.setattr(doctor_listeners.shutil, "which", lambda name: None)


def options(*envs: EnvSpec, **given: object) -> RecordOptions:
    return RecordOptions(store=Path("unused"), run="doctor", envs=envs, **given)  # type: ignore[arg-type]


async def diagnose(given: RecordOptions) -> Diagnosis:
    return await doctor.diagnose(given, wanted("none"))


def level(found: Diagnosis, text: str) -> list[str]:
    return [check.level for check in found.checks if text in check.text]


async def test_a_wiring_that_records_is_ok_and_what_it_lacks_is_a_warning(url: str, tmp_path: Path) -> None:
    database = tmp_path / "a.db"
    with sqlite3.connect(database) as db:
        db.execute("create table t (id integer primary key, v text)")
    spec = EnvSpec(name="crm", upstream=url)
    found = await diagnose(options(spec, replace(spec, name="cal"), snapshots=(load("crm", f"sqlite:{database}"),)))
    assert found.exit == 0
    assert level(found, "crm answers in") == ["ok"]
    assert level(found, "by listener URL: aiohttp recorded") == ["ok", "ok"]
    assert level(found, "links to itself absolutely") == ["WARN", "WARN"]
    assert level(found, "both set cookie 'session'") == ["WARN"]
    assert level(found, "two reads equal") == ["ok"]
    assert level(found, "hold adds about") == ["ok"]
    assert found.proves["dirty-reset"] == "proven"
    assert found.proves["redrive"] == "answers and state"
    assert found.document()["ok"] is True
    assert found.document()["clients"] == []


async def test_behind_a_tls_listener_the_clients_trust_what_a_child_would_be_told_of(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = EnvSpec(name="crm", upstream=url, tls=True)
    assert level(await diagnose(options(spec)), "crm by listener URL: aiohttp recorded") == ["ok"]

    async def cannot(*_: object) -> bool:
        return False

    monkeypatch.setattr(doctor_listeners, "_by_aiohttp", cannot)
    found = await diagnose(options(spec))
    assert level(found, "crm by listener URL: no client got an answer") == ["FAIL"]
    assert found.exit == 3


async def test_an_environment_that_does_not_answer_is_5_and_the_others_are_still_tried(url: str) -> None:
    found = await diagnose(
        options(
            EnvSpec(name="gone", upstream="http://127.0.0.1:1"), EnvSpec(name="crm", upstream=url),
            EnvSpec(name="later", upstream="dynamic"),
        )
    )  # fmt: skip
    assert found.exit == 5
    assert level(found, "gone at http://127.0.0.1:1 does not answer: connection refused") == ["FAIL"]
    assert level(found, "crm by listener URL") == ["ok"]
    assert level(found, "later is dynamic") == ["----"]


async def test_a_snapshot_that_cannot_be_read_is_3_with_its_reason(tmp_path: Path) -> None:
    found = await diagnose(options(snapshots=(load("crm", f"sqlite:{tmp_path}/none.db"),)))
    assert found.exit == 3
    assert level(found, "snapshot crm cannot be read: there is no database") == ["FAIL"]
    assert found.unread == ["crm"]
    assert found.proves["state-bleed"] == "fresh ids only (no snapshot)"
    # Episodes whose start states are not known to be equal are never compared.
    assert found.proves["nondeterminism"] == "no (no snapshot)"


MOVING = """
class P:
    atomic, can_restore, scope = False, False, "instance"
    n = 0
    def capture(self):
        from replayproxy.state.provider import Reading
        P.n += 1
        return Reading(rows={"t": {"1": {"n": P.n}}})
    def restore(self, rows): raise AssertionError("doctor restores nothing")
    def close(self): pass
def provider(spec): return P()
"""


async def test_a_state_that_does_not_stand_still_is_a_warning_that_names_the_row(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(MOVING)
    plan = Plan(limit=0.0)
    found = await diagnose(options(snapshots=(load("crm", f"{mine}:x"),), plan=plan))
    assert found.exit == 0
    assert level(found, "two reads differ (t/1)") == ["WARN"]
    assert level(found, "snapshots will come late") == ["WARN"]
    assert level(found, "cannot be written back") == ["----"]
    assert found.proves["stale-read"] == "confirmed"


@pytest.mark.parametrize(
    ("no_proxy", "host", "known"),
    [
        ("localhost,127.0.0.1", "127.0.0.1", False), ("", "10.0.3.7", False), ("10.0.0.0/8", "10.0.3.7", True),
        (".corp", "crm.corp", True), ("crm.corp", "crm.corp", True), ("corp", "crmcorp", False),
        ("*.corp, other", "crm.corp", True), ("crm.corp:9000", "crm.corp", True), ("fd00::/8", "10.0.3.7", False),
    ],
)  # fmt: skip
def test_an_inherited_exception_for_the_environment_s_host_is_a_warning(no_proxy: str, host: str, known: bool) -> None:
    found = Diagnosis()
    envs = [EnvSpec(name="crm", upstream=f"http://{host}:9000"), EnvSpec(name="later", upstream="dynamic")]
    doctor_listeners.excepted(envs, {"NO_PROXY": no_proxy}, found)
    assert level(found, "NO_PROXY names the host of crm") == (["WARN"] if known else [])
    assert len(found.checks) == known


async def test_a_listener_that_cannot_be_opened_is_the_world_s_fault(url: str) -> None:
    port = int(url.rpartition(":")[2])
    found = await diagnose(options(EnvSpec(name="crm", upstream=url, port=port)))
    assert found.exit == 5
    assert level(found, "port taken") == ["FAIL"]


def test_what_can_be_shown_depends_on_snapshots_and_resets() -> None:
    reset = Reset(env="crm", method="POST", url="http://h/r", body="")
    assert doctor.proofs(options(), [])["redrive"].startswith("no (nothing restores")
    assert doctor.proofs(options(resets=(reset,)), [])["redrive"] == "answers only (no snapshot)"
    assert doctor.proofs(options(), [])["race"].startswith("no")


def test_the_worst_failure_is_the_exit_code() -> None:
    found = Diagnosis()
    found.checks = [Check(level="FAIL", what="a", text="", exit=3), Check(level="FAIL", what="b", text="", exit=5)]
    assert found.exit == 5
