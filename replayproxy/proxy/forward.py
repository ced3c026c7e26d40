"""The forward proxy: where its agents' requests go, whose they are, and what passes it unrecorded.

Identity by proxy user: the name of the proxy credentials is the episode. In a CONNECT it counts for all that comes
through the tunnel. Neither the credentials nor any other field that is meant for the proxy goes further.
"""

from __future__ import annotations

import time
from base64 import b64decode
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import unquote_to_bytes
from weakref import WeakKeyDictionary

from mitmproxy import http, tls
from mitmproxy.connection import Client
from mitmproxy.proxy.mode_specs import RegularMode

from replayproxy.core.hostlist import HostList
from replayproxy.core.values import Fields, Outcome
from replayproxy.proxy import head as heads
from replayproxy.proxy import problems
from replayproxy.proxy.listeners import EnvOptions, authority
from replayproxy.proxy.routes import Route, Upstream

_OURS = frozenset({b"proxy-authorization", b"proxy-connection"})
_PASSED = "replayproxy_passed"


class Naming(Protocol):
    """Which environment a forward request belongs to."""

    def env_of(self, at: Upstream, target: bytes) -> str: ...

    def options_of(self, at: Upstream) -> EnvOptions: ...

    async def learn(self, at: Upstream) -> None:
        """To be awaited before `options_of` is asked about a tunnel: only another process may know."""


@dataclass(slots=True, kw_only=True)
class ForwardOptions:
    """`passes`: hosts whose traffic is passed on unrecorded. `aside`: addresses of our own, passed on and not counted.
    `challenge`: who sends no proxy credentials gets a 407, because some clients send them only then.
    `on_passed` is called with the host of each passed request, or of each passed tunnel."""

    naming: Naming
    passes: HostList = field(default_factory=HostList)
    aside: set[tuple[str, int]] = field(default_factory=set)
    challenge: bool = False
    on_passed: Callable[[str], None] = lambda host: None


def user_of(value: bytes) -> str | None:
    """The user name of `Basic` credentials, percent-decoded. It ends at the last colon, so that names may hold one."""
    scheme, _, coded = value.strip().partition(b" ")
    if scheme.lower() != b"basic":
        return None
    try:
        plain = b64decode(coded.strip(), validate=True)
    except ValueError:
        return None
    user = plain.rpartition(b":")[0] if b":" in plain else plain
    return unquote_to_bytes(user).decode("utf-8", "surrogateescape") or None


def take_credentials(fields: Fields) -> tuple[Fields, str | None]:
    """The fields without those that are meant for the proxy, and the user that they named."""
    user = None
    kept = []
    for name, value in fields:
        lowered = name.lower()
        if lowered not in _OURS:
            kept.append((name, value))
        elif lowered == b"proxy-authorization" and user is None:
            user = user_of(value)
    return tuple(kept), user


