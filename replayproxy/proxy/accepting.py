"""mitmproxy's connection handling on sockets of our own."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import Any

from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.proxy.mode_servers import ServerInstance
from mitmproxy.proxy.mode_specs import ProxyMode

BACKLOG = 4096
"""asyncio's default of 100 makes a burst of agents wait for SYN retries."""

NEVER = 365 * 24 * 3600
"""mitmproxy closes connections that were quiet for 10 minutes of wall time: quiet event streams, and everything on a
clock jump. How long a connection lives is the agent's and the environment's affair."""


class SharedSocket(socket.socket):
    """A listening socket that several processes accept from.

    asyncio accepts as many connections in a row as its backlog says, and so one process would take a whole burst. It
    is told a backlog of 1, and the system still the real one.
    """

    def listen(self, backlog: int = BACKLOG) -> None:
        del backlog
        super().listen(BACKLOG)


async def accept(proxyserver: Proxyserver, mode: str, sock: socket.socket) -> ServerInstance[Any]:
    """Accepts at a bound socket when it returns, in one of mitmproxy's modes."""
    instance: Any = ServerInstance.make(ProxyMode.parse(mode), proxyserver)

    async def listen(*_: Any) -> list[asyncio.Server]:
        at_once = 1 if isinstance(sock, SharedSocket) else BACKLOG
        return [await asyncio.start_server(instance.handle_stream, sock=sock, backlog=at_once)]

    # mitmproxy's own way is find-a-free-port-then-bind, which races, and it refuses two listeners with port 0.
    instance.listen = listen
    await instance.start()
    started: ServerInstance[Any] = instance
    return started


def close(handler: Any) -> None:
    """Closes an agent's connection; its connections to environments follow."""
    transport = handler.transports.get(handler.client)
    if transport is not None and transport.handler is not None:
        transport.handler.cancel("the proxy stops")


async def close_all(proxyserver: Proxyserver, seconds: float) -> None:
    """Closes every connection, and waits for their ends."""
    for handler in list(proxyserver.connections.values()):
        close(handler)
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while proxyserver.connections:  # noqa: ASYNC110  mitmproxy tells nobody when the last is gone
                await asyncio.sleep(0.01)
