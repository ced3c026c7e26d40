"""Connections beside the exchanges: when they opened, closed or were refused, and how fast they may be read."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from mitmproxy import ctx, tls
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.connection import Client, Server
from mitmproxy.proxy.mode_servers import ProxyConnectionHandler
from mitmproxy.proxy.server_hooks import ServerConnectionHookData

from replayproxy.proxy import backlog, connecting
from replayproxy.proxy import scribe as kinds
from replayproxy.proxy.bounds import Unreadable
from replayproxy.proxy.live import Clock
from replayproxy.proxy.scribe import Scribe, Ticket

PATIENCE = 10.0
"""How many seconds reading waits, at most, for a recorder whose queue is full. Then the bytes go on regardless, and no
read waits again until there has been room."""

_MANY = 1000
"""mitmproxy lets one client have 5 connections to a server at a time; five open streams would block all others."""


def address_text(address: tuple[Any, ...] | None) -> str:
    """host:port, with brackets around IPv6."""
    if not address:
        return ""
    host, port = address[0], address[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def proxyserver() -> Proxyserver:
    """The add-on of this process's mitmproxy that holds the connections."""
    found: Proxyserver = ctx.master.addons.get("proxyserver")  # type: ignore[no-untyped-call]
    return found


@dataclass(slots=True)
class _Agent:
    """An agent's connection. `ticket`: of its latest exchange; None: it has made no request yet."""

    opened: int
    detail: dict[str, Any]
    ticket: Ticket | None = None


class Connections:
    """A part of the record add-on (mitmproxy calls its hooks by name)."""

    name = "replayproxy-connections"

    def __init__(self, scribe: Scribe, clock: Clock, connect: float | None = None) -> None:
        """`connect`: seconds that a connection to an environment may take."""
        self._scribe, self._clock, self._connect = scribe, clock, connect
        self._agents: dict[str, _Agent] = {}
        self._patient = True

    def arrived(self, client_id: str, ticket: Ticket | None) -> None:
        """A request came on that connection. Its opening is told with the first of them, so that it has an episode."""
        agent = self._agents.get(client_id)
        if agent is None or ticket is None:
            return
        first, agent.ticket = agent.ticket is None, ticket
        if first:
            self._tell(ticket, kinds.AGENT_CONNECTED, agent.detail, agent.opened)

    def _tell(self, ticket: Ticket | None, kind: str, detail: dict[str, Any], at: int | None = None) -> None:
        try:
            self._scribe.event(ticket, kind, detail, self._clock.now() if at is None else at)
        except Exception as error:
            self._fault(ticket, kind, error)

    def _fault(self, ticket: Ticket | None, where: str, error: BaseException) -> None:
        try:
            self._scribe.fault(ticket, where, error)
        except Exception:  # by contract it never raises; if it does, traffic still comes first
            pass

    def client_connected(self, client: Client) -> None:
        try:
            detail = {
                "connection": client.id,
                "from": address_text(client.peername),
                "at": address_text(client.sockname),
            }
            self._agents[client.id] = _Agent(self._clock.now(), detail)
            handler = proxyserver().connections.get(client.id)
            if handler is not None:
                handler.max_conns = defaultdict(lambda: asyncio.Semaphore(_MANY))
                if self._connect is not None:
                    handler.open_connection = connecting.bounded(handler, self._connect)  # type: ignore[method-assign,assignment]  # as meant
                handler.drain_writers = backlog.bounded(handler)  # type: ignore[method-assign,assignment]  # as meant
                handler.drain_writers = self._slowed(handler)  # type: ignore[method-assign,assignment]  # as meant
        except Exception as error:
            self._fault(None, "client_connected", error)

    def _slowed(self, handler: ProxyConnectionHandler) -> Callable[[], Awaitable[None]]:
        """mitmproxy reads again once its writers are drained; so it reads no faster than the recorder writes."""
        drain: Callable[[], Awaitable[None]] = handler.drain_writers

        async def drain_writers() -> None:
            await drain()
            try:
                if self._scribe.room():
                    self._patient = True
                elif self._patient:
                    await asyncio.wait_for(self._scribe.wait_room(), PATIENCE)
            except TimeoutError as error:
                if self._patient:
                    self._patient = False
                    self._fault(None, "back pressure", error)
            except Exception as error:
                self._fault(None, "back pressure", error)

        return drain_writers

    def client_disconnected(self, client: Client) -> None:
        backlog.forget(client)
        self._close_socket(client, client)
        agent = self._agents.pop(client.id, None)
        if agent is not None:
            if agent.ticket is None:
                self._tell(None, kinds.AGENT_CONNECTED, agent.detail, agent.opened)
            self._tell(agent.ticket, kinds.AGENT_CLOSED, {"connection": client.id})

    def unreadable_request(self, data: Unreadable) -> None:
        self.unreadable(data.client, data.why)

    def unreadable(self, client: Client, why: str = "not the protocol that is spoken here") -> None:
        self._tell(self._ticket(client), kinds.UNREADABLE_REQUEST, {"connection": client.id, "why": why})

    def _close_socket(self, client: Client, connection: Client | Server) -> None:
        """mitmproxy leaves a socket open, and its peer waiting, when a connection is closed twice in a row."""
        try:
            handler = proxyserver().connections.get(client.id)
            transport = handler.transports.get(connection) if handler else None
            if transport is not None and transport.writer is not None and not transport.writer.is_closing():
                transport.writer.close()
        except Exception as error:
            self._fault(None, "closing", error)

    def _ticket(self, client: Client) -> Ticket | None:
        agent = self._agents.get(client.id)
        return agent.ticket if agent else None

    @staticmethod
    def _detail(server: Server, **more: str) -> dict[str, Any]:
        return {"connection": server.id, "address": address_text(server.address), **more}

    def server_connected(self, data: ServerConnectionHookData) -> None:
        self._tell(self._ticket(data.client), kinds.UPSTREAM_CONNECTED, self._detail(data.server))

    def server_connect_error(self, data: ServerConnectionHookData) -> None:
        overdue = connecting.why_overdue(data.client, data.server.address)
        detail = self._detail(data.server, error=overdue or data.server.error or "")
        self._tell(self._ticket(data.client), kinds.UPSTREAM_REFUSED, detail)

    def tls_failed_server(self, data: tls.TlsData) -> None:
        if isinstance(data.conn, Server):
            detail = self._detail(data.conn, error=data.conn.error or "TLS handshake failed")
            self._tell(self._ticket(data.context.client), kinds.UPSTREAM_REFUSED, detail)

    def tls_failed_client(self, data: tls.TlsData) -> None:
        """The agent does not trust our certificate, or speaks no TLS that we do: what it wanted is not recorded."""
        client = data.context.client
        detail = {"connection": client.id, "error": data.conn.error or "TLS handshake failed", "sni": client.sni or ""}
        self._tell(self._ticket(client), kinds.AGENT_TLS_REFUSED, detail)

    def server_disconnected(self, data: ServerConnectionHookData) -> None:
        self._close_socket(data.client, data.server)
        self._tell(self._ticket(data.client), kinds.UPSTREAM_CLOSED, {"connection": data.server.id})
