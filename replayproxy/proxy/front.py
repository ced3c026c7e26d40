"""mitmproxy before the replay origin: it takes what plain HTTP/1.1 cannot - CONNECT, TLS, HTTP/2 - and hands each
request on to the origin, which answers from the recording.

Rules of this file: nothing but the origin may be contacted, and the hosts of `--pass`. A connection is refused first
and allowed then, so that a hook which fails leaves it refused; an option of mitmproxy's that is not as it must be is
refused at the start.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import defaultdict
from collections.abc import Container
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import quote

from mitmproxy import http, tls
from mitmproxy.addons.core import Core
from mitmproxy.addons.next_layer import NextLayer
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.connection import Client
from mitmproxy.proxy.mode_servers import ServerInstance
from mitmproxy.proxy.server_hooks import ServerConnectionHookData

from replayproxy.proxy import backlog
from replayproxy.proxy.accepting import NEVER, accept, close_all
from replayproxy.proxy.ca import Authority
from replayproxy.proxy.connections import proxyserver
from replayproxy.proxy.dispatch import BareMaster
from replayproxy.proxy.forward import ForwardOptions, upstream_of
from replayproxy.proxy.install import install
from replayproxy.proxy.listeners import Listener, bind, bound_address, listener_for
from replayproxy.proxy.reception import Reception
from replayproxy.proxy.routes import Route, Upstream
from replayproxy.proxy.upstream_tls import UpstreamTls

OPTIONS: dict[str, Any] = {
    "mode": [],
    "connection_strategy": "lazy",  # an eager one looks the host up before anybody could refuse
    "upstream_cert": False,
    "rawtcp": False,  # raw TCP would go to where the agent wanted
    "keep_host_header": True,
    "tcp_timeout": NEVER,
}
_CLOSED = "a replay is closed"


class Watcher(Protocol):
    """Who is told what the origin cannot see."""

    def knows(self, at: Upstream) -> bool:
        """Whether an environment of the recording has this address."""

    def unknown_tunnel(self, host: str, port: int) -> tuple[int, bytes]:
        """A CONNECT to a host that was not recorded; gives status and document of the answer."""

    def unreadable(self, reason: str) -> None:
        """What an agent sent is nothing that could be asked of the recording."""

    def had_h2(self, env: str) -> bool:
        """Whether the recorded agents spoke HTTP/2 with this environment."""

    def fault(self, where: str, error: BaseException) -> None: ...

    async def resolve(self, host: str, port: int) -> tuple[str, int]:
        """Where a host of `--pass` is. Only these are ever looked up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Behind:
    """The origin, and the header that tells it where a request came in: its name is random, and only the front sets
    it. Its value is five percent-encoded words: environment, listener, proxy user, the address that was asked for, and
    1 or 2 for the agent's HTTP. `length`: the field in which the origin tells a length beside chunks, for a 2."""

    address: tuple[str, int]
    header: bytes
    length: bytes


class Front:
    """One per process, in the running loop."""

    def __init__(self, behind: Behind, watcher: Watcher, authority: Authority) -> None:
        self._proxyserver = Proxyserver()  # type: ignore[no-untyped-call]
        self._reception = Reception()
        self._addon = FrontAddon(behind, watcher, self._reception)
        forward = self._reception.forward
        self._tls = UpstreamTls(self._reception, self._addon.unreadable_request, forward.passes_tunnel, authority)
        self._watcher = watcher
        self._listening: dict[Listener, ServerInstance[Any]] = {}
        self._task: asyncio.Task[None] | None = None
        self._master: BareMaster | None = None

    async def start(self) -> None:
        """Raises RuntimeError where mitmproxy does not take an option as it must be."""
        install()
        master = self._master = BareMaster()
        forward = self._reception.forward
        chain = (Core(), self._proxyserver, self._reception, self._tls, NextLayer(), forward, self._addon)
        master.addons.add(*chain)  # type: ignore[no-untyped-call]
        master.options.update(**OPTIONS)  # type: ignore[no-untyped-call]
        wrong = [name for name, value in OPTIONS.items() if getattr(master.options, name) != value]
        if wrong:
            raise RuntimeError(f"a closed replay needs mitmproxy's {', '.join(wrong)} otherwise than it is")
        # Only now: a front that was refused must leave no handler behind.
        logger = logging.getLogger("mitmproxy")
        logger.propagate = False
        logger.setLevel(logging.ERROR)
        self._log = _Log(self._watcher)
        logger.addHandler(self._log)
        self._task = asyncio.create_task(master.run())
        await asyncio.sleep(0)

    async def listen_tls(self, listener: Listener, route: Route, sock: socket.socket) -> None:
        """A reverse listener that speaks TLS. Accepts when it returns."""
        self._reception.opened(listener, route)
        host, port = "127.0.0.1", listener.bound[1]
        self._listening[listener] = await accept(self._proxyserver, f"reverse:http://{host}:0@{port}", sock)

    def knows(self, listener: Listener, route: Route) -> None:
        """A listener of the origin's own, so that a forward request to it is taken as if it had come there."""
        self._reception.opened(listener, route)

    async def listen_forward(
        self, options: ForwardOptions, *, host: str, port: int, avoid: Container[int] = ()
    ) -> Listener:
        """Accepts when it returns, at a port that is none of `avoid` unless it was asked for. Raises WorldTrouble."""
        sock = bind(host, port, avoid=avoid, option="--forward")
        bound = bound_address(sock)
        listener = listener_for("", "", None, bound, port_episode=None, advertise=None, options=None)
        self._reception.forward.listens(listener.url, options)
        self._reception.opened(listener, None)
        self._listening[listener] = await accept(self._proxyserver, f"regular@{bound[1]}", sock)
        return listener

    async def unlisten(self, listener: Listener) -> None:
        """Stops accepting there, if it does; connections that exist go on."""
        self._reception.closed(listener)
        instance = self._listening.pop(listener, None)
        if instance is not None:
            await instance.stop()

    async def stop(self) -> None:
        """Every connection is closed when it returns."""
        for listener in list(self._listening):
            await self.unlisten(listener)
        if self._master is not None and self._task is not None:
            await close_all(self._proxyserver, 1.0)
            self._master.shutdown()  # type: ignore[no-untyped-call]
            await asyncio.wait([self._task], timeout=0.5)
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            logging.getLogger("mitmproxy").removeHandler(self._log)


