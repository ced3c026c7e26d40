"""Writes of environment 1 that race, that are done twice, or done and denied."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from aiohttp import web

from replayproxy.demo.environment import _now
from tests.faults.injector import Injector
from tests.faults.ledger import MARK, Cell, episode_of

if TYPE_CHECKING:
    from tests.faults.suite import Marked

type Write = Callable[[], Awaitable[web.StreamResponse]]


class Gap(Injector):
    """Whether a slot or a seat is free is looked at, and `seconds` later it is taken."""

    async def around(self, suite: Marked, request: web.Request, write: Write) -> web.StreamResponse:
        kind, key = request.path.strip("/").split("/")[:2]
        asked = await request.json() if request.method == "POST" else {}
        if kind == "slots" and suite.whole()["slots"][key]["holder"] is None:
            await asyncio.sleep(self.seconds)
            return self._book(suite, key, asked["holder"])
        if kind == "seminars" and _free(suite, key) > 0:
            await asyncio.sleep(self.seconds)
            return self._seat(suite, key, asked["who"])
        return await write()

    def _book(self, suite: Marked, key: str, holder: str) -> web.Response:
        before, lo = suite.whole(), time.monotonic_ns()
        suite.database.execute("UPDATE slots SET holder=? WHERE id=?", (holder, key))
        if before["slots"][key]["holder"] is not None:
            granted = tuple(v.mark for v in suite.ledger.history["slots", key] if _of_this_episode(v.mark))
            suite.ledger.act(
                fault=self.fault, mark=MARK.get(), cell=Cell("slots", key, "holder"), given=holder, by=granted
            )
        suite.ledger.changed(before, suite.whole(), lo, time.monotonic_ns(), MARK.get())
        return web.json_response(suite.whole()["slots"][key], status=201)

    def _seat(self, suite: Marked, key: str, who: str) -> web.Response:
        before, lo = suite.whole(), time.monotonic_ns()
        full = _free(suite, key) <= 0
        response = suite.seated(key, who)
        suite.ledger.changed(before, suite.whole(), lo, time.monotonic_ns(), MARK.get())
        if full:
            seats = [seat for seat, row in suite.more["seats"].items() if row["seminar"] == key]
            others = tuple(suite.ledger.writer(("seats", seat)) for seat in seats)
            suite.ledger.act(fault=self.fault, mark=MARK.get(), cell=Cell("seminars", key, "*"), by=others)
        return response


def _free(suite: Marked, key: str) -> int:
    taken = sum(seat["seminar"] == key for seat in suite.more["seats"].values())
    return int(suite.more["seminars"][key]["capacity"]) - int(taken)


def _of_this_episode(mark: str) -> bool:
    return bool(mark) and episode_of(mark) == episode_of(MARK.get()) and not mark.endswith("~~0")


class WriteBack(Injector):
    """A change of a deal reads the whole row, and `seconds` later writes the whole row back."""

    async def around(self, suite: Marked, request: web.Request, write: Write) -> web.StreamResponse:
        if request.method != "PATCH" or not request.path.startswith("/deals/"):
            return await write()
        key, asked = request.path.rpartition("/")[2], await request.json()
        read = suite.whole()["deals"][key]
        await asyncio.sleep(self.seconds)
        before, lo = suite.whole(), time.monotonic_ns()
        row = read | {name: asked[name] for name in ("stage", "amount", "owner") if name in asked}
        row |= {"updated_at": _now()}
        suite.database.execute(
            "UPDATE deals SET stage=:stage, amount=:amount, owner=:owner, updated_at=:updated_at WHERE id=:id", row
        )
        for column in ("stage", "amount", "owner"):
            held = before["deals"][key][column]
            if column not in asked and held != read[column]:
                by = _who_set(suite, key, column, held)
                suite.ledger.act(
                    fault=self.fault, mark=MARK.get(), cell=Cell("deals", key, column), right=held,
                    given=read[column], by=(by,),
                )  # fmt: skip
        suite.ledger.changed(before, suite.whole(), lo, time.monotonic_ns(), MARK.get())
        return web.json_response(row)


def _who_set(suite: Marked, key: str, column: str, value: Any) -> str:
    """The mark of the request since which the cell holds the value."""
    found = ""
    for version in suite.ledger.history["deals", key]:
        held = version.row is not None and version.row[column] == value
        found = (found or version.mark) if held else ""
    return found


class Adds(Injector):
    """A refund reads what has been refunded, and `seconds` later writes the sum."""

    async def around(self, suite: Marked, request: web.Request, write: Write) -> web.StreamResponse:
        if not request.path.endswith("/refund"):
            return await write()
        key, asked = request.path.split("/")[2], await request.json()
        known = len(suite.ledger.history["invoices", key])
        read = suite.whole()["invoices"][key]["refunded"]
        await asyncio.sleep(self.seconds)
        before, lo = suite.whole(), time.monotonic_ns()
        suite.database.execute("UPDATE invoices SET refunded=? WHERE id=?", (read + asked["amount"], key))
        if before["invoices"][key]["refunded"] != read:
            lost = tuple(version.mark for version in suite.ledger.history["invoices", key][known:])
            suite.ledger.act(fault=self.fault, mark=MARK.get(), cell=Cell("invoices", key, "refunded"), by=lost)
        suite.ledger.changed(before, suite.whole(), lo, time.monotonic_ns(), MARK.get())
        return web.json_response(suite.whole()["invoices"][key])


class Retry(Injector):
    """The Idempotency-Key is, with probability `p`, not looked at: a request sent again is done again."""

    def repeats(self, suite: Marked) -> bool:
        return self.strikes()

    def repeated(self, suite: Marked, note: dict[str, Any], mark: str, first: dict[str, Any]) -> None:
        for made in (note, first):
            suite.ledger.act(fault=self.fault, mark=MARK.get(), cell=Cell("notes", made["id"]), by=(mark,))


class DoneThen500(Injector):
    """The note is made, and with probability `p` the answer is 500."""

    def told_made(self, suite: Marked, note: dict[str, Any], response: web.Response) -> web.Response:
        if not self.strikes():
            return response
        suite.ledger.act(fault=self.fault, mark=MARK.get(), cell=Cell("notes", note["id"]))
        return web.json_response({"error": "internal"}, status=500)
