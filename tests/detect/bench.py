"""A simulated environment with agents, in simulated time: recordings with true intervals and known faults.

A mock CRM: deals and tickets in tables, REST paths, a reset. Effects happen at one instant inside each exchange's
interval, so a clean recording is linearizable by construction, however many lanes and episodes overlap.
"""

from __future__ import annotations

import heapq
import json
import random
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from replayproxy.core import prolly
from replayproxy.core.values import EnvWiring, Episode, EpisodeState, Run, Snapshot, SnapshotStatus, Trace
from replayproxy.detect.judge import Judgement, judge_run
from replayproxy.detect.source import Source
from replayproxy.testing import WALL0, exchange

type Agent = Generator[tuple[str, str, Any], tuple[int, Any], None]
MS = 1_000_000


@dataclass
class Deployment:
    """One instance. `faults`: stale (reads of deals from a cache for 500 ms), leaky (the reset forgets the deals),
    noop (the reset does nothing), random (a score from unseeded randomness)."""

    name: str = "i"
    faults: frozenset[str] = frozenset()
    rng: random.Random = field(default_factory=lambda: random.Random(0))
    minter: random.Random = field(default_factory=lambda: random.Random(99))
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    cache: dict[str, tuple[int, Any]] = field(default_factory=dict)
    lies: list[tuple[str, int]] = field(default_factory=list)  # (path, instant) of each stale answer
    counter: int = 100
    autoincrement: bool = False
    gap_ms: float = 0.0
    wall: Callable[[], str] = lambda: "2023-11-14T22:13:20Z"

    def reset(self, task: str, seed: int) -> None:
        seeded = random.Random(f"{task}/{seed}")
        deals = {
            f"D-{n}": {"id": f"D-{n}", "stage": "lead", "owner": "ada", "amount": seeded.randrange(1000, 90000),
                       "updated_at": self.wall()}
            for n in range(1, 4)
        }  # fmt: skip
        tickets = {f"T-{n}": {"id": f"T-{n}", "status": "open", "title": f"Ticket {n}"} for n in range(1, 3)}
        if "noop" in self.faults and self.tables:
            return
        if "leaky" in self.faults and self.tables:
            self.tables = {"deals": {**self.tables["deals"], **deals}, "tickets": tickets}
        else:
            self.tables = {"deals": deals, "tickets": tickets}
        self.cache.clear()

    def state(self) -> dict[str, Any]:
        return json.loads(json.dumps(self.tables))

    def answer(self, now: int, method: str, path: str, body: Any) -> Any:
        """Status and document; or a function that gives them when it is called `gap_ms` later."""
        parts = path.partition("?")[0].strip("/").split("/")
        table = self.tables.get(parts[0])
        if table is None:
            return 404, {"error": "no such thing"}
        if len(parts) == 1:
            if method == "GET":
                return 200, {"items": [dict(row) for row in table.values()]}
            self.counter += 1
            minted = uuid.UUID(int=self.minter.getrandbits(128), version=4)
            key = str(self.counter if self.autoincrement else minted)
            table[key] = {"id": key, **body, "updated_at": self.wall()}
            return 201, dict(table[key])
        row = table.get(parts[1])
        if row is None:
            return 404, {"error": "no such row"}
        if parts[2:] == ["score"]:
            return 200, {"score": random.random() if "random" in self.faults else row["amount"] % 97}
        if method == "GET":
            if "stale" in self.faults:
                at, old = self.cache.get(path, (-(10**18), None))
                if now - at < 500 * MS:
                    if old != row:
                        self.lies.append((path, now))
                    return 200, old
                self.cache[path] = (now, dict(row))
            return 200, dict(row)
        if method == "DELETE":
            del table[parts[1]]
            return 204, None
        row |= body
        row["updated_at"] = self.wall()
        return 200, dict(row)


