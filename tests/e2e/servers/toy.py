"""A small environment with one trait per path: counters, large and odd bodies, event streams, cookies, redirects.

`python toy.py` prints its URL as JSON and serves until it is ended.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json

from aiohttp import web

COUNT = {"n": 0}


async def counter(request: web.Request) -> web.Response:
    return web.json_response({"n": COUNT["n"]})


async def increase(request: web.Request) -> web.Response:
    COUNT["n"] += 1
    return web.Response(status=204)


async def slow(request: web.Request) -> web.Response:
    COUNT["n"] += 1
    mine = COUNT["n"]
    await asyncio.sleep(float(request.query.get("s", "0.05")))
    return web.json_response({"n": mine})


async def body(request: web.Request) -> web.StreamResponse:
    """`/body?size=N`: N bytes that no two positions share a pattern in, with Content-Length."""
    size = int(request.query["size"])
    block = hashlib.sha256(str(size).encode()).digest() * 2048
    answer = web.StreamResponse(headers={"Content-Type": "application/octet-stream", "Content-Length": str(size)})
    await answer.prepare(request)
    sent = 0
    while sent < size:
        piece = block[: min(len(block), size - sent)]
        await answer.write(piece)
        sent += len(piece)
    return answer


async def upload(request: web.Request) -> web.Response:
    digest, size = hashlib.sha256(), 0
    async for piece in request.content.iter_chunked(65536):
        digest.update(piece)
        size += len(piece)
    return web.json_response({"size": size, "sha256": digest.hexdigest()})


async def mirror(request: web.Request) -> web.WebSocketResponse:
    """Answers each binary message with its bytes in reverse."""
    socket = web.WebSocketResponse(max_msg_size=0)
    await socket.prepare(request)
    async for message in socket:
        await socket.send_bytes(message.data[::-1])
    return socket


async def gzipped(request: web.Request) -> web.Response:
    data = gzip.compress(b'{"packed": true}', mtime=0)
    return web.Response(body=data, headers={"Content-Encoding": "gzip", "Content-Type": "application/json"})


async def events(request: web.Request) -> web.StreamResponse:
    """Ten events over `s` seconds."""
    answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await answer.prepare(request)
    for n in range(10):
        await answer.write(f"id: {n}\ndata: event {n}\n\n".encode())
        await asyncio.sleep(float(request.query.get("s", "3")) / 10)
    await answer.write_eof()
    return answer


async def login(request: web.Request) -> web.Response:
    answer = web.json_response({"ok": True})
    answer.set_cookie("sid", "secret-session", path="/")
    answer.set_cookie("area", "private", path="/account")
    return answer


async def account(request: web.Request) -> web.Response:
    return web.json_response({"sid": request.cookies.get("sid"), "area": request.cookies.get("area")})


async def old(request: web.Request) -> web.Response:
    raise web.HTTPFound("/account")


async def old_absolute(request: web.Request) -> web.Response:
    raise web.HTTPFound(f"http://{request.host}/account")


def app() -> web.Application:
    made = web.Application(client_max_size=1 << 30)
    made.add_routes([
        web.get("/", counter), web.get("/counter", counter), web.post("/inc", increase), web.post("/slow", slow),
        web.get("/slow", slow), web.get("/body", body), web.post("/upload", upload), web.get("/gzip", gzipped),
        web.get("/events", events), web.get("/mirror", mirror), web.post("/login", login), web.get("/account", account),
        web.get("/old", old), web.get("/old-absolute", old_absolute),
    ])  # fmt: skip
    return made


async def main() -> None:
    runner = web.AppRunner(app(), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    print(json.dumps({"url": f"http://{host}:{port}"}), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
