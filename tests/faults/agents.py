"""Scripted agents of environment 1. A script is a function of task, seed and lane, and of the answers."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any

import aiohttp

STAGES = ("lead", "qualified", "proposal", "won", "lost")


@dataclass(slots=True)
class Api:
    """One lane of an agent: requests in turn, each with its mark. `pause`: seconds of thinking, drawn by `rng`."""

    http: aiohttp.ClientSession
    url: str
    episode: str
    lane: str
    rng: random.Random
    pause: float = 0.0
    count: int = field(default=0)

    async def call(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        self.count += 1
        told = {"X-Call": f"{self.episode}~{self.lane}~{self.count}", "X-Replay-Lane": self.lane, **(headers or {})}
        if self.pause:
            await asyncio.sleep(self.rng.uniform(0, self.pause))
        async with self.http.request(method, self.url + path, json=body, headers=told) as answer:
            document = await answer.json() if answer.content_type.endswith("json") else None
            return answer.status, document

    async def get(self, path: str) -> Any:
        return (await self.call("GET", path))[1]


async def mixed(api: Api, rng: random.Random) -> None:
    """Looks, writes and looks again: deals that all lanes share, and what the lane made itself."""
    await api.get("/deals")
    await api.get("/tickets")
    key = f"D-{rng.randrange(1, 4)}"
    await api.get(f"/deals/{key}")
    await api.call("PATCH", f"/deals/{key}", {"stage": rng.choice(STAGES), "amount": rng.randrange(100, 99999)})
    await api.get(f"/deals/{key}")
    _, made = await api.call("POST", "/deals", {"name": f"Deal {rng.randrange(999)}", "owner": "ada", "amount": 500})
    await api.get("/deals")
    await api.get(f"/deals/{made['id']}")
    await api.call("PUT", f"/deals/{key}", {"amount": rng.randrange(100, 99999)})
    await api.get(f"/deals/{key}")
    ticket = f"T-{rng.randrange(1, 3)}"
    await api.get(f"/tickets/{ticket}")
    await api.call("PATCH", f"/tickets/{ticket}", {"status": rng.choice(("open", "pending", "solved"))})
    await api.get(f"/tickets/{ticket}")
    await api.get("/tickets")
    if rng.random() < 0.5:
        await api.call("DELETE", f"/deals/{made['id']}")
        await api.get("/deals")
        await api.get(f"/deals/{made['id']}")
    await api.get(f"/deals/{key}")


async def look(api: Api, rng: random.Random) -> None:
    """The first lane writes, then all look: what has an equal past can be compared."""
    keys = [f"D-{rng.randrange(1, 7)}" for _ in range(4)]
    for key in keys[:3]:
        await api.get(f"/deals/{key}/score")
        await api.get(f"/deals/{key}/forecast")
    await api.get("/deals")
    await api.get("/best")
    await api.get(f"/deals/{keys[3]}")
    await api.get(f"/deals/{keys[3]}/score")


async def create(api: Api, rng: random.Random) -> None:
    """Leaves something of its own, and looks at what is there."""
    await api.get("/notes")
    await api.get("/cart")
    await api.get("/deals")
    _, made = await api.call("POST", "/notes", {"text": f"note {rng.randrange(10**6)}"})
    await api.get(f"/notes/{made['id']}")
    key = f"D-{rng.randrange(1, 7)}"
    await api.call("PATCH", f"/deals/{key}", {"amount": rng.randrange(100, 99999)})
    await api.call("POST", "/cart", {"what": f"item {rng.randrange(10**6)}"})
    await api.get("/tickets")
    await api.call("PATCH", "/tickets/T-1", {"status": rng.choice(("pending", "solved"))})
    await api.get("/tickets/T-1")


async def contend(api: Api, rng: random.Random) -> None:
    """All lanes want the same slots and seats, change the same deal, and refund the same invoice."""
    lane = int(api.lane[1:])
    for key in ("S-1-9", "S-1-11"):
        await api.get("/slots?day=1")
        await api.call("POST", f"/slots/{key}/book", {"holder": f"agent {lane}"})
    await api.call("PATCH", "/deals/D-1", {"amount": 1000 + lane} if lane % 2 else {"stage": STAGES[1 + lane // 2 % 4]})
    await api.call("POST", "/invoices/I-1/refund", {"amount": 10 + lane})
    note, token = {"text": f"note {rng.randrange(10**6)}"}, f"{api.episode}-{api.lane}-{rng.randrange(10**9)}"
    for _ in range(2):
        await api.call("POST", "/notes", note, headers={"Idempotency-Key": token})
    await api.get("/seminars/M-1")
    await api.call("POST", "/seminars/M-1/join", {"who": f"agent {lane}"})
    await api.get("/deals/D-1")
    await api.get("/invoices/I-1")
    await api.get("/slots?day=1")


SCRIPTS = {"mixed": mixed, "look": look, "create": create, "contend": contend}


async def before(api: Api, rng: random.Random, script: str) -> None:
    """What one lane does before the others begin."""
    if script == "look":
        await api.call("PATCH", f"/deals/D-{rng.randrange(1, 7)}", {"amount": rng.randrange(100, 99999)})
    elif script == "contend":
        await api.get("/deals/D-1")
        await api.call("POST", "/invoices/I-1/refund", {"amount": rng.randrange(1, 9)})
