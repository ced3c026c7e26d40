"""Clients that append to a base URL and clients that resolve against it: every request in its own episode.

A replay gives a token where the cookie was: a client compares what it is told with the cookie that it holds. A plain
word (`private`) is replaced in the cookie alone.
"""

from __future__ import annotations

import json
import shutil
import sys

import pytest

from tests.e2e.conftest import SERVERS, Lab

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

HARNESS = """
import asyncio, json, os, subprocess, sys
from replayproxy import client
import aiohttp, httpx, requests

def appends_httpx(url):
    with httpx.Client(base_url=url, follow_redirects=True, trust_env=False) as http:
        assert http.post("/login").status_code == 200
        held = {"sid": http.cookies["sid"], "area": "private"}
        assert http.get("/account").json() == held
        assert http.get("/old").json() == held
        assert http.get("/old-absolute").json() == held

def appends_requests(url):
    http = requests.Session(); http.trust_env = False
    assert http.post(url + "/login").status_code == 200
    held = {"sid": http.cookies["sid"], "area": "private"}
    assert http.get(url + "/account").json() == held
    assert http.get(url + "/old").json() == held
    assert http.get(url + "/old-absolute").json() == held

def resolves_aiohttp(url):
    async def go():
        async with aiohttp.ClientSession(base_url=url + "/", cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
            async with http.post("/login") as answer: assert answer.status == 200
            sid = next(cookie.value for cookie in http.cookie_jar if cookie.key == "sid")
            held = {"sid": sid, "area": "private"}
            async with http.get("/account") as answer: assert await answer.json() == held
            async with http.get("/old-absolute") as answer: assert await answer.json() == held
    asyncio.run(go())

def resolves_node(url):
    done = subprocess.run(["node", sys.argv[1]], env={**os.environ, "REPLAYPROXY_URL_APP": url}, capture_output=True)
    assert json.loads(done.stdout) == [200, 204, 200], done

style = sys.argv[2]
styles = {"path": [appends_httpx, appends_requests], "port": [appends_httpx, resolves_aiohttp]}[style]
if style == "port" and sys.argv[3] == "node":
    styles.append(resolves_node)
for style_ in styles:
    with client.episode(episode=style_.__name__, url_style=style) as ep:
        style_(ep.url("app"))
"""


@pytest.mark.parametrize("style", ["path", "port"])
def test_every_request_is_recorded_in_its_own_episode(lab: Lab, style: str) -> None:
    node = "node" if shutil.which("node") else "none"
    harness = [sys.executable, "-c", HARNESS, str(SERVERS / "clients.mjs"), style, node]
    url = lab.toy()
    ran = lab.run("record", "--env", f"app={url}", "--run", "r", "--json", "--", *harness)
    assert ran.code == 0, ran.err
    assert ran.json["unattributed"] == 0
    listed = {row["episode"]: row["exchanges"] for row in json.loads(lab.run("ls", "r", "--json").out)["episodes"]}
    wanted = {"path": {"appends_httpx": 6, "appends_requests": 6}, "port": {"appends_httpx": 6, "resolves_aiohttp": 4}}
    expected = dict(wanted[style])
    if style == "port" and node == "node":
        expected["resolves_node"] = 4
    assert listed == expected

    lab.stop_all()
    again = lab.run("replay", "r", "--json", "--", *harness)
    assert again.code == 0, again.out + again.err
    assert again.json["reproduced"] is True


def test_a_client_that_drops_the_prefix_is_unattributed_and_the_recording_is_not_whole(lab: Lab) -> None:
    dropped = (
        "import aiohttp, asyncio\nfrom replayproxy import client\n"
        "async def go(url):\n"
        "    async with aiohttp.ClientSession(base_url=url.rsplit('/rp/', 1)[0] + '/') as http:\n"
        "        async with http.get('/counter') as answer: assert answer.status == 200\n"
        "with client.episode(episode='e') as ep: asyncio.run(go(ep.url('app')))\n"
    )
    harness = [sys.executable, "-c", dropped]
    url = lab.toy()
    ran = lab.run("record", "--env", f"app={url}", "--run", "r", "--json", "--", *harness)
    assert ran.code == 3, ran.err
    assert ran.json["unattributed"] == 1
    assert "unattributed" in ran.err.lower()