@dataclass
class _Open:
    episode: Episode
    deployment: Deployment
    exchanges: list[Any] = field(default_factory=list)
    snapshots: list[Snapshot] = field(default_factory=list)
    lanes: int = 0


class Bench:
    """Runs agents on deployments; `judge()` gives what the detectors say."""

    def __init__(self, seed: int = 0, *, snapshots: bool = True, mode: str = "hold") -> None:
        self.rng = random.Random(seed)
        self.now = 1000 * MS
        self.nodes: dict[bytes, bytes] = {}
        self.traces: list[Trace] = []
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._snapshots = snapshots
        self._mode = mode
        self._open: list[_Open] = []

    def wall(self) -> str:
        seconds, rest = divmod(self.now, 10**9)
        return f"2023-11-14T22:{13 + (20 + seconds) // 60:02d}:{(20 + seconds) % 60:02d}.{rest // MS:03d}Z"

    def deployment(self, name: str = "i", *faults: str, **more: Any) -> Deployment:
        kind = more.pop("kind", Deployment)
        return kind(name=name, faults=frozenset(faults), wall=self.wall, **more)

    # Time

    def _at(self, when: int, what: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (when, self._count, what))

    def _soon(self, low: float = 0.2, high: float = 4.0) -> int:
        return self.now + round(self.rng.uniform(low, high) * MS)

    def run(self) -> None:
        while self._events:
            self.now, _, what = heapq.heappop(self._events)
            what()

    # Episodes

    def episode(
        self, name: str, deployment: Deployment, agents: Mapping[str, Callable[[], Agent]], *, task: str = "t",
        seed: int = 1, reset: bool = True, after: Callable[[], None] | None = None, delay_ms: float = 1.0, **more: Any,
    ) -> None:  # fmt: skip
        """Plans an episode: a reset, a start snapshot, an agent per lane, an end snapshot; then `after`."""

        def begin() -> None:
            if reset:
                deployment.reset(task, seed)
            opened = _Open(
                episode=Episode(
                    key=len(self.traces) + len(self._open) + 1, run_key=1, name=name, task=task, seed=seed,
                    instance={"app": deployment.name}, opened=self.now, opened_wall=WALL0 + self.now,
                    state=EpisodeState.SEALED, ended_by="end", **more,
                ),
                deployment=deployment, lanes=len(agents),
            )  # fmt: skip
            self._open.append(opened)

            def start_lanes() -> None:
                for lane, agent in agents.items():
                    self._step(opened, lane, agent(), None, after)

            self._snapshot(opened, "start", None, start_lanes)

        self._at(self.now + round(delay_ms * MS), begin)

    def _step(
        self, opened: _Open, lane: str, agent: Agent, answer: tuple[int, Any] | None, after: Callable[[], None] | None
    ) -> None:
        try:
            method, path, body = next(agent) if answer is None else agent.send(answer)
        except StopIteration:
            opened.lanes -= 1
            if opened.lanes == 0:
                self._snapshot(opened, "end", None, lambda: self._close(opened, after))
            return
        head = self.now
        fwd = self._soon(0.05, 0.5)

        def effect() -> None:
            answered = opened.deployment.answer(self.now, method, path, body)
            if callable(answered):  # what was looked up is acted on only later
                self._at(self.now + round(opened.deployment.gap_ms * MS) + 1, lambda: acted(answered))
            else:
                self._at(self._soon(), lambda: done(*answered))

        def acted(act: Callable[[], tuple[int, Any]]) -> None:
            status, document = act()
            self._at(self._soon(), lambda: done(status, document))

        def done(status: int, document: Any) -> None:
            end = self.now
            made = exchange(
                method, path, status=status, body="" if document is None else document,
                sent="" if body is None else body, at_ms=head / MS, lane=lane,
            )  # fmt: skip
            made = replace(made, times=replace(made.times, fwd=fwd, up_end=end, c_out=end, first=end))
            opened.exchanges.append(made)
            go_on = lambda: self._at(self._soon(), lambda: self._step(opened, lane, agent, (status, document), after))  # noqa: E731
            if method == "GET":
                go_on()
            elif self._mode == "hold":
                self._snapshot(opened, "write", made, go_on)
            else:
                self._snapshot(opened, "write", made, lambda: None)
                go_on()

        self._at(fwd + round(self.rng.uniform(0.1, 4.0) * MS), effect)

    def _snapshot(self, opened: _Open, when: str, after: Any, then: Callable[[], None]) -> None:
        if not self._snapshots:
            then()
            return
        begun = self.now + 1

        def read() -> None:
            state = opened.deployment.state()
            self._at(self._soon(), lambda: done(state))

        def done(state: dict[str, Any]) -> None:
            tree = prolly.build(state)
            self.nodes |= tree.nodes
            opened.snapshots.append(
                Snapshot(
                    n=len(opened.snapshots), name="app", env="app", when=when, status=SnapshotStatus.TAKEN,
                    root=tree.root, rows=tree.rows, begun=begun, done=self.now, wall=WALL0 + begun, atomic=True,
                    after=after.order if after is not None else None,
                )
            )  # fmt: skip
            then()

        self._at(self._soon(0.05, 1.0), read)

    def _close(self, opened: _Open, after: Callable[[], None] | None) -> None:
        self._open.remove(opened)
        numbered = [replace(e, seq=n) for n, e in enumerate(sorted(opened.exchanges, key=lambda e: e.order), 1)]
        seqs = {e.order: e.seq for e in numbered}
        shots = [replace(s, after_seq=seqs.get(s.after) if s.after else None) for s in opened.snapshots]
        ended = replace(opened.episode, ended=self.now, ended_wall=WALL0 + self.now)
        self.traces.append(Trace(run=RUN, episode=ended, exchanges=numbered, snapshots=shots))
        if after:
            after()

    def in_turn(self, plans: Iterator[dict[str, Any]]) -> None:
        """Episodes one after the other: each is planned when the one before has ended."""
        plan = next(plans, None)
        if plan is not None:
            self.episode(**plan, after=lambda: self.in_turn(plans), delay_ms=self.rng.uniform(1, 20))

    def source(self) -> Source:
        by_name = {trace.episode.name: trace for trace in self.traces}
        return Source(
            run=RUN, episodes=[trace.episode for trace in self.traces],
            trace=lambda episode: by_name[episode.name], load=lambda address: self.nodes[address],
        )  # fmt: skip

    def judge(self, **more: Any) -> Judgement:
        self.run()
        return judge_run(self.source(), **more)


RUN = Run(
    key=1, name="r", opened_wall=WALL0,
    envs={"app": EnvWiring(name="app", upstream="http://app.test")}, snapshots={"app": "http:http://app.test/state"},
)  # fmt: skip


def script(*steps: tuple[str, str, Any] | tuple[str, str]) -> Callable[[], Agent]:
    """An agent that asks these, whatever comes."""

    def agent() -> Agent:
        for step in steps:
            yield step[0], step[1], step[2] if len(step) > 2 else None

    return agent


def worker() -> Agent:
    """Looks, creates, changes what it created, changes a seeded deal, looks again, deletes a ticket."""
    yield "GET", "/deals", None
    _, made = yield "POST", "/deals", {"stage": "lead", "owner": "grace", "amount": 500}
    yield "GET", f"/deals/{made['id']}", None
    yield "PATCH", f"/deals/{made['id']}", {"amount": 700}
    yield "PATCH", "/deals/D-1", {"stage": "won"}
    yield "GET", "/deals/D-1", None
    yield "GET", "/deals/D-2/score", None
    yield "GET", "/deals", None
    yield "DELETE", "/tickets/T-2", None
    yield "GET", "/tickets", None
    yield "GET", "/tickets/T-2", None
