"""A simulated booking service for the bench: slots for one, events for a few, stock, and gaps in which races live.

`faults`: `gap` (a booking looks first and writes `gap_ms` later), `merge` (PATCH writes back the whole row that it had
read), `count` (an addition writes back the sum of what it had read). `lost` notes what each gap swallowed: detectors
never see it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.detect.bench import Deployment


@dataclass
class Booking(Deployment):
    """See the module. Paths: /slots/S/book, /slots/S/release, /events/E/bookings, /items/I, /items/I/add."""

    lost: list[tuple[str, str]] = field(default_factory=list)  # (fault, row)
    keys: dict[str, tuple[int, Any]] = field(default_factory=dict)

    def reset(self, task: str, seed: int) -> None:
        super().reset(task, seed)
        self.tables["slots"] = {f"S-{n}": {"id": f"S-{n}", "hour": 8 + n, "holder": None} for n in range(1, 5)}
        self.tables["events"] = {f"E-{n}": {"id": f"E-{n}", "title": f"Talk {n}", "capacity": n} for n in (1, 2)}
        self.tables["bookings"] = {"B-0": {"id": "B-0", "event_id": "E-2", "who": "seed", "status": "confirmed"}}
        self.tables["items"] = {
            f"I-{n}": {"id": f"I-{n}", "title": f"Item {n}", "place": "shelf", "count": 100} for n in range(1, 4)
        }

    def answer(self, now: int, method: str, path: str, body: Any) -> Any:
        parts = path.partition("?")[0].strip("/").split("/")
        if parts[0] == "slots" and parts[2:] == ["book"]:
            return self._act(lambda row: row["holder"] is None, self._book, parts[1], body["holder"])
        if parts[0] == "slots" and parts[2:] == ["release"]:
            self.tables["slots"][parts[1]]["holder"] = None
            return 200, dict(self.tables["slots"][parts[1]])
        if parts[0] == "events" and parts[2:] == ["bookings"] and method == "POST":
            return self._enrol(parts[1], body)
        if parts[0] == "items" and parts[2:] == ["add"]:
            return self._add(parts[1], body["by"])
        if parts[0] == "items" and method == "PATCH" and "merge" in self.faults:
            return self._merge(parts[1], body)
        return super().answer(now, method, path, body)

    def _act(self, free: Any, act: Any, key: str, who: str) -> Any:
        row = self.tables["slots"][key]
        if not free(row):
            return 409, dict(row)
        if "gap" in self.faults:
            return lambda: act(key, who)
        return act(key, who)

    def _book(self, key: str, who: str) -> tuple[int, Any]:
        row = self.tables["slots"][key]
        if row["holder"] is not None:
            self.lost.append(("gap", key))
        row["holder"] = who
        return 201, dict(row)

    def _enrol(self, key: str, body: Any) -> Any:
        once = body.get("once")
        if once in self.keys:
            return self.keys[once]
        if self._taken(key) >= self.tables["events"][key]["capacity"]:
            return 409, {"error": "full"}

        def act() -> tuple[int, Any]:
            if self._taken(key) >= self.tables["events"][key]["capacity"]:
                self.lost.append(("gap", key))
            self.counter += 1
            made = {"id": f"B-{self.counter}", "event_id": key, "who": body["who"], "status": "confirmed"}
            self.tables["bookings"][made["id"]] = made
            if once:
                self.keys[once] = 201, dict(made)
            return 201, dict(made)

        return act if "gap" in self.faults else act()

    def _taken(self, key: str) -> int:
        rows = self.tables["bookings"].values()
        return sum(row["event_id"] == key and row["status"] == "confirmed" for row in rows)

    def _add(self, key: str, by: int) -> Any:
        row = self.tables["items"][key]
        seen = row["count"]

        def act() -> tuple[int, Any]:
            if row["count"] != seen:
                self.lost.append(("count", key))
            row["count"] = seen + by
            return 200, dict(row)

        return act if "count" in self.faults else act()

    def _merge(self, key: str, body: Any) -> Any:
        seen = dict(self.tables["items"][key])

        def act() -> tuple[int, Any]:
            now = self.tables["items"][key]
            if any(now[name] != seen[name] for name in seen if name not in body):
                self.lost.append(("merge", key))
            self.tables["items"][key] = seen | body
            return 200, dict(self.tables["items"][key])

        return act
