"""Holds the pieces of an event stream back until what was recorded before them has been asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from replayproxy.core.causes import Pending
from replayproxy.core.replayer import Replayer, Serve
from replayproxy.serve.wire import hold_limit

TURN_LIMIT = 5.0
"""Seconds that an answer waits for what was recorded to come before it."""


class Gate:
    """Of one answer. It waits as long as agents think: a new request of the recording starts the time anew.

    The time is over after `hold_limit` seconds; after `TURN_LIMIT` where another lane is waited for, or where the
    agent does something else than when recorded. Then the stream goes on unhindered, which counts as out of order.
    """

    def __init__(
        self,
        replayer: Replayer,
        serve: Serve,
        pending: Pending,
        moved: Callable[[float], Awaitable[None]],
        now: Callable[[], int],
    ) -> None:
        """`moved` waits for the next request, but not for longer than so many seconds."""
        self._replayer, self._serve, self._pending, self._moved, self._now = replayer, serve, pending, moved, now
        self._patience = hold_limit(serve.entry.exchange)
        self._given_up = False

    async def opens(self, instant: int | None) -> None:
        """Returns when the piece of this instant may come."""
        if instant is None or self._given_up:
            return
        asked, loop = self._replayer.consumers, asyncio.get_running_loop()
        claimed, since = -1, 0.0
        while (at := self._pending.first(instant, asked)) is not None:
            if len(asked) != claimed:
                claimed, since = len(asked), loop.time()
            if (left := since + self._limit(at) - loop.time()) <= 0:
                self._replayer.overdue(self._serve, self._now(), cause=at)
                self._given_up = True
                return
            await self._moved(left)

    def _limit(self, at: int) -> float:
        same_lane = self._replayer.script.entries[at].lane == self._serve.entry.lane
        return self._patience if same_lane and self._replayer.tally.first is None else TURN_LIMIT
