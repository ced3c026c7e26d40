"""An environment of doctor's own, on loopback: it counts what reaches it, by whatever way it came."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from replayproxy.session.canary_standin_h2 import Http2

HOST = "127.0.0.1"
_PATH = re.compile(r"/(canary|page)/([a-z0-9-]+)\Z")


def path_of(name: str) -> str:
    """What a client asks for. Its answer is a text; as a WebSocket it is an echo."""
    return f"/canary/{name}"


def page_of(name: str) -> str:
    """A page whose script is the canary, as a site names its own files: from the root."""
    return f"/page/{name}"


def canary_in(target: bytes) -> str | None:
    """The canary that a request is."""
    match = _PATH.search(target.decode("latin-1"))
    return match[2] if match and match[1] == "canary" else None


@dataclass(slots=True)
class StandIn:
    """`arrived`: for each canary, how many times it came here. `http2` speaks only that, over TLS."""

    arrived: Counter[str] = field(default_factory=Counter)
    plain: str = ""
    secure: str = ""
    http2: str = ""

    def came(self, path: str) -> None:
        if (name := canary_in(path.encode("latin-1"))) is not None:
            self.arrived[name] += 1

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        match = _PATH.fullmatch(request.path)
        if match is None:
            return web.Response(status=404)
        kind, name = match.groups()
        if kind == "page":
            text = f'<!doctype html><script src="{path_of(name)}"></script>'
            return web.Response(text=text, content_type="text/html")
        self.came(request.path)
        if request.headers.get("Upgrade", "").lower() == "websocket":
            return await _echo(request)
        return web.Response(text="// canary\n", content_type="text/javascript")


async def _echo(request: web.BaseRequest) -> web.WebSocketResponse:
    socket = web.WebSocketResponse(timeout=0.5)
    await socket.prepare(request)
    async for message in socket:
        await socket.send_str(str(message.data))
    return socket


@asynccontextmanager
async def standin(tls: Callable[[], ssl.SSLContext]) -> AsyncIterator[StandIn]:
    """It accepts, plain, over TLS and over HTTP/2; closed at the end. `tls` makes a context. Raises OSError."""
    made, secure, http2 = StandIn(), tls(), tls()
    http2.set_alpn_protocols(["h2"])
    runner = web.ServerRunner(web.Server(made.answer), shutdown_timeout=0.2)
    await runner.setup()
    server: asyncio.Server | None = None
    try:
        await web.TCPSite(runner, HOST, 0).start()
        made.plain = f"http://{HOST}:{runner.addresses[-1][1]}"
        await web.TCPSite(runner, HOST, 0, ssl_context=secure).start()
        made.secure = f"https://{HOST}:{runner.addresses[-1][1]}"
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Http2(made.came), HOST, 0, ssl=http2)
        made.http2 = f"https://{HOST}:{server.sockets[0].getsockname()[1]}"
        yield made
    finally:
        if server is not None:
            server.close()
        await runner.cleanup()
