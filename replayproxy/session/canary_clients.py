"""The clients that `doctor` tries, as data: what each needs, what it is called with, and in which ways it is tried.

A source is small on purpose: it does what an agent written with that library would do, and nothing about proxies or
certificates but what its name says. It ends with 0 only when it has the whole answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

type Style = Literal["append", "resolve", "port", "forward"]
type Transport = Literal["http", "https", "ws", "wss", "h2"]
type Way = tuple[Style, Transport]

STYLES: dict[Style, str] = {
    "append": "listener URL, path appended",
    "resolve": "listener URL, path resolved against it",
    "port": "listener port of the episode (--url-style port)",
    "forward": "proxy variables (record --forward)",
}

LISTENER = "use the listener URL"
"""What helps every client that goes past the proxy variables."""

NODE_SINCE = "NODE_USE_ENV_PROXY=1 needs Node 22.21, or >= 24.5 (fetch: 24.0)"


_NODE_UNSET = "keep NODE_USE_ENV_PROXY=1 in its environment, with a Node that knows it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """`program`: the names under which it may be on PATH, or () for Python; `modules`: what its interpreter must have,
    the first of which gives the version. In `argv`, `{url}`, `{how}`, `{base}`, `{path}`, `{page}` and `{folder}` are
    filled in. `without`: variables that are taken away. `past`: what to do when it goes past the proxy."""

    name: str
    argv: tuple[str, ...]
    ways: tuple[Way, ...]
    program: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    seconds: float = 5.0
    past: str = LISTENER
    distrusts: str = ""

    @property
    def needs(self) -> str:
        return " or ".join(self.program) if self.program else " and ".join(self.modules) or "Python"


REVERSE: tuple[Way, ...] = (("append", "http"), ("append", "https"))
FORWARD: tuple[Way, ...] = (("forward", "http"), ("forward", "https"))
RESOLVING: tuple[Way, ...] = (("resolve", "http"), ("port", "http"))

_PYTHON = """import sys
from urllib.parse import urljoin
how, base, path = sys.argv[1:]
url = base + path if how == "append" else urljoin(base + "/", path)
"""

_REQUESTS = _PYTHON + "import requests\nrequests.get(url, timeout=4).raise_for_status()\n"

_URLLIB = _PYTHON + "import urllib.request\nurllib.request.urlopen(url, timeout=4).read()\n"

_HTTPX = """import sys, httpx
how, base, path = sys.argv[1:4]
with httpx.Client(base_url=base, http2=sys.argv[4:] == ["h2"], timeout=4) as client:
    answer = client.get(path)
answer.raise_for_status()
if sys.argv[4:] == ["h2"] and answer.http_version != "HTTP/2":
    sys.exit(f"it spoke {answer.http_version}")
"""

_AIOHTTP = """import asyncio, sys, aiohttp
how, base, path, trust = sys.argv[1:]
async def main():
    base_url = None if how == "append" else base + "/"
    timeout = aiohttp.ClientTimeout(total=4)
    async with aiohttp.ClientSession(base_url, trust_env=trust == "trust", timeout=timeout) as session:
        async with session.get(base + path if how == "append" else path) as answer:
            answer.raise_for_status()
            await answer.read()
asyncio.run(main())
"""

_AIOHTTP_WEBSOCKET = """import asyncio, sys, aiohttp
how, base, path, trust = sys.argv[1:]
async def main():
    async with aiohttp.ClientSession(trust_env=trust == "trust", timeout=aiohttp.ClientTimeout(total=4)) as session:
        async with session.ws_connect(base + path) as socket:
            await socket.send_str("canary")
            if await socket.receive_str(timeout=4) != "canary":
                sys.exit("another message came back")
asyncio.run(main())
"""

_WEBSOCKETS = """import sys
from websockets.sync.client import connect
how, base, path = sys.argv[1:]
url = "ws" + (base + path).removeprefix("http")
with connect(url, open_timeout=4) as socket:
    socket.send("canary")
    if socket.recv(timeout=4) != "canary":
        sys.exit("another message came back")
