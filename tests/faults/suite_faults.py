"""The faults of environment 1, one class each, and the look-alikes that only seem to be faults.

Stale reads and answers that change are here; `suite_resets.py` has what resets and instances do.
"""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from aiohttp import web

from tests.faults.injector import Injector, Row, shown_rows
from tests.faults.ledger import MARK, episode_of, number_of

if TYPE_CHECKING:
    from tests.faults.suite import Marked

NS = 1_000_000_000


class Cached(Injector):
    """Answers come from a cache by path for `seconds`. `drops`: whether a request drops what its path holds."""

    lists_only = False

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.cache: dict[tuple[int, str], tuple[int, dict[str, Row]]] = {}

    def drops(self, request: web.Request) -> bool:
        return False

    def forget(self, suite: Marked) -> None:
        super().forget(suite)
        self.cache = {at: held for at, held in self.cache.items() if at[0] != id(suite)}

    def _through(self, suite: Marked, table: str, rows: Mapping[str, Row], target: str) -> Mapping[str, Row]:
        now, at = time.monotonic_ns(), (id(suite), target)
        filled, held = self.cache.get(at, (0, {}))
        if filled and now - filled < self.seconds * NS:
            shown_rows(suite, self.fault, table, rows, held)
            return held
        self.cache[at] = now, {key: dict(row) for key, row in rows.items()}
        return rows

    def row(self, suite: Marked, table: str, key: str, row: Row | None, target: str) -> Row | None:
        if self.lists_only or table == "notes":
            return row
        return self._through(suite, table, {key: row} if row else {}, target).get(key)

    def rows(self, suite: Marked, table: str, rows: Mapping[str, Row], target: str) -> Mapping[str, Row]:
        return self._through(suite, table, rows, target) if self.lists_only else rows

    def wrote(self, suite: Marked, request: web.Request) -> None:
        if self.drops(request):
            self.cache.pop((id(suite), request.path), None)


class OneVerb(Cached):
    """The cache is dropped by PATCH, DELETE and POST, and not by PUT."""

    def drops(self, request: web.Request) -> bool:
        return request.method != "PUT"


class ListOnly(Cached):
    """The list of deals is cached, a deal by itself never."""

    lists_only = True


class OldCopy(Injector):
    """A row that has been changed in this episode is, with probability `p`, shown as it was before that."""

    def row(self, suite: Marked, table: str, key: str, row: Row | None, target: str) -> Row | None:
        versions = suite.ledger.history.get((table, key), [])
        own = len(versions) > 1 and episode_of(versions[-1].mark) == episode_of(MARK.get()) and versions[-2].row
        if not own or number_of(versions[-1].mark) == 0 or not self.strikes():
            return row
        shown_rows(suite, self.fault, table, {key: row} if row else {}, {key: versions[-2].row or {}})
        return versions[-2].row


