"""Which listener each agent's connection came through.

A connection keeps the listener it was accepted by: when an episode's listener is closed, its port may become another
episode's while the old connection lives on, and a request on it must not land there.
"""

from __future__ import annotations

from typing import Any

from mitmproxy import http
from mitmproxy.connection import Client

from replayproxy.proxy.listeners import EnvOptions, Listener
from replayproxy.proxy.routes import Route


class Reception:
    """An add-on of the engine's, and the `Routes` of its record add-on."""

    name = "replayproxy-reception"

    def __init__(self) -> None:
        self._open: dict[tuple[str, int], tuple[Listener, Route]] = {}
        self._of: dict[str, tuple[Listener, Route]] = {}

    def opened(self, listener: Listener, route: Route) -> None:
        self._open[listener.bound] = (listener, route)

    def closed(self, listener: Listener) -> None:
        if (found := self._open.get(listener.bound)) and found[0] is listener:
            del self._open[listener.bound]

    def client_connected(self, client: Client) -> None:
        host, port = client.sockname[:2]
        for at in ((host, port), ("0.0.0.0", port), ("::", port)):
            if found := self._open.get(at):
                self._of[client.id] = found
                return
        client.error = "its listener has closed"  # mitmproxy then drops the connection; it could only pass unrecorded

    def client_disconnected(self, client: Client) -> None:
        self._of.pop(client.id, None)

    def route(self, flow: http.HTTPFlow) -> Route | None:
        found = self._of.get(flow.client_conn.id)
        return found[1] if found else None

    def options_of(self, client: Any) -> EnvOptions:
        found = self._of.get(client.id)
        return found[0].options if found else EnvOptions()
