"""The clients that `doctor` tries, as data: what each needs, what it is called with, and in which ways it is tried.

A source is small on purpose: it does what an agent written with that library would do, and nothing about proxies or
certificates but what its name says. A canary is done only when the whole answer is there.
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

JOBS = "{jobs}"
"""In the place of this, a client gets several canaries at once, each a word `HOW BASE PATH`: an interpreter's start
takes longer than all of them. It prints the path of each that was answered, and on stderr path and reason of others."""

NODE_SINCE = "NODE_USE_ENV_PROXY=1 needs Node 22.21, or >= 24.5 (fetch: 24.0)"


_NODE_UNSET = "keep NODE_USE_ENV_PROXY=1 in its environment, with a Node that knows it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """`program`: the names under which it may be on PATH, or () for Python; `modules`: what its interpreter must have,
    the first of which gives the version. In `argv`, JOBS, or `{url}`, `{how}`, `{base}`, `{path}`, `{page}` and
    `{folder}` are filled in. `without`: variables that are taken away. `past`: what to do when it goes past the proxy.
    `distrusts`: why it may end well without an answer."""

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
def each(send):
    for job in sys.argv[2:]:
        how, base, path = job.split(" ")
        try:
            send(how, base, path)
            print(path, flush=True)
        except Exception as error:
            print(path, type(error).__name__, error, file=sys.stderr, flush=True)
"""

_REQUESTS = (
    _PYTHON
    + """import requests
each(lambda how, base, path: requests.get(base + path, timeout=4).raise_for_status())
"""
)

_URLLIB = (
    _PYTHON
    + """from urllib.request import urlopen
each(lambda how, base, path: urlopen(base + path if how == "append" else urljoin(base + "/", path), timeout=4).read())
"""
)

_HTTPX = (
    _PYTHON
    + """import httpx
def send(how, base, path):
    with httpx.Client(base_url=base, http2=sys.argv[1] == "h2", timeout=4) as client:
        answer = client.get(path)
    answer.raise_for_status()
    if sys.argv[1] == "h2" and answer.http_version != "HTTP/2":
        raise ValueError(f"it spoke {answer.http_version}")
each(send)
"""
)

_AIOHTTP = (
    _PYTHON
    + """import asyncio, aiohttp
async def send(how, base, path):
    base_url = None if how == "append" else base + "/"
    timeout = aiohttp.ClientTimeout(total=4)
    async with aiohttp.ClientSession(base_url, trust_env=sys.argv[1] == "trust", timeout=timeout) as session:
        async with session.get(base + path if how == "append" else path) as answer:
            answer.raise_for_status()
            await answer.read()
each(lambda *job: asyncio.run(send(*job)))
"""
)

_AIOHTTP_WEBSOCKET = (
    _PYTHON
    + """import asyncio, aiohttp
async def send(how, base, path):
    timeout = aiohttp.ClientTimeout(total=4)
    async with aiohttp.ClientSession(trust_env=sys.argv[1] == "trust", timeout=timeout) as session:
        async with session.ws_connect(base + path) as socket:
            await socket.send_str("canary")
            if await socket.receive_str(timeout=4) != "canary":
                raise ValueError("another message came back")
each(lambda *job: asyncio.run(send(*job)))
"""
)

_WEBSOCKETS = (
    _PYTHON
    + """from websockets.sync.client import connect
def send(how, base, path):
    with connect("ws" + (base + path).removeprefix("http"), open_timeout=4) as socket:
        socket.send("canary")
        if socket.recv(timeout=4) != "canary":
            raise ValueError("another message came back")
each(send)
"""
)

_NODE = """const each = async send => {
  for (const job of process.argv.slice(1)) {
    const [how, base, path] = job.split(' ');
    try {
      await send(how === 'append' ? base + path : String(new URL(path, base)));
      console.log(path);
    } catch (error) { console.error(path, String(error.cause ?? error)); }
  }
};
"""