"""

_NODE_URL = """const [how, base, path] = process.argv.slice(1);
const url = how === 'append' ? base + path : String(new URL(path, base));
const fail = error => { console.error(String(error.cause ?? error)); process.exit(1); };
"""

_NODE_FETCH = (
    _NODE_URL
    + """fetch(url).then(async answer => {
  await answer.arrayBuffer();
  if (!answer.ok) fail(`status ${answer.status}`);
}).catch(fail);
"""
)

_NODE_HTTP = (
    _NODE_URL
    + """require(url.startsWith('https') ? 'https' : 'http').get(url, answer => {
  if (answer.statusCode !== 200) fail(`status ${answer.statusCode}`);
  answer.on('end', () => process.exit(0)).resume();
}).on('error', fail);
"""
)

_PLACES = ("{how}", "{base}", "{path}")
_CURL = ("--silent", "--show-error", "--fail", "--max-time", "4")

_CHROMIUM = (
    "--headless", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--disable-dev-shm-usage", "--user-data-dir={folder}", "--dump-dom",
)  # fmt: skip
_CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome")
_CHROMIUM_FLAGS = "--proxy-server=PROXY --proxy-bypass-list=<-loopback>"
_CHROMIUM_TRUST = "it reads no CA variable: --ignore-certificate-errors-spki-list=HASH (record prints it)"

CLIENTS: tuple[Client, ...] = (
    Client(name="requests", modules=("requests",), argv=("-c", _REQUESTS, *_PLACES), ways=(*REVERSE, *FORWARD)),
    Client(name="httpx", modules=("httpx",), argv=("-c", _HTTPX, *_PLACES), ways=(*REVERSE, *FORWARD)),
    Client(
        name="httpx-h2", modules=("httpx", "h2"), argv=("-c", _HTTPX, *_PLACES, "h2"),
        ways=(("append", "h2"), ("forward", "h2")),
    ),
    Client(
        name="aiohttp", modules=("aiohttp",), argv=("-c", _AIOHTTP, *_PLACES, "no"),
        ways=(*REVERSE, *RESOLVING, ("forward", "http")), past=f"ClientSession(trust_env=True), or {LISTENER}",
    ),
    Client(
        name="aiohttp-trust-env", modules=("aiohttp",), argv=("-c", _AIOHTTP, *_PLACES, "trust"), ways=FORWARD,
    ),
    Client(
        name="aiohttp-websocket", modules=("aiohttp",), argv=("-c", _AIOHTTP_WEBSOCKET, *_PLACES, "no"),
        ways=(("append", "ws"), ("append", "wss"), ("forward", "ws")),
        past=f"ClientSession(trust_env=True), or {LISTENER}",
    ),
    Client(
        name="aiohttp-websocket-trust-env", modules=("aiohttp",),
        argv=("-c", _AIOHTTP_WEBSOCKET, *_PLACES, "trust"), ways=(("forward", "ws"), ("forward", "wss")),
    ),
    Client(
        name="websockets", modules=("websockets",), argv=("-c", _WEBSOCKETS, *_PLACES),
        ways=(("append", "ws"), ("forward", "ws")), past=f"websockets >= 15 reads the variables; or {LISTENER}",
    ),
    Client(name="urllib", argv=("-c", _URLLIB, *_PLACES), ways=(*REVERSE, ("resolve", "http"), *FORWARD)),
    Client(
        name="node-fetch", program=("node",), argv=("-e", _NODE_FETCH, *_PLACES),
        ways=(*REVERSE, *RESOLVING, *FORWARD), past=f"{NODE_SINCE}; or {LISTENER}",
    ),
    Client(
        name="node-http", program=("node",), argv=("-e", _NODE_HTTP, *_PLACES), ways=(*REVERSE, *FORWARD),
        past=f"{NODE_SINCE}; or {LISTENER}",
    ),
    Client(
        name="node-fetch-unset", program=("node",), argv=("-e", _NODE_FETCH, *_PLACES), ways=(("forward", "http"),),
        without=("NODE_USE_ENV_PROXY",), past=_NODE_UNSET,
    ),
    Client(
        name="node-http-unset", program=("node",), argv=("-e", _NODE_HTTP, *_PLACES), ways=(("forward", "http"),),
        without=("NODE_USE_ENV_PROXY",), past=_NODE_UNSET,
    ),
    Client(
        name="curl", program=("curl",), argv=(*_CURL, "{url}"), ways=(*REVERSE, *FORWARD),
    ),
    Client(
        name="curl-h2", program=("curl",), argv=(*_CURL, "--http2", "{url}"),
        ways=(("append", "h2"), ("forward", "h2")),
    ),
    # Last, because they take longest: where time is short, it is they that are not tried.
    Client(
        name="chromium", program=_CHROMIUM_NAMES, argv=(*_CHROMIUM, "{page}"), seconds=15.0,
        ways=(*REVERSE, *RESOLVING, ("forward", "http")), past=_CHROMIUM_FLAGS, distrusts=_CHROMIUM_TRUST,
    ),
    Client(
        name="chromium-flags", program=_CHROMIUM_NAMES, seconds=15.0, ways=(("forward", "https"),),
        argv=(
            *_CHROMIUM, "--proxy-server={proxy}", "--proxy-bypass-list=<-loopback>",
            "--ignore-certificate-errors-spki-list={key-hash}", "{page}",
        ),
    ),
)  # fmt: skip
