"""A shop's front page over https: 36 requests of a browser, of all the kinds that pages make.

`python page.py CERTIFICATE-AND-KEY` prints its URL as JSON and serves until it is ended.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import ssl
import sys

from aiohttp import web

IMAGES = 16
PAGE = f"""<!doctype html><html><head><meta charset="utf-8"><title>loading</title>
<link rel="icon" href="data:,"><link rel="stylesheet" href="/style/main.css">
<script src="/script/packed.js"></script><script src="/script/plain.js" defer></script>
<script type="module" src="/script/work.js"></script></head>
<body><main></main>{"".join(f'<img src="/image/{n}.svg">' for n in range(IMAGES))}</body></html>"""

SCRIPTS = {
    "packed.js": "window.packed = 'packed'; " + "/* long enough to be worth it */ " * 50,
    "plain.js": "window.plain = 'plain';",
    "shop.js": "export const json = async (path, given) => (await fetch(path, given)).json();",
    "work.js": """
import { json } from './shop.js';
const loaded = new Promise(resolve => addEventListener('load', resolve));
const said = [window.packed, window.plain];
said.push((await Promise.all([1, 2, 3, 4].map(n => json(`/api/items/${n}?lang=de&lang=en`)))).map(one => one.item));
said.push((await json('/api/latest')).item);
said.push((await json('/api/cart', { method: 'POST', body: JSON.stringify({ item: 3 }),
  headers: { 'Content-Type': 'application/json' } })).items);
const form = new FormData(); form.set('note', 'as a gift'); form.set('file', new Blob(['bytes']), 'card.txt');
said.push((await json('/api/note', { method: 'POST', body: form })).fields);
said.push((await json('/api/cart')).items);
for (const _ of [1, 2]) said.push((await json('/api/prices', { cache: 'no-cache' })).tea);
const events = new EventSource('/api/events');
said.push(await new Promise(resolve => events.addEventListener('sold', event => resolve(event.data))));
events.close();
await loaded;
const wide = [...document.images].filter(one => one.naturalWidth === 7).length;
const style = getComputedStyle(document.querySelector('main'));
document.querySelector('main').textContent = JSON.stringify([...said, wide, style.color, style.paddingTop]);
document.title = 'done';
""",
}
STYLES = {
    "main.css": "@import '/style/more.css'; main { color: rgb(1, 2, 3); background: url('/image/back.svg') }",
    "more.css": "main { padding: 5px }",
}
CART: list[int] = []


async def page(request: web.Request) -> web.Response:
    answer = web.Response(text=PAGE, content_type="text/html")
    answer.set_cookie("visitor", "v-1", secure=True, httponly=True, samesite="Strict")
    return answer


async def style(request: web.Request) -> web.Response:
    return web.Response(text=STYLES[request.match_info["name"]], content_type="text/css")


async def script(request: web.Request) -> web.Response:
    name = request.match_info["name"]
    data = SCRIPTS[name].encode()
    coding = {"Content-Encoding": "gzip"} if name == "packed.js" else {}
    body = gzip.compress(data, mtime=0) if coding else data
    return web.Response(body=body, headers=coding, content_type="text/javascript")


async def image(request: web.Request) -> web.StreamResponse:
    """In chunks, with a pause between them: a browser has several on the way at once."""
    answer = web.StreamResponse(headers={"Content-Type": "image/svg+xml"})
    answer.enable_chunked_encoding()
    await answer.prepare(request)
    for piece in (b'<svg xmlns="http://www.w3.org/2000/svg" width="7" height="7">', b"<title>", b"</title></svg>"):
        await answer.write(piece)
        await asyncio.sleep(0.005)
    return answer


async def item(request: web.Request) -> web.Response:
    return web.json_response({"item": f"item {request.match_info['n']}", "cookie": "visitor" in request.cookies})


async def latest(request: web.Request) -> web.Response:
    raise web.HTTPFound("/api/items/9?from=latest")


async def cart(request: web.Request) -> web.Response:
    if request.method == "POST":
        CART.append((await request.json())["item"])
    return web.json_response({"items": CART}, headers={"Cache-Control": "no-store"})


async def note(request: web.Request) -> web.Response:
    return web.json_response({"fields": sorted(await request.post())})


async def prices(request: web.Request) -> web.Response:
    body = json.dumps({"tea": 0.1 + 0.2}).encode()
    tag = f'"{hashlib.sha256(body).hexdigest()[:12]}"'
    if request.headers.get("If-None-Match") == tag:
        return web.Response(status=304, headers={"ETag": tag})
    return web.Response(body=body, content_type="application/json", headers={"ETag": tag})


async def events(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await answer.prepare(request)
    await answer.write(b"event: sold\ndata: tea\n\n")
    await asyncio.sleep(30)
    return answer


def app() -> web.Application:
    made = web.Application()
    made.add_routes([
        web.get("/", page), web.get("/style/{name}", style), web.get("/script/{name}", script),
        web.get("/image/{name}", image), web.get("/api/items/{n}", item), web.get("/api/latest", latest),
        web.route("*", "/api/cart", cart), web.post("/api/note", note), web.get("/api/prices", prices),
        web.get("/api/events", events),
    ])  # fmt: skip
    return made


async def main(certificate: str) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    runner = web.AppRunner(app(), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    host, port = runner.addresses[0][:2]
    print(json.dumps({"url": f"https://{host}:{port}"}), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
