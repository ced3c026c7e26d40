"""Sends the recorded requests of an episode again, each at most once, in the order of the recording.

The driver decides nothing about differences: it gives every pair of recorded and live exchange to its `Watcher`, which
may hold what follows (to take a snapshot) or ask for no more to be sent.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from replayproxy.core.bindings import Bindings, Substitution
from replayproxy.core.canonical import body_of
from replayproxy.core.schedule import NEVER, Plan, Step, ended_at, sent_at
from replayproxy.core.values import Exchange, Outcome, Request, Times
from replayproxy.drive.collect import Collector, Sink, stretch_of
from replayproxy.drive.message import Pieces, message, with_host
from replayproxy.drive.origin import Origin
from replayproxy.drive.wire import Answer, Lines

LEAVE_GRACE = 5.0
"""How long a stream that is to be closed again may take to send what the recording has of it."""


class Watcher(Protocol):
    """What happens around each exchange."""

    async def answered(self, recorded: Exchange, live: Exchange) -> bool:
        """The answer is here; what waited for it goes on when this returns. True: send no more."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A live environment. `base`: (recorded path, live path) of its URL where they differ. `keep_host`: Host goes out
    as recorded."""

    origin: Origin
    base: tuple[str, str] | None = None
    keep_host: bool = False

    @property
    def host(self) -> bytes | None:
        """What Host says; None: as recorded."""
        return None if self.keep_host else self.origin.authority.encode()


@dataclass(slots=True)
class Drive:
    """One repetition, while it runs and afterwards. `live` by the recorded number; `unsent` were never sent."""

    live: dict[int, Exchange] = field(default_factory=dict)
    unsent: list[int] = field(default_factory=list)
    running: dict[int, int] = field(default_factory=dict)
    stopped: bool = False

    def overlapping(self, begun: int, done: int) -> tuple[tuple[int, int], ...]:
        """The arrival keys of the exchanges that were in flight at any instant of [begun, done]."""
        over = [(since, 0) for since in self.running.values() if since <= done]
        over += [e.order for e in self.live.values() if e.times.head <= done and (e.times.up_end or NEVER) >= begun]
        return tuple(sorted(set(over)))


class Driver:
    """Runs a plan against live environments."""

    def __init__(
        self, exchanges: Sequence[Exchange], plan: Plan, targets: Mapping[str, Target], bindings: Bindings,
        watcher: Watcher, *, pieces: Pieces, pace: float | None = None, limit: float = 60.0,
        sink: Callable[[], Sink] | None = None,
    ) -> None:  # fmt: skip
        """`pace` None: at once; 1: the agent's own pauses; 2: half of them. `limit`: seconds an answer may take beyond
        twice what it took when it was recorded."""
        self.drive = Drive()
        self._recorded = {exchange.seq: exchange for exchange in exchanges}
        self._steps = {step.seq: step for step in plan.steps}
        self._targets, self._bindings, self._watcher = targets, bindings, watcher
        self._pieces, self._pace, self._limit, self._sink = pieces, pace, limit, sink
        self._lines = Lines()
        self._left = {step.seq: len(step.after) for step in plan.steps}
        self._followers: dict[int, list[int]] = {}
        for step in plan.steps:
            for before in step.after:
                self._followers.setdefault(before, []).append(step.seq)
        self._ended = {step.seq: asyncio.Event() for step in plan.steps}
        self._begun = {step.seq: asyncio.Event() for step in plan.steps}
        self._last_order = 0
        self._bodies: dict[int, Collector] = {}  # of the answers under way
        self._sent: dict[int, Request] = {}

    async def run(self) -> Drive:
        """Returns when all has been answered, or what was in flight when the watcher had seen enough. What the watcher
        or the store raises ends it, as it was raised."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for seq in [seq for seq, left in self._left.items() if left == 0]:
                    tasks.create_task(self._step(seq, tasks))
        except ExceptionGroup as several:
            raise several.exceptions[0] from several
        finally:
            self._lines.close()
        return self.drive

    async def _step(self, seq: int, tasks: asyncio.TaskGroup) -> None:
        step, recorded = self._steps[seq], self._recorded[seq]
        if not step.skip:
            if self._pace:
                await asyncio.sleep(step.gap / 1e9 / self._pace)
            if self.drive.stopped:
                self.drive.unsent.append(seq)
            else:
                await self._send(step, recorded)
        self._begun[seq].set()
        self._ended[seq].set()
        for follower in self._followers.get(seq, ()):
            self._left[follower] -= 1
            if self._left[follower] == 0:
                tasks.create_task(self._step(follower, tasks))

    async def _send(self, step: Step, recorded: Exchange) -> None:
        target = self._targets[recorded.env]
        await self._drawn(step)
        request = aimed(recorded, target, self._bindings)
        host = target.host
        self._sent[step.seq] = request
        order = self._order()
        self.drive.running[step.seq] = order
        wall = time.time_ns()
        stretch = stretch_of(recorded) if step.close_after is not None else None
        body = self._bodies[step.seq] = Collector(self._sink() if self._sink else None, stretch)
        self._begun[step.seq].set()
        answer = await self._lines.send(
            recorded.lane,
            target.origin,
            message(request, host=host, pieces=self._pieces),
            limit=self._limit + 2 * _took(recorded),
            body=body,
            leave=(lambda body: self._leave(step, recorded, body)) if step.close_after is not None else None,
        )
        if body.is_enough() and answer.outcome in (Outcome.CLIENT_GONE, Outcome.ANSWERED):
            # We closed it where the agent did, or it ended by itself after the agent would have left.
            answer = replace(answer, outcome=recorded.outcome, left=True)
        elif answer.outcome is Outcome.CLIENT_GONE and recorded.response is None:
            answer = replace(answer, outcome=recorded.outcome)
        live = live_exchange(recorded, request, host, answer, order, wall, target.origin)
        self.drive.live[step.seq] = live
        del self.drive.running[step.seq], self._bodies[step.seq]
        self._bindings.learn(recorded, request, live.response)
        for seq in step.hold_after:
            await self._ended[seq].wait()
        if await self._watcher.answered(recorded, live):
            self.drive.stopped = True
        done = replace(live, times=replace(live.times, c_out=time.monotonic_ns()))
        self.drive.live[step.seq] = done if live.outcome is Outcome.ANSWERED else live

    async def _drawn(self, step: Step) -> None:
        """Waits until streams still open have given what this request draws on, and learns the names in it."""
        for seq, size in step.draws:
            await self._begun[seq].wait()  # it does come: what it waits for had ended before this was sent
            if seq not in self._bodies:
                continue
            body, recorded = self._bodies[seq], self._recorded[seq]
            try:
                async with asyncio.timeout(max(LEAVE_GRACE, 2 * _took(recorded))):
                    await _first(body.reached(size), self._ended[seq].wait())
            except TimeoutError:
                pass  # it is sent as recorded, and what comes of it shows
            if seq in self._sent:
                self._bindings.learn(_cut(recorded, size), self._sent[seq], body.so_far())

    def _order(self) -> int:
        """Arrival keys are instants, and no two are equal."""
        self._last_order = max(time.monotonic_ns(), self._last_order + 1)
        return self._last_order

    async def _leave(self, step: Step, recorded: Exchange, body: Collector) -> None:
        """Returns when the agent would have left: what it waited for has ended, and it has seen what it saw."""
        began = time.monotonic()
        for seq in step.close_after or ():
            await self._ended[seq].wait()
        if recorded.response is None:
            # It left before there was anything to see: for as long as it waited, the environment had time to act.
            await asyncio.sleep(max(0.0, began + _took(recorded) - time.monotonic()))
            return
        try:
            async with asyncio.timeout(max(LEAVE_GRACE, 2 * _took(recorded))):
                await body.enough()
        except TimeoutError:
            return  # what is missing then shows as a difference of the body


