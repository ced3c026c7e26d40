"""A small environment as somebody who has just heard of replayproxy might have it: todos, notes and one slot, with a
reset that forgets the notes, a cache that a PATCH does not drop, and a slot that is looked at, then taken.

    python todo.py PORT DATABASE          the environment
    python todo.py --rollouts RESET_URL   its harness: sixteen episodes of one task, rollouts.jsonl in this folder
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid
from pathlib import Path
from typing import Any

CACHE_SECONDS = 5.0
BOOKED, EDITED, RACED, NOTED = 2, 12, 13, 14
"""Which episode does what; the last one finds the note."""
EPISODES = 16


def environment(port: int, path: str) -> None:
    from aiohttp import web

    database = sqlite3.connect(path, isolation_level=None)
    database.row_factory = sqlite3.Row
    database.executescript(
        """pragma journal_mode = wal;
        create table if not exists todos (id text primary key, title text, state text);
        create table if not exists notes (id text primary key, todo text, text text);
        create table if not exists slots (id text primary key, holder text);"""
    )
    cache: dict[str, tuple[float, dict[str, Any]]] = {}

    def row(table: str, key: str) -> dict[str, Any]:
        return dict(database.execute(f"select * from {table} where id = ?", (key,)).fetchone())

    async def reset(_: web.Request) -> web.Response:
        cache.clear()
        database.executescript(
            """delete from todos; delete from slots;
            insert into todos values ('T-1', 'call Ada', 'open'), ('T-2', 'write it up', 'open');
            insert into slots values ('S-1', null);"""
        )
        return web.json_response({})

    async def todo(request: web.Request) -> web.Response:
        key = request.match_info["id"]
        if key not in cache or time.monotonic() - cache[key][0] > CACHE_SECONDS:
            cache[key] = time.monotonic(), row("todos", key)
        return web.json_response(cache[key][1])

    async def edit(request: web.Request) -> web.Response:
        key = request.match_info["id"]
        database.execute("update todos set state = ? where id = ?", ((await request.json())["state"], key))
        return web.json_response(row("todos", key))

    async def notes(_: web.Request) -> web.Response:
        return web.json_response([dict(one) for one in database.execute("select * from notes order by rowid")])

    async def note(request: web.Request) -> web.Response:
        said, key = await request.json(), f"N-{uuid.uuid4().hex}"
        database.execute("insert into notes values (?, ?, ?)", (key, said["todo"], said["text"]))
        return web.json_response(row("notes", key), status=201)

    async def book(request: web.Request) -> web.Response:
        key, who = request.match_info["id"], (await request.json())["who"]
        if row("slots", key)["holder"]:
            return web.json_response({"error": "taken"}, status=409)
        await asyncio.sleep(0.1)
        database.execute("update slots set holder = ? where id = ?", (who, key))
        return web.json_response({"id": key, "holder": who}, status=201)

    app = web.Application()
    app.router.add_post("/reset", reset)
    app.router.add_get("/todos/{id}", todo)
    app.router.add_patch("/todos/{id}", edit)
    app.router.add_get("/notes", notes)
    app.router.add_post("/notes", note)
    app.router.add_post("/slots/{id}/book", book)
    web.run_app(app, host="127.0.0.1", port=port, print=None)


def call(url: str, body: Any = None, method: str = "", lane: str = "") -> Any:
    headers = {"Content-Type": "application/json"} | ({"X-Replay-Lane": lane} if lane else {})
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers=headers, method=method or ("POST" if data else "GET"))
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as refused:
        return json.load(refused)


def rollouts(reset: str) -> None:
    import replayproxy

    lines = []
    for number in range(EPISODES):
        call(reset, {})
        with replayproxy.episode(episode=f"r{number}", task="todo", seed=1, attempt=number) as ep:
            url = ep.url("app")
            call(f"{url}/todos/T-1")
            ep.reward = 1.0 if call(f"{url}/notes") else 0.5
            if number == BOOKED:
                call(f"{url}/slots/S-1/book", {"who": "ada"})
                call(f"{url}/slots/S-1/book", {"who": "bob"})
            if number == EDITED:
                call(f"{url}/todos/T-1", {"state": "done"}, "PATCH")
                call(f"{url}/todos/T-1")
            if number == RACED:
                both = [
                    threading.Thread(target=call, args=(f"{url}/slots/S-1/book", {"who": who}, "", who))
                    for who in ("ada", "bob")
                ]
                for one in both:
                    one.start()
                for one in both:
                    one.join()
            if number == NOTED:
                call(f"{url}/notes", {"todo": "T-1", "text": "call back on Friday"})
        lines.append({"rollout_id": ep.name, "messages": [], "reward": ep.reward})
    Path("rollouts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    if sys.argv[1] == "--rollouts":
        rollouts(sys.argv[2])
    else:
        environment(int(sys.argv[1]), sys.argv[2])