class Forward:
    """An add-on of the engine's; `route` gives each request of a forward listener its way."""

    name = "replayproxy-forward"

    def __init__(
        self, own_route: Callable[[Upstream, Client], Route | None], is_itself: Callable[[Upstream, Client], bool]
    ) -> None:
        """`own_route`: the way of a request to one of our reverse listeners, which is taken as if it had come there.
        `is_itself`: whether an address is the forward proxy's own, where a request would run in a circle."""
        self._own_route, self._is_itself = own_route, is_itself
        self._users: WeakKeyDictionary[Client, str] = WeakKeyDictionary()
        self._tunnels: WeakKeyDictionary[Client, bool] = WeakKeyDictionary()
        self.options: ForwardOptions | None = None
        self.url = ""

    def listens(self, url: str, options: ForwardOptions) -> None:
        self.url, self.options = url, options

    def route(self, flow: http.HTTPFlow) -> Route | None:
        """None: it passes unrecorded, or is answered here."""
        options, data = self.options, flow.request.data
        assert options is not None
        fields, user = take_credentials(data.headers.fields)
        data.headers = http.Headers(fields)
        user = user if user is not None else self._users.get(flow.client_conn)
        if user is None and options.challenge:
            flow.response = challenge(flow.request.data.method)
            return None
        at = upstream_of(flow)
        if self._is_itself(at, flow.client_conn):
            flow.response = local(400, "this address is the proxy's own", flow.request.data.method)
            return None
        if self.passes(at.host, at.port):
            self._pass(flow, at)
            return None
        own = self._own_route(at, flow.client_conn)
        if own is not None:
            return replace(own, proxy_user=user)
        return Route(
            env=options.naming.env_of(at, data.path), listener=self.url, fixed=at, keep_host=True, reroute=False,
            proxy_user=user, forward=True,
        )  # fmt: skip

    def passes(self, host: str, port: int) -> bool:
        """Whether this address may be gone to unrecorded."""
        if self.options is None:
            return False
        return self.options.passes.has(host, port) or (host, port) in self.options.aside

    def _count(self, host: str, port: int) -> None:
        assert self.options is not None
        if (host, port) not in self.options.aside:
            self.options.on_passed(authority(host, port))

    def _pass(self, flow: http.HTTPFlow, at: Upstream) -> None:
        data = flow.request.data
        marks = heads.take_marks(data.path, data.headers.fields, prefixed=False)
        data.headers = http.Headers(marks.fields)
        setattr(flow, _PASSED, True)
        flow.request.stream = True
        self._count(at.host, at.port)

    def passes_tunnel(self, client: Client) -> bool:
        """Whether what comes through this client's CONNECT is passed on as it is."""
        return client in self._tunnels

    def options_at(self, address: tuple[Any, ...] | None, *, tls: bool) -> EnvOptions:
        if self.options is None or address is None:
            return EnvOptions()
        scheme: Any = "https" if tls else "http"
        return self.options.naming.options_of(Upstream(scheme=scheme, host=address[0].lower(), port=address[1]))

    # mitmproxy's hooks

    async def http_connect(self, flow: http.HTTPFlow) -> None:
        if self.options is None or not isinstance(flow.client_conn.proxy_mode, RegularMode):
            return
        fields, user = take_credentials(flow.request.data.headers.fields)
        flow.request.data.headers = http.Headers(fields)
        if user is not None:
            self._users[flow.client_conn] = user
        elif self.options.challenge and flow.client_conn not in self._users:
            flow.response = challenge(flow.request.data.method)
            return
        host, port = flow.request.host.lower(), flow.request.port
        if self.passes(host, port):
            self._tunnels[flow.client_conn] = True
            self._count(host, port)
        else:
            await self.options.naming.learn(Upstream(scheme="https", host=host, port=port))

    def tls_clienthello(self, data: tls.ClientHelloData) -> None:
        own = self._own_at(data.context.server.address, data.context.client)
        if own is None:
            return
        # The tunnel ends in here. What it leads to in the end is whose protocols the agent is to be offered.
        data.establish_server_tls_first = own.fixed is not None and own.fixed.scheme == "https"
        if data.establish_server_tls_first and own.fixed is not None:
            data.context.server.address = (own.fixed.host, own.fixed.port)

    def _own_at(self, address: tuple[Any, ...] | None, client: Client) -> Route | None:
        if address is None or self.options is None or not isinstance(client.proxy_mode, RegularMode):
            return None
        at = Upstream(scheme="https", host=str(address[0]).lower(), port=address[1])
        return self._own_route(at, client)

    def is_own(self, address: tuple[Any, ...] | None, client: Client) -> bool:
        """Whether a tunnel that leads there ends in here."""
        return self._own_at(address, client) is not None

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        if getattr(flow, _PASSED, False) and flow.response is not None:
            flow.response.stream = True

    def websocket_message(self, flow: http.HTTPFlow) -> None:
        if getattr(flow, _PASSED, False) and flow.websocket is not None:
            flow.websocket.messages.clear()  # nobody keeps them, and they would grow with the conversation


def upstream_of(flow: http.HTTPFlow) -> Upstream:
    """Where the agent sent the request."""
    request = flow.request
    return Upstream(
        scheme="https" if request.scheme == "https" else "http", host=request.host.lower(), port=request.port
    )


def challenge(method: bytes) -> http.Response:
    """A 407. Some clients send proxy credentials only after one."""
    asks = (b"Proxy-Authenticate", b'Basic realm="replayproxy"')
    return local(407, "the proxy wants credentials whose user is the episode's name", method, asks)


def local(status: int, detail: str, method: bytes, *more: tuple[bytes, bytes]) -> http.Response:
    """An answer of our own to a request with this method."""
    fields, body = problems.problem(status, Outcome.LOCAL, detail)
    reason, now = HTTPStatus(status).phrase.encode(), time.time()
    content = problems.content(method, body)
    return http.Response(b"HTTP/1.1", status, reason, http.Headers((*fields, *more)), content, None, now, now)
