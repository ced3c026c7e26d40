"""Environment 1: the demo's CRM suite with an injector around it. Its state is SQLite, its answers flat JSON.

The suite's own handlers do the writing. What it shows goes through the injector, which may show something else and
then says so in the ledger; what a reset leaves goes through it too.
"""

from __future__ import annotations

import asyncio
import copy
import random
import secrets
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from replayproxy.demo import data
from replayproxy.demo.environment import Suite, _now
from tests.faults.injector import Injector
from tests.faults.ledger import MARK, Ledger

NIL = "00000000-0000-0000-0000-000000000000"

type Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Marked(Suite):
    """The suite with a ledger, more to do (carts, notes, a forecast), and an injector."""

    def __init__(self, injector: Injector, ledger: Ledger) -> None:
        super().__init__(data.connect(":memory:"))
        self.injector, self.ledger = injector, ledger
        self.more: dict[str, dict[str, dict[str, Any]]] = {"notes": {}, "numbers": {}, "seminars": {}, "seats": {}}
        self.background: set[asyncio.Task[None]] = set()
        self.answered: dict[str, tuple[str, dict[str, Any]]] = {}  # Idempotency-Key -> whose it was, what was made
        self.last_looked = ""
        self.task_seed: tuple[str, int] = ("", 0)
        injector.joins(self)

    # State

    def whole(self) -> dict[str, dict[str, dict[str, Any]]]:
        return {**data.export(self.database), **copy.deepcopy(self.more)}

    def clean(self, task: str, seed: int) -> None:
        """The right start of a task and seed."""
        data.reset(self.database, task, seed)
        rng = random.Random(f"numbers/{task}/{seed}")
        self.more = {
            "notes": {"N-1": {"id": "N-1", "text": "welcome", "ref": NIL, "number": 0}},
            "numbers": {"notes": {"id": "notes", "next": rng.randrange(100, 900)}},
            "seminars": {"M-1": {"id": "M-1", "title": "Closing", "capacity": 2}},
            "seats": {},
        }
        self.answered.clear()

    def app(self) -> web.Application:
        app = super().app()
        app.middlewares.append(self._marked)
        app.add_routes([
            web.put("/deals/{id}", self.put_deal),
            web.delete("/deals/{id}", self.delete_deal),
            web.get("/deals/{id}/forecast", self.forecast),
            web.get("/best", self.best),
            web.get("/tickets", self.tickets),
            web.get("/notes", self.notes),
            web.post("/notes", self.create_note),
            web.get("/notes/{id}", self.note),
            web.get("/seminars/{id}", self.seminar),
            web.post("/seminars/{id}/join", self.join),
            web.get("/cart", self.cart),
            web.post("/cart", self.add_to_cart),
        ])  # fmt: skip
        return app

    @web.middleware
    async def _marked(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        await request.read()
        MARK.set(request.headers.get("X-Call", ""))
        if request.path.startswith("/admin") or request.method == "GET":
            return await handler(request)
        return await self.injector.around(self, request, lambda: self.written(request, handler))

    async def written(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """The handler, and what it changed noted in the true history. It never waits: the body has been read."""
        before, lo = self.whole(), time.monotonic_ns()
        response = await handler(request)
        for row in self.ledger.changed(before, self.whole(), lo, time.monotonic_ns(), MARK.get()):
            self.injector.owned(self, row)
        self.injector.wrote(self, request)
        return response

    # Administration

    async def reset(self, request: web.Request) -> web.Response:
        asked = await request.json()
        self.task_seed = asked["task"], asked["seed"]
        before, lo = self.whole(), time.monotonic_ns()
        self._cache.clear()
        self.injector.reset(self, asked["task"], asked["seed"])
        self.ledger.changed(before, self.whole(), lo, time.monotonic_ns(), MARK.get())
        return web.json_response({"ok": True})

    async def state(self, request: web.Request) -> web.Response:
        return web.json_response(self.whole())

    # What is shown

    def look(self, table: str, key: str, target: str) -> web.Response:
        row = self.whole()[table].get(key)
        shown = self.injector.row(self, table, key, row, target)
        self.injector.seen(self, table, {key: shown} if shown else {}, asked=key)
        if shown is None:
            return web.json_response({"error": f"no {table} {key}"}, status=404)
        return self.injector.dressed(web.json_response(shown), target)

    def listed(self, table: str, target: str) -> web.Response:
        rows = self.whole()[table]
        told = self.injector.rows(self, table, rows, target)
        self.injector.seen(self, table, told)
        shown = list(told.values())
        if table == "deals":
            shown.sort(key=lambda row: (row["created_at"], row["id"]))
            shown = self.injector.ordered(self, shown)
        return self.injector.dressed(web.json_response({"items": shown, "count": len(shown)}), target)

    async def deal(self, request: web.Request) -> web.Response:
        self.last_looked = request.match_info["id"]
        return self.look("deals", request.match_info["id"], request.path)

    async def deals(self, request: web.Request) -> web.Response:
        return self.listed("deals", request.path)

    async def ticket(self, request: web.Request) -> web.Response:
        return self.look("tickets", request.match_info["id"], request.path)

    async def tickets(self, request: web.Request) -> web.Response:
        return self.listed("tickets", request.path)

    async def invoice(self, request: web.Request) -> web.Response:
        return self.look("invoices", request.match_info["id"], request.path)

    async def notes(self, request: web.Request) -> web.Response:
        return self.listed("notes", request.path)

    async def note(self, request: web.Request) -> web.Response:
        return self.look("notes", request.match_info["id"], request.path)

    async def score(self, request: web.Request) -> web.Response:
        key = request.match_info["id"]
        right = random.Random(f"{self._task()}/{key}").randrange(100)
        document = {"deal": key, "score": self.injector.number(self, "/score", right)}
        return web.json_response(document | self.injector.extras(self, key))

    async def forecast(self, request: web.Request) -> web.Response:
        key = request.match_info["id"]
        right = random.Random(f"{self._task()}/{key}/f").uniform(10, 99)
        return web.json_response({"deal": key, "expected": self.injector.real(self, "/expected", right)})

    async def best(self, request: web.Request) -> web.Response:
        return web.json_response({"deal": self.injector.tied(self, "/deal", "D-2", self.last_looked)})

    # More to write

    async def put_deal(self, request: web.Request) -> web.Response:
        return await super().patch_deal(request)

    async def delete_deal(self, request: web.Request) -> web.Response:
        self.database.execute("DELETE FROM deals WHERE id=?", (request.match_info["id"],))
        return web.Response(status=204)

    async def create_note(self, request: web.Request) -> web.Response:
        """With an Idempotency-Key the second time is answered as the first."""
        asked, counter = await request.json(), self.more["numbers"]["notes"]
        token = request.headers.get("Idempotency-Key", MARK.get())
        if token in self.answered and not self.injector.repeats(self):
            return web.json_response(self.answered[token][1])
        counter["next"] += 1
        note = {
            "id": "N-" + secrets.token_hex(8), "text": asked["text"], "ref": self.injector.minted(self),
            "number": counter["next"], "created_at": _now(),
        }  # fmt: skip
        self.more["notes"][note["id"]] = note
        self.injector.made(self, note)
        if token in self.answered:
            self.injector.repeated(self, note, *self.answered[token])
        self.answered[token] = MARK.get(), note
        return self.injector.told_made(self, note, web.json_response(note, status=201))

    async def seminar(self, request: web.Request) -> web.Response:
        return self.look("seminars", request.match_info["id"], request.path)

    async def join(self, request: web.Request) -> web.Response:
        asked, key = await request.json(), request.match_info["id"]
        taken = [seat for seat in self.more["seats"].values() if seat["seminar"] == key]
        if len(taken) >= self.more["seminars"][key]["capacity"]:
            return web.json_response({"error": "full"}, status=409)
        return self.seated(key, asked["who"])

    def seated(self, key: str, who: str) -> web.Response:
        seat = {"id": "X-" + secrets.token_hex(8), "seminar": key, "who": who}
        self.more["seats"][seat["id"]] = seat
        return web.json_response(seat, status=201)

    async def cart(self, request: web.Request) -> web.Response:
        return web.json_response({"items": self.injector.cart(self)})

    async def add_to_cart(self, request: web.Request) -> web.Response:
        asked = await request.json()
        line = {"line": "L-" + secrets.token_hex(8), "what": asked["what"]}
        self.injector.added(self, line)
        return web.json_response(line, status=201)


def minted_for(task: str, seed: int, number: int) -> str:
    """A uuid that a seeded generator would mint."""
    return str(uuid.UUID(int=random.Random(f"{task}/{seed}/{number}").getrandbits(128), version=4))


async def serve(suite: Marked) -> tuple[web.AppRunner, str]:
    """The suite on a free loopback port."""
    runner = web.AppRunner(suite.app(), access_log=None, shutdown_timeout=0.2)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    await asyncio.sleep(0)
    return runner, f"http://{host}:{port}"