async def _first(*waits: Coroutine[Any, Any, Any]) -> None:
    tasks = [asyncio.ensure_future(one) for one in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


def _cut(recorded: Exchange, size: int) -> Exchange:
    """The exchange with so much of its answer's body."""
    response = recorded.response
    if response is None or response.body is None or response.body.inline is None:
        return recorded
    return replace(recorded, response=replace(response, body=body_of(response.body.inline[:size])))


def _took(recorded: Exchange) -> float:
    """Seconds that the recorded exchange took; 0 when it never ended."""
    ended = ended_at(recorded)
    return 0.0 if ended >= NEVER else (ended - sent_at(recorded)) / 1e9


def aimed(recorded: Exchange, target: Target, bindings: Bindings) -> Request:
    """The recorded request as it goes to the target: with the names that hold there, under the path it has there."""
    request = bindings.apply(recorded)
    if target.base is not None:
        old, new = (part.encode() for part in target.base)
        if request.target == old or request.target.startswith((old + b"/", old + b"?")):
            request = replace(request, target=(new + request.target[len(old) :]) or b"/")
            bindings.substitutions.append(
                Substitution(recorded=target.base[0], live=target.base[1], producer=None, consumer=recorded.seq,
                             place="target", kind="authority")
            )  # fmt: skip
    return request


def live_exchange(
    recorded: Exchange, request: Request, host: bytes | None, answer: Answer, order: int, wall: int, origin: Origin
) -> Exchange:
    """What was sent for a recorded exchange and what came of it, under the recorded number."""
    return Exchange(
        seq=recorded.seq,
        order=(order, 0),
        env=recorded.env,
        lane=recorded.lane,
        request=replace(request, fields=with_host(request.fields, host), agent_host=None),
        response=answer.response,
        outcome=answer.outcome,
        times=Times(
            head=order, wall=wall, c_in=order, fwd=max(order, answer.fwd), first=answer.first, up_end=answer.up_end,
            c_out=answer.up_end if answer.outcome is Outcome.ANSWERED else None,
        ),
        carrier="redrive",
        error=answer.error,
        cut_at=answer.cut_at,
        upstream=origin.url,
        closed_by_agent=True if answer.left else None,
    )  # fmt: skip
