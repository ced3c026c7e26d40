"""An environment that is right in every answer and has all the habits that make one look wrong, for the bench.

Each habit is something that real services do: they round what they are told, let a hold run out, take back an approval
when a deal changes, let one more in than there is room for, answer from a draft, keep a cart for each cookie. Every
effect happens at one instant within its exchange, so nothing that the detectors call proven or confirmed can be so.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.detect.bench import MS, Deployment

HABITS = (
    "rounds", "echoes-raw", "soft-delete", "soft-delete-shown", "side-effects", "unapproves", "audit", "lazy-expiry",
    "expiry", "takeover", "overbooks", "waits", "caps", "likes-once", "declines", "queue", "cron", "drafts", "carts",
    "reuses-ids", "seeded-ids", "versions", "checksums", "locks-outside", "totals",
)  # fmt: skip
"""What a world may do. Any of them may come together."""

LIMITS = {"E-1": 1, "E-2": 2}


@dataclass
class World(Deployment):
    """See the module. `faults` of a deployment are `HABITS` here."""

    later: Callable[[int, Callable[[], None]], None] | None = None
    keys: dict[Any, Any] = field(default_factory=dict)
    locks: dict[str, tuple[str, int]] = field(default_factory=dict)
    likes: set[tuple[str, str]] = field(default_factory=set)
    seeded: random.Random = field(default_factory=lambda: random.Random(5))
    ends: dict[str, int] = field(default_factory=dict)
    told: Callable[[int], str] = str
    now: int = 0
    ids: int = 0

    def reset(self, task: str, seed: int) -> None:
        super().reset(task, seed)
        self.seeded = random.Random(f"{task}/{seed}" if seed else 5)
        self.ids = 0
        self.keys, self.locks, self.likes = {}, {}, set()
        for row in self.tables["deals"].values():
            row |= {"approved": False, "deleted_at": None, "version": 1, "net": row["amount"] // 2, "company_id": "C-1"}
        self.tables |= {
            "slots": {f"S-{n}": {"id": f"S-{n}", "held_by": None, "expires_at": None} for n in (1, 2)},
            "events": {key: {"id": key, "capacity": room, "taken": 0} for key, room in LIMITS.items()},
            "bookings": {"B-0": {"id": "B-0", "event_id": "E-2", "who": "seed", "status": "confirmed"}},
            "companies": {"C-1": {"id": "C-1", "seats": 1, "quota": 2, "open": 0}},
            "wallets": {f"W-{n}": {"id": f"W-{n}", "balance": 50, "points": 50} for n in (1, 2)},
            "posts": {f"P-{n}": {"id": f"P-{n}", "likes": 0, "text": "a"} for n in (1, 2)},
            "payments": {}, "jobs": {}, "archived": {}, "audit": {}, "counters": {"writes": {"id": "writes", "n": 0}},
            "pages": {"G-1": {"id": "G-1", "title": "one", "draft": "one"}},
            "carts": {}, "notes": {},
        }  # fmt: skip

    def has(self, habit: str) -> bool:
        return habit in self.faults

    # One answer

    def answer(self, now: int, method: str, path: str, body: Any, head: Mapping[str, str] = {}) -> Any:
        self.now = now
        self._expire()
        once = head.get("Idempotency-Key")
        key = (head.get("Authorization"), method, path, once)
        if once and key in self.keys:
            return self.keys[key]
        path, _, query = path.partition("?")
        parts = path.strip("/").split("/")
        act = getattr(self, "_" + parts[0], None)
        told = act(method, parts, query, body or {}, head) if act else self._plain(method, parts, query, body, head)
        if method != "GET" and told[0] < 300:
            self._beside(parts)
        if once and told[0] < 500:
            self.keys[key] = told
        return told

    def _beside(self, parts: list[str]) -> None:
        if self.has("audit"):
            self.tables["audit"][str(len(self.tables["audit"]))] = {"what": parts[0], "at": self.wall()}
        if self.has("side-effects"):
            self.tables["counters"]["writes"]["n"] += 1

    def _expire(self) -> None:
        if self.has("expiry"):
            for row in self.tables.get("slots", {}).values():
                if row["expires_at"] is not None and self.ends[row["id"]] <= self.now:
                    row |= {"held_by": None, "expires_at": None}

    def tick(self) -> None:
        """A job of the environment's own."""
        if self.has("cron") and self.tables:
            deal = self.tables["deals"].get("D-1")
            if deal:
                deal |= {"stage": self.rng.choice(["lead", "won", "lost"]), "version": deal["version"] + 1}
        self._expire()

    def _id(self) -> str:
        if self.has("reuses-ids"):
            self.ids += 1
            taken = {*self.tables["deals"], *self.tables["notes"]}
            return next(f"N-{n}" for n in range(1, 99) if f"N-{n}" not in taken)
        if self.has("seeded-ids"):
            return f"{self.seeded.getrandbits(96):024x}"
        self.counter += 1
        return f"{self.minter.getrandbits(96):024x}" if not self.autoincrement else str(self.counter)

    def _heads(self, row: Mapping[str, Any]) -> dict[str, str]:
        if self.has("checksums"):
            return {"ETag": f'"{zlib.crc32(str(sorted(row.items(), key=str)).encode())}"'}
        return {"ETag": f'"{row.get("version", 1)}"'} if self.has("versions") else {}

    def _show(self, row: Mapping[str, Any]) -> dict[str, Any]:
        shown = dict(row)
        if self.has("totals") and "amount" in row:
            shown |= {"gross": row["amount"] * 2, "label": f"{row['id']}/{row['stage']}"}
        return shown

    # Deals

    def _deals(self, method: str, parts: list[str], query: str, body: Any, head: Mapping[str, str]) -> Any:
        table = self.tables["deals"]
        asked = dict(pair.split("=") for pair in query.split("&")) if query else {}
        if len(parts) == 1 and method == "GET":
            rows = [self._show(row) for row in table.values() if row["deleted_at"] is None]
            if "stage" in asked:
                rows = [row for row in rows if row["stage"] == asked["stage"]]
            if "sort" in asked:
                rows.sort(key=lambda row: str(row.get(asked["sort"])))
            at = int(asked.get("offset", 0))
            return 200, {"items": rows[at : at + int(asked.get("limit", 50))]}
        if len(parts) == 1:
            key = self._id()
            row = {"id": key, "stage": "lead", "owner": "", "amount": 0, **self._kept(body), "updated_at": self.wall(),
                   "approved": False, "deleted_at": None, "version": 1, "net": 0, "company_id": "C-1"}  # fmt: skip
            table[key] = row
            return 201, self._show({**row, **body} if self.has("echoes-raw") else row)
        row = table.get(parts[1])
        if row is None or (row["deleted_at"] is not None and not self.has("soft-delete-shown")):
            return 404, {"error": "no such deal"}
        if len(parts) > 2:
            return self._deal_act(parts[2], parts[1], row, body)
        if method == "GET":
            return 200, self._show(row), self._heads(row)
        if method == "DELETE":
            if self.has("soft-delete") or self.has("soft-delete-shown"):
                row |= {"deleted_at": self.wall(), "version": row["version"] + 1}
            else:
                del table[parts[1]]
            return 204, None
        return self._change(row, method, body, head)

    def _change(self, row: dict[str, Any], method: str, body: Any, head: Mapping[str, str]) -> Any:
        wanted = head.get("If-Match")
        if wanted and self._heads(row) and wanted != self._heads(row).get("ETag"):
            return 412, {"error": "changed"}
        row |= self._kept(body)
        if method == "PUT":
            row |= {name: None for name in ("owner",) if name not in body}
        if self.has("unapproves") and "approved" not in body:
            row["approved"] = False
        row |= {"version": row["version"] + 1, "net": row["amount"] // 2, "updated_at": self.wall()}
        shown = self._show(row)
        return 200, ({**shown, **body} if self.has("echoes-raw") else shown), self._heads(row)

    def _kept(self, body: Mapping[str, Any]) -> dict[str, Any]:
        if not self.has("rounds") and not self.has("echoes-raw"):
            return dict(body)
        kept = {}
        for name, value in body.items():
            if isinstance(value, str):
                value = value.strip().lower()
            elif isinstance(value, int | float) and not isinstance(value, bool):
                value = round(value, -1)
            kept[name] = value
        return kept

    def _deal_act(self, act: str, key: str, row: dict[str, Any], body: Any) -> Any:
        if act == "approve":
            row |= {"approved": True, "version": row["version"] + 1}
        elif act == "archive":
            self.tables["archived"][key] = self.tables["deals"].pop(key)
        return 200, self._show(row)

    # What is held, booked, counted

    def _slots(self, method: str, parts: list[str], query: str, body: Any, head: Mapping[str, str]) -> Any:
        if len(parts) == 1:
            return 200, [self._slot(row) for row in self.tables["slots"].values()]
        row = self.tables["slots"].get(parts[1])
        if row is None:
            return 404, {}
        if method == "GET":
            return 200, self._slot(row)
        shown = self._slot(row)
        if parts[2:] == ["release"]:
            row |= {"held_by": None, "expires_at": None}
            self.locks.pop(parts[1], None)
            return 200, self._slot(row)
        if shown["held_by"] not in (None, body["held_by"]) and not self.has("takeover"):
            return 409, shown
        ends = self.now + 15 * MS
        expires = self.told(ends) if self.has("expiry") or self.has("lazy-expiry") else None
        self.ends[parts[1]] = ends
        if self.has("locks-outside"):
            self.locks[parts[1]] = body["held_by"], self.now + 20 * MS
        else:
            row |= {"held_by": body["held_by"], "expires_at": expires}
        return 201, self._slot(row)

    def _slot(self, row: Mapping[str, Any]) -> dict[str, Any]:
        shown = dict(row)
        if self.has("lazy-expiry") and row["expires_at"] is not None and self.ends[row["id"]] <= self.now:
            shown |= {"held_by": None, "expires_at": None}
        if self.has("locks-outside") and (lock := self.locks.get(row["id"])) and lock[1] > self.now:
            shown["held_by"] = lock[0]
        return shown

    def _events(self, method: str, parts: list[str], query: str, body: Any, head: Mapping[str, str]) -> Any:
        event = self.tables["events"].get(parts[1]) if len(parts) > 1 else None
        if event is None:
            return 200, [dict(row) for row in self.tables["events"].values()]
        rows = self.tables["bookings"]
        live = [row for row in rows.values() if row["event_id"] == parts[1] and row["status"] == "confirmed"]
        if method == "GET":
            return 200, {**event, "taken": len(live)}
        room = event["capacity"] + self.has("overbooks")
        status = "confirmed"
        if len(live) >= room:
            if not self.has("waits"):
                return 409, {"error": "full"}
            status = "waitlist"
        key = f"B-{len(rows)}"
        rows[key] = {"id": key, "event_id": parts[1], "who": body["who"], "status": status}
        return 201, dict(rows[key])

    def _bookings(self, method: str, parts: list[str], query: str, body: Any, head: Mapping[str, str]) -> Any:
        row = self.tables["bookings"].get(parts[1]) if len(parts) > 1 else None
        if row is not None and method == "DELETE":
            row["status"] = "cancelled"
            return 200, dict(row)
        return (200, dict(row)) if row is not None else (404, {})

    def _wallets(self, method: str, parts: list[str], query: str, body: Any, head: Mapping[str, str]) -> Any:
        table = self.tables["wallets"]
        if parts[1:] == ["transfer"]:
            giver, taker, amount = table[body["from"]], table[body["to"]], body["amount"]
            if giver["balance"] < amount:
                return 409, {"error": "too little"}
            giver["balance"] -= amount
            taker["balance"] += amount
            return 200, {"from": dict(giver), "to": dict(taker)}
        row = table[parts[1]]
        if parts[2:] == ["deposit"]:
            row["balance"] += body["amount"]
            row["points"] = row["points"] + body["amount"]
            if self.has("caps"):
                row["balance"], row["points"] = min(row["balance"], 100), min(row["points"], 100)
        elif parts[2:] == ["withdraw"]:
            row["balance"] -= body["amount"]
            if self.has("caps"):
                row["balance"] = max(row["balance"], 0)
        return 200, dict(row)

    def _posts(self, method: str, parts: list[str], query: str, body: Any, head: Mapping[str, str]) -> Any:
        row = self.tables["posts"][parts[1]]
        if parts[2:] == ["like"]:
            me = parts[1], head.get("Authorization", "")
            if me not in self.likes or not self.has("likes-once"):
                row["likes"] += 1
            self.likes.add(me)
        return 200, dict(row)

    # Answers that are not what they seem

    def _payments(self, method: str, parts: list[str], query: str, body: Any, head: Mapping[str, str]) -> Any:
        if method == "GET":
            return 200, [dict(row) for row in self.tables["payments"].values()]
        key = self._id()
        bad = self.has("declines") and body["amount"] % 2
        row = {"id": key, **body, "status": "declined" if bad else "paid"}
        self.tables["payments"][key] = row
        return (402 if bad else 201), dict(row)

    def _jobs(self, method: str, parts: list[str], query: str, body: Any, head: Mapping[str, str]) -> Any:
        if method == "GET":
            row = self.tables["jobs"].get(parts[1]) if len(parts) > 1 else None
            return (200, dict(row)) if row else (200, [dict(row) for row in self.tables["jobs"].values()])
        key = self._id()
        self.tables["jobs"][key] = {"id": key, "state": "queued", **body}
        tables = self.tables

        def work() -> None:
            if self.tables is tables:
                tables["jobs"][key]["state"] = "done"
                if body.get("deal") in tables["deals"]:
                    deal = tables["deals"][body["deal"]]
                    deal |= {"stage": body["stage"], "version": deal["version"] + 1}

        if self.later is not None and self.has("queue"):
            self.later(round(self.rng.uniform(0.5, 20) * MS), work)
            return 202, dict(tables["jobs"][key])
        work()
        return 201, dict(tables["jobs"][key])

    def _pages(self, method: str, parts: list[str], query: str, body: Any, head: Mapping[str, str]) -> Any:
        row = self.tables["pages"][parts[1]]
        if method == "PATCH" and self.has("drafts"):
            row["title"] = body["title"]  # the editor's; readers are shown what was published
            return 200, {"id": row["id"], "title": row["title"]}
        if method == "PATCH":
            row |= {"title": body["title"], "draft": body["title"]}
        elif parts[2:] == ["publish"]:
            row["draft"] = row["title"]
        editor = not self.has("drafts") or head.get("Authorization") == "editor" or query == "view=draft"
        return 200, {"id": row["id"], "title": row["title" if editor else "draft"]}

    def _cart(self, method: str, parts: list[str], query: str, body: Any, head: Mapping[str, str]) -> Any:
        who = head.get("Cookie", "s=0")
        cart = self.tables["carts"].setdefault(who, {"total": 0, "items": 0}) if method == "POST" else None
        if cart is None:
            return 200, dict(self.tables["carts"].get(who, {"total": 0, "items": 0}))
        cart |= {"total": cart["total"] + body["price"], "items": cart["items"] + 1}
        return 200, dict(cart)

    _carts = _cart

    def _bulk(self, method: str, parts: list[str], query: str, body: Any, head: Mapping[str, str]) -> Any:
        changed = [self.tables["deals"][key] for key in body["ids"] if key in self.tables["deals"]]
        for row in changed:
            row |= {"stage": body["stage"], "version": row["version"] + 1}
        return 200, {"changed": len(changed)}

    def _rpc(self, method: str, parts: list[str], query: str, body: Any, head: Mapping[str, str]) -> Any:
        given = body["params"]
        told = self.answer(self.now, given["method"], given["path"], given.get("body"), head)
        return 200, {"jsonrpc": "2.0", "id": body["id"], "result": {"status": told[0], "body": told[1]}}

    def _quote(self, method: str, parts: list[str], query: str, body: Any, head: Mapping[str, str]) -> Any:
        return 200, {"quote": f"{self.seeded.getrandbits(96):024x}"} if self.has("seeded-ids") else {"quote": "none"}

    def _plain(self, method: str, parts: list[str], query: str, body: Any, head: Mapping[str, str]) -> Any:
        table = self.tables.get(parts[0])
        if table is None:
            return 404, {"error": "no such thing"}
        if len(parts) == 1 and method == "POST":
            key = self._id()
            table[key] = {"id": key, **body}
            return 201, dict(table[key])
        if len(parts) == 1:
            return 200, [dict(row) for row in table.values()]
        row = table.get(parts[1])
        if row is None and method == "PUT":
            table[parts[1]] = {"id": parts[1], **body}
            return 201, dict(table[parts[1]])
        if row is None:
            return 404, {}
        if method == "DELETE":
            del table[parts[1]]
            return 204, None
        if method == "PUT":
            table[parts[1]] = {"id": parts[1], **body}
        elif method == "PATCH":
            row |= body
        return 200, dict(table[parts[1]])
