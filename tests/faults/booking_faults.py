"""What goes wrong in the booking service. `Flaw` is a service without a fault; the others go wrong one way each."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from aiohttp import web

from tests.faults.booking import Answer, NotThere, Refused, Row, plain
from tests.faults.ledger import MARK, Cell, State, differing, episode_of, number_of, value_in

if TYPE_CHECKING:
    from tests.faults.booking_service import Hotel

SECOND = 1_000_000_000


class Flaw:
    """No fault. One for all instances of a run, as a module's globals would be."""

    def __init__(self, *, fault: str, p: float, seconds: float, every: int, seed: int) -> None:
        self.fault, self.p, self.seconds, self.every = fault, p, seconds, every
        self.rng = random.Random(f"booking {fault} {seed}")
        self.count = -1
        self.fresh: set[int] = set()
        self.left: dict[int, dict[Cell, tuple[str, bool]]] = {}
        self.written: dict[int, list[tuple[str, Row]]] = {}  # drafts, by instance
        self.work: set[asyncio.Task[None]] = set()

    def strikes(self) -> bool:
        return self.rng.random() < self.p

    def told(self, hotel: Hotel, **given: Any) -> None:
        hotel.ledger.act(fault=self.fault, mark=MARK.get(), **given)

    # Resets

    async def reset(self, hotel: Hotel, task: str, seed: int) -> None:
        """The first reset of an instance is always right."""
        self.count += 1
        first, self.fresh = id(hotel) not in self.fresh, self.fresh | {id(hotel)}
        if not first and (self.every == 1 or self.count % self.every == self.every - 1):
            await self.bad_reset(hotel)
        else:
            await hotel.seed()
            self.forget(hotel)
        await self.after_reset(hotel)

    async def bad_reset(self, hotel: Hotel) -> None:
        await hotel.seed()
        self.forget(hotel)

    async def after_reset(self, hotel: Hotel) -> None:
        pass

    def forget(self, hotel: Hotel) -> None:
        self.written[id(hotel)] = []

    tells_starts = False

    def told_start(self, hotel: Hotel, right: State, got: State) -> None:
        left: dict[Cell, tuple[str, bool]] = {}
        for cell in differing(right, got) if self.tells_starts else ():
            versions = [v for v in hotel.ledger.history.get(cell.row, []) if number_of(v.mark or "~0") > 0]
            by = versions[-1].mark if versions else ""
            should = value_in(right.get(cell.table, {}).get(cell.key), cell.column)
            self.told(hotel, cell=cell, right=should, by=(by,) if by else ())
            left[cell] = by, cell.column == "" and should is True
        self.left[id(hotel)] = left

    def owned(self, hotel: Hotel, row: tuple[str, str]) -> None:
        mine = self.left.get(id(hotel), {})
        for cell in [cell for cell in mine if cell.row == row]:
            del mine[cell]

    # Reads

    async def listed(self, hotel: Hotel, table: str, rows: list[Row], path: str) -> list[Row]:
        return rows

    async def single(self, hotel: Hotel, table: str, key: str, rows: list[Row], path: str) -> list[Row]:
        return rows

    def showed(
        self, hotel: Hotel, table: str, rows: Sequence[Row], told: Sequence[Row], key: str | None = None
    ) -> None:
        """The ledger's lines for an answer: what it shows otherwise than the state holds, and what a reset left."""
        held, given = ({row["id"]: row for row in some} for some in (rows, told))
        for cell in differing({table: held}, {table: given}):
            self.told(
                hotel, cell=cell, right=value_in(held.get(cell.key), cell.column),
                given=value_in(given.get(cell.key), cell.column),
            )  # fmt: skip
        for cell, (by, lacking) in self.left.get(id(hotel), {}).items():
            if cell.table == table and key in (None, cell.key) and lacking == (cell.key not in given):
                self.told(hotel, cell=cell, by=(by,) if by else ())

    def headers(self, path: str) -> Mapping[str, str]:
        return {}

    def ordered(self, hotel: Hotel, rows: list[Row]) -> list[Row]:
        return rows

    def whole_number(self, hotel: Hotel, spot: str, right: int) -> int:
        return right

    def real_number(self, hotel: Hotel, spot: str, right: float) -> float:
        return right

    def tied(self, hotel: Hotel, spot: str, right: str, last: str) -> str:
        return right

    def extras(self) -> Mapping[str, Any]:
        return {}

    def drafts(self, hotel: Hotel) -> list[Row]:
        for index, (mark, row) in enumerate(self.written.setdefault(id(hotel), [])):
            if episode_of(mark) != episode_of(MARK.get()):
                self.told(hotel, given=row["token"], by=(mark,), spot=f"/data/{index}/token")
        return [row for _, row in self.written[id(hotel)]]

    def drafted(self, hotel: Hotel, text: str) -> Row:
        row = {"token": uuid.uuid4().hex, "text": text}
        self.written.setdefault(id(hotel), []).append((MARK.get(), row))
        return row

    # Writes

    def wrote(self, hotel: Hotel, request: web.BaseRequest, table: str, key: str) -> None:
        pass

    async def change(
        self, hotel: Hotel, request: web.BaseRequest, table: str, key: str, wanted: Mapping[str, Any], expected: str
    ) -> Answer:  # fmt: skip
        return await hotel.changed(request, table, key, wanted, expected)

    async def book(self, hotel: Hotel, request: web.BaseRequest, asked: Any) -> Answer:
        """With an Idempotency-Key the second time is answered as the first."""
        token = request.headers.get("Idempotency-Key")
        key = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{token} {hotel.epoch}")) if token else None
        if key and (rows := await hotel.db.rows("SELECT * FROM bookings WHERE id::text = %s", key)):
            return 200, {"data": rows[0]}, {}
        return 201, {"data": await hotel.booked(request, asked, key)}, {}

    async def hold(self, hotel: Hotel, key: str, who: str) -> Answer:
        lo = time.monotonic_ns()
        rows = await hotel.db.rows(
            "UPDATE slots SET held_by = %s, version = version + 1 WHERE id = %s AND held_by IS NULL RETURNING *",
            who, key,
        )  # fmt: skip
        if not rows:
            raise Refused(409, await hotel.db.row("SELECT * FROM slots WHERE id = %s", key))
        hotel.note("slots", key, rows[0], lo, order=rows[0]["version"])
        return 201, {"data": rows[0]}, {}

    async def credit(self, hotel: Hotel, key: str, amount: int) -> Answer:
        lo = time.monotonic_ns()
        row = await hotel.db.row(
            "UPDATE accounts SET balance = balance + %s, version = version + 1 WHERE id = %s RETURNING *", amount, key
        )
        hotel.note("accounts", key, row, lo, order=row["version"])
        return 200, {"data": row}, {}

    def soon(self, what: Any) -> None:
        task = asyncio.ensure_future(what)
        self.work.add(task)
        task.add_done_callback(self.work.discard)


