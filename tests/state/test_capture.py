"""Snapshots of a run: one reading at a time, shared by those who wait, and never an exception or an empty state."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable
from typing import Any

import pytest

from replayproxy.core import prolly
from replayproxy.core.values import SnapshotStatus
from replayproxy.state import Changes, Context, Reading, RowChange, StateUnreadable
from replayproxy.state.capture import Capture
from replayproxy.state.loader import Loaded


class World:
    """A provider whose readings can be held; counts them and how many ran at once."""

    atomic, can_restore, scope = True, True, "instance"

    def __init__(self) -> None:
        self.rows: Any = {"t": {"1": {"n": 0}}}
        self.readings = self.running = self.most = self.closed = 0
        self.go = threading.Event()
        self.go.set()
        self.begun = threading.Event()
        self.error: BaseException | None = None

    def capture(self) -> Reading:
        self.readings += 1
        self.running += 1
        self.most = max(self.most, self.running)
        self.begun.set()
        self.go.wait(10)
        self.running -= 1
        if self.error is not None:
            raise self.error
        return Reading(rows=self.rows if isinstance(self.rows, Changes) else dict(self.rows))

    def restore(self, rows: Any) -> None:
        self.rows = rows

    def close(self) -> None:
        self.closed += 1


class Desk:
    """A Capture over one world named crm, with a clock that counts."""

    def __init__(self, *, limit: float = 5.0, envs: Any = ("crm",)) -> None:
        self.world = World()
        self.nodes: dict[bytes, bytes] = {}
        self.contexts: list[Context] = []
        self._clock = itertools.count(1)
        self.loaded = Loaded(name="crm", spec="x", make=self._make)
        self.capture = Capture(
            [self.loaded], save=self.nodes.update, now=lambda: next(self._clock), wall=lambda: 7, envs=envs, limit=limit
        )

    def _make(self, context: Context) -> World:
        self.contexts.append(context)
        return self.world

    def take(self, n: int = 0, **more: Any) -> Any:
        return self.capture.take("crm", when="write", n=n, mode="hold", **more)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.001)


async def test_a_snapshot_says_how_it_was_taken() -> None:
    desk = Desk()
    shot = await desk.take(n=3, label="x", after=(5, 0), shared_with=["e2"])
    assert (shot.n, shot.name, shot.env, shot.when, shot.label, shot.mode) == (3, "crm", "crm", "write", "x", "hold")
    assert (shot.status, shot.reason, shot.rows, shot.wall) == (SnapshotStatus.TAKEN, "", 1, 7)
    assert (shot.atomic, shot.can_restore, shot.scope, shot.after) == (True, True, "instance", (5, 0))
    assert shot.begun < shot.done
    assert shot.shared_with == ("e2",)
    assert prolly.rows(shot.root, desk.nodes.__getitem__) == desk.world.rows


async def test_those_who_wait_before_a_reading_begins_share_it() -> None:
    desk = Desk()
    desk.world.go.clear()
    first = asyncio.create_task(desk.take())
    await until(desk.world.begun.is_set)
    others = [asyncio.create_task(desk.take(n=n)) for n in range(1, 5)]
    await asyncio.sleep(0)
    desk.world.go.set()
    shots = await asyncio.gather(first, *others)
    assert desk.world.readings == 2
    assert desk.world.most == 1
    assert len({(shot.begun, shot.done) for shot in shots[1:]}) == 1
    assert shots[0].done <= shots[1].begun
    assert [shot.n for shot in shots] == [0, 1, 2, 3, 4]


async def test_a_reading_begins_after_it_was_asked_for() -> None:
    desk = Desk()
    for number in range(5):
        desk.world.rows = {"t": {"1": {"n": number}}}
        shot = await desk.take(n=number)
        assert prolly.rows(shot.root, desk.nodes.__getitem__)["t"]["1"] == {"n": number}
    assert desk.world.readings == 5


async def test_exchanges_that_overlap_make_it_torn() -> None:
    desk = Desk()
    asked: list[tuple[int, int]] = []

    def overlapping(begun: int, done: int) -> tuple[tuple[int, int], ...]:
        asked.append((begun, done))
        return ((4, 1), (9, 1))

    shot = await desk.take(overlapping=overlapping)
    assert (shot.status, shot.in_flight) == (SnapshotStatus.TORN, ((4, 1), (9, 1)))
    assert shot.root is not None
    assert asked == [(shot.begun, shot.done)]
    assert (await desk.take(overlapping=lambda begun, done: ())).status is SnapshotStatus.TAKEN


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (StateUnreadable("GET /state answered 503"), "GET /state answered 503"),
        (ValueError("two\nlines"), "ValueError: two lines"),
        (KeyError(), "KeyError"),
        (SystemExit(3), "SystemExit: 3"),
    ],
)
async def test_a_failed_reading_is_missing_with_its_reason(error: BaseException, reason: str) -> None:
    desk = Desk()
    desk.world.error = error
    shot = await desk.take(overlapping=lambda begun, done: ((1, 1),))
    assert (shot.status, shot.reason, shot.root, shot.rows) == (SnapshotStatus.MISSING, reason, None, 0)
    assert desk.world.closed == 1
    desk.world.error = None
    assert (await desk.take()).status is SnapshotStatus.TAKEN


async def test_a_state_that_no_snapshot_can_keep_is_missing() -> None:
    desk = Desk()
    desk.world.rows = {"t": {"1": {"when": {1, 2}}}}
    shot = await desk.take()
    assert (shot.status, shot.reason) == (
        SnapshotStatus.MISSING, "the state holds what no snapshot can keep: set is no JSON value; give it as text",
    )  # fmt: skip


async def test_changes_before_a_whole_state_are_refused() -> None:
    desk = Desk()
    desk.world.rows = Changes(rows=[RowChange(table="t", key="1", before=None, after=1)])
    assert (await desk.take()).reason == "the provider gave changes before it gave a whole state"


async def test_changes_are_added_to_the_state_before() -> None:
    desk = Desk()
    await desk.take()
    desk.world.rows = Changes(rows=[RowChange(table="u", key="2", before=None, after={"n": 5})])
    shot = await desk.take()
    assert prolly.rows(shot.root, desk.nodes.__getitem__) == {"t": {"1": {"n": 0}}, "u": {"2": {"n": 5}}}


async def test_a_provider_that_does_not_answer_is_missing_after_the_limit() -> None:
    desk = Desk(limit=0.05)
    desk.world.go.clear()
    shots = await asyncio.gather(desk.take(), desk.take(n=1))
    assert [shot.reason for shot in shots] == ["no answer in 0.05 s"] * 2
    late = await desk.take(n=2)
    assert late.status is SnapshotStatus.MISSING, "it is still at its first reading"
    assert desk.world.readings == 1
    desk.world.go.set()
    await until(lambda: not desk.world.running)
    assert (await desk.take(n=3)).status is SnapshotStatus.TAKEN
    assert desk.world.most == 1


async def test_other_providers_do_not_wait() -> None:
    desk = Desk()
    desk.world.go.clear()
    other = World()
    both = Capture(
        [desk.loaded, Loaded.of("cal", lambda: other)], save=desk.nodes.update, now=lambda: 1, wall=lambda: 1,
        envs=("crm", "cal"),
    )  # fmt: skip
    stuck = asyncio.create_task(both.take("crm", when="start", n=0, mode="hold"))
    shot = await both.take("cal", when="start", n=0, mode="hold")
    assert shot.status is SnapshotStatus.TAKEN
    desk.world.go.set()
    await stuck


async def test_each_episode_has_its_own_provider_where_the_spec_names_it() -> None:
    desk = Desk()
    spec = Loaded(name="crm", spec="x", make=desk._make, needs=frozenset({"episode"}))
    capture = Capture([spec], save=desk.nodes.update, now=lambda: 1, wall=lambda: 1)
    for episode in ("a", "b", "a"):
        await capture.take("crm", when="start", n=0, mode="hold", context={"episode": episode, "task": "t"})
    assert desk.contexts == [{"episode": "a"}, {"episode": "b"}]
    capture.forget({"episode": "a", "task": "t"})
    await until(lambda: desk.world.closed == 1)
    await capture.take("crm", when="start", n=0, mode="hold", context={"episode": "b"})
    assert len(desk.contexts) == 2


async def test_a_snapshot_that_an_episode_came_with_takes_the_place_of_the_runs() -> None:
    desk, other = Desk(), World()
    other.rows = {"own": {}}
    own = Loaded.of("crm", lambda: other)
    shot = await desk.take(loaded=own)
    assert prolly.rows(shot.root, desk.nodes.__getitem__) == {"own": {}}
    assert desk.world.readings == 0
    desk.capture.forget({}, [own])
    await until(lambda: other.closed == 1)
    assert desk.world.closed == 0


async def test_nodes_are_saved_once() -> None:
    desk = Desk()
    saved: list[int] = []
    capture = Capture([desk.loaded], save=lambda nodes: saved.append(len(nodes)), now=lambda: 1, wall=lambda: 1)
    for _ in range(3):
        await capture.take("crm", when="start", n=0, mode="hold")
    assert saved == [1]


async def test_a_run_that_closes_closes_its_providers() -> None:
    desk = Desk()
    await desk.take()
    desk.capture.close()
    await until(lambda: desk.world.closed == 1)


def test_a_snapshot_belongs_to_the_environment_that_its_name_begins_with() -> None:
    names = ["crm", "crm.cache", "cal", "shared.db"]
    loaded = [Loaded.of(name, World) for name in names]
    capture = Capture(loaded, save=lambda nodes: None, now=lambda: 1, wall=lambda: 1, envs=("crm", "cal"))
    assert capture.for_env("crm") == ["crm", "crm.cache", "shared.db"]
    assert capture.for_env("cal") == ["cal", "shared.db"]
    assert [capture.env_of(name) for name in names] == ["crm", "crm", "cal", None]
    assert capture.names() == names
