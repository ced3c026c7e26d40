"""Environment 2: a booking service on PostgreSQL, by hand-written SQL. It shares no code with the demo's suite.

Rooms, slots, bookings and accounts; answers are envelopes (`{"data": ..}`), single rows carry an ETag of their
version, and the database makes the ids. Faults are switched on by name, each where such a fault lives: in a query, in
a cache of answers, in the reset. What each did goes into the ledger (`booking_faults.Told`).
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from aiohttp import web
from psycopg.rows import dict_row

from tests.faults.ledger import MARK

SERVER = "postgresql://postgres@127.0.0.1:5432"
TABLES = ("rooms", "slots", "bookings", "accounts")
SCHEMA = """
CREATE TABLE rooms (id text PRIMARY KEY, name text NOT NULL, capacity int NOT NULL, rate int NOT NULL,
    state text NOT NULL DEFAULT 'open', version int NOT NULL DEFAULT 1, changed_at text NOT NULL);
CREATE TABLE slots (id text PRIMARY KEY, room text NOT NULL, day int NOT NULL, held_by text,
    version int NOT NULL DEFAULT 1);
CREATE SEQUENCE booking_numbers START 500;
CREATE TABLE bookings (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), number bigint DEFAULT nextval('booking_numbers'),
    room text NOT NULL, guest text NOT NULL, nights int NOT NULL, state text NOT NULL DEFAULT 'booked',
    version int NOT NULL DEFAULT 1, changed_at text NOT NULL);
CREATE TABLE accounts (id text PRIMARY KEY, owner text NOT NULL, balance int NOT NULL, version int NOT NULL DEFAULT 1);
"""
SEEDED = "2026-02-01T08:00:00Z"

type Row = dict[str, Any]
type Answer = tuple[int, Any, Mapping[str, str]]


class NotThere(Exception):
    """404."""


class Refused(Exception):
    """409 or 412, with what is there."""

    def __init__(self, status: int, row: Row) -> None:
        super().__init__(status)
        self.status, self.row = status, row


class Database:
    """A database of its own, made for one instance and dropped with it; a few connections that requests share."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dsn = f"{SERVER}/{name}"
        self._free: asyncio.Queue[psycopg.AsyncConnection[Row]] = asyncio.Queue()
        self._all: list[psycopg.AsyncConnection[Row]] = []

    async def open(self, connections: int) -> None:
        async with await psycopg.AsyncConnection.connect(f"{SERVER}/postgres", autocommit=True) as admin:
            await admin.execute(f'DROP DATABASE IF EXISTS "{self.name}"'.encode())
            await admin.execute(f'CREATE DATABASE "{self.name}"'.encode())
            # What is lost in a crash of the machine is nobody's loss here, and a commit need not wait for the disk.
            await admin.execute(f'ALTER DATABASE "{self.name}" SET synchronous_commit = off'.encode())
        for _ in range(connections):
            made = await psycopg.AsyncConnection.connect(self.dsn, autocommit=True, row_factory=dict_row)
            self._all.append(made)
            self._free.put_nowait(made)
        async with self.session() as live:
            await live.execute(SCHEMA.encode())

    async def close(self) -> None:
        for one in self._all:
            await one.close()
        async with await psycopg.AsyncConnection.connect(f"{SERVER}/postgres", autocommit=True) as admin:
            await admin.execute(f'DROP DATABASE IF EXISTS "{self.name}" WITH (FORCE)'.encode())

    @asynccontextmanager
    async def session(self) -> AsyncIterator[psycopg.AsyncConnection[Row]]:
        live = await self._free.get()
        try:
            yield live
        finally:
            self._free.put_nowait(live)

    async def rows(self, sql: str, *bound: Any) -> list[Row]:
        async with self.session() as live:
            return [plain(row) for row in await (await live.execute(sql.encode(), bound)).fetchall()]

    async def row(self, sql: str, *bound: Any) -> Row:
        found = await self.rows(sql, *bound)
        if not found:
            raise NotThere
        return found[0]


def plain(row: Row) -> Row:
    return {name: value if isinstance(value, str | int | None) else str(value) for name, value in row.items()}


def now() -> str:
    at = time.time_ns()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at // 10**9)) + f".{at // 1000 % 10**6:06d}Z"


class Routes:
    """(method, path) -> what answers it; `{name}` in a path stands for one segment."""

    def __init__(self) -> None:
        self._all: list[tuple[str, re.Pattern[str], Callable[..., Awaitable[Answer]]]] = []

    def add(self, method: str, path: str, answer: Callable[..., Awaitable[Answer]]) -> None:
        self._all.append((method, re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", path)), answer))

    async def answer(self, request: web.BaseRequest, body: Any) -> Answer:
        for method, pattern, answer in self._all:
            met = pattern.fullmatch(request.path)
            if met and method == request.method:
                return await answer(request, body, **met.groupdict())
        raise NotThere


class Server:
    """One instance over HTTP. `routes` answer; what they raise becomes a status."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._runner = web.ServerRunner(web.Server(self._handle, access_log=None), shutdown_timeout=0.2)

    async def start(self) -> str:
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        return f"http://{host}:{port}"

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.Response:
        MARK.set(request.headers.get("X-Call", ""))
        raw = await request.read()
        try:
            status, document, headers = await self._routes.answer(request, json.loads(raw) if raw else {})
        except NotThere:
            status, document, headers = 404, {"error": {"code": "not_found"}}, {}
        except Refused as refused:
            status, document, headers = refused.status, {"error": {"code": "refused"}, "data": refused.row}, {}
        text = "" if document is None else json.dumps(document)
        return web.Response(status=status, text=text, content_type="application/json", headers=headers)
