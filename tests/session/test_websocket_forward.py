"""WebSockets through the forward proxy, plain and inside CONNECT and TLS, replayed with the servers stopped."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from aiohttp import web

from replayproxy.session.wiring import EnvSpec
from replayproxy.storage import open_store
from tests.session.test_replay_forward import Lab
from tests.session.tls_server import TlsFiles, https_site, make_tls_files

AGENT = """
import asyncio, json, os, sys
import aiohttp

async def main(out, say, *urls):
    seen = []
    async with aiohttp.ClientSession() as session:
        for url in urls:
            proxy = os.environ.get(url.partition(":")[0] + "_proxy")
            async with session.ws_connect(url + "/ws?x=1", proxy=proxy, autoclose=False) as socket:
                key = {"api_key": os.environ["KEY"]} if "KEY" in os.environ else {}
                await socket.send_str(json.dumps({"say": say, **key}))
                got = await socket.receive(10)
                seen.append([got.type.value, got.data, got.extra])
                await socket.close(code=4001, message=b"bye")
    open(out, "w").write(json.dumps(seen))

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return make_tls_files(tmp_path_factory.mktemp("tls"))


async def speaks(request: web.Request) -> web.StreamResponse:
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    async for message in socket:
        await socket.send_str(f"{request.raw_path}: {message.data}")
    return socket


async def test_conversations_replay_through_the_same_front(tmp_path: Path, files: TlsFiles) -> None:
    lab = Lab(tmp_path, files)
    script = tmp_path / "agent.py"
    script.write_text(AGENT)

    def agent(out: str, say: str, *urls: str) -> str:
        return " ".join([sys.executable, str(script), str(tmp_path / out), say, *urls])

    async with https_site(speaks, None) as plain, https_site(speaks, files) as secure:
        await lab.record(agent("recorded", "hi", plain, secure), secure, episode="e")
    came = await lab.replay(agent("replayed", "hi", plain, secure))
    assert came.receipt["reproduced"] is True, came.receipt
    assert (came.receipt["served"]["exact"], came.receipt["upstream_contacts"], came.exit) == (2, 0, 0)
    seen = json.loads((tmp_path / "recorded").read_text())
    assert seen == [[1, '/ws?x=1: {"say": "hi"}', ""]] * 2
    assert json.loads((tmp_path / "replayed").read_text()) == seen

    came = await lab.replay(agent("other", "ho", secure))
    assert came.receipt["first_divergence"]["pointer"] == "messages/1/say"
    assert json.loads((tmp_path / "other").read_text()) == [[8, 4470, "messages/1/say: recorded hi, asked ho"]], (
        "the close passes the front with its code and reason"
    )


async def test_a_listener_that_speaks_tls_carries_conversations(tmp_path: Path, files: TlsFiles) -> None:
    lab = Lab(tmp_path, files)
    script = tmp_path / "agent.py"
    script.write_text(AGENT)
    line = f"{sys.executable} {script} {tmp_path}/%s hi $REPLAYPROXY_URL_APP"
    async with https_site(speaks, files) as secure:
        lab.envs = (EnvSpec(name="app", upstream=secure, ca=files.ca, tls=True),)
        await lab.record(line % "recorded", episode="e", forward=None)
    came = await lab.replay(line % "replayed", forward=None)
    assert came.receipt["reproduced"] is True, came.receipt
    assert (came.receipt["served"]["exact"], came.receipt["upstream_contacts"]) == (1, 0)
    assert (tmp_path / "replayed").read_text() == (tmp_path / "recorded").read_text()


async def test_a_secret_in_a_message_is_stored_as_its_token_and_matches(
    tmp_path: Path, files: TlsFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "planted-hunter2-hunter2"
    monkeypatch.setenv("KEY", secret)
    lab = Lab(tmp_path, files)
    script = tmp_path / "agent.py"
    script.write_text(AGENT)
    async with https_site(speaks, None) as plain:
        line = " ".join([sys.executable, str(script), str(tmp_path / "seen"), "hi", plain])
        await lab.record(line, episode="e")
        assert secret in (tmp_path / "seen").read_text(), "the traffic is never altered"
    kept = b"".join(path.read_bytes() for path in lab.store.rglob("*") if path.is_file())
    assert secret.encode() not in kept
    with open_store(lab.store) as store:
        reader = store.reader()
        (one,) = reader.exchanges(reader.episode(reader.run("r"), "e"), bodies=1 << 20)
        assert one.websocket is not None
        said = [message.payload.decode() for message in one.websocket.messages]
    assert all("rp-secret-" in each and secret not in each for each in said)
    came = await lab.replay(line)
    assert came.receipt["reproduced"] is True, came.receipt
    monkeypatch.setenv("KEY", "planted-another-one-else")
    came = await lab.replay(line)
    assert came.receipt["first_divergence"]["pointer"] == "messages/1/api_key"
    assert "planted" not in json.dumps(came.receipt)
