"""Agents of a lawful world, and the bench that records them."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from replayproxy.core import prolly
from replayproxy.core.values import Outcome, Snapshot, SnapshotStatus
from replayproxy.testing import WALL0, exchange
from tests.detect.bench import MS, Agent, Bench
from tests.detect.lawful_world import HABITS, World

# Agents


def agent(seed: str, lane: int, steps: int, *, patience: float = 0.0) -> Callable[[], Agent]:
    """Asks what chance says, the same for the same seed; a few things it does to what it has made itself."""

    def run() -> Any:
        rng = random.Random(f"{seed}/{lane}")
        who = {"Authorization": rng.choice(["editor", "reader", "reader", f"u{lane}"]), "Cookie": f"s={lane % 3}"}
        made: list[str] = []
        for step in range(steps):
            method, path, body, head = _step(rng, lane, step, made)
            told = yield method, path, body, {**who, **head}
            document = told[1]
            if path == "/deals" and told[0] == 201:
                made.append(document["id"])
            if told[0] == 0 and rng.random() < 0.8:  # it gave up waiting, and asks again
                yield method, path, body, {**who, **head}

    return run


WORDS = ("lead", "won", "lost")


def _step(rng: random.Random, lane: int, step: int, made: list[str]) -> tuple[str, str, Any, dict[str, str]]:
    deal = rng.choice([*made, "D-1", "D-1", "D-2", "D-3"])
    slot, event, wallet, post = (f"{c}-{rng.choice((1, 2))}" for c in "SEWP")
    head = {"Idempotency-Key": f"k{step}"} if rng.random() < 0.3 else {}
    word, amount = rng.choice(WORDS), rng.choice([10, 20, 50, 50, 75])
    some: list[tuple[str, str, Any, dict[str, str]]] = [
        ("GET", f"/deals/{deal}", None, {}), ("GET", f"/deals/{deal}", None, {}), ("GET", "/deals", None, {}),
        ("GET", f"/deals?stage={word}", None, {}), ("GET", "/deals?limit=3&sort=stage", None, {}),
        ("PATCH", f"/deals/{deal}", {"stage": word}, {}), ("PATCH", f"/deals/{deal}", {"amount": amount}, {}),
        ("PATCH", f"/deals/{deal}", {"owner": rng.choice(["Ada", "ada", " ada ", "bob"])}, {}),
        ("PATCH", f"/deals/{deal}", {"stage": word}, {"If-Match": f'"{rng.choice((1, 2))}"'}),
        ("PUT", f"/deals/{deal}", {"stage": word, "amount": amount, "owner": "eve"}, {}),
        ("POST", "/deals", {"stage": word, "owner": "Ada ", "amount": amount}, head),
        ("DELETE", f"/deals/{deal}", None, {}), ("POST", f"/deals/{deal}/approve", {}, {}),
        ("POST", f"/deals/{deal}/archive", {}, {}), ("GET", "/archived", None, {}),
        ("POST", f"/slots/{slot}/hold", {"held_by": f"a{lane % 2}"}, {}), ("GET", f"/slots/{slot}", None, {}),
        ("POST", f"/slots/{slot}/hold", {"held_by": f"a{lane}"}, head), ("POST", f"/slots/{slot}/release", {}, {}),
        ("GET", "/slots", None, {}), ("POST", f"/events/{event}/bookings", {"who": f"a{lane}"}, head),
        ("GET", f"/events/{event}", None, {}), ("GET", "/events", None, {}),
        ("DELETE", f"/bookings/B-{rng.choice((0, 1, 2))}", None, {}),
        ("POST", f"/wallets/{wallet}/deposit", {"amount": 50}, head), ("GET", f"/wallets/{wallet}", None, {}),
        ("POST", f"/wallets/{wallet}/withdraw", {"amount": 25}, {}),
        ("POST", "/wallets/transfer", {"from": "W-1", "to": "W-2", "amount": 5}, {}),
        ("POST", f"/posts/{post}/like", {}, {}), ("GET", f"/posts/{post}", None, {}),
        ("POST", "/payments", {"amount": amount, "card": f"c{lane}-{step}"}, head), ("GET", "/payments", None, {}),
        ("POST", "/jobs", {"deal": "D-1", "stage": word}, {}), ("GET", "/jobs", None, {}),
        ("PATCH", "/pages/G-1", {"title": rng.choice(["one", "two", "three"])}, {"Authorization": "editor"}),
        ("POST", "/pages/G-1/publish", {}, {}), ("GET", "/pages/G-1", None, {}),
        ("GET", f"/pages/G-1?view={rng.choice(['draft', 'live'])}", None, {}),
        ("GET", "/cart", None, {}), ("POST", "/cart", {"price": 5}, {}),
        ("POST", "/bulk", {"ids": ["D-1", "D-2"], "stage": word}, {}), ("GET", "/quote", None, {}),
        ("POST", "/rpc", {"jsonrpc": "2.0", "id": step, "method": "tools/call",
                          "params": {"method": "PATCH", "path": "/deals/D-1", "body": {"stage": word}}}, {}),
        ("POST", "/notes", {"text": f"n{lane}-{step}", "deal_id": deal}, head), ("GET", "/notes", None, {}),
        ("PUT", f"/notes/fixed-{rng.choice((1, 2))}", {"text": word}, {}),
        ("DELETE", f"/notes/fixed-{rng.choice((1, 2))}", None, {}),
    ]  # fmt: skip
    return rng.choice(some)


# The bench


def bench_time(instant: int) -> str:
    """The wall clock of the bench at an instant."""
    seconds, rest = divmod(WALL0 + instant, 10**9)
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{rest // MS:03d}Z"


class Lawful(Bench):
    """Agents also send headers; `timeouts`: the share of requests for whose answer the agent does not wait; `mode`:
    hold, free, late (the reading comes long after the write) or fuzzy (each table is read at another time)."""

    def __init__(self, seed: int, *, timeouts: float = 0.0, jobs: bool = False, **more: Any) -> None:
        super().__init__(seed, **more)
        self._timeouts = timeouts
        self._jobs = jobs
        self._under_way: dict[int, tuple[int, ...]] = {}

    def world(self, name: str = "i", *habits: str, **more: Any) -> World:
        world: World = self.deployment(name, *habits, kind=World, rng=random.Random(self.rng.random()), **more)
        world.told = bench_time
        world.later = lambda after, act: self._at(self.now + after, act)
        if "cron" in habits or "expiry" in habits:
            for n in range(400):
                self._at(self.now + round(n * 1.7 * MS), world.tick)
        return world

    def _step(self, opened: Any, lane: str, run: Any, answer: Any, after: Any) -> None:
        try:
            asked = next(run) if answer is None else run.send(answer)
        except StopIteration:
            opened.lanes -= 1
            if opened.lanes == 0:
                self._snapshot(opened, "end", None, lambda: self._close(opened, after))
            return
        method, path, body, *rest = asked
        headers: dict[str, str] = rest[0] if rest else {}
        head, fwd = self.now, self._soon(0.05, 0.5)
        lost = method != "GET" and self.rng.random() < self._timeouts
        number = self._count
        if method != "GET":
            self._under_way[number] = head, head

        def effect() -> None:
            told = opened.deployment.answer(self.now, method, path, body, headers)
            self._at(self._soon(), lambda: done(*told))

        def gone() -> None:
            made = self._made(opened, lane, method, path, body, headers, head, fwd, None, None, {})
            self._under_way.pop(number, None)
            go_on(0, None, made)

        def done(status: int, document: Any, told: Mapping[str, str] = {}) -> None:
            if lost:
                return
            self._under_way.pop(number, None)
            made = self._made(opened, lane, method, path, body, headers, head, fwd, status, document, told)
            go_on(status, document, made)

        def go_on(status: int, document: Any, made: Any) -> None:
            then = lambda: self._at(self._soon(), lambda: self._step(opened, lane, run, (status, document), after))  # noqa: E731
            if method == "GET":
                then()
            elif self._mode == "hold":
                self._snapshot(opened, "write", made, then)
            elif self._mode == "late":
                self._at(self._soon(4, 30), lambda: self._snapshot(opened, "write", made, lambda: None))
                then()
            else:
                self._snapshot(opened, "write", made, lambda: None)
                then()

        self._at(fwd + round(self.rng.uniform(0.1, 4.0) * MS), effect)
        if lost:
            self._at(fwd + round(self.rng.uniform(0.05, 6.0) * MS), gone)

    def _made(
        self, opened: Any, lane: str, method: str, path: str, body: Any, headers: Mapping[str, str], head: int,
        fwd: int, status: int | None, document: Any, told: Mapping[str, str],
    ) -> Any:  # fmt: skip
        sent = {"Host": "app.test", **headers, **({"Content-Type": "application/json"} if body is not None else {})}
        given = {**told, **({"Content-Type": "application/json"} if document is not None else {})}
        made = exchange(
            method, path, status=status, body="" if document is None else document, sent="" if body is None else body,
            at_ms=head / MS, lane=lane, headers=given, request_headers=sent,
            outcome=Outcome.ANSWERED if status else Outcome.CLIENT_GONE,
        )  # fmt: skip
        end = self.now
        up_end = end if status else None
        made = replace(made, times=replace(made.times, fwd=fwd, up_end=up_end, c_out=up_end, first=up_end))
        opened.exchanges.append(made)
        return made

    def _snapshot(self, opened: Any, when: str, after: Any, then: Callable[[], None]) -> None:
        if self._mode != "fuzzy" or not self._snapshots:
            super()._snapshot(opened, when, after, then)
            return
        names = sorted(opened.deployment.tables)
        self.rng.shuffle(names)
        state: dict[str, Any] = {}
        begun = self.now + 1
        busy = bool(self._under_way)

        def read() -> None:
            nonlocal busy
            busy = busy or bool(self._under_way)
            if names:
                name = names.pop()
                found = opened.deployment.state()
                state[name] = found.get(name, {})
                self._at(self._soon(0.01, 0.4), read)
                return
            tree = prolly.build(state)
            self.nodes.update(tree.nodes)
            status = SnapshotStatus.TORN if busy else SnapshotStatus.TAKEN
            opened.snapshots.append(
                Snapshot(
                    n=len(opened.snapshots), name="app", env="app", when=when, status=status, root=tree.root,
                    rows=tree.rows, begun=begun, done=self.now, wall=WALL0 + begun, atomic=False,
                    after=after.order if after is not None else None,
                )
            )  # fmt: skip
            then()

        self._at(self._soon(0.05, 1.0), read)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A history drawn by chance."""

    seed: int
    habits: tuple[str, ...]
    lanes: int
    episodes: int
    mode: str
    shape: str  # turn: one after the other; two: on two instances; shared: beside each other on one
    timeouts: float
    snapshots: bool
    steps: int


