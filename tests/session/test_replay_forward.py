"""`replay --forward`: what was recorded through the forward proxy is answered with the servers stopped."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from replayproxy.core.hostlist import HostList
from replayproxy.errors import WrongUsage
from replayproxy.proxy import listeners
from replayproxy.session.closed import Guard
from replayproxy.session.record import record
from replayproxy.session.record_options import RecordOptions
from replayproxy.session.replay import Replayed, replay
from replayproxy.session.replay_options import ReplayOptions
from replayproxy.session.wiring import EnvSpec
from replayproxy.storage import Store, open_store
from replayproxy.testing import exchange
from tests.session.test_record_forward import CLIENTS
from tests.session.test_replay import Told
from tests.session.test_replay import record as put
from tests.session.tls_server import TlsFiles, https_site, make_tls_files


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return make_tls_files(tmp_path_factory.mktemp("tls"))


async def answer(request: web.Request) -> web.StreamResponse:
    if request.path == "/stream":
        stream = web.StreamResponse(headers={"X-Odd-CASE": "1"})
        stream.enable_chunked_encoding()
        await stream.prepare(request)
        for piece in (b"one", b"two"):
            await stream.write(piece)
            await asyncio.sleep(0.02)
        return stream
    return web.Response(body=request.raw_path.encode() + await request.read(), headers={"X-Odd-CASE": "1"})


class Lab:
    """Records COMMAND through the forward proxy, and replays it with the servers stopped."""

    def __init__(self, folder: Path, files: TlsFiles) -> None:
        self.store, self._files = folder / "store", files
        self.told = Told()
        self.guard = Guard()
        self.envs: tuple[EnvSpec, ...] = ()

    async def record(self, script: str, secure: str = "", **given: Any) -> None:
        envs = self.envs or ((EnvSpec(name="app", upstream=secure, ca=self._files.ca),) if secure else ())
        wired: dict[str, Any] = {"forward": ("127.0.0.1", 0), "envs": envs, "log_every": 0.0, **given}
        made = RecordOptions(**{"store": self.store, "run": "r", **wired})
        recorded = await record(made, ("sh", "-c", script), say=lambda line: None, stdout_to_stderr=True)
        assert recorded.exit == 0, recorded.document

    async def replay(self, script: str, address: str = "r", **given: Any) -> Replayed:
        made = ReplayOptions(**{"forward": ("127.0.0.1", 0), **given})
        with open_store(self.store) as store:
            reader = store.reader()
            return await replay(
                reader, reader.resolve(address), made, ("sh", "-c", script), tell=self.told, guard=self.guard,
                stdout_to_stderr=True,
            )  # fmt: skip


@pytest.fixture
def lab(tmp_path: Path, files: TlsFiles) -> Lab:
    return Lab(tmp_path, files)


@pytest.fixture
async def sites(files: TlsFiles) -> AsyncIterator[tuple[str, str]]:
    async with https_site(answer, None) as plain, https_site(answer, files) as secure:
        yield plain, secure


def both(plain: str, secure: str, out: Path) -> str:
    lines = []
    for number, url in enumerate((plain, secure)):
        lines.append(f"curl -sSf -i {url}/a?x=1 > {out}/{number}-a")
        lines.append(f"curl -sSf -i -d some=form {url}/b > {out}/{number}-b")
        lines.append(f"curl -sSf -i --raw {url}/stream > {out}/{number}-stream")
    return "set -e; " + "; ".join(lines)


async def test_curl_gets_the_recorded_bytes_with_the_servers_stopped(lab: Lab, tmp_path: Path, files: TlsFiles) -> None:
    recorded, replayed = tmp_path / "recorded", tmp_path / "replayed"
    recorded.mkdir()
    replayed.mkdir()
    async with https_site(answer, None) as plain, https_site(answer, files) as secure:
        await lab.record(both(plain, secure, recorded), secure, episode="e")
    came = await lab.replay(both(plain, secure, replayed))
    assert came.receipt["reproduced"] is True, came.receipt
    assert (came.receipt["served"]["exact"], came.receipt["upstream_contacts"], came.exit) == (6, 0, 0)
    for one in sorted(recorded.iterdir()):
        assert (replayed / one.name).read_bytes() == one.read_bytes(), one.name


async def test_each_episode_is_found_by_the_proxy_s_user(lab: Lab, files: TlsFiles) -> None:
    script = (
        "set -e; for e in e1 a%253Ab; do "
        'curl -sSf -x "$(echo $https_proxy | sed s,://,://$e:x@,)" %s/$e; done'
    )  # fmt: skip
    async with https_site(answer, files) as secure:
        await lab.record(script.replace("%s", secure), secure)
    came = await lab.replay(script.replace("%s", secure))
    assert came.receipt["reproduced"] is True, came.receipt
    assert sorted(one["episode"] for one in came.receipt["episodes"]) == ["a:b", "e1"]


async def test_a_host_that_was_not_recorded_is_answered_here_and_reported(
    lab: Lab, sites: tuple[str, str], tmp_path: Path
) -> None:
    plain, _ = sites
    await lab.record(f"curl -sSf {plain}/a", episode="e")
    script = (
        f"curl -sSf {plain}/a; curl -sk -w '%{{http_connect}}' https://unknown.invalid/x > {tmp_path}/connect; "
        f"curl -s -w '%{{http_code}}' http://unknown.invalid/y > {tmp_path}/plain; true"
    )
    came = await lab.replay(script)
    assert (tmp_path / "connect").read_text() == "470"
    assert (tmp_path / "plain").read_text().endswith("470")
    assert (came.receipt["reproduced"], came.receipt["upstream_contacts"], came.exit) == (False, 0, 1)
    told = [miss["request"] for miss in lab.told.misses]
    assert told == ["CONNECT unknown.invalid:443", "GET /y"]


async def test_what_passes_goes_out_and_is_counted_apart(lab: Lab, files: TlsFiles, tmp_path: Path) -> None:
    async with https_site(answer, None) as plain:
        await lab.record(f"curl -sSf {plain}/a", episode="e")
    async with https_site(answer, None) as model, https_site(answer, files) as secret:
        hosts = [one.partition("://")[2].replace("127.0.0.1", "localhost") for one in (model, secret)]
        script = (
            f"set -e; curl -sSf {plain}/a; curl -sSf http://{hosts[0]}/m > {tmp_path}/m; "
            f"curl -sSf --cacert {files.ca} https://{hosts[1]}/s > {tmp_path}/s"
        )
        came = await lab.replay(script, passes=HostList.parse(hosts))
    assert came.receipt["reproduced"] is True, came.receipt
    assert (came.receipt["passed"], came.receipt["upstream_contacts"]) == (2, 0)
    assert ((tmp_path / "m").read_text(), (tmp_path / "s").read_text()) == ("/m", "/s")


async def test_a_recording_of_a_reverse_listener_is_replayed_through_the_forward_proxy(
    lab: Lab, sites: tuple[str, str]
) -> None:
    plain, _ = sites
    lab.envs = (EnvSpec(name="app", upstream=plain),)
    await lab.record(
        f"curl -sSf --noproxy '*' $REPLAYPROXY_URL_APP/rp/e1/a; curl -sSf {plain}/b -H 'X-Replay-Episode: e1'"
    )
    through_own_listener = "curl -sSf $REPLAYPROXY_URL_APP/rp/e1/a"
    came = await lab.replay(f"curl -sSf {plain}/b -H 'X-Replay-Episode: e1'; {through_own_listener}")
    assert came.receipt["reproduced"] is True, came.receipt


async def test_a_replay_without_forward_or_tls_does_not_import_mitmproxy(lab: Lab, sites: tuple[str, str]) -> None:
    await lab.record(f"curl -sSf {sites[0]}/a", episode="e")
    code = (
        "import sys; from replayproxy.cli.main import run\n"
        f"code = run(['replay', 'r', '--store', {str(lab.store)!r}, '--', 'true'])\n"
        "assert 'mitmproxy' not in sys.modules, 'imported'; sys.exit(0 if code == 3 else 9)"
    )
    done = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
    assert await done.wait() == 0


@pytest.mark.parametrize(("forward", "told"), [(None, 2), (("127.0.0.1", 0), 0)])
async def test_what_was_loaded_is_settled_only_where_no_front_is_open(
    store: Store, forward: tuple[str, int] | None, told: int
) -> None:
    put(store, {"a": [exchange("GET", "/x")], "b": [exchange("GET", "/x")]})
    reader, loaded = store.reader(), []
    asked = "u=${REPLAYPROXY_URL_APP%/base}; curl -sSf --noproxy '*' $u/rp/a/x $u/rp/b/x"
    came = await replay(
        reader, reader.resolve("r"), ReplayOptions(forward=forward), ("sh", "-c", asked), tell=Told(),
        on_loaded=lambda: loaded.append(1), stdout_to_stderr=True,
    )  # fmt: skip
    assert came.receipt["reproduced"], came.receipt
    assert len(loaded) == told


@pytest.mark.parametrize("client", sorted(CLIENTS))
async def test_a_client_that_knows_only_its_proxy_variables_is_answered(
    lab: Lab, files: TlsFiles, tmp_path: Path, client: str
) -> None:
    def script(plain: str, secure: str) -> str:
        calls = [f"URL = {url!r}\n{CLIENTS[client]}" for url in (plain + "/a?x=1", secure + "/b")]
        for number, code in enumerate(calls):
            (tmp_path / f"{number}.py").write_text(code)
        return f"set -e; {sys.executable} {tmp_path}/0.py; {sys.executable} {tmp_path}/1.py"

    async def told(request: web.Request) -> web.StreamResponse:
        return web.json_response({"path": request.raw_path})

    async with https_site(told, None) as plain, https_site(told, files) as secure:
        await lab.record(script(plain, secure), secure, episode="e")
    came = await lab.replay(script(plain, secure))
    assert came.receipt["reproduced"] is True, came.receipt
    assert (came.receipt["served"]["exact"], came.receipt["upstream_contacts"], came.exit) == (2, 0, 0)


WEBSOCKET = """
import asyncio, aiohttp, os, ssl, sys
async def main(url):
    trust = ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"])
    async with aiohttp.ClientSession() as http:
        async with http.ws_connect(url, proxy=os.environ["http_proxy"], ssl=trust) as talk:
            await talk.send_str('{"n": 1}')
            assert (await talk.receive_str()) == 'heard {"n": 1}'
            await talk.close(code=1000)
