"""Secrets planted wherever one can stand, an environment and an agent that say them, and a search for them.

As a program: `planted.py environment PORT DB` and `planted.py agent [miss|stale]`.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import os
import sqlite3
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
from aiohttp import web

PLACES = (
    "bearer", "cookie", "header", "query", "nested", "basic", "setcookie", "answer", "answerheader", "form", "gzip",
    "multipart", "stream", "chunked", "trailer", "socket", "socketback", "row", "meta", "outcome", "mark", "miss",
    "missbody", "escaped", "html",
)  # fmt: skip


def plant(place: str) -> str:
    """A secret that stands in one kind of place; its form changes when it is percent-encoded."""
    return f"Pl4nt+{place}/7f3a9c"


def forms(place: str) -> list[bytes]:
    raw = plant(place)
    return [
        raw.encode(), quote(raw, safe="").encode(), quote(raw).encode(), raw.replace("/", "\\/").encode(),
        base64.b64encode(raw.encode()).rstrip(b"="), f"{place}/7f3a9c".encode(), f"{place}%2F7f3a9c".encode(),
    ]  # fmt: skip


def found_in(data: bytes) -> list[str]:
    """The planted secrets that stand in these bytes, in any of their forms."""
    return [place for place in PLACES if any(form in data for form in forms(place))]


# -- the environment -------------------------------------------------------------------------------------------------


async def login(request: web.Request) -> web.Response:
    await request.read()
    answer = web.json_response(
        {"access_token": plant("answer"), "you": request.headers["Authorization"], "inner": json.dumps(
            {"client_secret": plant("escaped")})},
        headers={"X-Auth-Token": plant("answerheader")},
    )  # fmt: skip
    answer.headers.add("Set-Cookie", f"sid={plant('setcookie')}; Path=/; HttpOnly")
    return answer


async def echo(request: web.Request) -> web.Response:
    return web.json_response({"got": len(await request.read()), "sent": dict(request.headers), "path": request.path})


async def stream(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await answer.prepare(request)
    secret = plant("chunked")
    parts = [f'data: {{"token": "{plant("stream")}"}}\n\n', f'data: {{"api_key": "{secret[:7]}', f'{secret[7:]}"}}\n\n']
    for part in parts:
        await answer.write(part.encode())
        await asyncio.sleep(0.05)
    return answer


async def page(_request: web.Request) -> web.Response:
    field = f'<form><input type="hidden" name="csrf_token" value="{plant("html")}"></form>'
    return web.Response(text=field, content_type="text/html")


CACHE: dict[str, Any] = {}
"""What `/users/NAME` answers from, for ever: a stale cache."""


async def user(request: web.Request) -> web.Response:
    """One row, with the secret in it and in what is said beside it."""
    name = request.match_info["name"]
    with sqlite3.connect(request.app["database"]) as db:
        if request.method == "PATCH":
            db.execute("UPDATE users SET seen = ? WHERE name = ?", ((await request.json())["seen"], name))
        kept = db.execute("SELECT name, password, seen FROM users WHERE name = ?", (name,)).fetchone()
    row = dict(zip(("name", "password", "seen"), kept, strict=True))
    shown = CACHE.setdefault(name, row) if request.method == "GET" else row
    return web.json_response(
        {**shown, "note": f"call http://u:{quote(plant('outcome'), safe='')}@h/"},
        headers={"X-Auth-Token": plant("answerheader")},
    )


async def talk(request: web.Request) -> web.WebSocketResponse:
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    async for message in socket:
        await socket.send_str(json.dumps({"session_token": plant("socketback"), "size": len(message.data)}))
    return socket


def environment(port: int, database: str) -> None:
    with sqlite3.connect(database) as db:
        db.execute("CREATE TABLE users (name TEXT PRIMARY KEY, password TEXT, seen INT)")
        db.execute("INSERT INTO users VALUES ('ann', ?, 1)", (plant("row"),))
    app = web.Application()
    app["database"] = database
    app.router.add_post("/login", login)
    app.router.add_get("/stream", stream)
    app.router.add_get("/page", page)
    app.router.add_get("/talk", talk)
    app.router.add_get("/users/{name}", user)
    app.router.add_patch("/users/{name}", user)
    app.router.add_route("*", "/{tail:.*}", echo)
    web.run_app(app, host="127.0.0.1", port=port, print=None)


# -- the agent -------------------------------------------------------------------------------------------------------


async def said(http: aiohttp.ClientSession, url: str) -> None:
    basic = base64.b64encode(f"an:{plant('basic')}".encode()).decode()
    bearer = {"aUTHORIZATION": f"Bearer {plant('bearer')}", "X-API-key": plant("header")}
    asked = await http.post(
        f"{url}/login?api_key={quote(plant('query'), safe='')}", headers={**bearer, "Cookie": f"a={plant('cookie')}"},
        json={"a": [{"password": plant("nested")}], "again": plant("bearer")},
    )  # fmt: skip
    told = await asked.json()
    session = asked.cookies["sid"].value
    await http.get(f"{url}/me/{quote(told['access_token'], safe='')}", headers={"Authorization": f"Basic {basic}"})
    await http.post(f"{url}/echo", data={"user": "ann", "secret": plant("form")}, headers={"Cookie": f"sid={session}"})
    await http.post(
        f"{url}/echo", data=gzip.compress(json.dumps({"token": plant("gzip")}).encode(), mtime=0),
        headers={"Content-Encoding": "gzip", "Content-Type": "application/json"},
    )  # fmt: skip
    body = f'--b\r\nContent-Disposition: form-data; name="password"\r\n\r\n{plant("multipart")}\r\n--b--\r\n'
    await http.post(f"{url}/echo", data=body, headers={"Content-Type": "multipart/form-data; boundary=b"})
    await (await http.get(f"{url}/stream")).read()
    await (await http.get(f"{url}/page")).read()
    await trailer(url)
    async with http.ws_connect(f"{url}/talk") as socket:
        await socket.send_str(json.dumps({"api_key": plant("socket")}))
        await socket.receive()


async def trailer(url: str) -> None:
    """A request with a trailer, which no client sends by itself."""
    host, _, rest = url.removeprefix("http://").partition("/")
    name, _, port = host.partition(":")
    reader, writer = await asyncio.open_connection(name, int(port))
    prefix = f"/{rest}" if rest else ""
    writer.write(
        f"POST {prefix}/trailed HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\nTrailer: X-Auth-Token\r\n"
        f"Connection: close\r\n\r\n2\r\nhi\r\n0\r\nX-Auth-Token: {plant('trailer')}\r\n\r\n".encode()
    )
    await reader.read()
    writer.close()


async def missed(http: aiohttp.ClientSession, url: str) -> None:
    answer = await http.post(
        f"{url}/never?token={quote(plant('miss'), safe='')}", json={"password": plant("missbody")},
        headers={"Authorization": f"Bearer {plant('bearer')}"},
    )  # fmt: skip
    print(answer.status, await answer.text())


async def stale() -> None:
    """Writes a row and reads the old one, with a credential in each place of the requests."""
    control = os.environ["REPLAYPROXY_CONTROL"]
    about = {"episode": "e1", "task": "t", "seed": 1, "meta": {"api_key": plant("meta")}}
    headers = {
        "Authorization": f"Bearer {plant('bearer')}",
        "X-API-key": plant("header"),
        "Cookie": f"a={plant('cookie')}",
    }
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), headers=headers) as http:
        opened = await http.post(f"{control}/v1/episodes", json=about)
        url = (await opened.json())["urls"]["app"] + f"/users/ann?api_key={quote(plant('query'), safe='')}"
        await (await http.get(url)).read()
        await (await http.patch(url, json={"seen": 2, "password": plant("nested")})).read()
        await (await http.get(url)).read()
        at = f"{control}/v1/episodes/e1"
        print(await (await http.get(f"{at}/verdict")).text())
        outcome = f"see http://u:{quote(plant('outcome'), safe='')}@h/"
        print(await (await http.post(f"{at}/end", json={"reward": 1.0, "outcome": outcome})).text())
        print(await (await http.get(f"{at}/verdict")).text())


async def agent() -> None:
    url, control = os.environ["REPLAYPROXY_URL_APP"], os.environ["REPLAYPROXY_CONTROL"]
    about = {"episode": "e1", "meta": {"api_key": plant("meta"), "model": "m"}}
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as http:
        opened = await http.post(f"{control}/v1/episodes", json=about)
        told = await opened.json()
        url = told.get("urls", {}).get("app", url)
        await said(http, url)
        if "miss" in sys.argv:
            await missed(http, url)
        at = f"{control}/v1/episodes/e1"
        await http.post(f"{at}/mark", json={"label": "x", "data": {"password": plant("mark")}})
        print(await (await http.get(at)).text())
        await http.post(
            f"{at}/end", json={"reward": 1.0, "outcome": f"see http://u:{quote(plant('outcome'), safe='')}@h/"}
        )


def everything(store: Path) -> dict[str, bytes]:
    """All that a store holds, decompressed, and its files as they are."""
    from replayproxy.storage import open_store

    texts: dict[str, bytes] = {str(path): path.read_bytes() for path in store.rglob("*") if path.is_file()}
    with open_store(store) as opened:
        env = opened.env
        for name, database in env.dbs.items():
            with env.reading() as txn:
                for key, value in txn.cursor(db=database):
                    texts[f"{name}/{key.hex()}"] = b"".join([value, *unpacked(value)])
    return texts


def unpacked(value: bytes) -> list[bytes]:
    """What a record's frames hold, however it is framed: every zstd frame in it, and every gzip member of that."""
    import zstandard

    out: list[bytes] = []
    at = value.find(b"\x28\xb5\x2f\xfd")
    while at >= 0:
        try:
            out.append(zstandard.ZstdDecompressor().decompressobj().decompress(value[at:]))
        except zstandard.ZstdError:
            pass
        at = value.find(b"\x28\xb5\x2f\xfd", at + 1)
    for data in (value, *list(out)):
        start = data.find(b"\x1f\x8b\x08")
        while start >= 0:
            try:
                import zlib

                out.append(zlib.decompressobj(31).decompress(data[start:]))
            except zlib.error:
                pass
            start = data.find(b"\x1f\x8b\x08", start + 1)
    return out


def main(words: list[Any]) -> None:
    if words[0] == "environment":
        environment(int(words[1]), words[2])
    else:
        asyncio.run(stale() if "stale" in words else agent())


if __name__ == "__main__":
    main(sys.argv[1:])
