"""An open episode as the recorder sees it: what is in flight, what overlapped what, which snapshots are under way."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from replayproxy.core.canonical import field as header
from replayproxy.core.canonical import request_key
from replayproxy.core.effects import SAFE_METHODS, Overlaps
from replayproxy.core.values import Episode, Exchange, Request

type Order = tuple[int, int]


@dataclass(slots=True)
class Flight:
    """An exchange under way. `ended`: when the environment's last byte had come; a held answer has it already."""

    order: Order
    lane: str
    arrived: int
    ended: int | None = None
    listens: bool = False
    crossed: bool = False
    judged: bool = False

    def overlaps(self, begun: int, done: int) -> bool:
        return not self.listens and self.arrived <= done and (self.ended is None or self.ended >= begun)


def only_listens(request: Request) -> bool:
    """A read that asked for an event stream. It is open for as long as the agent lives and changes nothing, so a
    snapshot beside it is not torn."""
    accept = header(request.fields, b"accept") or b""
    return request.method in SAFE_METHODS and b"text/event-stream" in accept.lower()


@dataclass(slots=True, eq=False)
class Live:
    """One episode from its opening to its seal.

    `listeners` and `own_snapshots` (name -> loaded spec) are those that the control API gave it alone. `ending` is
    set by the first who ends it. `judged` in a flight: whether a snapshot after it was decided on already.
    """

    episode: Episode
    last_active: int
    flights: dict[Order, Flight] = field(default_factory=dict)
    landed: list[Flight] = field(default_factory=list)
    readings: dict[asyncio.Task[Any], Any] = field(default_factory=dict)
    overlaps: Overlaps = field(default_factory=Overlaps)
    listeners: list[Any] = field(default_factory=list)
    own_snapshots: dict[str, Any] = field(default_factory=dict)
    snapshots: int = 0
    exchanges: int = 0
    ended_at: int | None = None
    places: Counter[str] = field(default_factory=Counter)
    """How many requests of each lane there were."""
    stopped: str = ""
    """Why nothing more of it goes to an environment (`--fail-fast`)."""
    ending: asyncio.Future[Any] | None = None
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    hurry: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the recorder has to end: no reading is waited for any longer, whoever began to wait, and when."""

    def arrive(self, order: Order, lane: str, at: int) -> None:
        flight = Flight(order=order, lane=lane, arrived=at)
        for other in self.flights.values():
            if other.lane == lane:
                other.crossed = flight.crossed = True
        self.flights[order] = flight
        self.places[lane] += 1
        self.last_active = at
        self.settled.clear()

    def land(self, exchange: Exchange, at: int) -> None:
        """The exchange is over. It is remembered only for as long as something may ask about it."""
        self.exchanges += 1
        self.last_active = at
        flight = self.flights.pop(exchange.order, None)
        if not self.flights:
            self.settled.set()
        if flight is None:
            return
        if flight.ended is None:
            flight.ended = exchange.times.up_end or exchange.times.c_out or at
        if self.readings:
            self.landed.append(flight)
        if flight.crossed:
            self.overlaps.add(exchange, request_key(exchange.env, exchange.request))
            self.overlaps.settle(min(self.flights, default=None))

    def give_up(self, order: Order) -> None:
        """The exchange is over and could not be recorded: nobody is to wait for it."""
        self.flights.pop(order, None)
        if not self.flights:
            self.settled.set()

    def overlapping(self, begun: int, done: int, after: Order | None) -> tuple[Order, ...]:
        """The exchanges in flight at some instant of the reading, without the write that it follows."""
        seen = {flight.order for flight in (*self.landed, *self.flights.values()) if flight.overlaps(begun, done)}
        return tuple(sorted(seen - {after}))

    def reading_over(self, task: asyncio.Task[Any]) -> None:
        self.readings.pop(task, None)
        if not self.readings:
            self.landed.clear()

    def lane_ambiguous(self) -> int:
        """How many exchanges share lane and request with one that they overlap."""
        self.overlaps.settle(None)
        return self.overlaps.count

    async def settle(self, seconds: float) -> bool:
        """Waits until nothing is in flight; False when that took longer."""
        if not self.flights:
            return True
        try:
            await asyncio.wait_for(self.settled.wait(), seconds)
        except TimeoutError:
            return False
        return True

    async def until_read(self, readings: Iterable[asyncio.Task[Any]], seconds: float | None) -> None:
        """Waits for readings to end: for so many seconds, and until `hurry`."""
        all_read = asyncio.ensure_future(asyncio.wait(tuple(readings)))
        hurried = asyncio.ensure_future(self.hurry.wait())
        try:
            await asyncio.wait((all_read, hurried), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            all_read.cancel()
            hurried.cancel()

    @property
    def context(self) -> dict[str, str]:
        """What `{..}` in a snapshot's spec may name."""
        episode = self.episode
        values: dict[str, Any] = {"episode": episode.name, "task": episode.task, "seed": episode.seed}
        values |= {f"meta.{key}": value for key, value in episode.meta.items()}
        return {key: str(value) for key, value in values.items() if value is not None}


def instance_of(episode: Episode, env: str) -> str:
    """What tells the instances of an environment apart: the harness's word, else where it is."""
    return episode.instance.get(env) or episode.envs.get(env) or ""


def sharing(live: Live, others: Iterable[Live], env: str | None, begun: int, done: int) -> tuple[str, ...]:
    """The other episodes that were open on the same instance at some instant of the reading.

    A snapshot that belongs to no one environment (`env` None) is shared with every other open episode.
    """
    names = []
    for other in others:
        if other is live or other.episode.opened > done or (other.ended_at is not None and other.ended_at < begun):
            continue
        if env is None or instance_of(other.episode, env) == instance_of(live.episode, env):
            names.append(other.episode.name)
    return tuple(sorted(names))
