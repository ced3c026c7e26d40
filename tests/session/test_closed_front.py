"""A closed replay behind the front: whatever an agent tries, nothing is looked up and nothing contacted.

The interpreter's own audit hook counts here, in a process of its own, beside the guard that the replay uses: the first
sees also what the guard refused.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from replayproxy.core.values import EnvWiring, Run
from replayproxy.proxy import front
from replayproxy.storage import open_store
from replayproxy.testing import episode as made_episode
from replayproxy.testing import exchange, trace

SERVE = """
import asyncio, json, sys
from pathlib import Path
tried, misses = [], []
def watch(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr",
                 "socket.sendto", "socket.sendmsg"):
        tried.append([event, repr(arguments[1:] if event == "socket.connect" else arguments)])
from replayproxy.session.closed import Guard
from replayproxy.session.replay import replay
from replayproxy.session.replay_options import ReplayOptions
from replayproxy.storage import open_store
from replayproxy.proxy import front
class Told:
    def serving(self, stage, urls, control): sys.addaudithook(watch)
    def miss(self, document): misses.append(document)
    def interrupted(self): pass
async def main(store, faults, command):
    if faults == "guard":
        front.FrontAddon.server_connect = raises(front.FrontAddon.server_connect)
    if faults == "requestheaders":
        def broken(self, flow): raise RuntimeError("planted")
        front.FrontAddon.requestheaders = broken
    with open_store(Path(store)) as opened:
        reader = opened.reader()
        options = ReplayOptions(forward=("127.0.0.1", 0))
        came = await replay(reader, reader.resolve("r/e"), options, command, tell=Told(), guard=Guard())
    print(json.dumps({"receipt": came.receipt, "tried": tried, "misses": misses}))
def raises(stock):
    async def server_connect(self, data):
        class Unfit(tuple):
            def __eq__(self, other): raise RuntimeError("planted in the guard")
            __hash__ = tuple.__hash__
        data.server.address = Unfit(data.server.address)
        await stock(self, data)
    return server_connect
asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
"""

ASK = """
import json, os, socket, ssl, sys
where = os.environ["http_proxy"].partition("://")[2].rpartition(":")
trust = ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"])
def say(data): sock.sendall(data)
def hear():
    sock.settimeout(3)
    try: return sock.recv(65536)
    except (OSError, ssl.SSLError): return b""
def ask(address):
    say(b"GET %s HTTP/1.1\\r\\nHost: app.test\\r\\n\\r\\n" % address)
    return hear()
def tunnel(authority):
    say(b"CONNECT %s HTTP/1.1\\r\\nHost: %s\\r\\n\\r\\n" % (authority, authority))
    return hear()
def tls(name, *protocols, context=trust):
    global sock
    context.set_alpn_protocols(list(protocols or ("http/1.1",)))
    sock = context.wrap_socket(sock, server_hostname=name)
heard = {}
for name, case in json.loads(sys.argv[1]).items():
    sock = socket.create_connection((where[0], int(where[2])), 5)
    out = {}
    exec(case, globals(), out)
    heard[name] = out.get("got", b"").decode("latin-1")
    sock.close()
