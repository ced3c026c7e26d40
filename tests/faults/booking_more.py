"""More flaws of the booking service: answers that change, resets that leave something, writes that race."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from aiohttp import web

from tests.faults.booking import Answer, Refused, Row, now
from tests.faults.booking_faults import Flaw
from tests.faults.ledger import MARK, Cell, episode_of

if TYPE_CHECKING:
    from tests.faults.booking_service import Hotel


# Answers that change


class Rng(Flaw):
    """The points of a quote."""

    def whole_number(self, hotel: Hotel, spot: str, right: int) -> int:
        return _said(self, hotel, spot, right, self.rng.randrange(1000) if self.strikes() else right)


class Jitter(Flaw):
    """The price of a quote, in the fifth digit."""

    share = 1e-4

    def real_number(self, hotel: Hotel, spot: str, right: float) -> float:
        given = right * (1 + self.rng.uniform(-self.share, self.share)) if self.strikes() else right
        return _said(self, hotel, spot, right, given) if self.share > 1e-9 else given


class Rounding(Jitter):
    """A look-alike."""

    share = 1e-13


class Shuffle(Flaw):
    """The list of rooms: no ORDER BY."""

    def ordered(self, hotel: Hotel, rows: list[Row]) -> list[Row]:
        given = self.rng.sample(rows, len(rows)) if self.strikes() else rows
        return _said(self, hotel, "/data", rows, given)


class Tie(Flaw):
    """The suggestion is the room that anybody looked at last."""

    def tied(self, hotel: Hotel, spot: str, right: str, last: str) -> str:
        return _said(self, hotel, spot, right, last)


def _said[T](flaw: Flaw, hotel: Hotel, spot: str, right: T, given: T) -> T:
    if given != right:
        flaw.told(hotel, spot=spot, right=right, given=given)
    return given


class FreshIds(Flaw):
    """A look-alike."""

    def extras(self) -> Mapping[str, Any]:
        return {"trace": uuid.uuid4().hex, "quoted_at": now()}


class LegalOrder(Flaw):
    """A look-alike: lanes come in another order each time."""

    async def single(self, hotel: Hotel, table: str, key: str, rows: list[Row], path: str) -> list[Row]:
        await asyncio.sleep(self.rng.uniform(0, 0.01))
        return rows


# Resets and what outlives them


class BadReset(Flaw):
    """The ledger holds each start against the right one."""

    tells_starts = True


class Table(BadReset):
    """The bookings are not emptied."""

    async def bad_reset(self, hotel: Hotel) -> None:
        await hotel.seed(("rooms", "slots", "accounts"))
        self.forget(hotel)


class Counter(BadReset):
    """The sequence goes on."""

    async def bad_reset(self, hotel: Hotel) -> None:
        await hotel.seed(counter=False)
        self.forget(hotel)


class Cart(Flaw):
    """The drafts of a session outlive it; no snapshot shows them."""

    async def bad_reset(self, hotel: Hotel) -> None:
        await hotel.seed()


class Memory(Flaw):
    """The process remembers what was booked last, on whatever instance, and lists it along."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.last: list[tuple[str, Row]] = []

    async def bad_reset(self, hotel: Hotel) -> None:
        await hotel.seed()

    def forget(self, hotel: Hotel) -> None:
        super().forget(hotel)
        self.last.clear()

    async def book(self, hotel: Hotel, request: web.BaseRequest, asked: Any) -> Answer:
        answer = await super().book(hotel, request, asked)
        self.last = [*self.last[-3:], (MARK.get(), answer[1]["data"])]
        return answer

    async def listed(self, hotel: Hotel, table: str, rows: list[Row], path: str) -> list[Row]:
        if table != "bookings":
            return rows
        foreign = [(mark, row) for mark, row in self.last if episode_of(mark) != episode_of(MARK.get())]
        for mark, row in foreign:
            self.told(hotel, given=row["id"], by=(mark,), spot="/data")
        return [*rows, *(row for _, row in foreign)]

    def showed(self, *given: Any, **more: Any) -> None:
        pass  # `listed` has told it


class Unseeded(BadReset):
    """Two rates are drawn by the database."""

    async def bad_reset(self, hotel: Hotel) -> None:
        await hotel.seed()
        self.forget(hotel)
        async with hotel.db.session() as live:
            await live.execute("UPDATE rooms SET rate = 60 + (random() * 340)::int WHERE id IN ('R2', 'R4')")


