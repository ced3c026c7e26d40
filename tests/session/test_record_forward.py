"""`record --forward`: clients that take a proxy and no URL, over real sockets, with identity by the proxy's user."""

from __future__ import annotations

import json
import os
import ssl
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from replayproxy.core.hostlist import HostList
from replayproxy.core.values import Exchange
from replayproxy.proxy.ca import Authority
from replayproxy.session.record import Recorded, record
from replayproxy.session.record_options import RecordOptions
from replayproxy.session.wiring import EnvSpec
from replayproxy.storage import open_store
from tests.session.tls_server import TlsFiles, https_site, make_tls_files


class Environment:
    def __init__(self) -> None:
        self.seen: list[tuple[str, str, dict[str, str]]] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.seen.append((request.method, request.raw_path, dict(request.headers)))
        return web.json_response({"path": request.raw_path}, headers={"Alt-Svc": 'h3=":443"', "Location": "/next"})


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return make_tls_files(tmp_path_factory.mktemp("tls"))


@pytest.fixture
async def world(files: TlsFiles) -> AsyncIterator[tuple[Environment, str, str]]:
    """An environment, its http URL and its https URL."""
    environment = Environment()
    async with https_site(environment.answer, None) as plain, https_site(environment.answer, files) as secure:
        yield environment, plain, secure


WORKERS = pytest.mark.parametrize("workers", [1, 2])


def options(tmp_path: Path, **given: Any) -> RecordOptions:
    wired = {"store": tmp_path / "store", "run": "r", "log_every": 0.0, "forward": ("127.0.0.1", 0)}
    return RecordOptions(**{**wired, **given})


async def run(made: RecordOptions, *command: str) -> Recorded:
    return await record(made, command, say=lambda line: None, stdout_to_stderr=True)


def exchanges(made: RecordOptions, episode: str) -> list[Exchange]:
    with open_store(made.store) as store:
        reader = store.reader()
        return list(reader.exchanges(reader.episode(reader.run("r"), episode)))


def https_env(secure: str, files: TlsFiles) -> tuple[EnvSpec, ...]:
    return (EnvSpec(name="app", upstream=secure, ca=files.ca),)


CLIENTS = {
    "curl": "import subprocess; subprocess.run(['curl', '-sSf', URL], check=True)",
    "requests": "import requests; requests.get(URL).json()['path']",
    "httpx": "import httpx; httpx.get(URL).raise_for_status()",
    "urllib": "import urllib.request; urllib.request.urlopen(URL).read()",
    "aiohttp": (
        "import aiohttp, asyncio\n"
        "async def main():\n"
        "    async with aiohttp.ClientSession(trust_env=True) as http:\n"
        "        async with http.get(URL) as answer: answer.raise_for_status()\n"
        "asyncio.run(main())"
    ),
}


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("client", sorted(CLIENTS))
async def test_a_client_that_knows_only_its_proxy_variables_is_recorded(
    world: Any, tmp_path: Path, files: TlsFiles, monkeypatch: pytest.MonkeyPatch, client: str, scheme: str
) -> None:
    environment, plain, secure = world
    monkeypatch.setenv("NO_PROXY", "localhost,127.0.0.1,.internal")
    url = plain if scheme == "http" else secure
    made = options(tmp_path, envs=(EnvSpec(name="app", upstream=url, ca=files.ca),), episode="e")
    code = f"URL = {url + '/a?x=1'!r}\n" + CLIENTS[client]
    recorded = await run(made, sys.executable, "-c", code)
    assert recorded.exit == 0, recorded.document
    (exchange,) = exchanges(made, "e")
    assert (exchange.env, exchange.request.target, exchange.upstream) == ("app", b"/a?x=1", url)
    ((_, _, headers),) = environment.seen
    assert headers["Host"] == url.partition("://")[2]
    assert not [name for name in headers if name.lower().startswith("proxy-")]


async def test_a_client_that_ignores_its_proxy_variables_leaves_a_recording_that_is_not_whole(
    world: Any, tmp_path: Path
) -> None:
    environment, plain, _ = world
    past = "import sys, urllib.request as u; u.build_opener(u.ProxyHandler({})).open(sys.argv[1]).read()"
    recorded = await run(options(tmp_path, episode="e"), sys.executable, "-c", past, plain + "/a")
    assert [target for _, target, _ in environment.seen] == ["/a"]
    assert (recorded.exit, recorded.command_exit) == (3, 0)
    assert recorded.document["whole"] is False
    assert any("its client ignores the proxy variables" in line for line in recorded.lines)
    assert "next: replayproxy doctor --env NAME=URL" in recorded.lines[-1]


async def test_the_flag_that_makes_chromium_trust_us_is_announced(tmp_path: Path) -> None:
    said: list[str] = []
    made = options(tmp_path)
    await record(made, [sys.executable, "-S", "-c", ""], say=said.append, stdout_to_stderr=True)
    key_hash = Authority(made.store / "ca").key_hash
    assert f"  for Chromium  --ignore-certificate-errors-spki-list={key_hash}" in said


