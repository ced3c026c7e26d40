"""The exchanges under way: which there are, on which connection, and which of them have been lost sight of."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator

from mitmproxy import http

from replayproxy.core.values import Outcome
from replayproxy.proxy.connections import proxyserver
from replayproxy.proxy.live import Clock, Live
from replayproxy.proxy.stream import AnswerOverdue

LINGER = 1.0
"""How long after its agent's connection an exchange may still end by itself."""


class UnderWay:
    """`on_over` is called with the agent's connection when an exchange of it is over."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._flows: dict[Live, http.HTTPFlow] = {}
        self._on: Counter[str] = Counter()
        self.on_over: Callable[[str], None] | None = None

    def __iter__(self) -> Iterator[Live]:
        return iter(tuple(self._flows))

    def add(self, live: Live, flow: http.HTTPFlow) -> None:
        self._flows[live] = flow
        self._on[live.agent_connection] += 1
        live.when_over = self._over

    def flow_of(self, live: Live) -> http.HTTPFlow:
        return self._flows[live]

    def _over(self, live: Live) -> None:
        if self._flows.pop(live, None) is not None:
            self._on[live.agent_connection] -= 1
            if not self._on[live.agent_connection]:
                del self._on[live.agent_connection]
        if self.on_over:
            self.on_over(live.agent_connection)

    def connection_ended(self, connection: str) -> None:
        asyncio.get_running_loop().call_later(LINGER, self._sweep, connection)

    def _sweep(self, connection: str) -> None:
        """An exchange whose agent is gone and that nobody ended: the recorder lost track of it, and says so."""
        if connection not in self._on:
            return
        for live in [live for live in self if live.agent_connection == connection]:
            if live.busy:
                self.connection_ended(connection)
            else:
                live.fault("exchange", RuntimeError("its connection ended, and it did not"))
                live.end(Outcome.CLIENT_GONE, error="the connection ended", closed_by_agent=None)

    async def watch_overdue(self, limit: float) -> None:
        """Gives up on answers that have not begun `limit` seconds after the request went out. Runs until cancelled:
        one timer for all, because a timer per request would outlive most of them."""
        while True:
            await asyncio.sleep(min(limit / 4, 1.0))
            now = self._clock.now()
            for live in self:
                waits = live.first is None and live.request_whole and not live.overdue
                if waits and live.fwd is not None and now - live.fwd > limit * 1e9:
                    live.overdue = True
                    try:
                        proxyserver().inject_event(AnswerOverdue(self._flows[live], limit))
                    except ValueError:  # the connection is gone, and its end is on the way
                        pass
