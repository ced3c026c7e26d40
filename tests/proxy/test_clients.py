"""Real clients of each style: redirects and cookies keep an agent in its episode."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import httpx
import pytest
import requests
from aiohttp import web

from tests.proxy.wire import Wire


async def login(request: web.Request) -> web.StreamResponse:
    answer = web.Response(status=303, headers={"Location": str(request.url.with_path("/api/me"))})
    answer.set_cookie("sid", "s-1", path="/api")
    answer.set_cookie("seen", "1", path="/")
    return answer


async def me(request: web.Request) -> web.StreamResponse:
    if request.cookies.get("sid") != "s-1" or request.cookies.get("seen") != "1":
        return web.json_response({"error": "not logged in"}, status=401)
    return web.json_response({"me": "agent"}, headers={"Link": '</api/me?page=2>; rel="next"'})


async def relative(request: web.Request) -> web.StreamResponse:
    raise web.HTTPFound("/api/me")


@pytest.fixture
async def site() -> Any:
    app = web.Application()
    app.router.add_post("/login", login)
    app.router.add_get("/api/me", me)
    app.router.add_get("/api/old", relative)
    runner = web.AppRunner(app)
    await runner.setup()
    place = web.TCPSite(runner, "127.0.0.1", 0)
    await place.start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def by_httpx(url: str) -> list[int]:
    async with httpx.AsyncClient(base_url=url, follow_redirects=True, trust_env=False) as client:
        first = await client.post("/login", json={"user": "a"})
        second = await client.get("/api/old")
        third = await client.get(second.url.join(second.links["next"]["url"]))
        return [first.status_code, second.status_code, third.status_code]


async def by_requests(url: str) -> list[int]:
    def work() -> list[int]:
        with requests.Session() as session:
            session.trust_env = False
            first = session.post(url + "/login", json={"user": "a"})
            second = session.get(url + "/api/old")
            third = session.get(url.partition("/rp/")[0] + second.links["next"]["url"])
            return [first.status_code, second.status_code, third.status_code]

    return await asyncio.to_thread(work)


async def by_aiohttp(url: str) -> list[int]:
    """A client that resolves: it drops a prefix, so it gets a port of its own."""
    async with aiohttp.ClientSession(base_url=url + "/", cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        async with session.post("/login", json={"user": "a"}) as first:
            await first.read()
        async with session.get("/api/old") as second:
            await second.read()
        async with session.get(second.links["next"]["url"]) as third:
            return [first.status, second.status, third.status]


@pytest.mark.parametrize(
    ("client", "style"), [(by_httpx, "path"), (by_requests, "path"), (by_aiohttp, "port"), (by_httpx, "port")]
)
async def test_every_request_of_a_client_lands_in_its_episode(
    w: Wire, site: str, client: Callable[[str], Awaitable[list[int]]], style: str
) -> None:
    w.scribe.urls["app"] = site
    listener = await w.engine.listen("app", site, port_episode="e1" if style == "port" else None)
    url = listener.url if style == "port" else listener.episode_url("e1")
    assert await client(url) == [200, 200, 200]
    await w.scribe.exchange(5)
    assert [e.request.target for e in w.scribe.exchanges] == [
        b"/login",
        b"/api/me",
        b"/api/old",
        b"/api/me",
        b"/api/me?page=2",
    ]
    episodes = {t.attribution.episode.name if t.attribution.episode else t.attribution.reason for t in w.scribe.tickets}
    assert episodes == {"e1"}
    answer = w.scribe.exchanges[0].response
    assert answer is not None
    assert (b"Location", f"{site}/api/me".encode()) in answer.fields, "the store keeps the environment's bytes"