class Partial(BadReset):
    """The rooms that are there are left as they are: ON CONFLICT DO NOTHING."""

    async def bad_reset(self, hotel: Hotel) -> None:
        await hotel.seed(("slots", "bookings", "accounts"))
        await hotel.seed(("rooms",), keep=True)
        self.forget(hotel)


class NoOp(BadReset):
    """Nothing is reset."""

    async def bad_reset(self, hotel: Hotel) -> None:
        self.forget(hotel)


class Late(BadReset):
    """The accounts come `seconds` after the reset was answered."""

    async def bad_reset(self, hotel: Hotel) -> None:
        await hotel.seed()
        self.forget(hotel)
        async with hotel.db.session() as live:
            await live.execute("DELETE FROM accounts")
        self.soon(self._later(hotel, hotel.epoch))

    async def _later(self, hotel: Hotel, epoch: int) -> None:
        await asyncio.sleep(self.seconds)
        if hotel.epoch == epoch:
            lo = time.monotonic_ns()
            await hotel.seed(("accounts",), counter=False, keep=True)
            for row in await hotel.db.rows("SELECT * FROM accounts"):
                hotel.note("accounts", row["id"], row, lo, order=1)


class Catalogue(Flaw):
    """A look-alike: the same bookings with long ids in every start."""

    async def after_reset(self, hotel: Hotel) -> None:
        for number in range(3):
            key = str(uuid.uuid5(uuid.NAMESPACE_URL, f"catalogue {number}"))
            await _placed(hotel, key, f"house {number}")


class SameUuid(Flaw):
    """A look-alike: the ids of bookings come from a generator that is seeded with the task."""

    async def book(self, hotel: Hotel, request: web.BaseRequest, asked: Any) -> Answer:
        count = await hotel.db.row("SELECT count(*) AS n FROM bookings")
        key = str(uuid.UUID(int=random.Random(f"{hotel.task} {count['n']}").getrandbits(128), version=4))
        return 201, {"data": await hotel.booked(request, asked, key)}, {}


class NilUuid(Flaw):
    """A look-alike: every quote refers to the nil uuid."""

    def extras(self) -> Mapping[str, Any]:
        return {"campaign": "00000000-0000-0000-0000-000000000000"}


class Renamed(Flaw):
    """A look-alike: seeded bookings whose ids the database draws."""

    async def after_reset(self, hotel: Hotel) -> None:
        for number in range(2):
            await _placed(hotel, str(uuid.uuid4()), f"seeded {number}")


class Reordered(Flaw):
    """A look-alike: the rows are put in in another order."""

    async def after_reset(self, hotel: Hotel) -> None:
        from tests.faults.booking_service import put, right_start

        rows = list(right_start(*hotel.task)["slots"].values())
        self.rng.shuffle(rows)
        async with hotel.db.session() as live, live.transaction():
            await live.execute("DELETE FROM slots")
            await put(live, "slots", rows)


class Clocks(Flaw):
    """A look-alike: rooms say when they were put in."""

    async def after_reset(self, hotel: Hotel) -> None:
        async with hotel.db.session() as live:
            await live.execute("UPDATE rooms SET changed_at = %s", (now(),))


async def _placed(hotel: Hotel, key: str, guest: str) -> None:
    async with hotel.db.session() as live:
        await live.execute(
            "INSERT INTO bookings (id, number, room, guest, nights, changed_at) VALUES (%s, 1, 'R1', %s, 1, %s)",
            (key, guest, "2026-02-01T08:00:00Z"),
        )


# Races


class Gap(Flaw):
    """A slot is looked at, and `seconds` later taken: check, then act."""

    async def hold(self, hotel: Hotel, key: str, who: str) -> Answer:
        found = await hotel.db.row("SELECT * FROM slots WHERE id = %s", key)
        if found["held_by"] is not None:
            raise Refused(409, found)
        await asyncio.sleep(self.seconds)
        lo = time.monotonic_ns()
        row = await hotel.db.row(
            "UPDATE slots SET held_by = %s, version = version + 1 WHERE id = %s RETURNING *", who, key
        )
        hotel.note("slots", key, row, lo, order=row["version"])
        granted = tuple(version.mark for version in await hotel.heard("slots", key, 1, row["version"]))
        if granted:
            self.told(hotel, cell=Cell("slots", key, "held_by"), given=who, by=granted)
        return 201, {"data": row}, {}