class Lag(Injector):
    """Reads go to a replica that is `seconds` behind."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.began: dict[int, int] = {}

    def after_reset(self, suite: Marked, task: str, seed: int) -> None:
        self.began[id(suite)] = time.monotonic_ns() + NS // 1000  # a reset waits for its replica

    def _old(self, suite: Marked, table: str, rows: Mapping[str, Row]) -> dict[str, Row]:
        at = max(time.monotonic_ns() - round(self.seconds * NS), self.began.get(id(suite), 0))
        keys = {key for of, key in suite.ledger.history if of == table}
        found = {key: suite.ledger.at((table, key), at) for key in keys}
        return {key: row for key, row in found.items() if row is not None}

    def row(self, suite: Marked, table: str, key: str, row: Row | None, target: str) -> Row | None:
        old = self._old(suite, table, {})
        now = {key: row} if row else {}
        shown_rows(suite, self.fault, table, now, {k: r for k, r in old.items() if k == key})
        return old.get(key)

    def rows(self, suite: Marked, table: str, rows: Mapping[str, Row], target: str) -> Mapping[str, Row]:
        old = self._old(suite, table, rows)
        shown_rows(suite, self.fault, table, rows, old)
        return old


# Look-alikes of stale reads


class Overlap(Injector):
    """Writes take their effect somewhere within a slow request; what reads show meanwhile is right either way."""

    async def around(
        self, suite: Marked, request: web.Request, write: Callable[[], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        await asyncio.sleep(self.rng.uniform(0, self.seconds))
        response = await write()
        await asyncio.sleep(self.rng.uniform(0, self.seconds))
        return response


class Accepted(Injector):
    """A change of a ticket is accepted with 202 and done `seconds` later; a reset drops what is still to be done."""

    def after_reset(self, suite: Marked, task: str, seed: int) -> None:
        for work in suite.background:
            work.cancel()

    async def around(
        self, suite: Marked, request: web.Request, write: Callable[[], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if request.method != "PATCH" or not request.path.startswith("/tickets"):
            return await write()
        work = asyncio.create_task(self._later(write))
        suite.background.add(work)
        work.add_done_callback(suite.background.discard)
        return web.json_response({"accepted": True}, status=202)

    async def _later(self, write: Callable[[], Awaitable[web.StreamResponse]]) -> None:
        await asyncio.sleep(self.seconds)
        await write()


class Declared(ListOnly):
    """The list of tickets may be `seconds` old, and each answer says so. Tickets are written at other addresses."""

    def rows(self, suite: Marked, table: str, rows: Mapping[str, Row], target: str) -> Mapping[str, Row]:
        if table != "tickets":
            return rows
        kept = len(suite.ledger.acts)
        found = super().rows(suite, table, rows, target)
        del suite.ledger.acts[kept:]
        return found

    def dressed(self, response: web.Response, target: str) -> web.Response:
        if target == "/tickets":
            response.headers["Cache-Control"] = f"max-age={max(1, round(self.seconds))}"
            response.headers["Age"] = "1"
        return response


class Reverted(Injector):
    """Somebody else, past the proxy, opens each ticket again that was closed, before it is looked at: ABA."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.closed: set[tuple[int, str]] = set()

    def wrote(self, suite: Marked, request: web.Request) -> None:
        if request.path.startswith("/tickets"):
            self.closed.add((id(suite), request.path.rpartition("/")[2]))

    def row(self, suite: Marked, table: str, key: str, row: Row | None, target: str) -> Row | None:
        if table != "tickets" or (id(suite), key) not in self.closed:
            return row
        self.closed.discard((id(suite), key))
        before, lo = suite.whole(), time.monotonic_ns()
        suite.database.execute("UPDATE tickets SET status='open' WHERE id=?", (key,))
        suite.ledger.changed(before, suite.whole(), lo, time.monotonic_ns(), "")
        return suite.whole()["tickets"][key]


# Answers that change


class Rng(Injector):
    """The score is drawn anew with probability `p`."""

    def number(self, suite: Marked, spot: str, right: int) -> int:
        given = self.rng.randrange(100) if self.strikes() else right
        return _told(self, suite, spot, right, given)


class Jitter(Injector):
    """The forecast is wrong in the fifth digit with probability `p`."""

    relative = 1e-4

    def real(self, suite: Marked, spot: str, right: float) -> float:
        given = right * (1 + self.rng.uniform(-self.relative, self.relative)) if self.strikes() else right
        return _told(self, suite, spot, right, given) if self.relative > 1e-9 else given


class Rounding(Jitter):
    """A look-alike: sums of floats in another order."""

    relative = 1e-13


class Shuffle(Injector):
    """The list of deals comes in another order with probability `p`."""

    def ordered(self, suite: Marked, rows: list[Any]) -> list[Any]:
        given = copy.copy(rows)
        if self.strikes():
            self.rng.shuffle(given)
        return _told(self, suite, "/items", rows, given)


class Tie(Injector):
    """Two deals are equally good; the answer is the one that happened to be looked at last, by anybody."""

    def tied(self, suite: Marked, spot: str, right: str, last: str) -> str:
        return _told(self, suite, spot, right, last or right)


def _told[T](injector: Injector, suite: Marked, spot: str, right: T, given: T) -> T:
    if given != right:
        suite.ledger.act(fault=injector.fault, mark=MARK.get(), spot=spot, right=right, given=given)
    return given


class FreshIds(Injector):
    """A look-alike: each answer has a request id, a time and a trace of its own."""

    def extras(self, suite: Marked, key: str) -> dict[str, Any]:
        at = time.time()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + f".{int(at * 1000) % 1000:03d}Z"
        return {"request_id": self.minted(suite), "served_at": stamp}


class LegalOrder(Injector):
    """A look-alike: reads take differently long, so that lanes come in another order each time."""

    def number(self, suite: Marked, spot: str, right: int) -> int:
        time.sleep(self.rng.uniform(0, 0.002))
        return right