for url in sys.argv[1:]: asyncio.run(main(url))
"""


async def test_websockets_pass_the_front(lab: Lab, files: TlsFiles, tmp_path: Path) -> None:
    async def talks(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            await socket.send_str(f"heard {message.data}")
        return socket

    (tmp_path / "talk.py").write_text(WEBSOCKET)
    async with https_site(talks, None) as plain, https_site(talks, files) as secure:
        script = f"{sys.executable} {tmp_path}/talk.py {plain}/ws {secure}/wss"
        await lab.record(script, secure, episode="e")
    came = await lab.replay(script)
    assert (came.command_exit, came.receipt["reproduced"]) == (0, True), came.receipt
    assert came.receipt["upstream_contacts"] == 0


async def test_no_listener_of_ours_takes_the_port_that_an_environment_had(
    lab: Lab, files: TlsFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with https_site(answer, None) as plain, https_site(answer, files) as secure:
        await lab.record(f"set -e; curl -sSf {plain}/a; curl -sSf {secure}/b", secure, episode="e")
    free = listeners._bound
    chosen = cycle([*(int(url.rpartition(":")[2]) for url in (plain, secure)), 0])

    def theirs_first(host: str, port: int, option: str) -> socket.socket:
        return free(host, port or next(chosen), option)

    monkeypatch.setattr(listeners, "_bound", theirs_first)
    came = await lab.replay(f"set -e; curl -sSf {plain}/a; curl -sSf {secure}/b")
    assert came.receipt["reproduced"] is True, came.receipt


async def test_an_address_of_the_recording_is_no_forward_proxy_s(lab: Lab, sites: tuple[str, str]) -> None:
    plain, _ = sites
    await lab.record(f"curl -sSf {plain}/a", episode="e")
    with pytest.raises(WrongUsage, match=r"--forward 127.0.0.1:.* of the recording has this address -> --forward 0"):
        await lab.replay("true", forward=("127.0.0.1", int(plain.rpartition(":")[2])))


async def test_a_request_to_the_proxy_itself_is_in_the_receipt(lab: Lab, sites: tuple[str, str]) -> None:
    plain, _ = sites
    await lab.record(f"curl -sSf {plain}/a", episode="e")
    came = await lab.replay(f"curl -sSf {plain}/a; curl -s $http_proxy/x; true")
    assert (came.receipt["reproduced"], came.exit) == (False, 1)
    assert "own address" in str(lab.told.misses)