class WriteBack(Flaw):
    """A change reads the whole row, and `seconds` later writes the whole row back."""

    async def change(
        self, hotel: Hotel, request: web.BaseRequest, table: str, key: str, wanted: Mapping[str, Any], expected: str
    ) -> Answer:  # fmt: skip
        if expected:
            return await super().change(hotel, request, table, key, wanted, expected)
        read = await hotel.db.row(f"SELECT * FROM {table} WHERE id::text = %s", key)
        await asyncio.sleep(self.seconds)
        mine = {name: read[name] for name in ("rate", "state", "name") if name in read} | dict(wanted)
        answer = await super().change(hotel, request, table, key, mine, "")
        await self._lost(hotel, table, key, read, wanted, answer[1]["data"]["version"])
        return answer

    async def _lost(
        self, hotel: Hotel, table: str, key: str, read: Row, wanted: Mapping[str, Any], version: int
    ) -> None:  # fmt: skip
        """Tells which changes of others, made since the row was read, were written over."""
        since = [v for v in await hotel.heard(table, key, read["version"], version) if v.row]
        for column in ("rate", "state"):
            before = since[-1].row[column] if since and since[-1].row else read[column]
            if column not in wanted and before != read[column]:
                by = next(v.mark for v in since if v.row and v.row[column] == before)
                self.told(hotel, cell=Cell(table, key, column), right=before, given=read[column], by=(by,))


class Adds(Flaw):
    """A credit reads the balance, and `seconds` later writes the sum."""

    async def credit(self, hotel: Hotel, key: str, amount: int) -> Answer:
        read = await hotel.db.row("SELECT * FROM accounts WHERE id = %s", key)
        await asyncio.sleep(self.seconds)
        lo = time.monotonic_ns()
        row = await hotel.db.row(
            "UPDATE accounts SET balance = %s, version = version + 1 WHERE id = %s RETURNING *",
            read["balance"] + amount, key,
        )  # fmt: skip
        hotel.note("accounts", key, row, lo, order=row["version"])
        between = await hotel.heard("accounts", key, read["version"], row["version"])
        if row["version"] != read["version"] + 1:
            lost = tuple(version.mark for version in between)
            self.told(hotel, cell=Cell("accounts", key, "balance"), given=row["balance"], by=lost)
        return 200, {"data": row}, {}


class Retry(Flaw):
    """The Idempotency-Key is not looked at, with probability `p`: a request sent again is done again."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.done: dict[tuple[int, int, str], tuple[str, Row]] = {}

    async def book(self, hotel: Hotel, request: web.BaseRequest, asked: Any) -> Answer:
        at = id(hotel), hotel.epoch, request.headers.get("Idempotency-Key", MARK.get())
        if at in self.done and not self.strikes():
            return 200, {"data": self.done[at][1]}, {}
        row = await hotel.booked(request, asked)
        if at in self.done:
            mark, first = self.done[at]
            self.told(hotel, cell=Cell("bookings", row["id"]), by=(mark,))
            self.told(hotel, cell=Cell("bookings", first["id"]), by=(mark,))
        self.done[at] = MARK.get(), row
        return 201, {"data": row}, {}


class DoneThen500(Flaw):
    """The booking is made, and with probability `p` the answer is 500. Sent again with its key, it is made no more."""

    async def book(self, hotel: Hotel, request: web.BaseRequest, asked: Any) -> Answer:
        answer = await super().book(hotel, request, asked)
        if answer[0] != 201 or not self.strikes():
            return answer
        self.told(hotel, cell=Cell("bookings", answer[1]["data"]["id"]))
        return 500, {"error": {"code": "internal"}}, {}


class Roomy(Flaw):
    """A look-alike: slots that two may hold, by their capacity."""

    async def after_reset(self, hotel: Hotel) -> None:
        async with hotel.db.session() as live:
            await live.execute("ALTER TABLE slots ADD COLUMN IF NOT EXISTS capacity int NOT NULL DEFAULT 2")
            await live.execute("ALTER TABLE slots ADD COLUMN IF NOT EXISTS taken int NOT NULL DEFAULT 0")

    async def hold(self, hotel: Hotel, key: str, who: str) -> Answer:
        lo = time.monotonic_ns()
        rows = await hotel.db.rows(
            "UPDATE slots SET taken = taken + 1, held_by = coalesce(held_by, %s), version = version + 1"
            " WHERE id = %s AND taken < capacity RETURNING *", who, key,
        )  # fmt: skip
        if not rows:
            raise Refused(409, await hotel.db.row("SELECT * FROM slots WHERE id = %s", key))
        hotel.note("slots", key, rows[0], lo, order=rows[0]["version"])
        return 201, {"data": {"id": key, "hold": uuid.uuid4().hex, "for": who}}, {}
