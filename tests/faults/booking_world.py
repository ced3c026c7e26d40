"""Environment 2 as the rig drives it, and its agents."""

from __future__ import annotations

import asyncio
import os
import random
from typing import Any
from zlib import crc32

import aiohttp

from replayproxy.state.loader import Loaded, load
from tests.faults import booking_faults, booking_more
from tests.faults.agents import Api
from tests.faults.booking import Database, Server
from tests.faults.booking_faults import Flaw
from tests.faults.booking_service import Hotel
from tests.faults.ledger import Ledger
from tests.faults.matrix import Plan

FLAWS: dict[str, type[Flaw]] = {
    "none": Flaw, "rng": booking_more.Rng, "jitter": booking_more.Jitter, "shuffle": booking_more.Shuffle,
    "tie": booking_more.Tie, "fresh-ids": booking_more.FreshIds, "seeded": Flaw, "rounding": booking_more.Rounding,
    "legal-order": booking_more.LegalOrder,
    "ttl": booking_faults.Kept, "old-copy": booking_faults.OldCopy, "lag": booking_faults.Replica,
    "one-verb": booking_faults.OneVerb, "list-only": booking_faults.ListOnly, "overlap": booking_faults.Slow,
    "accepted": booking_faults.Later, "declared": booking_faults.Declared, "reverted": booking_faults.Reverted,
    "table": booking_more.Table, "memory": booking_more.Memory, "cart": booking_more.Cart,
    "counter": booking_more.Counter, "catalogue": booking_more.Catalogue, "same-uuid": booking_more.SameUuid,
    "nil-uuid": booking_more.NilUuid, "unseeded": booking_more.Unseeded, "partial": booking_more.Partial,
    "no-op": booking_more.NoOp, "late": booking_more.Late, "renamed": booking_more.Renamed,
    "reordered": booking_more.Reordered, "clocks": booking_more.Clocks,
    "gap": booking_more.Gap, "write-back": booking_more.WriteBack, "adds": booking_more.Adds,
    "retry": booking_more.Retry, "done-500": booking_more.DoneThen500, "capacity": booking_more.Roomy,
    "one-wins": Flaw, "replayed": Flaw, "precondition": Flaw,
}  # fmt: skip
STATES = ("open", "cleaning", "closed", "reserved")


class BookingWorld:
    """`workers` instances, each with a database of its own. One alone is read by the `postgres:` provider, several by
    the address that each episode names."""

    def __init__(self) -> None:
        self.ledgers: list[Ledger] = []
        self.urls: list[str] = []
        self.state = ""
        self.snapshots: tuple[Loaded, ...] = ()
        self._databases: list[Database] = []
        self._servers: list[Server] = []
        self._flaw: Flaw | None = None
        self._http: aiohttp.ClientSession | None = None

    async def start(self, plan: Plan, seed: int) -> BookingWorld:
        self._flaw = FLAWS[plan.fault](fault=plan.fault, p=plan.p, seconds=plan.seconds, every=plan.every, seed=seed)
        for worker in range(plan.workers):
            name = f"faults_{crc32(f'{plan.name} {os.getpid()}'.encode()):08x}_{worker}"
            database = Database(name)
            await database.open(connections=min(2 + plan.lanes, 8))
            self._databases.append(database)
            hotel = Hotel(database, Ledger(), self._flaw)
            server = Server(hotel.routes())
            self._servers.append(server)
            self.urls.append(await server.start())
            self.ledgers.append(hotel.ledger)
        if plan.workers == 1:
            self.snapshots = (load("app", f"postgres:{self._databases[0].dsn}"),)
        else:
            self.state = "/_state"
        self._http = aiohttp.ClientSession()
        return self

    async def reset(self, worker: int, task: str, seed: int, mark: str) -> None:
        assert self._http is not None
        document = {"task": task, "seed": seed}
        async with self._http.post(f"{self.urls[worker]}/_reset", json=document, headers={"X-Call": mark}) as answer:
            assert answer.status == 200, await answer.text()

    async def before(self, api: Api, rng: random.Random, script: str) -> None:
        if script == "look":
            await api.call("PATCH", f"/api/v2/rooms/R{rng.randrange(1, 6)}", {"rate": rng.randrange(60, 400)})
        elif script == "contend":
            await api.call("POST", "/api/v2/accounts/A1/credit", {"amount": rng.randrange(1, 9)})

    async def lane(self, api: Api, rng: random.Random, script: str) -> None:
        await SCRIPTS[script](api, rng)

    async def settle(self) -> None:
        left = list(self._flaw.work) if self._flaw else []
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def close(self) -> None:
        await self.settle()
        for server in self._servers:
            await server.stop()
        for database in self._databases:
            await database.close()
        if self._http is not None:
            await self._http.close()


