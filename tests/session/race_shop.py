"""A live environment of slots, accounts and deals whose check and act lie `gap` seconds apart, or are one."""

from __future__ import annotations

import asyncio
import sqlite3
import time
import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aiohttp import web

from replayproxy.core.values import Request, Trace
from replayproxy.session.race import Ask, Race, race
from replayproxy.session.redrive_targets import Words
from replayproxy.storage import Store
from tests.session.redrive_lab import Recording, kept, serving

SCHEMA = """
CREATE TABLE slots (id TEXT PRIMARY KEY, holder TEXT, version INTEGER NOT NULL);
CREATE TABLE bookings (id INTEGER PRIMARY KEY AUTOINCREMENT, slot TEXT, holder TEXT, made_at TEXT);
CREATE TABLE keys (once TEXT PRIMARY KEY, booking INTEGER);
CREATE TABLE scores (id TEXT PRIMARY KEY, value INTEGER);
CREATE TABLE tickets (id TEXT PRIMARY KEY, event TEXT, number INTEGER);
CREATE TABLE accounts (id TEXT PRIMARY KEY, owner TEXT, balance INTEGER, note TEXT);
INSERT INTO slots VALUES ('S-1', NULL, 1), ('S-2', NULL, 1);
INSERT INTO scores VALUES ('R-1', -1);
INSERT INTO accounts VALUES ('A-1', 'ada', 100, ''), ('A-2', 'joan', 0, '');
"""


