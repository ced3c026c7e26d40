"""A live environment in this process and a recorder of a few lines, for the tests of re-drive."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aiohttp import web

from replayproxy.core.effects import is_write
from replayproxy.core.redact import Redactor
from replayproxy.core.values import EnvWiring, Episode, Exchange, Outcome, Request, Run, Snapshot, Times, Trace
from replayproxy.drive.message import message
from replayproxy.drive.origin import origin
from replayproxy.drive.wire import Lines
from replayproxy.session import secrecy
from replayproxy.state.capture import Capture
from replayproxy.state.loader import Loaded, load
from replayproxy.storage import Store
from replayproxy.testing import request as make_request


class Shop:
    """Deals with small ids, items with random ones, a session cookie, entity tags, redirects; SQLite underneath."""

    def __init__(self, path: Path, *, first_id: int = 1, double: bool = False) -> None:
        self.path, self.double = path, double
        self.seen: list[tuple[str, str]] = []
        self.sessions: set[str] = set()
        self.resets = 0
        self.reset_leaves: str | None = None
        with sqlite3.connect(path) as db:
            db.execute("CREATE TABLE IF NOT EXISTS deals (id INTEGER PRIMARY KEY, name TEXT, amount INT)")
            db.execute("CREATE TABLE IF NOT EXISTS items (id TEXT PRIMARY KEY, name TEXT, version TEXT)")
        db.close()
        self.next_id = first_id

    def app(self) -> web.Application:
        app = web.Application(middlewares=[self._note])
        app.router.add_post("/login", self.login)
        app.router.add_get("/me", self.me)
        app.router.add_get("/deals", self.deals)
        app.router.add_post("/deals", self.add_deal)
        app.router.add_get("/deals/{id}", self.deal)
        app.router.add_post("/deals/{id}/notes", self.note)
        app.router.add_post("/items", self.add_item)
        app.router.add_get("/items/{id}", self.item)
        app.router.add_put("/items/{id}", self.put_item)
        app.router.add_post("/reset", self.reset)
        app.router.add_get("/state", self.state)
        app.router.add_put("/state", self.put_state)
        return app

    @web.middleware
    async def _note(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.seen.append((request.method, request.path_qs))
        answer: web.StreamResponse = await handler(request)
        return answer

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        db = sqlite3.connect(self.path)
        try:
            with db:
                return list(db.execute(sql, values))
        finally:
            db.close()

    async def login(self, request: web.Request) -> web.Response:
        sid = uuid.uuid4().hex
        self.sessions.add(sid)
        answer = web.json_response({"ok": True})
        answer.set_cookie("sid", sid)
        return answer

    async def me(self, request: web.Request) -> web.Response:
        if request.cookies.get("sid") not in self.sessions:
            return web.json_response({"error": "who are you"}, status=401)
        return web.json_response({"user": "ada"})

    async def deals(self, request: web.Request) -> web.Response:
        found = self.rows("SELECT id, name, amount FROM deals ORDER BY id")
        return web.json_response({"deals": [{"id": i, "name": n, "amount": a} for i, n, a in found]})

    async def add_deal(self, request: web.Request) -> web.Response:
        told = await request.json()
        amount = told["amount"] * (2 if self.double else 1)
        new, self.next_id = self.next_id, self.next_id + 1
        self.rows("INSERT INTO deals VALUES (?, ?, ?)", new, told["name"], amount)
        return web.json_response({"id": new, "amount": amount}, status=201, headers={"Location": f"/deals/{new}"})

    async def deal(self, request: web.Request) -> web.Response:
        found = self.rows("SELECT id, name, amount FROM deals WHERE id = ?", request.match_info["id"])
        if not found:
            return web.json_response({"error": "no such deal"}, status=404)
        return web.json_response(dict(zip(("id", "name", "amount"), found[0], strict=True)))

    async def note(self, request: web.Request) -> web.Response:
        found = self.rows("SELECT id FROM deals WHERE id = ?", request.match_info["id"])
        told = await request.json()
        right = bool(found) and told["deal_id"] == found[0][0]
        return web.json_response({"noted": right}, status=201 if right else 404)

    async def add_item(self, request: web.Request) -> web.Response:
        told = await request.json()
        new, version = str(uuid.uuid4()), f"v{uuid.uuid4().hex[:6]}"
        self.rows("INSERT INTO items VALUES (?, ?, ?)", new, told["name"], version)
        return web.json_response({"id": new, "name": told["name"]}, status=201, headers={"ETag": f'"{version}"'})

    async def item(self, request: web.Request) -> web.Response:
        found = self.rows("SELECT id, name, version FROM items WHERE id = ?", request.match_info["id"])
        if not found:
            return web.json_response({"error": "no such item"}, status=404)
        new, name, version = found[0]
        tag = f'"{version}"'
        if request.headers.get("If-None-Match") == tag:
            return web.Response(status=304, headers={"ETag": tag})
        return web.json_response({"id": new, "name": name}, headers={"ETag": tag})

    async def put_item(self, request: web.Request) -> web.Response:
        key = request.match_info["id"]
        found = self.rows("SELECT version FROM items WHERE id = ?", key)
        if not found or request.headers.get("If-Match") != f'"{found[0][0]}"':
            return web.json_response({"error": "changed in between"}, status=412)
        version = f"v{uuid.uuid4().hex[:6]}"
        self.rows("UPDATE items SET name = ?, version = ? WHERE id = ?", (await request.json())["name"], version, key)
        return web.json_response({"ok": True}, headers={"ETag": f'"{version}"'})

    async def reset(self, request: web.Request) -> web.Response:
        self.resets += 1
        self.rows("DELETE FROM deals")
        self.rows("DELETE FROM items")
        self.next_id = 1
        if self.reset_leaves:
            self.rows("INSERT INTO deals VALUES (77, ?, 1)", self.reset_leaves)
        return web.Response(status=204)

    async def state(self, request: web.Request) -> web.Response:
        found = self.rows("SELECT id, name, amount FROM deals ORDER BY id")
        return web.json_response({"deals": {str(i): {"name": n, "amount": a} for i, n, a in found}})

    async def put_state(self, request: web.Request) -> web.Response:
        told = await request.json()
        self.rows("DELETE FROM deals")
        for key, row in told["deals"].items():
            self.rows("INSERT INTO deals VALUES (?, ?, ?)", int(key), row["name"], row["amount"])
        return web.Response(status=204)


@asynccontextmanager
async def serving(app: web.Application) -> AsyncIterator[str]:
    """The application on a free port of the loopback; gives its URL."""
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def ask(
    method: str, target: str, body: Any = None, *, headers: Sequence[tuple[str, str]] = (), host: str = "env"
) -> Request:
    """A request as an agent's client would send it."""
    sent = b"" if body is None else json.dumps(body).encode()
    fields = [("Host", host), ("Accept", "*/*"), *headers]
    if sent:
        fields += [("Content-Type", "application/json"), ("Content-Length", str(len(sent)))]
    return make_request(method, target, sent, headers=fields)


