"""A live environment with faults that can be switched on, recorded episodes of it, and findings of a real check."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aiohttp import web

from replayproxy.core.values import EnvWiring, Episode, Run
from replayproxy.session.check import check
from replayproxy.session.check_document import Demands
from replayproxy.session.look import looking
from replayproxy.session.redrive import Ask
from replayproxy.session.redrive_targets import Words
from replayproxy.session.reproduce import Reproduced, reproduce
from replayproxy.storage import Store
from tests.session.redrive_lab import Recording, ask, body_of

type Agent = Callable[[Recording], Awaitable[None]]


@dataclass
class Desk:
    """Deals and notes in SQLite. Faults:

    `leaky`: the reset forgets the notes. `hidden`: the last note is kept in memory too, and no reset nor restore knows
    of it; `hidden edit`: so is the last edited one; `ages`: that is gone with the second reset; `moody`: only every
    other note is kept; `counted`: only whether there is one is shown. `stale`: a deal is answered from a cache that a
    write does not clear. `one tag`: a deal bears one ETag, whatever it holds; `unchanged`: its ETag is right, and who
    names the first one is always told that it has not changed.

    `random`: a score without a seed; `seeded`: one whose seed `PUT /seed` sets; `clock`: one that hangs on the clock,
    which `PUT /clock` sets; `crowded`: who comes while another is served gets another one; `hurried`: so does who
    comes at once.
    """

    path: Path
    faults: set[str] = field(default_factory=set)
    seen: list[tuple[str, str]] = field(default_factory=list)
    kept: str | None = None  # the hidden state
    cache: dict[str, Any] = field(default_factory=dict)
    rng: random.Random = field(default_factory=random.Random)
    now: Callable[[], float] = time.time
    busy: int = 0
    aged: bool = False
    added: int = 0
    last: float = 0.0
    gap: float = 0.0

    def __post_init__(self) -> None:
        self.rows("CREATE TABLE IF NOT EXISTS deals (id TEXT PRIMARY KEY, name TEXT, stage TEXT)")
        self.rows("CREATE TABLE IF NOT EXISTS notes (id TEXT PRIMARY KEY, deal TEXT, text TEXT)")
        if not self.rows("SELECT id FROM deals"):
            self.seed()

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        import sqlite3

        db = sqlite3.connect(self.path)
        try:
            with db:
                return list(db.execute(sql, values))
        finally:
            db.close()

    def seed(self) -> None:
        self.rows("DELETE FROM deals")
        for n in (1, 2):
            self.rows("INSERT INTO deals VALUES (?, ?, 'lead')", f"D-{n}", f"Deal {n}")

    def app(self) -> web.Application:
        app = web.Application(middlewares=[self._note])
        app.router.add_get("/deals", self.deals)
        app.router.add_get("/deals/{id}", self.deal)
        app.router.add_patch("/deals/{id}", self.change)
        app.router.add_get("/notes", self.notes)
        app.router.add_post("/notes", self.add_note)
        app.router.add_patch("/notes/{id}", self.edit_note)
        app.router.add_get("/last", self.last_note)
        app.router.add_get("/score", self.score)
        app.router.add_put("/seed", self.put_seed)
        app.router.add_put("/clock", self.put_clock)
        app.router.add_post("/reset", self.reset)
        return app

    @web.middleware
    async def _note(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.seen.append((request.method, request.path_qs))
        self.gap, self.last = time.monotonic() - self.last, time.monotonic()
        answer: web.StreamResponse = await handler(request)
        return answer

    async def deals(self, request: web.Request) -> web.Response:
        found = self.rows("SELECT id, name, stage FROM deals ORDER BY id")
        return web.json_response({"deals": [dict(zip(("id", "name", "stage"), row, strict=True)) for row in found]})

    async def deal(self, request: web.Request) -> web.Response:
        key = request.match_info["id"]
        if "stale" in self.faults and key in self.cache:
            return web.json_response(self.cache[key])
        found = self.rows("SELECT id, name, stage FROM deals WHERE id = ?", key)
        if not found:
            return web.json_response({"error": "no such deal"}, status=404)
        self.cache[key] = dict(zip(("id", "name", "stage"), found[0], strict=True))
        tag = '"1"' if "one tag" in self.faults else f'"{self.cache[key]["stage"]}"'
        if "unchanged" in self.faults and request.headers.get("If-None-Match") == '"lead"':
            return web.Response(status=304, headers={"ETag": '"lead"'})
        return web.json_response(self.cache[key], headers={"ETag": tag} if self.faults else None)

    async def change(self, request: web.Request) -> web.Response:
        key, told = request.match_info["id"], await request.json()
        self.rows("UPDATE deals SET stage = ? WHERE id = ?", told["stage"], key)
        return web.json_response({"id": key, "stage": told["stage"]})

    async def notes(self, request: web.Request) -> web.Response:
        found = self.rows("SELECT id, deal, text FROM notes ORDER BY text")
        return web.json_response({"notes": [dict(zip(("id", "deal", "text"), row, strict=True)) for row in found]})

    async def add_note(self, request: web.Request) -> web.Response:
        told, key = await request.json(), str(uuid.uuid4())
        self.rows("INSERT INTO notes VALUES (?, ?, ?)", key, told["deal"], told["text"])
        self.added += 1
        if "hidden" in self.faults and ("moody" not in self.faults or self.added % 2):
            self.kept, self.aged = told["text"], False
        return web.json_response({"id": key, **told}, status=201)

    async def edit_note(self, request: web.Request) -> web.Response:
        key, told = request.match_info["id"], await request.json()
        found = self.rows("SELECT id FROM notes WHERE id = ?", key)
        if not found:
            return web.json_response({"error": "no such note"}, status=404)
        self.rows("UPDATE notes SET text = ? WHERE id = ?", told["text"], key)
        if "hidden edit" in self.faults:
            self.kept, self.aged = told["text"], False
        return web.json_response({"id": key, "text": told["text"]})

    async def last_note(self, request: web.Request) -> web.Response:
        return web.json_response({"last": int(bool(self.kept)) if "counted" in self.faults else self.kept})

    async def score(self, request: web.Request) -> web.Response:
        self.busy += 1
        alone, gap = self.busy == 1, self.gap
        try:
            await asyncio.sleep(0.03)
        finally:
            self.busy -= 1
        value = 50
        if "random" in self.faults or "seeded" in self.faults:
            value = self.rng.randrange(2) + 60
        if "clock" in self.faults:
            value = 70 + int(self.now() * 1000) % 1000
        if "crowded" in self.faults and not alone:
            value = self.rng.randrange(1000) + 100
        if "hurried" in self.faults and gap < 0.15:
            value = self.rng.randrange(1000) + 100
        return web.json_response({"score": value})

    async def put_seed(self, request: web.Request) -> web.Response:
        self.rng = random.Random(request.query["value"])
        return web.Response(status=204)

    async def put_clock(self, request: web.Request) -> web.Response:
        at = float(request.query["value"])
        self.now = lambda: at
        return web.Response(status=204)

    async def reset(self, request: web.Request) -> web.Response:
        self.seed()
        if "leaky" not in self.faults:
            self.rows("DELETE FROM notes")
        self.cache.clear()
        if "ages" in self.faults:
            self.kept, self.aged = (None if self.aged else self.kept), True
        return web.Response(status=204)


# -- agents ----------------------------------------------------------------------------------------------------------


async def look(recording: Recording) -> None:
    """Reads everything, writes nothing."""
    await recording.send(ask("GET", "/deals"))
    await recording.send(ask("GET", "/notes"))
    await recording.send(ask("GET", "/last"))


async def work(recording: Recording) -> None:
    """Six exchanges, of which one note is what stays: its text is given only by the second of two requests."""
    await recording.send(ask("GET", "/deals"))
    await recording.send(ask("PATCH", "/deals/D-1", {"stage": "won"}))
    made = body_of(await recording.send(ask("POST", "/notes", {"deal": "D-1", "text": "call them back"})))["id"]
    await recording.send(ask("PATCH", "/deals/D-2", {"stage": "lost"}))
    await recording.send(ask("PATCH", f"/notes/{made}", {"text": f"called {made[:8]}"}))
    await recording.send(ask("GET", "/deals/D-2"))


async def write_and_read(recording: Recording) -> None:
    await recording.send(ask("GET", "/deals/D-1"))
    await recording.send(ask("PATCH", "/deals/D-1", {"stage": "won"}))
    await recording.send(ask("GET", "/deals/D-1"))


async def scores(recording: Recording) -> None:
    for _ in range(4):
        await recording.send(ask("GET", "/score"))


async def slow_scores(recording: Recording) -> None:
    await recording.send(ask("GET", "/deals"))
    for _ in range(4):
        await asyncio.sleep(0.2)
        await recording.send(ask("GET", "/score"))


# -- recordings ------------------------------------------------------------------------------------------------------


async def recorded(
    store: Store, desk: Desk, url: str, episodes: Sequence[tuple[str, Agent]], *, snapshot: bool = True,
    reset: bool = True, run: str = "r",
) -> None:  # fmt: skip
    """Episodes one after the other, each begun with the environment's reset, as a run with its wiring."""
    writer = store.writer()
    wiring = EnvWiring(name="app", upstream=url, reset=("POST", f"{url}/reset", "") if reset else None)
    specs = {"app": f"sqlite:{desk.path}"} if snapshot else {}
    opened = writer.open_run(Run(key=0, name=run, opened_wall=1, envs={"app": wiring}, snapshots=specs))
    for name, agent in episodes:
        if reset:
            await desk.reset(None)  # type: ignore[arg-type]
        recording = Recording(url, specs)
        at, wall = time.monotonic_ns(), time.time_ns()
        await recording.begin()
        await agent(recording)
        await recording.end()
        made = writer.open_episode(
            Episode(key=0, run_key=opened.key, name=name, opened=at, opened_wall=wall, task="t", seed=1)
        )
        writer.put_nodes(recording.nodes)
        for exchange in recording.exchanges:
            writer.put_exchange(made.key, exchange)
        for shot in recording.shots:
            writer.put_snapshot(made.key, shot)
        done = replace(made, ended=time.monotonic_ns(), ended_wall=time.time_ns(), ended_by="end")
        await asyncio.wrap_future(writer.seal(done))
    await asyncio.to_thread(writer.close)


def findings(store: Store, run: str = "r") -> list[dict[str, Any]]:
    """What a check finds, saved so that F1 names the first."""
    with looking([store.path]) as stores:
        (one,) = check(stores, [run], Demands(), now=5)
    found: list[dict[str, Any]] = one.to_json()["findings"]
    return found


async def again(
    store: Store, url: str, finding: str = "F1", *, told: list[str] | None = None, repeat: int = 3,
    snapshot: tuple[str, ...] = (), reset: tuple[str, ...] = (), **more: Any,
) -> Reproduced:  # fmt: skip
    words = Words(env=(f"app={url}",), snapshot=snapshot, reset=reset)
    say = (told if told is not None else []).append
    return await reproduce(store, finding, Ask(addresses=(), words=words, repeat=repeat, **more), say)