class FrontAddon:
    """The hooks."""

    name = "replayproxy-front"

    def __init__(self, behind: Behind, watcher: Watcher, reception: Reception) -> None:
        self._behind, self._watcher, self._reception = behind, watcher, reception
        self._refused: set[str] = set()

    def client_connected(self, client: Client) -> None:
        handler = proxyserver().connections.get(client.id)
        if handler is not None:
            # mitmproxy lets one client have 5 connections to the origin; five open streams would block all others.
            handler.max_conns = defaultdict(lambda: asyncio.Semaphore(1000))
            handler.drain_writers = backlog.bounded(handler)  # type: ignore[method-assign,assignment]  # as meant

    def client_disconnected(self, client: Client) -> None:
        self._refused.discard(client.id)
        backlog.forget(client)

    def http_connect(self, flow: http.HTTPFlow) -> None:
        if flow.response is not None or self._reception.forward.passes_tunnel(flow.client_conn):
            return
        host, port = flow.request.host.lower(), flow.request.port
        schemes = (Upstream(scheme="https", host=host, port=port), Upstream(scheme="http", host=host, port=port))
        own = self._reception.forward.is_own((host, port), flow.client_conn)
        if own or any(self._watcher.knows(at) for at in schemes):
            return
        status, document = self._watcher.unknown_tunnel(host, port)
        fields = (
            (b"Content-Type", b"application/problem+json"), (b"Replay-Miss", b"1"), (b"Connection", b"close"),
            (b"Content-Length", b"%d" % len(document)),
        )  # fmt: skip
        flow.response = http.Response(
            b"HTTP/1.1", status, b"Not In The Recording", http.Headers(fields), document, None, 0, 0
        )

    def tls_clienthello(self, data: tls.ClientHelloData) -> None:
        data.establish_server_tls_first = False
        client, offers = data.context.client, data.client_hello.alpn_protocols
        route = self._reception.route_of_tls(client, data.context.server.address)
        env = route.env if route else ""
        wanted = b"h2" if self._watcher.had_h2(env) else b"http/1.1"
        if wanted in offers:
            client.alpn = wanted

    def tls_failed_client(self, data: tls.TlsData) -> None:
        client = data.context.client
        if client.id not in self._refused:
            self._refused.add(client.id)
            reason = data.conn.error or "the TLS handshake failed"
            self._watcher.unreadable(f"a TLS connection that the agent did not accept: {reason}")

    def unreadable_request(self, data: object) -> None:
        self._watcher.unreadable("what came is no HTTP request: answered 400, or closed")

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        data = flow.request.data
        name = self._behind.header
        data.headers = http.Headers(tuple(pair for pair in data.headers.fields if pair[0].lower() != name.lower()))
        if flow.response is not None:
            return
        route = self._reception.route(flow)
        if route is None:
            if flow.response is not None and flow.response.status_code == HTTPStatus.BAD_REQUEST:
                self._watcher.unreadable("a request to the forward proxy's own address: answered 400")
            return  # it passes, or the forward proxy has answered it
        asked = upstream_of(flow)
        version = "2" if flow.request.is_http2 else "1"
        words = (route.env, "" if route.forward else route.listener, route.proxy_user or "", asked.origin, version)
        value = b" ".join(quote(word, safe="", errors="surrogateescape").encode() or b"-" for word in words)
        data.headers = http.Headers((*data.headers.fields, (name, value)))
        data.scheme, (data.host, data.port) = b"http", self._behind.address
        if not flow.request.is_http2:
            data.authority = b""
        flow.request.stream = True

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        if flow.response is not None and flow.response.status_code != 101:
            flow.response.data.headers = self._with_its_length(flow.response.data.headers)
            flow.response.stream = True  # a paced answer must not be gathered first

    def _with_its_length(self, headers: http.Headers) -> http.Headers:
        """What the origin had to tell beside its chunks, as the environment told it."""
        if self._behind.length not in headers:
            return headers
        named = ((b"content-length" if n.lower() == self._behind.length else n, v) for n, v in headers.fields)
        return http.Headers(tuple(pair for pair in named if pair[0].lower() != b"transfer-encoding"))

    def websocket_message(self, flow: http.HTTPFlow) -> None:
        if flow.websocket is not None:
            flow.websocket.messages.clear()  # nobody keeps them, and they would grow with the conversation

    async def server_connect(self, data: ServerConnectionHookData) -> None:
        data.server.error = _CLOSED  # what fails below leaves it refused
        address = data.server.address
        if address is None:
            return
        if address == self._behind.address:
            data.server.error = None
        elif self._reception.forward.passes(str(address[0]), address[1]):
            data.server.address = await self._watcher.resolve(str(address[0]), address[1])
            data.server.error = None


class _Log(logging.Handler):
    """mitmproxy says in its log, and only there, when it or an add-on has crashed."""

    def __init__(self, watcher: Watcher) -> None:
        super().__init__(logging.ERROR)
        self._watcher = watcher

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1]:
            self._watcher.fault("mitmproxy", record.exc_info[1])