_NODE_FETCH = (
    _NODE
    + """each(async url => {
  const answer = await fetch(url, {signal: AbortSignal.timeout(4000)});
  await answer.arrayBuffer();
  if (!answer.ok) throw new Error(`status ${answer.status}`);
}).then(() => process.exit(0));
"""
)

_NODE_HTTP = (
    _NODE
    + """each(url => new Promise((resolve, reject) => {
  require(url.startsWith('https') ? 'https' : 'http').get(url, {timeout: 4000}, answer => {
    if (answer.statusCode !== 200) reject(new Error(`status ${answer.statusCode}`));
    answer.on('end', resolve).resume();
  }).on('error', reject).on('timeout', () => reject(new Error('no answer')));
})).then(() => process.exit(0));
"""
)

_CURL = ("--silent", "--show-error", "--fail", "--max-time", "4")

_CHROMIUM = (
    "--headless", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--disable-dev-shm-usage", "--user-data-dir={folder}", "--dump-dom",
)  # fmt: skip
_CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome")
_CHROMIUM_FLAGS = "--proxy-server=PROXY --proxy-bypass-list=<-loopback>"
_CHROMIUM_TRUST = "it reads no CA variable: --ignore-certificate-errors-spki-list=HASH (record prints it)"

CLIENTS: tuple[Client, ...] = (
    Client(name="requests", modules=("requests",), argv=("-c", _REQUESTS, "", JOBS), ways=(*REVERSE, *FORWARD)),
    Client(name="httpx", modules=("httpx",), argv=("-c", _HTTPX, "", JOBS), ways=(*REVERSE, *FORWARD)),
    Client(
        name="httpx-h2", modules=("httpx", "h2"), argv=("-c", _HTTPX, "h2", JOBS),
        ways=(("append", "h2"), ("forward", "h2")),
    ),
    Client(
        name="aiohttp", modules=("aiohttp",), argv=("-c", _AIOHTTP, "no", JOBS),
        ways=(*REVERSE, *RESOLVING, ("forward", "http")), past=f"ClientSession(trust_env=True), or {LISTENER}",
    ),
    Client(
        name="aiohttp-trust-env", modules=("aiohttp",), argv=("-c", _AIOHTTP, "trust", JOBS), ways=FORWARD,
    ),
    Client(
        name="aiohttp-websocket", modules=("aiohttp",), argv=("-c", _AIOHTTP_WEBSOCKET, "no", JOBS),
        ways=(("append", "ws"), ("append", "wss"), ("forward", "ws")),
        past=f"ClientSession(trust_env=True), or {LISTENER}",
    ),
    Client(
        name="aiohttp-websocket-trust-env", modules=("aiohttp",),
        argv=("-c", _AIOHTTP_WEBSOCKET, "trust", JOBS), ways=(("forward", "ws"), ("forward", "wss")),
    ),
    Client(
        name="websockets", modules=("websockets",), argv=("-c", _WEBSOCKETS, "", JOBS),
        ways=(("append", "ws"), ("forward", "ws")), past=f"websockets >= 15 reads the variables; or {LISTENER}",
    ),
    Client(name="urllib", argv=("-c", _URLLIB, "", JOBS), ways=(*REVERSE, ("resolve", "http"), *FORWARD)),
    Client(
        name="node-fetch", program=("node",), argv=("-e", _NODE_FETCH, JOBS),
        ways=(*REVERSE, *RESOLVING, *FORWARD), past=f"{NODE_SINCE}; or {LISTENER}",
    ),
    Client(
        name="node-http", program=("node",), argv=("-e", _NODE_HTTP, JOBS), ways=(*REVERSE, *FORWARD),
        past=f"{NODE_SINCE}; or {LISTENER}",
    ),
    Client(
        name="node-fetch-unset", program=("node",), argv=("-e", _NODE_FETCH, JOBS), ways=(("forward", "http"),),
        without=("NODE_USE_ENV_PROXY",), past=_NODE_UNSET,
    ),
    Client(
        name="node-http-unset", program=("node",), argv=("-e", _NODE_HTTP, JOBS), ways=(("forward", "http"),),
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
