"""`record --probe`: a read that seems to miss its own lane's write is sent again at once, between two snapshots.

The agent has its answer by then and waits for nothing. What is asked is the same GET, by the recorder itself; it is
kept in the episode as a probe, which no replay gives and no re-drive sends. Nothing is asked where nothing is suspect.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from replayproxy.core.values import Body, Exchange, Outcome, Response, Run, Times
from replayproxy.detect.suspicion import Reason, Suspect
from replayproxy.drive.collect import Collector
from replayproxy.drive.message import message
from replayproxy.drive.origin import origin
from replayproxy.drive.wire import Answer, Lines
from replayproxy.errors import WrongUsage
from replayproxy.proxy.scribe import BodySink, Ticket
from replayproxy.session.camera import Camera
from replayproxy.session.lives import Live
from replayproxy.session.wiring import EnvSpec

MAX_PROBES = 20
"""Reads of one episode that are sent again."""

MAX_ALIKE = 3
"""Times that one request is sent again in an episode: an agent that waits for its change asks on and on."""

WITHIN = 10.0
"""Seconds within which the second answer must be whole."""

CARRIER = "probe"


@dataclass(slots=True)
class _Watch:
    """What is known of an open episode."""

    suspect: Suspect
    sent: int = 0
    alike: Counter[bytes] = field(default_factory=Counter)
    task: asyncio.Task[None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What a prober needs of the recording. `keep` stores an exchange of an episode, if there is room; `sink` is where
    a body of it goes."""

    camera: Camera
    keep: Callable[[Live, Exchange], None]
    sink: Callable[[Live, Exchange, Response], BodySink]
    order: Callable[[int], tuple[int, int]]
    now: Callable[[], int]
    wall: Callable[[], int]
    fault: Callable[[Live, BaseException], None]


class Prober:
    """One recording's. At most one probe of an episode is under way."""

    def __init__(self, run: Run, tools: Tools) -> None:
        self._run, self._tools = run, tools
        self._watches: dict[int, _Watch] = {}

    def saw(self, live: Live, ticket: Ticket, exchange: Exchange, env: EnvSpec | None) -> None:
        """An exchange of an open episode has ended."""
        watch = self._watches.get(live.episode.key)
        if watch is None:
            watch = self._watches[live.episode.key] = _Watch(Suspect(self._run))
        reason = watch.suspect.note(exchange)
        if reason is None or env is None or not ticket.upstream or not self._may(live, watch, exchange):
            return
        watch.sent += 1
        watch.alike[exchange.request.target] += 1
        work = self._guarded(live, exchange, reason, ticket.upstream, env)
        watch.task = asyncio.get_running_loop().create_task(work, name="probe")

    def _may(self, live: Live, watch: _Watch, exchange: Exchange) -> bool:
        if exchange.request.method != b"GET" or live.ending is not None:
            return False
        busy = watch.task is not None and not watch.task.done()
        spent = watch.sent >= MAX_PROBES or watch.alike[exchange.request.target] >= MAX_ALIKE
        return not busy and not spent and bool(self._tools.camera.names(live, exchange.env))

    async def settle(self, live: Live, seconds: float | None) -> None:
        """The episode ends: a probe under way is waited for, and given up after `seconds`."""
        watch = self._watches.pop(live.episode.key, None)
        if watch is None or watch.task is None or watch.task.done():
            return
        _, pending = await asyncio.wait({watch.task}, timeout=seconds)
        for task in pending:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    # -- one probe -----------------------------------------------------------------------------------------------

    async def _guarded(
        self, live: Live, read: Exchange, reason: Reason, upstream: str, env: EnvSpec
    ) -> None:  # fmt: skip
        try:
            await self._probe(live, read, reason, upstream, env)
        except Exception as fault:
            # What a probe lacks is a closer look; the episode has all that its agent said.
            self._tools.fault(live, fault)

    async def _probe(
        self, live: Live, read: Exchange, reason: Reason, upstream: str, env: EnvSpec
    ) -> None:  # fmt: skip
        tools, label = self._tools, f"{read.request.method.decode()} again"
        await tools.camera.probe(live, read.env, label)
        at, wall = tools.now(), tools.wall()
        order = tools.order(at)
        answer = await self._ask(read, upstream, env)
        if answer is not None:
            tools.keep(live, self._exchange(live, read, reason, answer, order=order, at=at, wall=wall))
        await tools.camera.probe(live, read.env, label)

    async def _ask(self, read: Exchange, upstream: str, env: EnvSpec) -> Answer | None:
        try:
            # Certificates are read from disk.
            there = await asyncio.to_thread(
                origin, upstream, ca=str(env.ca) if env.ca else None, insecure=env.insecure
            )  # fmt: skip
        except WrongUsage:
            return None
        lines = Lines()
        try:
            asked = message(read.request, host=None, pieces=lambda _body: iter(()))
            return await lines.send("probe", there, asked, limit=WITHIN, body=Collector())
        finally:
            lines.close()

    def _exchange(
        self, live: Live, read: Exchange, reason: Reason, answer: Answer, *, order: tuple[int, int], at: int, wall: int
    ) -> Exchange:  # fmt: skip
        response = answer.response
        asked = replace(read.request, trailers=())
        if response is not None and response.body is not None:
            body = self._stored(live, read, response)
            response = replace(response, body=body, informational=())
        missed = f"asked again: {reason.asked} seemed to miss {reason.written_by}"
        return Exchange(
            seq=0, order=order, env=read.env, lane=read.lane, request=asked, response=response,
            outcome=answer.outcome, carrier=CARRIER, error=answer.error, cut_at=answer.cut_at,
            upstream=read.upstream, notes=(missed,), is_probe=True,
            times=Times(
                head=at, wall=wall, c_in=at, fwd=answer.fwd, first=answer.first,
                up_end=answer.up_end if answer.outcome is not Outcome.REFUSED else None, c_out=None,
            ),
        )  # fmt: skip

    def _stored(self, live: Live, read: Exchange, response: Response) -> Body | None:
        """The body as the store keeps it; None: it is too large to be held, or withheld for a secret in it."""
        given = response.body
        if given is None or given.inline is None:
            return None
        sink = self._tools.sink(live, read, response)
        sink.write(given.inline)
        return sink.close()