# Stale reads


class Kept(Flaw):
    """Answers by path are kept for `seconds`; nothing drops them."""

    lists = False

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.kept: dict[tuple[int, str], tuple[int, list[Row]]] = {}

    def forget(self, hotel: Hotel) -> None:
        super().forget(hotel)
        self.kept = {at: held for at, held in self.kept.items() if at[0] != id(hotel)}

    def _kept(self, hotel: Hotel, rows: list[Row], path: str) -> list[Row]:
        at, filled = (id(hotel), path), time.monotonic_ns()
        since, held = self.kept.get(at, (0, []))
        if since and filled - since < self.seconds * SECOND:
            return held
        self.kept[at] = filled, rows
        return rows

    async def single(self, hotel: Hotel, table: str, key: str, rows: list[Row], path: str) -> list[Row]:
        return rows if self.lists else self._kept(hotel, rows, path)

    async def listed(self, hotel: Hotel, table: str, rows: list[Row], path: str) -> list[Row]:
        return self._kept(hotel, rows, path) if self.lists else rows


class OneVerb(Kept):
    """PUT alone does not drop what is kept."""

    def wrote(self, hotel: Hotel, request: web.BaseRequest, table: str, key: str) -> None:
        if request.method != "PUT":
            self.kept.pop((id(hotel), f"/api/v2/{table}/{key}"), None)


class ListOnly(Kept):
    """Only lists are kept."""

    lists = True