print(json.dumps(heard), flush=True)
"""

UPGRADE = (
    b"GET %s HTTP/1.1\\r\\nHost: app.test\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\\r\\nSec-WebSocket-Version: 13\\r\\n\\r\\n"
).decode()
DNS = "001d0001010000010000000000000361707004746573740000010001"
H2 = """
import h2.connection, h2.config
c = h2.connection.H2Connection(h2.config.H2Configuration()); c.initiate_connection()
c.send_headers(1, [(':method', 'GET'), (':scheme', 'https'), (':authority', 'app.test'), (':path', '/h2')], True)
say(c.data_to_send()); got = sock.selected_alpn_protocol().encode()
while not any(type(event).__name__ == "StreamEnded" for event in c.receive_data(hear())): pass
"""

CASES = {
    "plain": "got = ask(b'http://app.test/plain')",
    "tls h1": "tunnel(b'app.test:443'); tls('app.test'); got = ask(b'/h1')",
    "tls h2": "tunnel(b'app.test:443'); tls('app.test', 'h2', 'http/1.1')" + H2,
    "IPv4": "tunnel(b'192.0.2.7:8443'); tls('192.0.2.7'); got = ask(b'/4')",
    "IPv6": "tunnel(b'[2001:db8::7]:8443'); tls('2001:db8::7'); got = ask(b'/6')",
    "port 80 in a tunnel": "tunnel(b'app.test:80'); got = ask(b'/80')",
    "port 22, raw TCP": "tunnel(b'app.test:22'); say(b'SSH-2.0-OpenSSH_9.2\\r\\n'); got = hear()",
    "port 53, raw TCP": f"tunnel(b'app.test:53'); say(bytes.fromhex('{DNS}')); got = hear()",
    "silence": "tunnel(b'app.test:443'); import time; time.sleep(0.3)",
    "a refused CA": (
        "tunnel(b'app.test:443')\n"
        "try: tls('app.test', context=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))\n"
        "except ssl.SSLError: got = b'refused'"
    ),
    "ws": f"say(b'{UPGRADE % 'http://app.test/ws'}'); got = hear()",
    "wss": f"tunnel(b'app.test:443'); tls('app.test'); say(b'{UPGRADE % '/wss'}'); got = hear()",
    "unknown host, plain": "got = ask(b'http://unknown.test/')",
    "unknown host, tunnel": "got = tunnel(b'unknown.test:443')",
    "the proxy itself": "got = ask(b'http://%s:%s/' % (where[0].encode(), where[2].encode()))",
}  # fmt: skip
SAYS = {
    "plain": "HTTP/1.1 200", "tls h1": "HTTP/1.1 200", "tls h2": "h2", "IPv4": "HTTP/1.1 200", "IPv6": "HTTP/1.1 200",
    "port 80 in a tunnel": "HTTP/1.1 200", "port 22, raw TCP": "HTTP/1.1 400", "port 53, raw TCP": "HTTP/1.1 400",
    "silence": "", "a refused CA": "refused", "ws": "HTTP/1.1 470", "wss": "HTTP/1.1 470",
    "unknown host, plain": "HTTP/1.1 470", "unknown host, tunnel": "HTTP/1.1 470", "the proxy itself": "HTTP/1.1 400",
}  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("closed") / "store"
    ports = ((443, "https"), (80, "http"), (22, "http"), (53, "http"))
    met = {"forward": True}
    envs = {f"app{port}": EnvWiring(name=f"app{port}", upstream=f"{scheme}://app.test:{port}", options=met)
            for port, scheme in ports}  # fmt: skip
    for name, url in (("four", "https://192.0.2.7:8443"), ("six", "https://[2001:db8::7]:8443")):
        envs[name] = EnvWiring(name=name, upstream=url, options={"forward": True})
    envs["app443"] = EnvWiring(name="app443", upstream="https://app.test", options={"forward": True, "h2": True})
    with open_store(path, create=True) as opened:
        writer = opened.writer()
        run = writer.open_run(Run(key=0, name="r", opened_wall=1, envs=envs))
        episode = writer.open_episode(made_episode("e", run_key=run.key))
        said = {"/plain": "app80", "/80": "app80", "/h1": "app443", "/h2": "app443", "/4": "four", "/6": "six"}
        for one in trace([exchange(env=name, target=target) for target, name in said.items()]).exchanges:
            writer.put_exchange(episode.key, one)
        writer.seal(episode).result(10)
        writer.close()
    return path


def served(store: Path, cases: Mapping[str, str], faults: str = "") -> tuple[dict[str, Any], dict[str, str]]:
    """What the replaying process tells, and what each case heard."""
    command = (sys.executable, "-c", ASK, json.dumps(cases))
    words = [sys.executable, "-c", SERVE, str(store), faults, *command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    heard, told = done.stdout.splitlines()
    return json.loads(told), json.loads(heard)


def outside(tried: list[list[str]]) -> list[list[str]]:
    """Without the one way that is allowed: from the front to the origin, both on the loopback."""
    return [one for one in tried if not (one[0] == "socket.connect" and one[1].startswith("(('127.0.0.1', "))]


def test_nothing_is_looked_up_and_nothing_contacted(store: Path) -> None:
    came, heard = served(store, CASES)
    assert outside(came["tried"]) == []
    receipt = came["receipt"]
    assert (receipt["upstream_contacts"], receipt["faults"], receipt["passed"]) == (0, [], 0)
    assert {name: said[: len(SAYS[name])] for name, said in heard.items()} == SAYS
    assert receipt["served"]["exact"] == 6
    assert len(came["tried"]) >= 6, "the hook sees what is allowed, so it would have seen the rest"
    missed = " ".join(miss["request"] + " " + miss["detail"] for miss in came["misses"])
    for what in (
        "GET /ws",
        "GET /wss",
        "CONNECT unknown.test:443",
        "http://unknown.test",
        "no HTTP request",
        "TLS",
        "own address",
    ):
        assert what in missed, (what, missed)
    assert receipt["requests_missed"] == 8


@pytest.mark.parametrize("fault", ["guard", "requestheaders"])
def test_a_fault_of_our_own_is_refused_and_never_passed_through(store: Path, fault: str) -> None:
    came, heard = served(store, {"plain": CASES["plain"]}, fault)
    assert "HTTP/1.1 502" in heard["plain"]
    assert "a replay is closed" in heard["plain"]
    assert came["tried"] == []
    assert came["receipt"]["faults"]


async def test_options_that_are_not_as_they_must_be_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("mitmproxy.options.Options.update", lambda self, **_: None)
    behind = front.Behind(address=("127.0.0.1", 1), header=b"x-1", length=b"x-1-length")
    made = front.Front(behind, object(), front.Authority(tmp_path / "ca"))  # type: ignore[arg-type]
    before = list(logging.getLogger("mitmproxy").handlers)
    with pytest.raises(RuntimeError, match="connection_strategy"):
        await made.start()
    assert logging.getLogger("mitmproxy").handlers == before