def plan(seed: int) -> Plan:
    rng = random.Random(seed)
    return Plan(
        seed=seed, habits=tuple(sorted(rng.sample(HABITS, rng.randint(0, 6)))), lanes=rng.choice([1, 1, 2, 2, 3, 4, 8]),
        episodes=rng.choice([1, 2, 3, 4, 5]), mode=rng.choice(["hold", "hold", "free", "late", "fuzzy"]),
        shape=rng.choice(["turn", "turn", "turn", "two", "shared"]), timeouts=rng.choice([0, 0, 0, 0.1]),
        snapshots=rng.random() < 0.85, steps=rng.choice([8, 15, 30]),
    )  # fmt: skip


def record(one: Plan) -> Lawful:
    """The history of a plan, ready to be judged."""
    bench = Lawful(one.seed, timeouts=one.timeouts, mode=one.mode, snapshots=one.snapshots)
    names = [f"e{n}" for n in range(one.episodes)]
    auto = one.seed % 3 == 0

    def planned(name: str, world: World, n: int, **more: Any) -> dict[str, Any]:
        task = f"t{n % 2}"
        lanes = {f"tool-{lane}": agent(f"{one.seed}/{task}", lane, one.steps) for lane in range(one.lanes)}
        return {"name": name, "deployment": world, "agents": lanes, "task": task, "seed": one.seed % 5, **more}

    if one.shape == "shared":
        world = bench.world("i", *one.habits, autoincrement=auto)
        world.reset("t", 1)
        for n, name in enumerate(names):
            bench.episode(**planned(name, world, n, reset=False), delay_ms=bench.rng.uniform(1, 30))
    else:
        worlds = [bench.world(w, *one.habits, autoincrement=auto) for w in ("ab" if one.shape == "two" else "i")]
        for k, world in enumerate(worlds):
            bench.in_turn(iter([planned(name, world, n) for n, name in enumerate(names) if n % len(worlds) == k]))
    return bench