class Declared(ListOnly):
    """A look-alike: the list of rooms says how old it may be; a room is written at an address of its own."""

    def headers(self, path: str) -> Mapping[str, str]:
        kept = path.endswith("/rooms")
        return {"Cache-Control": f"public, max-age={max(1, round(self.seconds))}", "Age": "1"} if kept else {}

    async def listed(self, hotel: Hotel, table: str, rows: list[Row], path: str) -> list[Row]:
        return self._kept(hotel, rows, path) if table == "rooms" else rows

    def showed(self, *given: Any, **more: Any) -> None:
        pass


class OldCopy(Flaw):
    """With probability `p` a changed row is read from the table of its earlier versions."""

    async def single(self, hotel: Hotel, table: str, key: str, rows: list[Row], path: str) -> list[Row]:
        versions = hotel.ledger.history.get((table, key), [])
        if len(versions) < 2 or number_of(versions[-1].mark) == 0 or not self.strikes():
            return rows
        old = versions[-2].row
        return [dict(old)] if old else []


class Replica(Flaw):
    """Reads go to a copy that is made again each `seconds`."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.copies: dict[int, tuple[int, dict[str, dict[str, Row]]]] = {}

    async def after_reset(self, hotel: Hotel) -> None:
        self.copies[id(hotel)] = time.monotonic_ns(), await hotel.whole()

    async def _copy(self, hotel: Hotel) -> dict[str, dict[str, Row]]:
        made, copy = self.copies[id(hotel)]
        if time.monotonic_ns() - made > self.seconds * SECOND:
            copy = await hotel.whole()
            self.copies[id(hotel)] = time.monotonic_ns(), copy
        return copy

    async def single(self, hotel: Hotel, table: str, key: str, rows: list[Row], path: str) -> list[Row]:
        row = (await self._copy(hotel))[table].get(key)
        return [row] if row else []

    async def listed(self, hotel: Hotel, table: str, rows: list[Row], path: str) -> list[Row]:
        return list((await self._copy(hotel))[table].values())


class Slow(Flaw):
    """A look-alike: a change takes its effect somewhere within a slow request."""

    async def change(
        self, hotel: Hotel, request: web.BaseRequest, table: str, key: str, wanted: Mapping[str, Any], expected: str
    ) -> Answer:  # fmt: skip
        await asyncio.sleep(self.rng.uniform(0, self.seconds))
        answer = await super().change(hotel, request, table, key, wanted, expected)
        await asyncio.sleep(self.rng.uniform(0, self.seconds))
        return answer


class Later(Flaw):
    """A look-alike: changes of bookings are accepted with 202 and done `seconds` later, or never after a reset."""

    async def after_reset(self, hotel: Hotel) -> None:
        for task in self.work:
            task.cancel()

    async def change(
        self, hotel: Hotel, request: web.BaseRequest, table: str, key: str, wanted: Mapping[str, Any], expected: str
    ) -> Answer:  # fmt: skip
        if table != "bookings":
            return await super().change(hotel, request, table, key, wanted, expected)

        async def later() -> None:
            await asyncio.sleep(self.seconds)
            with suppress(NotThere):  # it was deleted meanwhile
                await hotel.changed(request, table, key, wanted, expected)

        self.soon(later())
        return 202, {"accepted": True}, {}


class Reverted(Flaw):
    """A look-alike: somebody past the proxy opens a room again, before it is looked at."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.closed: set[tuple[int, str]] = set()

    def wrote(self, hotel: Hotel, request: web.BaseRequest, table: str, key: str) -> None:
        if table == "rooms":
            self.closed.add((id(hotel), key))

    async def single(self, hotel: Hotel, table: str, key: str, rows: list[Row], path: str) -> list[Row]:
        if table != "rooms" or (id(hotel), key) not in self.closed:
            return rows
        self.closed.discard((id(hotel), key))
        lo = time.monotonic_ns()
        async with hotel.db.session() as live:
            done = await live.execute("UPDATE rooms SET state = 'open' WHERE id = %s RETURNING *", (key,))
            rows = [plain(row) for row in await done.fetchall()]
        hotel.note("rooms", key, rows[0], lo, order=rows[0]["version"])
        return rows

    def showed(self, *given: Any, **more: Any) -> None:
        pass