@dataclass
class Recording:
    """What a recorder would have kept, taken while the requests are made one after the other."""

    url: str
    snapshots: dict[str, str] = field(default_factory=dict)
    env: str = "app"
    exchanges: list[Exchange] = field(default_factory=list)
    shots: list[Snapshot] = field(default_factory=list)
    nodes: dict[bytes, bytes] = field(default_factory=dict)
    _capture: Capture | None = None

    async def begin(self) -> None:
        loaded: list[Loaded] = [load(name, spec) for name, spec in self.snapshots.items()]
        self._capture = Capture(
            loaded, save=self.nodes.update, now=time.monotonic_ns, wall=time.time_ns, envs=(self.env,)
        )
        await self._shoot("start", None)

    async def _shoot(self, when: str, after: tuple[int, int] | None) -> None:
        assert self._capture is not None
        for name in self.snapshots:
            self.shots.append(await self._capture.take(name, when=when, n=len(self.shots), mode="hold", after=after))

    async def send(self, request: Request, *, lane: str = "main") -> Exchange:
        where = origin(self.url)
        lines = Lines()
        at = time.monotonic_ns()
        answer = await lines.send(
            lane, where, message(request, host=where.authority.encode(), pieces=lambda _: iter(())), limit=10
        )
        lines.close()
        assert answer.outcome is Outcome.ANSWERED, answer
        host = where.authority.encode()
        fields = tuple((n, host if n.lower() == b"host" else v) for n, v in request.fields)
        exchange = Exchange(
            seq=len(self.exchanges) + 1, order=(at, 0), env=self.env, lane=lane,
            request=replace(request, fields=fields), response=answer.response, outcome=answer.outcome,
            times=Times(head=at, wall=time.time_ns(), c_in=at, fwd=at, first=answer.first, up_end=answer.up_end,
                        c_out=answer.up_end),
            carrier="prefix", upstream=self.url,
        )  # fmt: skip
        self.exchanges.append(exchange)
        if is_write(request):
            await self._shoot("write", exchange.order)
        return exchange

    async def end(self) -> None:
        assert self._capture is not None
        await self._shoot("end", None)
        self._capture.close()

    def run(self, name: str, **more: Any) -> Run:
        wiring = EnvWiring(name=self.env, upstream=self.url, reset=more.pop("reset", None))
        return Run(key=0, name=name, opened_wall=1, envs={self.env: wiring}, snapshots=dict(self.snapshots), **more)


async def kept(
    store: Store, recording: Recording, *, run: str = "r", episode: str = "e", seal: bool = True,
    redactor: Redactor | None = None, **more: Any,
) -> Trace:  # fmt: skip
    """The recording in a store, as a sealed episode; without its secrets where there is a redactor."""
    writer = store.writer(redactor=redactor)
    if redactor is not None:
        more["config"] = {"secrets": secrecy.wired(redactor)}
    opened = writer.open_run(recording.run(run, **more), append=True)
    asked = Episode(key=0, run_key=opened.key, name=episode, opened=1, opened_wall=1, task="t", seed=1)
    made = writer.open_episode(asked)
    writer.put_nodes(recording.nodes)
    for exchange in recording.exchanges:
        writer.put_exchange(made.key, exchange)
    for shot in recording.shots:
        writer.put_snapshot(made.key, shot)
    if seal:
        await asyncio.wrap_future(writer.seal(replace(made, ended=2, ended_by="end")))
    await asyncio.to_thread(writer.close)
    reader = store.reader()
    found = reader.run(run)
    return reader.trace(found, reader.episode(found, episode))


def body_of(exchange: Exchange) -> Any:
    assert exchange.response is not None
    assert exchange.response.body is not None
    return json.loads(exchange.response.body.inline or b"null")
