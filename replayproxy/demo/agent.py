"""A scripted agent for the demo suite: one short script per task, deterministic given the suite's answers.

    python -m replayproxy.demo.agent [--task crm-renewal] [--url http://127.0.0.1:9000]

The URL is by default the one that replayproxy gives its children (`REPLAYPROXY_URL_APP`). It appends paths to the
base URL and follows no redirect by itself. The last line on stdout is the reward that the suite's grader paid.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import sys
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

DEFAULT_TASK = "crm-renewal"


class Api:
    """The suite as an agent's tool layer sees it: one connection, JSON in and out. `lane` marks parallel tool calls."""

    def __init__(self, url: str, lane: str | None = None) -> None:
        parts = urlsplit(url)
        self.url = url
        self._base = parts.path.rstrip("/")
        self._connection = http.client.HTTPConnection(parts.hostname or "127.0.0.1", parts.port, timeout=30)
        self._headers = {"Accept": "application/json"} | ({"X-Replay-Lane": lane} if lane else {})

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any, dict[str, str]]:
        """Status, JSON document, headers (lower-case names)."""
        headers, data = dict(self._headers), None
        if body is not None:
            headers["Content-Type"], data = "application/json", json.dumps(body)
        full = path if self._base and path.startswith(self._base + "/") else self._base + path
        self._connection.request(method, full, body=data, headers=headers)
        answer = self._connection.getresponse()
        raw = answer.read()
        return answer.status, json.loads(raw) if raw else None, {k.lower(): v for k, v in answer.getheaders()}

    def get(self, path: str) -> Any:
        return self.call("GET", path)[1]

    def close(self) -> None:
        self._connection.close()


def crm_new(api: Api) -> None:
    """Open the Acme renewal for Ada."""
    api.get("/deals?owner=ada")
    _, _, headers = api.call("POST", "/deals", {"name": "Acme renewal", "owner": "ada", "amount": 12500})
    made = headers["location"]
    path = urlsplit(made).path
    api.get(path)
    api.call("PATCH", path, {"amount": 12900})
    api.get("/deals?owner=ada")


def crm_renewal(api: Api) -> None:
    """Close Ada's renewal as won, if there is one; then put a call into the calendar."""
    mine = api.get("/deals?owner=ada")
    renewal = next((deal for deal in mine["items"] if deal["name"] == "Acme renewal"), None)
    if renewal:
        api.call("PATCH", f"/deals/{renewal['id']}", {"stage": "won"})
        api.get(f"/deals/{renewal['id']}")
    api.get("/slots?day=1")
    api.call("POST", "/slots/S-1-9/book", {"holder": "agent"})
    api.get("/slots?day=1")


def crm_win(api: Api) -> None:
    """Win deal 3, and look whether it took."""
    api.get("/deals?stage=lead")
    api.get("/deals/D-3")
    api.call("PATCH", "/deals/D-3", {"stage": "won"})
    deal = api.get("/deals/D-3")
    api.call("PATCH", "/deals/D-3", {"amount": deal["amount"] + 100})
    api.get("/deals/D-5")


def crm_score(api: Api) -> None:
    """Give the deal with the best score to Edsger."""
    scores = {key: api.get(f"/deals/{key}/score")["score"] for key in ("D-1", "D-3", "D-5")}
    best = max(sorted(scores), key=lambda key: scores[key])
    api.call("PATCH", f"/deals/{best}", {"owner": "edsger"})
    api.get("/deals?owner=edsger")


def cal_two(api: Api) -> None:
    """Book one slot on each of two days, side by side; the second try for a slot is refused."""

    def book(day: int) -> None:
        tool = Api(api.url, lane=f"tool-{day}")
        free = [slot for slot in tool.get(f"/slots?day={day}")["items"] if slot["holder"] is None]
        tool.call("POST", f"/slots/{free[0]['id']}/book", {"holder": "agent"})
        tool.call("POST", f"/slots/{free[0]['id']}/book", {"holder": "agent"})
        tool.close()

    tools = [threading.Thread(target=book, args=(day,)) for day in (1, 2)]
    for tool in tools:
        tool.start()
    for tool in tools:
        tool.join()
    api.get("/slots?day=1")


def cal_same(api: Api) -> None:
    """Two assistants of one agent want the same free hour; whoever comes second takes the next."""
    both = threading.Barrier(2)

    def book(name: str) -> None:
        tool = Api(api.url, lane=name)
        free = [slot["id"] for slot in tool.get("/slots?day=1")["items"] if slot["holder"] is None]
        both.wait(30)
        for slot in free:
            if tool.call("POST", f"/slots/{slot}/book", {"holder": name})[0] == 201:
                break
        tool.close()

    tools = [threading.Thread(target=book, args=(f"assistant-{name}",)) for name in "ab"]
    for tool in tools:
        tool.start()
    for tool in tools:
        tool.join()
    api.get("/slots?day=1")


def desk_refund(api: Api) -> None:
    """Give back what was charged twice, then resolve the ticket."""
    ticket = api.get("/tickets/T-1")
    invoice = api.get(f"/invoices/{ticket['invoice']}")
    api.call("POST", f"/invoices/{invoice['id']}/refund", {"amount": invoice["charged"] - invoice["amount"]})
    api.get(f"/invoices/{invoice['id']}")
    api.call("PATCH", "/tickets/T-1", {"status": "resolved"})
    api.get("/tickets/T-1")


TASKS: dict[str, Callable[[Api], None]] = {
    "crm-new": crm_new, "crm-renewal": crm_renewal, "crm-win": crm_win, "crm-score": crm_score,
    "cal-two": cal_two, "cal-same": cal_same, "desk-refund": desk_refund,
}  # fmt: skip


def work(url: str, task: str) -> float:
    """Does the task and asks the grader; returns the reward."""
    api = Api(url)
    try:
        TASKS[task](api)
        _, graded, _ = api.call("POST", "/verify", {})
        return float(graded["reward"])
    finally:
        api.close()


def main() -> int:
    parser = argparse.ArgumentParser(description="The demo's scripted agent.")
    parser.add_argument("--task", default=DEFAULT_TASK, choices=sorted(TASKS))
    parser.add_argument("--url", default=os.environ.get("REPLAYPROXY_URL_APP"))
    given = parser.parse_args()
    if not given.url:
        parser.error("no --url, and REPLAYPROXY_URL_APP is not set")
    try:
        print(json.dumps({"task": given.task, "reward": work(given.url, given.task)}))
    except (OSError, http.client.HTTPException, KeyError, TypeError, ValueError) as error:
        print(f"agent: the suite's answer made no sense to me: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