@WORKERS
async def test_the_proxy_s_user_names_the_episode_and_reaches_no_environment(
    world: Any, tmp_path: Path, files: TlsFiles, workers: int
) -> None:
    environment, _, secure = world
    made = options(tmp_path, workers=workers, envs=https_env(secure, files))
    code = (
        "import os, subprocess, sys\n"
        "proxy = os.environ['http_proxy']\n"
        "for user in sys.argv[2:]:\n"
        "    through = proxy.replace('://', '://' + user + ':x@')\n"
        "    subprocess.run(['curl', '-sSf', '-x', through, sys.argv[1]], check=True)"
    )
    recorded = await run(made, sys.executable, "-c", code, secure + "/a", "e1", "a:b", "caf%25C3%25A9", "p%2525q")
    assert recorded.exit == 0, recorded.document
    for name in ("e1", "a:b", "café", "p%q"):
        (exchange,) = exchanges(made, name)
        assert exchange.carrier == "proxy-user"
    assert not any("proxy" in str(headers).lower() for _, _, headers in environment.seen)


async def test_replayproxy_episode_sets_the_user_for_its_command(world: Any, tmp_path: Path) -> None:
    _, plain, _ = world
    made = options(tmp_path)
    command = (sys.executable, "-m", "replayproxy", "episode", "--episode", "a-b%", "--", "curl", "-sSf", plain + "/x")
    assert (await run(made, *command)).exit == 0
    (exchange,) = exchanges(made, "a-b%")
    assert exchange.carrier == "proxy-user"
    assert exchange.env.startswith("env-127-0-0-1-")


@WORKERS
async def test_a_host_that_nobody_named_is_an_environment_by_its_authority(
    world: Any, tmp_path: Path, workers: int
) -> None:
    _, plain, _ = world
    made = options(tmp_path, workers=workers, episode="e")
    assert (await run(made, "curl", "-sSf", plain + "/x")).exit == 0
    with open_store(made.store) as store:
        reader = store.reader()
        wired = reader.run("r").envs
    (exchange,) = exchanges(made, "e")
    assert wired[exchange.env].upstream == plain
    assert exchange.response is not None
    assert (b"Location", b"/next") in exchange.response.fields


@WORKERS
async def test_what_passes_is_counted_apart_and_not_recorded(
    world: Any, tmp_path: Path, files: TlsFiles, workers: int
) -> None:
    environment, plain, secure = world
    passes = HostList.parse([secure.partition("://")[2]])
    made = options(tmp_path, workers=workers, episode="e", passes=passes)
    # The tunnel is passed on as it is: the environment's own certificate is what the client sees.
    script = f"curl -sSf --cacert {files.ca} {secure}/m && curl -sSf {plain}/x"
    recorded = await run(made, "sh", "-c", script)
    assert recorded.exit == 0, recorded.document
    assert recorded.document["passed"] == 1
    assert recorded.document["passed_hosts"] == {secure.partition("://")[2]: 1}
    assert [path for _, path, _ in environment.seen] == ["/m", "/x"]
    assert [one.request.target for one in exchanges(made, "e")] == [b"/x"]
    assert any("passed" in line for line in recorded.lines)


async def test_a_plain_request_that_passes_loses_its_marks(world: Any, tmp_path: Path) -> None:
    environment, plain, _ = world
    made = options(tmp_path, passes=HostList.parse(["127.0.0.1"]))
    recorded = await run(made, "curl", "-sSf", "-H", "X-Replay-Episode: e", "-d", "x" * 100_000, plain + "/m")
    assert (recorded.exit, recorded.document["passed"]) == (3, 1)
    ((method, _, headers),) = environment.seen
    assert method == "POST"
    assert not [name for name in headers if "replay" in name.lower() or name.lower().startswith("proxy-")]


@WORKERS
async def test_a_request_to_our_own_listener_through_the_forward_proxy_is_recorded_once(
    world: Any, tmp_path: Path, workers: int
) -> None:
    environment, plain, _ = world
    made = options(tmp_path, workers=workers, envs=(EnvSpec(name="app", upstream=plain),))
    code = "curl -sSf $REPLAYPROXY_URL_APP/rp/e1/a -H 'Expect:'"
    recorded = await run(made, "sh", "-c", code)
    assert recorded.exit == 0, recorded.document
    (exchange,) = exchanges(made, "e1")
    assert (exchange.env, exchange.request.target, exchange.carrier) == ("app", b"/a", "prefix")
    assert environment.seen[0][2]["Host"] == plain.partition("://")[2]


