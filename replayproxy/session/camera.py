"""When a recording takes which snapshots: at an episode's start, after its writes, at its end, and when asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from replayproxy.core.values import Exchange, Outcome, Snapshot, SnapshotStatus
from replayproxy.session.lives import Live, Order, sharing
from replayproxy.state.capture import Capture
from replayproxy.state.loader import Loaded

UNDECLARED = "undeclared"
NEVER_SENT = frozenset({Outcome.REFUSED, Outcome.LOCAL, Outcome.HALF_SENT})
"""The outcomes after which there is nothing to look for: the environment never had the whole request."""


class Keep(Protocol):
    def __call__(self, live: Live, snapshot: Snapshot) -> None:
        """Stores a snapshot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What `--snapshot-when` and `--snapshot-mode` say. `limit`: how long a write's answer is held, in seconds."""

    when: tuple[str, ...] = ("start", "write", "end")
    mode: str = "hold"
    limit: float = 0.25


@dataclass(slots=True, eq=False)
class Shot:
    """A snapshot that was asked for. `late`: its answer did not wait any longer. `given_up`: it is MISSING already."""

    n: int
    name: str
    when: str
    label: str = ""
    after: Order | None = None
    late: bool = False
    given_up: bool = False


class Camera:
    """Asks for snapshots and hands them to `keep`, each exactly once. `others` are the episodes open now or lately."""

    def __init__(
        self,
        capture: Capture,
        *,
        plan: Plan,
        keep: Keep,
        others: Callable[[], Iterable[Live]],
        now: Callable[[], int],
        wall: Callable[[], int],
    ) -> None:
        self.capture, self.plan = capture, plan
        self._keep, self._others = keep, others
        self._now, self._wall = now, wall

    def names(self, live: Live, env: str | None = None) -> list[str]:
        """The snapshots of an episode, or those of one environment in it; an episode's own come beside the run's."""
        names = list(dict.fromkeys([*self.capture.names(), *live.own_snapshots]))
        return names if env is None else [name for name in names if self.capture.env_of(name) in (env, None)]

    def undeclared_start(self, live: Live) -> None:
        """Nobody said that the episode begins, so the state before its first request was not read."""
        if "start" in self.plan.when:
            for name in self.names(live):
                shot = self._shot(live, name, "start")
                self._keep(live, self._missing(shot, UNDECLARED))

    async def take(self, live: Live, when: str, *, label: str = "", seconds: float | None = None) -> list[Snapshot]:
        """All snapshots of the episode. Those that take longer than `seconds`, or are hurried, are MISSING."""
        shots = [self._shot(live, name, when, label=label) for name in self.names(live)]
        tasks = [self._begin(live, shot) for shot in shots]
        if not tasks:
            return []
        await live.until_read(tasks, seconds)
        taken = []
        for shot, task in zip(shots, tasks, strict=True):
            taken.append(task.result() if task.done() else self._give_up(live, shot))
        return taken

    def _give_up(self, live: Live, shot: Shot) -> Snapshot:
        shot.given_up = True
        missing = self._missing(shot, "the recorder was stopping and did not wait for it")
        self._keep(live, missing)
        return missing

    def give_up_all(self, live: Live) -> None:
        """The episode is to be sealed now: readings still under way become MISSING."""
        for task, shot in tuple(live.readings.items()):
            if not shot.given_up and not task.done():
                self._give_up(live, shot)

    def wants(self, live: Live, env: str) -> bool:
        """Whether a write to this environment is followed by a snapshot at all."""
        return "write" in self.plan.when and bool(self.names(live, env))

    def after_write(self, live: Live, exchange: Exchange) -> list[asyncio.Task[Snapshot]]:
        """Begins the snapshots that follow a write; they go on whether or not somebody waits."""
        if exchange.outcome in NEVER_SENT:
            return []
        shots = [self._shot(live, name, "write", after=exchange.order) for name in self.names(live, exchange.env)]
        return [self._begin(live, shot) for shot in shots]

    async def probe(self, live: Live, env: str, label: str) -> None:
        """Reads the environment's state now, beside whatever else is read."""
        tasks = [self._begin(live, self._shot(live, name, "probe", label=label)) for name in self.names(live, env)]
        if tasks:
            await asyncio.wait(tasks)

    async def hold(self, live: Live, tasks: Sequence[asyncio.Task[Snapshot]]) -> None:
        """Waits for snapshots up to the limit. Those that take longer come late."""
        if not tasks or self.plan.mode != "hold":
            return
        _, pending = await asyncio.wait(tasks, timeout=self.plan.limit)
        for task in pending:
            live.readings[task].late = True

    def _shot(self, live: Live, name: str, when: str, *, label: str = "", after: Order | None = None) -> Shot:
        n, live.snapshots = live.snapshots, live.snapshots + 1
        return Shot(n=n, name=name, when=when, label=label, after=after)

    def _begin(self, live: Live, shot: Shot) -> asyncio.Task[Snapshot]:
        task = asyncio.get_running_loop().create_task(self._read(live, shot), name=f"snapshot {shot.name}")
        live.readings[task] = shot
        task.add_done_callback(live.reading_over)
        return task

    async def _read(self, live: Live, shot: Shot) -> Snapshot:
        own: Loaded | None = live.own_snapshots.get(shot.name)
        try:
            snapshot = await self.capture.take(
                shot.name, when=shot.when, n=shot.n, mode=self.plan.mode, label=shot.label, after=shot.after,
                overlapping=lambda begun, done: live.overlapping(begun, done, shot.after),
                context=live.context, loaded=own,
            )  # fmt: skip
            shared = sharing(live, self._others(), snapshot.env, snapshot.begun, snapshot.done)
            snapshot = replace(snapshot, late=shot.late, shared_with=shared)
        except Exception as fault:
            # Whatever went wrong, what is known of this state is: nothing.
            snapshot = self._missing(shot, f"{type(fault).__name__}: {fault}")
        if not shot.given_up:
            self._keep(live, snapshot)
        return snapshot

    def _missing(self, shot: Shot, reason: str) -> Snapshot:
        now = self._now()
        return Snapshot(
            n=shot.n, name=shot.name, env=self.capture.env_of(shot.name), when=shot.when, label=shot.label,
            status=SnapshotStatus.MISSING, reason=reason, late=shot.late, mode=self.plan.mode,
            begun=now, done=now, wall=self._wall(), after=shot.after,
        )  # fmt: skip
