"""The booking service's handlers: what it stores, shows and refuses. `Flaw` is where it goes wrong, if anywhere."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aiohttp import web
from psycopg import sql

from tests.faults.booking import SEEDED, TABLES, Answer, Database, Refused, Routes, Row, now
from tests.faults.ledger import MARK, Ledger, Version

if TYPE_CHECKING:
    from tests.faults.booking_faults import Flaw

EPOCH = 1_000_000


def right_start(task: str, seed: int) -> dict[str, dict[str, Row]]:
    """The rows that a task and seed begin with."""
    rng = random.Random(f"rooms of {task} {seed}")
    rooms = [
        {"id": f"R{n}", "name": f"Room {n}", "capacity": 1 + n % 3, "rate": rng.randrange(60, 400), "state": "open",
         "version": 1, "changed_at": SEEDED}
        for n in range(1, 6)
    ]  # fmt: skip
    slots = [{"id": f"L{n}", "room": f"R{n}", "day": n, "held_by": None, "version": 1} for n in range(1, 5)]
    accounts = [{"id": f"A{n}", "owner": f"guest {n}", "balance": 1000 * n, "version": 1} for n in (1, 2)]
    return {
        "rooms": {str(row["id"]): row for row in rooms}, "slots": {str(row["id"]): row for row in slots},
        "bookings": {}, "accounts": {str(row["id"]): row for row in accounts},
        "sequences": {"booking_numbers": {"last_value": 500, "is_called": False}},
    }  # fmt: skip


class Hotel:
    """One instance. Versions of rows are counted by the database, and order the true history."""

    def __init__(self, database: Database, ledger: Ledger, flaw: Flaw) -> None:
        self.db, self.ledger, self.flaw = database, ledger, flaw
        self.task = ("", 0)
        self.epoch = 0
        self.seen_last = "R2"

    def routes(self) -> Routes:
        routes = Routes()
        for table in ("rooms", "slots", "bookings", "accounts"):
            routes.add("GET", f"/api/v2/{table}", self._lister(table))
            routes.add("GET", f"/api/v2/{table}/{{key}}", self._getter(table))
        for method in ("PATCH", "PUT"):
            routes.add(method, "/api/v2/rooms/{key}", self.change_room)
        routes.add("PATCH", "/api/v2/bookings/{key}", self.change_booking)
        routes.add("DELETE", "/api/v2/bookings/{key}", self.drop_booking)
        routes.add("POST", "/api/v2/bookings", self.book)
        routes.add("POST", "/api/v2/slots/{key}/hold", self.hold)
        routes.add("POST", "/api/v2/accounts/{key}/credit", self.credit)
        routes.add("GET", "/api/v2/rooms/{key}/quote", self.quote)
        routes.add("GET", "/api/v2/suggestion", self.suggestion)
        routes.add("GET", "/api/v2/drafts", self.drafts)
        routes.add("POST", "/api/v2/drafts", self.draft)
        routes.add("POST", "/_reset", self.reset)
        routes.add("GET", "/_state", self.state)
        return routes

    # The truth

    def note(self, table: str, key: str, row: Row | None, lo: int, *, order: int) -> None:
        """A version of a row, put where its order belongs: commits may be heard of in another order."""
        versions = self.ledger.history[table, key]
        version = Version(lo, time.monotonic_ns(), row, MARK.get(), self.epoch * EPOCH + order)
        at = len(versions)
        while at and versions[at - 1].order > version.order:
            at -= 1
        versions.insert(at, version)
        self.flaw.owned(self, (table, key))

    async def heard(self, table: str, key: str, after: int, before: int) -> list[Version]:
        """The versions between two of this epoch. Who committed before may note it after: they are waited for."""
        low, high = self.epoch * EPOCH + after, self.epoch * EPOCH + before
        for _ in range(400):
            found = [version for version in self.ledger.history[table, key] if low < version.order < high]
            if len(found) >= before - after - 1:
                break
            await asyncio.sleep(0.005)
        return found

    async def whole(self) -> dict[str, dict[str, Row]]:
        found: dict[str, dict[str, Row]] = {}
        for table in TABLES:
            found[table] = {row["id"]: row for row in await self.db.rows(f"SELECT * FROM {table}")}
        counter = await self.db.row("SELECT last_value, is_called FROM booking_numbers")
        found["sequences"] = {"booking_numbers": counter}
        return found

    # Administration

    async def reset(self, request: web.BaseRequest, asked: Any) -> Answer:
        self.task = asked["task"], asked["seed"]
        self.epoch += 1
        before, lo = await self.whole(), time.monotonic_ns()
        await self.flaw.reset(self, *self.task)
        after = await self.whole()
        for table in TABLES:
            for key in {*before[table], *after[table]}:
                row = after[table].get(key)
                if row != before[table].get(key):
                    self.note(table, key, row, lo, order=row["version"] if row else 0)
        self.flaw.told_start(self, right_start(*self.task), after)
        return 200, {"ok": True}, {}

    async def seed(self, tables: Sequence[str] = TABLES, *, counter: bool = True, keep: bool = False) -> None:
        """Puts the right rows in. `keep`: over what is there, which stays."""
        start = right_start(*self.task)
        async with self.db.session() as live, live.transaction():
            if not keep:
                await live.execute("; ".join(f"DELETE FROM {table}" for table in tables).encode())
            if counter:
                await live.execute("ALTER SEQUENCE booking_numbers RESTART")
            for table in tables:
                await put(live, table, list(start[table].values()))

    async def state(self, request: web.BaseRequest, asked: Any) -> Answer:
        return 200, await self.whole(), {}

    # What is shown

    def _lister(self, table: str) -> Any:
        async def listing(request: web.BaseRequest, asked: Any) -> Answer:
            order = "number" if table == "bookings" else "id"
            rows = await self.db.rows(f"SELECT * FROM {table} ORDER BY {order}")
            told = await self.flaw.listed(self, table, rows, request.path)
            self.flaw.showed(self, table, rows, told)
            told = self.flaw.ordered(self, told) if table == "rooms" else told
            return 200, {"data": told, "meta": {"total": len(told)}}, self.flaw.headers(request.path)

        return listing

    def _getter(self, table: str) -> Any:
        async def one(request: web.BaseRequest, asked: Any, key: str) -> Answer:
            rows = await self.db.rows(f"SELECT * FROM {table} WHERE id::text = %s", key)
            if table == "rooms":
                self.seen_last = key
            told = await self.flaw.single(self, table, key, rows, request.path)
            self.flaw.showed(self, table, rows, told, key)
            if not told:
                return 404, {"error": {"code": "not_found"}}, {}
            return 200, {"data": told[0]}, {"ETag": f'"{told[0]["version"]}"'}

        return one

    async def quote(self, request: web.BaseRequest, asked: Any, key: str) -> Answer:
        rng = random.Random(f"quote {self.task} {key}")
        points = self.flaw.whole_number(self, "/data/points", rng.randrange(1000))
        price = self.flaw.real_number(self, "/data/price", rng.uniform(50, 500))
        return 200, {"data": {"room": key, "points": points, "price": price, **self.flaw.extras()}}, {}

    async def suggestion(self, request: web.BaseRequest, asked: Any) -> Answer:
        return 200, {"data": {"room": self.flaw.tied(self, "/data/room", "R2", self.seen_last)}}, {}

    async def drafts(self, request: web.BaseRequest, asked: Any) -> Answer:
        return 200, {"data": self.flaw.drafts(self)}, {}

    async def draft(self, request: web.BaseRequest, asked: Any) -> Answer:
        return 201, {"data": self.flaw.drafted(self, asked["text"])}, {}

    # Writes

    async def change_room(self, request: web.BaseRequest, asked: Any, key: str) -> Answer:
        wanted = {name: asked[name] for name in ("rate", "state", "name") if name in asked}
        expected = request.headers.get("If-Match", "").strip('"')
        return await self.flaw.change(self, request, "rooms", key, wanted | {"changed_at": now()}, expected)

    async def change_booking(self, request: web.BaseRequest, asked: Any, key: str) -> Answer:
        wanted = {name: asked[name] for name in ("state", "nights") if name in asked}
        return await self.flaw.change(self, request, "bookings", key, wanted | {"changed_at": now()}, "")

    async def changed(
        self, request: web.BaseRequest, table: str, key: str, wanted: Mapping[str, Any], expected: str
    ) -> Answer:
        """One UPDATE. `expected`: the version that If-Match names."""
        lo = time.monotonic_ns()
        sets = ", ".join(f"{name} = %s" for name in wanted)
        guard = " AND version = %s" if expected else ""
        rows = await self.db.rows(
            f"UPDATE {table} SET {sets}, version = version + 1 WHERE id::text = %s{guard} RETURNING *",
            *wanted.values(), key, *([int(expected)] if expected else []),
        )  # fmt: skip
        if not rows:
            raise Refused(412, await self.db.row(f"SELECT * FROM {table} WHERE id::text = %s", key))
        self.note(table, key, rows[0], lo, order=rows[0]["version"])
        self.flaw.wrote(self, request, table, key)
        return 200, {"data": rows[0]}, {"ETag": f'"{rows[0]["version"]}"'}

    async def drop_booking(self, request: web.BaseRequest, asked: Any, key: str) -> Answer:
        lo = time.monotonic_ns()
        row = await self.db.row("DELETE FROM bookings WHERE id::text = %s RETURNING *", key)
        self.note("bookings", key, None, lo, order=row["version"] + 1)
        self.flaw.wrote(self, request, "bookings", key)
        return 204, None, {}

    async def book(self, request: web.BaseRequest, asked: Any) -> Answer:
        return await self.flaw.book(self, request, asked)

    async def booked(self, request: web.BaseRequest, asked: Any, key: str | None = None) -> Row:
        """Makes the row; its id is the database's unless `key` is given."""
        lo = time.monotonic_ns()
        row = await self.db.row(
            "INSERT INTO bookings (id, room, guest, nights, changed_at)"
            " VALUES (coalesce(%s::uuid, gen_random_uuid()), %s, %s, %s, %s) RETURNING *",
            key, asked["room"], asked["guest"], asked["nights"], now(),
        )  # fmt: skip
        self.note("bookings", row["id"], row, lo, order=1)
        self.flaw.wrote(self, request, "bookings", row["id"])
        return row

    async def hold(self, request: web.BaseRequest, asked: Any, key: str) -> Answer:
        return await self.flaw.hold(self, key, asked["held_by"])

    async def credit(self, request: web.BaseRequest, asked: Any, key: str) -> Answer:
        return await self.flaw.credit(self, key, asked["amount"])


async def put(live: Any, table: str, rows: Sequence[Row]) -> None:
    """Inserts rows as they are; those that are there already stay."""
    if not rows:
        return
    one = sql.SQL("({})").format(sql.SQL(", ").join(sql.Placeholder() * len(rows[0])))
    statement = sql.SQL("INSERT INTO {} ({}) VALUES {} ON CONFLICT DO NOTHING").format(
        sql.Identifier(table), sql.SQL(", ").join(map(sql.Identifier, rows[0])), sql.SQL(", ").join([one] * len(rows))
    )
    await live.execute(statement, [value for row in rows for value in row.values()])
