"""A mock SaaS suite for agents: CRM deals, a calendar, a helpdesk with billing, over HTTP and SQLite.

Four faults can be switched on, each built in where such a fault lives:

`stale-cache`     reads of one deal come from a cache that PATCH forgets to drop
`leaky-reset`     the reset seeds the deals table without emptying it (`data.reset`)
`nondeterminism`  a deal's score draws from the process's random numbers instead of the task's seed
`double-booking`  a slot is looked at, then taken: two who come together are both told that it is theirs

    python -m replayproxy.demo.environment --port 9000 --db suite.db --fault stale-cache
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import random
import secrets
import sqlite3
import time
from collections.abc import Iterable
from typing import Any

from aiohttp import web

from replayproxy.demo import data

FAULTS = ("stale-cache", "leaky-reset", "nondeterminism", "double-booking")
CACHE_SECONDS = 2.0
CONFIRM_SECONDS = 0.1
"""How long the room's own system takes to confirm a booking."""


class Suite:
    """The suite's handlers over one database."""

    def __init__(self, database: sqlite3.Connection, faults: Iterable[str] = ()) -> None:
        self.database = database
        self.faults = frozenset(faults)
        self._cache: dict[str, tuple[float, dict[str, Any]]] = {}

    def app(self) -> web.Application:
        app = web.Application()
        app.add_routes([
            web.get("/health", self.health),
            web.post("/admin/reset", self.reset),
            web.get("/admin/state", self.state),
            web.put("/admin/state", self.put_state),
            web.get("/deals", self.deals),
            web.post("/deals", self.create_deal),
            web.get("/deals/{id}", self.deal),
            web.patch("/deals/{id}", self.patch_deal),
            web.get("/deals/{id}/score", self.score),
            web.get("/slots", self.slots),
            web.post("/slots/{id}/book", self.book),
            web.get("/tickets/{id}", self.ticket),
            web.patch("/tickets/{id}", self.patch_ticket),
            web.get("/invoices/{id}", self.invoice),
            web.post("/invoices/{id}/refund", self.refund),
            web.post("/verify", self.verify),
        ])  # fmt: skip
        return app

    # administration: for the harness, never for the agent

    async def health(self, request: web.Request) -> web.Response:
        return web.json_response({"ok": True})

    async def reset(self, request: web.Request) -> web.Response:
        asked = await request.json()
        data.reset(self.database, asked["task"], asked["seed"], leaky="leaky-reset" in self.faults)
        self._cache.clear()
        return web.json_response({"task": asked["task"], "seed": asked["seed"]})

    async def state(self, request: web.Request) -> web.Response:
        return web.json_response(data.export(self.database))

    async def put_state(self, request: web.Request) -> web.Response:
        data.restore(self.database, await request.json())
        self._cache.clear()
        return web.Response(status=204)

    # CRM

    async def deals(self, request: web.Request) -> web.Response:
        # Not by id alone: ids are drawn at random, and so the order of a list would be.
        rows = self._rows("SELECT * FROM deals ORDER BY created_at, id")
        for name in ("owner", "stage"):
            if name in request.query:
                rows = [row for row in rows if row[name] == request.query[name]]
        return web.json_response({"items": rows, "count": len(rows)})

    async def create_deal(self, request: web.Request) -> web.Response:
        asked, now = await request.json(), _now()
        deal = {
            "id": "D-" + secrets.token_hex(8), "name": asked["name"], "owner": asked["owner"],
            "stage": "lead", "amount": asked["amount"], "created_at": now, "updated_at": now,
        }  # fmt: skip
        self.database.execute(
            "INSERT INTO deals VALUES (:id, :name, :owner, :stage, :amount, :created_at, :updated_at)", deal
        )
        return web.json_response(deal, status=201, headers={"Location": f"/deals/{deal['id']}"})

    async def deal(self, request: web.Request) -> web.Response:
        key = request.match_info["id"]
        if "stale-cache" in self.faults:
            at, cached = self._cache.get(key, (0.0, {}))
            if time.monotonic() - at < CACHE_SECONDS:
                return web.json_response(cached)
        deal = self._one("deals", key)
        if deal is None:
            return _missing("deal", key)
        self._cache[key] = (time.monotonic(), deal)
        return web.json_response(deal)

    async def patch_deal(self, request: web.Request) -> web.Response:
        key, asked = request.match_info["id"], await request.json()
        deal = self._one("deals", key)
        if deal is None:
            return _missing("deal", key)
        deal |= {name: asked[name] for name in ("stage", "amount", "owner") if name in asked} | {"updated_at": _now()}
        self.database.execute(
            "UPDATE deals SET stage=:stage, amount=:amount, owner=:owner, updated_at=:updated_at WHERE id=:id", deal
        )
        # A whole suite would drop the cached deal here. `stale-cache` is this line missing.
        if "stale-cache" not in self.faults:
            self._cache.pop(key, None)
        return web.json_response(deal)

    async def score(self, request: web.Request) -> web.Response:
        key = request.match_info["id"]
        if self._one("deals", key) is None:
            return _missing("deal", key)
        seeded = int.from_bytes(hashlib.sha256(f"{self._task()}/{key}".encode()).digest()[:4], "big") % 100
        score = random.randrange(100) if "nondeterminism" in self.faults else seeded
        return web.json_response({"deal": key, "score": score})

    # calendar

    async def slots(self, request: web.Request) -> web.Response:
        day = int(request.query.get("day", "1"))
        return web.json_response({"items": self._rows("SELECT * FROM slots WHERE day=? ORDER BY id", (day,))})

    async def book(self, request: web.Request) -> web.Response:
        key, asked = request.match_info["id"], await request.json()
        # A whole suite takes the slot and sees whether it was free in one statement. `double-booking` does it in two.
        if "double-booking" in self.faults:
            done = await self._look_and_take(key, asked["holder"])
        else:
            done = self.database.execute(
                "UPDATE slots SET holder=? WHERE id=? AND holder IS NULL", (asked["holder"], key)
            ).rowcount
        slot = self._one("slots", key)
        if slot is None:
            return _missing("slot", key)
        return web.json_response(slot, status=201 if done else 409)

    async def _look_and_take(self, key: str, holder: str) -> int:
        slot = self._one("slots", key)
        if slot is None or slot["holder"] is not None:
            return 0
        await asyncio.sleep(CONFIRM_SECONDS)
        return self.database.execute("UPDATE slots SET holder=? WHERE id=?", (holder, key)).rowcount

    # helpdesk and billing

    async def ticket(self, request: web.Request) -> web.Response:
        ticket = self._one("tickets", request.match_info["id"])
        return web.json_response(ticket) if ticket else _missing("ticket", request.match_info["id"])

    async def patch_ticket(self, request: web.Request) -> web.Response:
        key, asked = request.match_info["id"], await request.json()
        self.database.execute("UPDATE tickets SET status=?, updated_at=? WHERE id=?", (asked["status"], _now(), key))
        ticket = self._one("tickets", key)
        return web.json_response(ticket) if ticket else _missing("ticket", key)

    async def invoice(self, request: web.Request) -> web.Response:
        invoice = self._one("invoices", request.match_info["id"])
        return web.json_response(invoice) if invoice else _missing("invoice", request.match_info["id"])

    async def refund(self, request: web.Request) -> web.Response:
        key, asked = request.match_info["id"], await request.json()
        self.database.execute("UPDATE invoices SET refunded=refunded+? WHERE id=?", (asked["amount"], key))
        invoice = self._one("invoices", key)
        return web.json_response(invoice) if invoice else _missing("invoice", key)

    # the grader

    async def verify(self, request: web.Request) -> web.Response:
        """Pays 1.0 when the state is the task's goal, and looks at nothing but the state."""
        return web.json_response({"task": self._task(), "reward": 1.0 if self._reached() else 0.0})

    def _reached(self) -> bool:
        task = self._task()
        if task.startswith("crm-new"):
            return bool(self._rows("SELECT id FROM deals WHERE name='Acme renewal'"))
        if task.startswith("crm-win"):
            deal = self._one("deals", "D-3")
            return deal is not None and deal["stage"] == "won"
        if task.startswith("crm-renewal"):
            return bool(self._rows("SELECT id FROM deals WHERE name='Acme renewal' AND stage='won'"))
        if task.startswith("crm-score"):
            return bool(self._rows("SELECT id FROM deals WHERE owner='edsger'"))
        if task.startswith("cal"):
            return len(self._rows("SELECT id FROM slots WHERE holder='agent'")) >= 2
        invoice = self._one("invoices", "I-1")
        return invoice is not None and invoice["charged"] - invoice["refunded"] == invoice["amount"]

    def _task(self) -> str:
        return str(next(iter(self._rows("SELECT id FROM tasks")), {"id": ""})["id"])

    def _rows(self, sql: str, parameters: tuple[Any, ...] = ()) -> list[dict[str, Any]]:
        return [dict(row) for row in self.database.execute(sql, parameters)]

    def _one(self, table: str, key: str) -> dict[str, Any] | None:
        return next(iter(self._rows(f"SELECT * FROM {table} WHERE id=?", (key,))), None)


def _missing(kind: str, key: str) -> web.Response:
    return web.json_response({"error": f"no {kind} {key}"}, status=404)


def _now() -> str:
    seconds = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{int(seconds * 1000) % 1000:03d}Z"


async def serve(host: str, port: int, path: str, faults: Iterable[str]) -> None:
    """Serves until cancelled; the first line on stdout is a JSON document with the URL."""
    runner = web.AppRunner(Suite(data.connect(path), faults).app(), access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, host, port)
    await site.start()
    bound = runner.addresses[0]
    print(json.dumps({"url": f"http://{bound[0]}:{bound[1]}"}), flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


def main() -> None:
    parser = argparse.ArgumentParser(description="The demo suite.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--db", default=":memory:", help="SQLite file (default: in memory)")
    parser.add_argument("--fault", action="append", default=[], choices=FAULTS)
    given = parser.parse_args()
    try:
        asyncio.run(serve(given.host, given.port, given.db, given.fault))
    except KeyboardInterrupt:
        pass  # the normal end of a server


if __name__ == "__main__":
    main()