@WORKERS
async def test_a_client_that_waits_to_be_asked_gets_a_407(
    world: Any, tmp_path: Path, files: TlsFiles, workers: int
) -> None:
    environment, plain, secure = world
    made = options(tmp_path, workers=workers, envs=https_env(secure, files), forward_auth=True)
    script = (
        f"test $(curl -s -o /dev/null -w %{{http_code}} {plain}/a) = 407 && "
        f"test $(curl -s -o /dev/null -w %{{http_connect}} {secure}/a) = 407 && "
        # --proxy-anyauth sends credentials only after the challenge, as browsers do
        f"curl -sSf --proxy-anyauth -U e1:x {plain}/b && curl -sSf --proxy-anyauth -U e1:x {secure}/c"
    )
    recorded = await run(made, "sh", "-c", script)
    assert recorded.exit == 0, recorded.document
    assert [one.request.target for one in exchanges(made, "e1")] == [b"/b", b"/c"]
    assert len(environment.seen) == 2


@WORKERS
async def test_the_control_api_is_reached_through_the_proxy_and_never_recorded(
    world: Any, tmp_path: Path, workers: int
) -> None:
    _, plain, _ = world
    made = options(tmp_path, workers=workers, episode="e")
    script = f"curl -sSf $REPLAYPROXY_CONTROL/v1/health && curl -sSf {plain}/a"
    recorded = await run(made, "sh", "-c", script)
    assert recorded.exit == 0, recorded.document
    assert [one.request.target for one in exchanges(made, "e")] == [b"/a"]
    assert recorded.document["passed"] == 0


async def test_the_child_trusts_our_authority_and_the_roots_it_had(
    world: Any, tmp_path: Path, files: TlsFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(files.ca))
    made = options(tmp_path, episode="e", ready_file=tmp_path / "ready.json")
    code = (
        "import json, os, ssl\n"
        "names = ['SSL_CERT_FILE', 'REQUESTS_CA_BUNDLE', 'CURL_CA_BUNDLE', 'NODE_EXTRA_CA_CERTS']\n"
        "(bundle,) = {os.environ[name] for name in names}\n"
        "subjects = [c['subject'] for c in ssl.create_default_context(cafile=bundle).get_ca_certs()]\n"
        f"ready = json.load(open({str(tmp_path / 'ready.json')!r}))\n"
        "variables = {os.environ[n] for n in ('http_proxy', 'HTTP_PROXY', 'https_proxy', 'HTTPS_PROXY')}\n"
        "assert variables == {ready['forward']} and os.environ['NODE_USE_ENV_PROXY'] == '1'\n"
        "json.dump([bundle, str(subjects), os.environ['REPLAYPROXY_CA_KEY_HASH']], open(os.environ['OUT'], 'w'))"
    )
    monkeypatch.setenv("OUT", str(tmp_path / "out.json"))
    await run(made, sys.executable, "-c", code)
    bundle, subjects, key_hash = json.loads((tmp_path / "out.json").read_text())
    assert key_hash == Authority(made.store / "ca").key_hash != ""
    assert "replayproxy" in subjects
    ours = [ssl.PEM_cert_to_DER_cert(files.ca.read_text())]
    assert ssl.create_default_context(cafile=bundle).get_ca_certs(binary_form=True).count(ours[0]) == 1
    folder = Path(bundle).parent
    assert folder == made.store / "ca"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "replayproxy-ca.pem").stat().st_mode & 0o777 == 0o600
    before = (folder / "replayproxy-ca.pem").read_bytes()
    await run(options(tmp_path, run="second"), "true")
    assert (folder / "replayproxy-ca.pem").read_bytes() == before, "the authority is made once per store"


async def test_nothing_is_written_to_the_user_s_home(
    world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    _, plain, _ = world
    assert (await run(options(tmp_path, episode="e"), "curl", "-sSf", plain)).exit == 0
    assert os.listdir(home) == []


@WORKERS
async def test_an_agent_that_does_not_trust_our_authority_is_reported(
    world: Any, tmp_path: Path, files: TlsFiles, workers: int
) -> None:
    _, plain, secure = world
    made = options(tmp_path, workers=workers, envs=https_env(secure, files), episode="e")
    script = f"curl -sS --cacert {files.ca} {secure}/a; test $? = 60 && curl -sSf {plain}/b"
    recorded = await run(made, "sh", "-c", script)
    assert recorded.document["tls_refused"] == 1
    assert any("NOT RECORDED 1 TLS connection" in line for line in recorded.lines)


async def test_the_proxy_itself_may_be_spoken_to_over_tls(world: Any, tmp_path: Path, files: TlsFiles) -> None:
    _, plain, secure = world
    made = options(tmp_path, envs=https_env(secure, files))
    through = 'curl -sSf --proxy-cacert $SSL_CERT_FILE -x "$(echo $http_proxy | sed s,http://,https://e1:x@,)"'
    recorded = await run(made, "sh", "-c", f"set -e; {through} {plain}/a; {through} {secure}/b")
    assert recorded.exit == 0, recorded.document
    assert [one.request.target for one in exchanges(made, "e1")] == [b"/a", b"/b"]
