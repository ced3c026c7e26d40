"""The clients of this machine, as they are: which of them a recording would see."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import pytest

from replayproxy.session.canary import Canary, canaries, find_clients, wanted
from replayproxy.session.canary_clients import CLIENTS
from tests.e2e.conftest import Lab
from tests.needs import program

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

PATIENT = tuple(replace(one, seconds=60.0) for one in CLIENTS)
"""A test's machine may be busy with other tests."""

type Seen = dict[tuple[str, str, str], Canary]


async def tried(text: str) -> Seen:
    asked = wanted(text, sys.executable, clients=PATIENT)
    sent = await canaries(asked, await find_clients(asked), seconds=180.0)
    return {(one.client.name, one.style, one.transport): one for one in sent}


def ends(seen: Seen) -> dict[str, dict[str, str]]:
    """{style and transport: {client: its end}}."""
    found: dict[str, dict[str, str]] = {}
    for (client, style, transport), one in seen.items():
        strayed = one.result == "recorded" and not one.episode
        found.setdefault(f"{style} {transport}", {})[client] = "no episode" if strayed else one.result
    return found


async def test_python_s_clients_obey_the_proxy_variables_but_for_aiohttp_s_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("no_proxy", "localhost,127.0.0.1,::1")
    seen = await tried(
        "requests:forward,httpx:forward,urllib:forward,aiohttp:forward,aiohttp-trust-env,aiohttp-websocket:forward,"
        "aiohttp-websocket-trust-env"
    )
    past = "passed-by"
    assert ends(seen) == {
        "forward http": {
            "requests": "recorded", "httpx": "recorded", "urllib": "recorded", "aiohttp": past,
            "aiohttp-trust-env": "recorded",
        },
        "forward https": {
            "requests": "recorded", "httpx": "recorded", "urllib": "recorded", "aiohttp-trust-env": "recorded",
        },
        "forward ws": {"aiohttp-websocket": past, "aiohttp-websocket-trust-env": "recorded"},
        "forward wss": {"aiohttp-websocket-trust-env": "recorded"},
    }  # fmt: skip
    assert "trust_env=True" in seen["aiohttp", "forward", "http"].hint


async def test_clients_that_resolve_need_a_port_of_the_episode_and_those_that_append_do_not() -> None:
    seen = await tried("httpx:append,httpx-h2,aiohttp:append,aiohttp:resolve,aiohttp:port,aiohttp-websocket:append")
    assert ends(seen) == {
        "append http": {"httpx": "recorded", "aiohttp": "recorded"},
        "append https": {"httpx": "recorded", "aiohttp": "recorded"},
        "append h2": {"httpx-h2": "recorded"},
        "forward h2": {"httpx-h2": "recorded"},
        "append ws": {"aiohttp-websocket": "recorded"},
        "append wss": {"aiohttp-websocket": "recorded"},
        "resolve http": {"aiohttp": "no episode"},
        "port http": {"aiohttp": "recorded"},
    }


async def test_curl_is_recorded_in_every_way() -> None:
    program("curl")
    seen = await tried("curl")
    assert {one.result for one in seen.values()} == {"recorded"}
    assert all(one.episode for one in seen.values())


async def test_node_obeys_the_proxy_variables_from_the_version_on_that_knows_how() -> None:
    program("node")
    seen = await tried("node-fetch,node-http,node-fetch-unset")
    version = tuple(int(part) for part in seen["node-fetch", "forward", "http"].version.split("."))
    since_22 = (22, 21) <= version < (23,)
    fetch = "recorded" if since_22 or version >= (24,) else "passed-by"
    http = "recorded" if since_22 or version >= (24, 5) else "passed-by"
    assert ends(seen) == {
        "append http": {"node-fetch": "recorded", "node-http": "recorded"},
        "append https": {"node-fetch": "recorded", "node-http": "recorded"},
        "resolve http": {"node-fetch": "no episode"},
        "port http": {"node-fetch": "recorded"},
        "forward http": {"node-fetch": fetch, "node-http": http, "node-fetch-unset": "passed-by"},
        "forward https": {"node-fetch": fetch, "node-http": http},
    }


async def test_a_browser_goes_past_a_proxy_to_the_loopback_unless_it_is_told_otherwise() -> None:
    program("chromium", "chromium-browser", "google-chrome")
    seen = await tried("chromium:resolve,chromium:forward,chromium-flags:forward")
    assert ends(seen) == {
        "resolve http": {"chromium": "no episode"},
        "forward http": {"chromium": "passed-by"},
        "forward https": {"chromium-flags": "no episode"},
    }


def test_the_command_fails_for_a_named_style_that_passes_by(lab: Lab) -> None:
    words = ("--python", sys.executable, "--clients", "aiohttp:forward,urllib:forward", "--json")
    ran = lab.doctor("--env", f"app={lab.toy()}", *words)
    assert ran.code == 3
    document = json.loads(ran.out)
    assert [(one["client"], one["transport"], one["result"], one["episode"]) for one in document["clients"]] == [
        ("aiohttp", "http", "passed-by", False), ("urllib", "http", "recorded", True),
        ("urllib", "https", "recorded", True),
    ]  # fmt: skip
    assert document["ok"] is False
    assert {one["level"] for one in document["checks"] if "aiohttp/" in one["text"]} == {"FAIL"}
