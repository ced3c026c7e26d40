"""Sends a plan: bytes in their recorded pieces, at once or in the recorded time, with flat memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from replayproxy.core.causes import ends_late
from replayproxy.core.mint import EventRewriter
from replayproxy.core.values import Body, Exchange, Outcome
from replayproxy.errors import WrongUsage
from replayproxy.serve.gate import Gate
from replayproxy.serve.wire import Framing, Plan, chunks_of, last_chunk, whole_body

NS = 1_000_000_000


class Writer(Protocol):
    """The part of aiohttp's stream writer that is used: bytes go out as they are."""

    async def write(self, chunk: bytes, *, drain: bool = True) -> None: ...

    async def drain(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How much faster than recorded; 0: without any pause."""

    speed: float = 0.0

    def seconds(self, recorded_ns: int) -> float:
        return recorded_ns / NS / self.speed if self.speed else 0.0


INSTANT = Pace()

PARTING_SECONDS = 5.0
"""The longest pause before the last piece of an answer that the agent left."""


def parse_pace(text: str) -> Pace:
    """`instant`, `recorded`, or a factor such as `2x`. WrongUsage for anything else."""
    if text == "instant":
        return INSTANT
    if text == "recorded":
        return Pace(speed=1.0)
    try:
        speed = float(text.removesuffix("x")) if text.endswith("x") else 0.0
    except ValueError:
        speed = 0.0
    if not 0 < speed < float("inf"):
        raise WrongUsage(f"--pace {text!r} is none of instant, recorded, 2x", hint="--pace 2x is twice as fast")
    return Pace(speed=speed)


def _parting(exchange: Exchange, plan: Plan) -> tuple[int, float] | None:
    """The instant of the last piece of an answer that the agent left, and the recorded pause before it in seconds.

    It is kept at every pace. `curl URL | head` leaves because the piece after the one it wanted finds its pipe closed;
    were both to come at once, it would be given everything before it can know that nobody reads any more.
    """
    chunks = plan.body.chunks if plan.body else ()
    if exchange.outcome is not Outcome.CLIENT_GONE or len(chunks) < 2:
        return None
    return chunks[-1].at, min((chunks[-1].at - chunks[-2].at) / NS, PARTING_SECONDS)


class Sender:
    """Sends one answer. `whole` is True once all its bytes are handed over: what follows cannot be missed."""

    def __init__(
        self,
        writer: Writer,
        exchange: Exchange,
        plan: Plan,
        pace: Pace,
        pieces: Callable[[Body], Iterator[bytes]],
        rewriter: EventRewriter | None = None,
        gate: Gate | None = None,
    ) -> None:
        """`rewriter`: puts live values into an event stream that is not to be held in memory. `gate`: holds the pieces
        of an event stream back."""
        self._rewriter = rewriter
        self._gate = gate
        self._ends = ends_late(exchange)
        self._writer = writer
        self._plan = plan
        self._pace = pace
        self._pieces = pieces
        self._began = asyncio.get_running_loop().time() if pace.speed else 0.0
        times = exchange.times
        self._asked = times.fwd if times.fwd is not None else times.head
        self._first, self._last = times.first, times.up_end
        self._parting = _parting(exchange, plan)
        self.whole = False

    async def send(self) -> None:
        """Returns when everything is handed over. The caller sees to the connection's end."""
        plan = self._plan
        if not self._has_pauses and (block := whole_body(plan)) is not None:
            await self._last_write(plan.head + block)
            return
        if self._gate is None and (plan.body is None or not plan.body.chunks):
            # One block: the agent had all of it at the end, and nothing before.
            await self._until(self._last or self._first)
        else:
            await self._until(self._first)
        if self._rewriter is not None and plan.body is not None and plan.framing is not Framing.LENGTH:
            await self._writer.write(plan.head)
            await self._events(plan.body, self._rewriter)
        elif plan.framing is Framing.CHUNKED:
            await self._writer.write(plan.head)
            await self._chunked()
            await self._end(last_chunk(plan))
        elif plan.body is None or not plan.body.size:
            await self._last_write(plan.head)
        else:
            await self._writer.write(plan.head)
            await self._plain(plan.body)
        if self._gate is not None and plan.framing is Framing.CLOSE:
            await self._end(b"")

    @property
    def _has_pauses(self) -> bool:
        return bool(self._pace.speed or self._parting or self._gate is not None)

    async def _end(self, data: bytes) -> None:
        """What ends a body that tells no length."""
        # Who leaves now has missed nothing that an event stream said.
        self.whole = self._gate is not None
        await self._until(self._last)
        if self._gate is not None:
            await self._gate.opens(self._ends)
        await self._last_write(data)

    async def _last_write(self, data: bytes) -> None:
        await self._writer.write(data, drain=False)
        self.whole = True
        await self._writer.drain()

    async def _until(self, instant: int | None) -> None:
        """Waits for the replay's counterpart of a recorded instant."""
        if instant is None:
            return
        if not self._pace.speed:
            if self._parting and instant == self._parting[0]:
                await asyncio.sleep(self._parting[1])
            return
        due = self._began + self._pace.seconds(instant - self._asked)
        if (left := due - asyncio.get_running_loop().time()) > 0:
            await asyncio.sleep(left)

    async def _due(self, instant: int | None) -> None:
        """Waits until the piece of a recorded instant may come."""
        await self._until(instant)
        if self._gate is not None:
            await self._gate.opens(instant)

    async def _plain(self, body: Body) -> None:
        left = body.size
        whole_pieces = not self._has_pauses
        async for _, instant, part in self._parts(body, whole_pieces=whole_pieces):
            await self._due(instant)
            left -= len(part)
            # An agent that counts leaves with the last byte, while we would still wait for the buffer to drain.
            await (self._writer.write(part) if left > 0 else self._last_write(part))
        if left > 0:
            raise ValueError(f"{left} of {body.size} bytes of a body are not in the store")

    async def _chunked(self) -> None:
        body = self._plan.body
        if body is None:
            return
        open_bytes = 0  # of the chunk that is being written
        async for opens, instant, part in self._parts(body):
            if opens:
                await self._due(instant)
                open_bytes = opens
            open_bytes -= len(part)
            await self._writer.write((b"%x\r\n" % opens if opens else b"") + part + (b"" if open_bytes else b"\r\n"))

    async def _events(self, body: Body, rewriter: EventRewriter) -> None:
        """Whole events, in the recorded time; where they were cut is not kept, for their sizes changed."""
        chunked = self._plan.framing is Framing.CHUNKED

        async def put(data: bytes) -> None:
            if data:
                await self._writer.write(b"%x\r\n%b\r\n" % (len(data), data) if chunked else data)

        async for _, instant, part in self._parts(body):
            await self._due(instant)
            # In another thread: what is taken apart here is long, and other agents do not wait for that.
            await put(await asyncio.to_thread(rewriter.feed, part))
        await put(rewriter.close())
        await self._end(last_chunk(self._plan) if chunked else b"")

    async def _parts(self, body: Body, *, whole_pieces: bool = False) -> AsyncIterator[tuple[int, int | None, bytes]]:
        """The body cut where its chunks began: (size of the chunk that begins here or 0, its instant, bytes).
        `whole_pieces`: cut only where the store did, and at its end."""
        sizes = iter([(body.size, None)] if whole_pieces else chunks_of(body))
        left = 0
        async for piece in self._stored(body):
            at = 0
            while at < len(piece):
                opens, instant = 0, None
                if not left:
                    begun = next(sizes, None)
                    if begun is None:
                        return
                    opens, instant = begun
                    left = opens
                part = piece[at : at + left]
                yield opens, instant, part
                at += len(part)
                left -= len(part)

    async def _stored(self, body: Body) -> AsyncIterator[bytes]:
        if body.inline is not None:
            yield body.inline
            return
        pieces = self._pieces(body)
        # In another thread: a piece is read, checked and decompressed, and other agents do not wait for that.
        while piece := await asyncio.to_thread(next, pieces, b""):
            yield piece
