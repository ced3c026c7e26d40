"""What `record` and `doctor` say of an environment before anything is sent to it by an agent."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from replayproxy.errors import Exit, WorldTrouble, WrongUsage
from replayproxy.session import doctor, doctor_listeners
from replayproxy.session.canary import wanted
from replayproxy.session.reaching import reachable
from replayproxy.session.record import record
from replayproxy.session.record_options import RecordOptions
from replayproxy.session.wiring import EnvSpec
from tests.session.tls_server import TlsFiles, https_site, make_tls_files


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return make_tls_files(tmp_path_factory.mktemp("tls"))


@pytest.fixture
async def secure(files: TlsFiles) -> AsyncIterator[str]:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text="ok")

    async with https_site(answer, files) as url:
        yield url


def untrusted(url: str) -> str:
    where = re.escape(url.removeprefix("https://"))
    return rf"environment app: certificate of {where} is not trusted \(.+\) -> ca=PATH, or insecure$"


async def test_a_certificate_that_is_not_trusted_is_refused_before_a_store_is_made(secure: str, tmp_path: Path) -> None:
    spec = EnvSpec(name="app", upstream=secure)
    options = RecordOptions(store=tmp_path / "s", run="r", envs=(spec,))
    with pytest.raises(WorldTrouble, match=untrusted(secure)) as caught:
        await record(options, say=print)
    assert caught.value.exit is Exit.WORLD
    assert not (tmp_path / "s").exists()


async def test_it_is_reached_with_its_ca_or_insecure_and_by_a_name_that_it_has(secure: str, files: TlsFiles) -> None:
    await reachable([
        EnvSpec(name="app", upstream=secure, ca=files.ca),
        EnvSpec(name="two", upstream=secure, insecure=True),
        EnvSpec(name="three", upstream=secure.replace("127.0.0.1", "localhost"), ca=files.ca),
    ])  # fmt: skip
    other = EnvSpec(name="app", upstream=secure.replace("127.0.0.1", "127.0.0.2"), ca=files.ca)
    with pytest.raises(WorldTrouble, match=r"cannot be reached"):
        await reachable([other])


async def test_https_where_there_is_no_tls_and_a_ca_that_is_none_are_told(tmp_path: Path) -> None:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text="ok")

    async with https_site(answer, None) as plain:
        spec = EnvSpec(name="app", upstream=plain.replace("http:", "https:"))
        with pytest.raises(WorldTrouble, match=r"environment app: no TLS with 127\.0\.0\.1:\d+ \(.+\) -> http://"):
            await reachable([spec])
        (tmp_path / "ca.pem").write_text("nothing")
        with pytest.raises(WrongUsage, match=r"--env app: ca=.*ca\.pem"):
            await reachable([EnvSpec(name="app", upstream=spec.upstream, ca=tmp_path / "ca.pem")])


async def test_doctor_says_the_same_of_a_certificate(secure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_listeners.shutil, "which", lambda name: None)
    spec = EnvSpec(name="app", upstream=secure)
    found = await doctor.diagnose(RecordOptions(store=Path("unused"), run="r", envs=(spec,)), wanted("none"))
    assert found.exit == Exit.WORLD
    failed = [check.text for check in found.checks if check.level == "FAIL"]
    assert len(failed) == 1
    assert re.match(untrusted(secure), failed[0])