class Booking:
    """`gap` None: check and act are one step, as a whole environment has it. `capacity`: how many may hold a slot."""

    def __init__(self, path: Path, gap: float | None = None, *, capacity: int = 1) -> None:
        self.path, self.gap, self.capacity = path, gap, capacity
        self.rolls: Iterator[int] = iter(())
        self.seen: set[str] = set()
        with sqlite3.connect(path) as db:
            db.executescript(SCHEMA)
        db.close()

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/slots/{id}", self.slot)
        app.router.add_post("/slots/{id}/book", self.book)
        app.router.add_put("/slots/{id}", self.put_slot)
        app.router.add_post("/bookings", self.add_booking)
        app.router.add_post("/tickets", self.add_ticket)
        app.router.add_post("/scores/{id}/roll", self.roll)
        app.router.add_post("/codes/{code}/use", self.use)
        app.router.add_post("/accounts", self.open_account)
        app.router.add_post("/accounts/{id}/deposit", self.deposit)
        app.router.add_patch("/accounts/{id}", self.patch)
        app.router.add_get("/accounts/{id}", self.account)
        return app

    def rows(self, sql: str, *values: Any) -> list[dict[str, Any]]:
        db = sqlite3.connect(self.path)
        db.row_factory = sqlite3.Row
        try:
            with db:
                return [dict(row) for row in db.execute(sql, values)]
        finally:
            db.close()

    async def pause(self) -> None:
        if self.gap is not None:
            await asyncio.sleep(self.gap)

    async def slot(self, request: web.Request) -> web.Response:
        found = self.rows("SELECT * FROM slots WHERE id = ?", request.match_info["id"])[0]
        return web.json_response(found, headers={"ETag": f'"{found["version"]}"'})

    async def book(self, request: web.Request) -> web.Response:
        """Takes the slot: sees whether it is free, and then writes."""
        key, told = request.match_info["id"], await request.json()
        if self.rows("SELECT holder FROM slots WHERE id = ?", key)[0]["holder"] is not None:
            return web.json_response({"error": "taken"}, status=409)
        await self.pause()
        self.rows("UPDATE slots SET holder = ? WHERE id = ?", told["holder"], key)
        return web.json_response({"slot": key, "holder": told["holder"]}, status=201)

    async def put_slot(self, request: web.Request) -> web.Response:
        key, told = request.match_info["id"], await request.json()
        wanted = (request.headers.get("If-Match") or "").strip('"')
        if self.rows("SELECT 1 FROM slots WHERE id = ? AND version = ?", key, int(wanted or 0)) == []:
            return web.json_response({"error": "changed in between"}, status=412)
        await self.pause()
        self.rows("UPDATE slots SET holder = ?, version = version + 1 WHERE id = ?", told["holder"], key)
        return web.json_response({"ok": True})

    async def add_booking(self, request: web.Request) -> web.Response:
        """Makes a row as long as there is room; with an Idempotency-Key a repeat is the same booking."""
        told, once = await request.json(), request.headers.get("Idempotency-Key")
        if once is None:
            status, made = await self._booked(told)
            return web.json_response(made, status=status)
        known = self.rows("SELECT b.* FROM keys k JOIN bookings b ON b.id = k.booking WHERE k.once = ?", once)
        if known:
            return web.json_response(known[0])
        status, made = await self._booked(told)
        if status == 201:
            self.rows("INSERT OR REPLACE INTO keys VALUES (?, ?)", once, made["id"])
        return web.json_response(made, status=status)

    async def _booked(self, told: dict[str, Any]) -> tuple[int, Any]:
        if len(self.rows("SELECT 1 FROM bookings WHERE slot = ?", told["slot"])) >= self.capacity:
            return 409, {"error": "full"}
        await self.pause()
        sql = "INSERT INTO bookings (slot, holder, made_at) VALUES (?, ?, datetime('now')) RETURNING *"
        return 201, self.rows(sql, told["slot"], told["holder"])[0]

    async def add_ticket(self, request: web.Request) -> web.Response:
        """The next number of the event."""
        told = await request.json()
        number = len(self.rows("SELECT 1 FROM tickets WHERE event = ?", told["event"])) + 1
        await self.pause()
        key = str(uuid.uuid4())
        self.rows("INSERT INTO tickets VALUES (?, ?, ?)", key, told["event"], number)
        return web.json_response({"id": key, "number": number}, status=201)

    async def roll(self, request: web.Request) -> web.Response:
        """A value that varies by itself."""
        self.rows("UPDATE scores SET value = ? WHERE id = ?", next(self.rolls), request.match_info["id"])
        return web.json_response({"ok": True})

    async def use(self, request: web.Request) -> web.Response:
        """A code is good once, and what knows that is no part of the state."""
        code = request.match_info["code"]
        if code not in self.seen:
            self.seen.add(code)
            self.rows("UPDATE accounts SET balance = balance + 5 WHERE id = 'A-1'")
        return web.json_response({"ok": True})

    async def open_account(self, request: web.Request) -> web.Response:
        key = str(uuid.uuid4())
        self.rows("INSERT INTO accounts VALUES (?, ?, 0, '')", key, (await request.json())["owner"])
        return web.json_response({"id": key}, status=201)

    async def account(self, request: web.Request) -> web.Response:
        return web.json_response(self.rows("SELECT * FROM accounts WHERE id = ?", request.match_info["id"])[0])

    async def deposit(self, request: web.Request) -> web.Response:
        key, told = request.match_info["id"], await request.json()
        if self.gap is None:
            self.rows("UPDATE accounts SET balance = balance + ? WHERE id = ?", told["amount"], key)
        else:
            balance = self.rows("SELECT balance FROM accounts WHERE id = ?", key)[0]["balance"]
            await self.pause()
            self.rows("UPDATE accounts SET balance = ? WHERE id = ?", balance + told["amount"], key)
        return web.json_response({"ok": True})

    async def patch(self, request: web.Request) -> web.Response:
        """Reads the row, changes what is asked for, writes the row whole."""
        key, told = request.match_info["id"], await request.json()
        row = self.rows("SELECT * FROM accounts WHERE id = ?", key)[0] | told
        await self.pause()
        if self.gap is None:
            for name, value in told.items():
                self.rows(f"UPDATE accounts SET {name} = ? WHERE id = ?", value, key)
        else:
            self.rows("UPDATE accounts SET owner = ?, note = ? WHERE id = ?", row["owner"], row["note"], key)
        now = datetime.fromtimestamp(int(time.time()), UTC).isoformat()
        return web.json_response({"id": key, **told, "updated_at": now})


async def recorded(store: Store, shop: Booking, *requests: Request, snapshot: bool = True) -> Trace:
    """An episode of these requests, one after the other; the shop's state afterwards is not put back."""
    async with serving(shop.app()) as url:
        recording = Recording(url, {"app": f"sqlite:{shop.path}"} if snapshot else {})
        await recording.begin()
        for request in requests:
            await recording.send(request)
        await recording.end()
    return await kept(store, recording)


async def raced(
    store: Store, shop: Booking, *, told: list[str] | None = None, reset: Sequence[str] = (), **more: Any
) -> Race:
    """A race of that episode at the shop."""
    async with serving(shop.app()) as url:
        words = Words(env=(f"app={url}",), reset=tuple(one.replace("URL", url) for one in reset))
        ask = Ask(address="r/e", words=words, **more)
        return await race(store, ask, (told if told is not None else []).append)
