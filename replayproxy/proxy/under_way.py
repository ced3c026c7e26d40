"""The exchanges under way: which there are, on which connection, and which of them have been lost sight of."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator

from mitmproxy import http

from replayproxy.core.limits import Limits, silent, too_slow_to_begin
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

    async def watch_overdue(self, limits: Limits, reads: Callable[[], bool] = lambda: True) -> None:
        """Gives up on answers that do not begin in time after the request went out, or do not go on. Runs until
        cancelled: one timer for all, because a timer per request would outlive most of them. `reads`: whether the
        proxy reads from environments at all now."""
        shortest = min(limit for limit in (limits.answer, limits.idle) if limit is not None)
        while True:
            await asyncio.sleep(min(shortest / 4, 1.0))
            now = self._clock.now()
            for live in self:
                if not live.overdue and (why := self._why_overdue(live, limits, now, reads)):
                    live.overdue = True
                    try:
                        proxyserver().inject_event(AnswerOverdue(self._flows[live], why, live.first is not None))
                    except ValueError:  # the connection is gone, and its end is on the way
                        pass

    def _why_overdue(self, live: Live, limits: Limits, now: int, reads: Callable[[], bool]) -> str:
        """Which limit was exceeded; "": none."""
        if live.first is None:
            if limits.answer is None or live.fwd is None or not live.request_whole:
                return ""
            return too_slow_to_begin(limits.answer) if now - live.fwd > limits.answer * 1e9 else ""
        if limits.idle is None or live.answer_whole or live.is_websocket or now - live.heard <= limits.idle * 1e9:
            return ""
        if not reads() or _is_behind(live.agent_connection):
            live.heard_something()  # it is not the environment that keeps it waiting
            return ""
        return silent(limits.idle)


def _is_behind(agent_connection: str) -> bool:
    """Whether the agent has yet to take what was sent to it: nothing more is read for it meanwhile."""
    handler = proxyserver().connections.get(agent_connection)
    transport = handler.transports.get(handler.client) if handler else None
    writer = transport.writer if transport else None
    return isinstance(writer, asyncio.StreamWriter) and writer.transport.get_write_buffer_size() > 0
