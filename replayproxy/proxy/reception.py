"""Which listener each agent's connection came through.

A connection keeps the listener it was accepted by: when an episode's listener is closed, its port may become another
episode's while the old connection lives on, and a request on it must not land there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from mitmproxy import http
from mitmproxy.connection import Client

from replayproxy.proxy.forward import Forward
from replayproxy.proxy.listeners import EnvOptions, Listener
from replayproxy.proxy.routes import Route, Upstream

_LOOPBACK = ("127.0.0.1", "::1")
_WILDCARDS = ("0.0.0.0", "::")


class Reception:
    """An add-on of the engine's, and the `Routes` of its record add-on."""

    name = "replayproxy-reception"

    def __init__(self) -> None:
        self._open: dict[tuple[str, int], tuple[Listener, Route | None]] = {}
        self._of: dict[str, tuple[Listener, Route | None]] = {}
        self.forward = Forward(self._own_route, self._is_itself)

    def opened(self, listener: Listener, route: Route | None) -> None:
        """`route` None: the forward listener, where each request has a way of its own."""
        self._open[listener.bound] = (listener, route)

    def closed(self, listener: Listener) -> None:
        if (found := self._open.get(listener.bound)) and found[0] is listener:
            del self._open[listener.bound]

    def client_connected(self, client: Client) -> None:
        host, port = client.sockname[:2]
        found = self._at(host, port)
        if found is None:
            client.error = "its listener has closed"  # mitmproxy then drops the connection; it could pass unrecorded
        else:
            self._of[client.id] = found

    def _at(self, host: str, port: int) -> tuple[Listener, Route | None] | None:
        for at in ((host, port), *((one, port) for one in _WILDCARDS)):
            if found := self._open.get(at):
                return found
        return None

    def client_disconnected(self, client: Client) -> None:
        self._of.pop(client.id, None)

    def route(self, flow: http.HTTPFlow) -> Route | None:
        found = self._of.get(flow.client_conn.id)
        if found is None:
            return None
        return found[1] or self.forward.route(flow)

    def _own_route(self, at: Upstream, client: Client) -> Route | None:
        """The way of a forward request to one of our own reverse listeners: it is not to be recorded twice."""
        found = self._own(at.host, at.port, client)
        return found[1] if found else None

    def _is_itself(self, at: Upstream, client: Client) -> bool:
        local = at.host in ("localhost", *_LOOPBACK, client.sockname[0])
        found = self._at(client.sockname[0], at.port) if local else None
        return found is not None and found[1] is None

    def _own(self, host: str, port: int, client: Client) -> tuple[Listener, Route | None] | None:
        for name in _LOOPBACK if host == "localhost" else (host,):
            exact = self._open.get((name, port))
            if exact and exact[1]:
                return exact
        local = host in ("localhost", *_LOOPBACK, client.sockname[0])
        for listener, route in self._open.values():
            if route is None:
                continue
            advertised = urlsplit(listener.origin)
            wildcard = listener.bound[0] in _WILDCARDS and listener.bound[1] == port and local
            default = 443 if advertised.scheme == "https" else 80
            if wildcard or (advertised.hostname == host and (advertised.port or default) == port):
                return listener, route
        return None

    def route_of_tls(self, client: Any, address: tuple[Any, ...] | None) -> Route | None:
        """The way of what will come through a TLS connection, as far as it is known when TLS begins."""
        found = self._of.get(client.id)
        if found is None or found[1] is not None:
            return found[1] if found else None
        if address is None or self.forward.options is None:
            return None
        at = Upstream(scheme="https", host=str(address[0]).lower(), port=address[1])
        own = self._own_route(at, client)
        return own or Route(env=self.forward.options.naming.env_of(at, b"/"), listener="", fixed=at, forward=True)

    # for TLS

    def is_forward(self, client: Any) -> bool:
        found = self._of.get(client.id)
        return found is not None and found[1] is None

    def speaks_tls(self, client: Any) -> bool:
        found = self._of.get(client.id)
        return found is not None and found[0].options.tls

    def options_of(self, client: Any, address: tuple[Any, ...] | None) -> EnvOptions:
        """How the environment at this address is to be verified."""
        found = self._of.get(client.id)
        if found is None:
            return EnvOptions()
        if found[1] is not None:
            return found[0].options
        own = self._own(str(address[0]).lower(), address[1], client) if address else None
        return own[0].options if own else self.forward.options_at(address, tls=True)

    def names_of(self, client: Any, sni: str | None, address: tuple[Any, ...] | None) -> Iterable[str]:
        """The hosts that a certificate for this agent must be valid for."""
        found = self._of.get(client.id)
        if found is None or found[1] is None:
            return (sni or (str(address[0]) if address else client.sockname[0]),)
        listener = found[0]
        local = () if listener.bound[0] not in (*_LOOPBACK, *_WILDCARDS) else ("localhost", *_LOOPBACK)
        own = () if listener.bound[0] in _WILDCARDS else (listener.bound[0],)
        return (sni or "", urlsplit(listener.origin).hostname or "", *own, client.sockname[0], *local)
