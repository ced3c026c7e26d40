"""Connections to environments that take too long are given up; mitmproxy itself leaves that to the system."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any
from weakref import WeakKeyDictionary

from mitmproxy.connection import Client, Server
from mitmproxy.proxy import commands
from mitmproxy.proxy.mode_servers import ProxyConnectionHandler

from replayproxy.core.limits import too_slow_to_connect

_overdue: WeakKeyDictionary[Client, dict[tuple[str, int], str]] = WeakKeyDictionary()
"""The connections that were given up, by the agent's connection they were for and their address: why."""


def why_overdue(client: Client, address: tuple[Any, ...] | None) -> str:
    """Why the last connection to this address was given up; "" when it was not."""
    return _overdue.get(client, {}).get((address[0], address[1]), "") if address else ""


type Opens = Callable[[commands.OpenConnection], Coroutine[Any, Any, None]]


def bounded(handler: ProxyConnectionHandler, limit: float) -> Opens:
    """What opens connections to environments for this agent, and gives up those that take too long."""
    open_as_stock = handler.open_connection

    async def open_connection(command: commands.OpenConnection) -> None:
        server = command.connection
        address = (str(server.address[0]), int(server.address[1])) if server.address else ("", 0)
        given_up = _overdue.setdefault(handler.client, {})
        given_up.pop(address, None)
        task = asyncio.current_task()
        assert task is not None

        def late() -> None:
            if not _is_there(server):
                given_up[address] = too_slow_to_connect(limit)
                task.cancel()

        timer = asyncio.get_running_loop().call_later(limit, late)
        try:
            await open_as_stock(command)
        except asyncio.CancelledError:
            if address not in given_up:
                raise  # mitmproxy closes connections this way too
            task.uncancel()
        finally:
            timer.cancel()

    return open_connection


def _is_there(server: Server) -> bool:
    return server.timestamp_tcp_setup is not None and (not server.tls or server.timestamp_tls_setup is not None)
