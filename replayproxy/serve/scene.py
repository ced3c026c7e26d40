"""One episode that is being replayed: its answers, and who waits for whose turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from replayproxy.core.canonical import VIEW_LIMIT
from replayproxy.core.misses import Document, miss_document
from replayproxy.core.nearest import Situation, nearest
from replayproxy.core.receipt import episode_receipt
from replayproxy.core.redact import Known as Shown
from replayproxy.core.replayer import Miss, Order, Replayer, Serve
from replayproxy.core.script import Identified, Script
from replayproxy.core.values import Body
from replayproxy.serve.gate import TURN_LIMIT, Gate
from replayproxy.serve.ready import Ready
from replayproxy.serve.renaming import renamed
from replayproxy.serve.wire import Ending
from replayproxy.storage import Reader


class Scene:
    """One episode on stage. Lives on the event loop."""

    def __init__(self, script: Script, reader: Reader, *, order: Order, now: Callable[[], int]) -> None:
        self.replayer = Replayer(script, order)
        self.ready: Sequence[Ready | None] = ()
        self.by_order: Callable[[], bool] = lambda: False  # whether its agent was taken for this one's by order
        self.shown = Shown()  # secrets
        self.users = 0  # requests that are being answered from it
        self._owed = sum(entry.owed for entry in script.entries)
        self._aside: Document | None = None  # its receipt, while its script is not in memory
        self._reader = reader
        self._now = now
        self._waiting: set[asyncio.Event] = set()

    @property
    def name(self) -> str:
        return self.replayer.script.episode

    @property
    def is_here(self) -> bool:
        """Whether its script is in memory."""
        return self._aside is None

    @property
    def is_over(self) -> bool:
        """Whether all that its recording owes has been asked for."""
        return len(self.replayer.consumers) >= self._owed and not self.replayer.unused()

    def set_aside(self) -> None:
        """Lets its script go. What was played of it stays; nobody may be at it."""
        self._aside = self.receipt()
        self.replayer.set_aside()
        self.ready = ()

    def go_on(self, script: Script, ready: Sequence[Ready | None]) -> None:
        """Its script was read again."""
        self.replayer.go_on(script)
        self.ready, self._aside = ready, None

    async def turn(self, serve: Serve, limit: float = TURN_LIMIT) -> None:
        """Returns when this answer may be given: what comes before it was given, or the time is over (counted)."""
        replayer = self.replayer
        if replayer.may_go(serve):
            return
        loop = asyncio.get_running_loop()
        deadline = loop.time() + limit
        while not replayer.may_go(serve):
            if (left := deadline - loop.time()) <= 0:
                replayer.overdue(serve, self._now())
                return
            await self._moved(left)

    def ask(self, asked: Identified, lane: str) -> Serve | Miss:
        """Claims the answer to a request that has arrived whole."""
        found = self.replayer.ask(asked, lane, self._now())
        self._move()
        return found

    def at_once(self, asked: Identified, lane: str) -> bytes | None:
        """The answer, claimed and given, where it needs nothing but to be written and the connection goes on; None: it
        takes `ask`."""
        entry = self.replayer.plain(asked, lane)
        ready = self.ready[entry.at] if entry is not None else None
        if entry is None or ready is None or ready.ending is not Ending.KEEP:
            return None
        data = ready.data  # whatever can fail comes before the claim: `Express`
        self.replayer.give(entry, asked, lane)
        self._move()
        return data

    def done(self, serve: Serve) -> None:
        if self.replayer.done(serve):
            self._move()

    def gate(self, serve: Serve) -> Gate | None:
        """What holds the pieces of this answer back; None: nothing does."""
        pending = self.replayer.script.causes.of(serve.entry.exchange)
        return None if pending is None else Gate(self.replayer, serve, pending, self._moved, self._now)

    async def _moved(self, seconds: float) -> None:
        """Returns when something was asked for or given that others may wait for, or after so long."""
        moved = asyncio.Event()
        self._waiting.add(moved)
        try:
            await asyncio.wait_for(moved.wait(), seconds)
        except TimeoutError:
            return
        finally:
            self._waiting.discard(moved)

    def _move(self) -> None:
        for moved in self._waiting:
            moved.set()

    async def explain(self, miss: Miss) -> Document:
        """The document that answers a miss. What was near is looked up each time: what is consumed changes."""
        replayer = self.replayer
        now = Situation(asked=miss.asked, lane=miss.lane, consumers=dict(replayer.consumers), expected=miss.expected)
        near = await asyncio.to_thread(nearest, replayer.script, now, self._load)
        miss.near = miss.near or near
        document = miss_document(replayer.script, miss, near)
        if self.by_order():
            document["detail"] += "; this episode was adopted by order; the agent may be another one's"
        return document

    async def renamed(self, serve: Serve) -> Serve | None:
        """The answer with its live values; None where it holds none and goes out as recorded."""
        found = await renamed(serve, self._load)
        if found is not None:
            self.replayer.echoed(serve)
        return found

    def _load(self, body: Body) -> Body:
        return body if body.size > VIEW_LIMIT else replace(body, inline=self._reader.body(body))

    def receipt(self, contacts: int = 0) -> Document:
        return self._aside or episode_receipt(self.replayer, contacts=contacts)