def _stay(rng: random.Random) -> dict[str, Any]:
    return {"room": f"R{rng.randrange(1, 6)}", "guest": f"guest {rng.randrange(10**6)}", "nights": rng.randrange(1, 9)}


async def mixed(api: Api, rng: random.Random) -> None:
    """Looks, writes, looks again."""
    await api.get("/api/v2/rooms")
    room = f"/api/v2/rooms/R{rng.randrange(1, 4)}"
    await api.get("/api/v2/bookings")
    await api.get(room)
    await api.call("PATCH", room, {"rate": rng.randrange(60, 9999), "state": rng.choice(STATES)})
    await api.get(room)
    _, made = await api.call("POST", "/api/v2/bookings", _stay(rng))
    mine = f"/api/v2/bookings/{made['data']['id']}"
    await api.get("/api/v2/bookings")
    await api.get(mine)
    await api.call("PUT", room, {"rate": rng.randrange(60, 9999)})
    await api.get(room)
    await api.call("PATCH", mine, {"nights": rng.randrange(10, 30)})
    await api.get(mine)
    if rng.random() < 0.5:
        await api.call("DELETE", mine)
        await api.get("/api/v2/bookings")
        await api.get(mine)
    await api.get("/api/v2/rooms")


async def look(api: Api, rng: random.Random) -> None:
    """Reads only: what has an equal past can be compared."""
    rooms = [f"/api/v2/rooms/R{rng.randrange(1, 6)}" for _ in range(4)]
    for room in rooms:
        await api.get(f"{room}/quote")
    await api.get("/api/v2/rooms")
    await api.get(rooms[0])
    await api.get("/api/v2/suggestion")
    await api.get(f"{rooms[1]}/quote")


async def create(api: Api, rng: random.Random) -> None:
    """Looks at what is there, and leaves something of its own."""
    await api.get("/api/v2/bookings")
    await api.get("/api/v2/drafts")
    await api.get("/api/v2/rooms")
    await api.get("/api/v2/accounts/A1")
    _, made = await api.call("POST", "/api/v2/bookings", _stay(rng))
    await api.get(f"/api/v2/bookings/{made['data']['id']}")
    await api.get(f"/api/v2/rooms/R{rng.randrange(1, 6)}/quote")
    await api.call("PATCH", f"/api/v2/rooms/R{rng.randrange(1, 6)}", {"rate": rng.randrange(60, 9999)})
    await api.call("POST", "/api/v2/drafts", {"text": f"draft {rng.randrange(10**6)}"})
    await api.call("POST", "/api/v2/accounts/A2/credit", {"amount": rng.randrange(1, 99)})
    await api.get("/api/v2/accounts/A2")


async def contend(api: Api, rng: random.Random) -> None:
    """All lanes want the same slots, change the same room, and pay into the same account."""
    lane = int(api.lane[1:])
    for key in ("L1", "L2"):
        await api.get("/api/v2/slots")
        await api.call("POST", f"/api/v2/slots/{key}/hold", {"held_by": f"guest {lane}"})
    change = {"rate": 1000 + lane} if lane % 2 else {"state": STATES[1 + lane // 2 % 3]}
    await api.call("PATCH", "/api/v2/rooms/R1", change)
    await api.call("POST", "/api/v2/accounts/A1/credit", {"amount": 10 + lane})
    stay, token = _stay(rng), {"Idempotency-Key": f"{api.episode}-{api.lane}-{rng.randrange(10**9)}"}
    for _ in range(2):
        await api.call("POST", "/api/v2/bookings", stay, headers=token)
    _, found = await api.call("GET", "/api/v2/rooms/R2")
    version = {"If-Match": f'"{found["data"]["version"]}"'}
    await api.call("PATCH", "/api/v2/rooms/R2", {"rate": 2000 + lane}, headers=version)
    await api.get("/api/v2/accounts/A1")
    await api.get("/api/v2/slots")


SCRIPTS = {"mixed": mixed, "look": look, "create": create, "contend": contend}
