"""What an agent sends behind a request that is still being answered: mitmproxy keeps it in memory, however much it is.

Beyond `BACKLOG_LIMIT` of it nothing more is read from that agent until its turn comes, so the network holds the agent
back, as it would without a proxy. One that leaves meanwhile is missed for as long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from mitmproxy.connection import Client
from mitmproxy.proxy.mode_servers import ProxyConnectionHandler

BACKLOG_LIMIT = 1024 * 1024

_full: dict[str, asyncio.Event] = {}
"""By the agent's connection: set once it may send again. One loop, one process."""


def tell(client: Client, waiting: int) -> None:
    """How many bytes of this agent wait for their turn."""
    if waiting > BACKLOG_LIMIT:
        if client.id not in _full:
            _full[client.id] = asyncio.Event()
    elif event := _full.pop(client.id, None):
        event.set()


def forget(client: Client) -> None:
    """Its connection is gone."""
    tell(client, 0)


def bounded(handler: ProxyConnectionHandler) -> Callable[[], Awaitable[None]]:
    """The handler's `drain_writers`, which its readers await before they read again; the agent's is held back in it."""
    drain: Callable[[], Awaitable[None]] = handler.drain_writers

    async def drain_writers() -> None:
        await drain()
        event = _full.get(handler.client.id)
        agent = handler.transports.get(handler.client)
        if event is not None and agent is not None and asyncio.current_task() is agent.handler:
            await event.wait()

    return drain_writers
