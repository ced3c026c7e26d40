"""Sends what a request gets: a recorded answer, at its pace, or the document of a miss."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from replayproxy.core.canonical import VIEW_LIMIT
from replayproxy.core.misses import MISS_STATUS, Document
from replayproxy.core.replayer import Serve
from replayproxy.core.shown import json_bytes
from replayproxy.serve.doors import ASIDE
from replayproxy.serve.ready import Ready
from replayproxy.serve.renaming import event_rewriter
from replayproxy.serve.scene import Scene
from replayproxy.serve.sending import Pace, Sender, Writer
from replayproxy.serve.visit import Dialect, Marks, Visit, Watch, host_of
from replayproxy.serve.wire import OWN_STATUS, Ending, Framing, Plan, hold_limit, plan, problem
from replayproxy.storage import Reader


class Giver:
    """Of one origin. `stopping`: set when it stops, which ends every wait."""

    def __init__(
        self,
        reader: Reader,
        *,
        dialect: Dialect,
        now: Callable[[], int],
        pace: Pace,
        watch: Watch,
        stopping: asyncio.Event,
    ) -> None:
        self.reader, self.dialect, self.now, self.pace, self.watch = reader, dialect, now, pace, watch
        self.stopping = stopping

    async def say_miss(self, visit: Visit, document: Document) -> None:
        """A miss, told to whoever looks on and to the agent."""
        self.watch.miss(document)
        await self.say_none(visit, document)

    async def say_none(self, visit: Visit, document: Document) -> None:
        """That there is no answer, told to the agent alone."""
        mark = (b"Replay-Miss", b"1")
        await visit.request.writer.write(
            problem(MISS_STATUS, "Not In The Recording", json_bytes(document), mark, head_only=visit.is_head)
        )

    async def give_ready(self, visit: Visit, ready: Ready) -> Ending:
        """An answer that was put together when its episode was loaded."""
        writer = cast("Writer", visit.request.writer)
        await writer.write(ready.data, drain=False)
        visit.whole = True
        await writer.drain()
        return ready.ending

    async def give(self, visit: Visit, serve: Serve, marks: Marks) -> Ending:
        """A recorded answer as this agent is to see it, and what becomes of the connection after it."""
        exchange = serve.entry.exchange
        response = exchange.response
        if response is None and exchange.outcome in OWN_STATUS:
            return await self._give_own(visit, serve)
        fields = self.dialect.agent_fields(visit.door, exchange, host_of(visit.request), marks.prefix)
        planned = plan(exchange, fields, visit.hidden + ASIDE if visit.entrance.is_http2 else b"")
        await self._send(visit, serve, planned)
        if planned.ending is Ending.HOLD and visit.scene is not None:
            await self._hold(visit, visit.scene, serve)
        return planned.ending

    async def _give_own(self, visit: Visit, serve: Serve) -> Ending:
        """The environment gave no answer, and the agent was told so by the proxy: again in the same words."""
        exchange = serve.entry.exchange
        data = self.dialect.own_answer(OWN_STATUS[exchange.outcome], exchange.outcome, exchange.error)
        if visit.is_head:
            data = data.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
        await self._send(visit, serve, Plan(head=data, body=None, framing=Framing.NONE, ending=Ending.CLOSE))
        return Ending.CLOSE

    async def _send(self, visit: Visit, serve: Serve, planned: Plan) -> None:
        writer = cast("Writer", visit.request.writer)
        renames = serve.renames if planned.body is not None and planned.body.size > VIEW_LIMIT else None
        visit.sender = Sender(
            writer, serve.entry.exchange, planned, self.pace, self.reader.pieces, event_rewriter(serve, renames),
            visit.scene.gate(serve) if visit.scene else None,
        )  # fmt: skip
        await visit.sender.send()

    async def _hold(self, visit: Visit, scene: Scene, serve: Serve) -> None:
        """The recorded agent left here. Waits until this one does, too, which cancels us; or for so long."""
        scene.done(serve)
        visit.serve = None
        try:
            await asyncio.wait_for(self.stopping.wait(), hold_limit(serve.entry.exchange))
        except TimeoutError:
            scene.replayer.stayed(serve, self.now())
