"""The state endpoint under an ASGI client."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from replayproxy import state_endpoint


class World:
    def __init__(self) -> None:
        self.state: Any = {"deals": {"1": {"title": "é"}}}

    def get(self) -> Any:
        return self.state

    async def set(self, state: Any) -> None:
        self.state = state


def client(app: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://env")


async def test_get_gives_the_state_and_put_sets_it() -> None:
    world = World()
    async with client(state_endpoint(world.get, world.set)) as http:
        answer = await http.get("/state")
        assert (answer.status_code, answer.json()) == (200, {"deals": {"1": {"title": "é"}}})
        assert answer.headers["content-type"] == "application/json"
        answer = await http.put("/state", content=b'{"deals": {}}')
        assert (answer.status_code, answer.content) == (204, b"")
        assert world.state == {"deals": {}}
        head = await http.head("/state")
        assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", "13")


@pytest.mark.parametrize("method", ["POST", "DELETE", "PATCH", "OPTIONS"])
async def test_other_methods_are_405(method: str) -> None:
    world = World()
    async with client(state_endpoint(world.get, world.set)) as http:
        answer = await http.request(method, "/state")
        assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD, PUT")


async def test_without_set_a_put_is_405() -> None:
    async with client(state_endpoint(World().get)) as http:
        assert (await http.put("/state", json={})).status_code == 405


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100_000])
async def test_what_is_not_json_is_400_and_sets_nothing(body: bytes) -> None:
    world = World()
    before = world.state
    async with client(state_endpoint(world.get, world.set)) as http:
        answer = await http.put("/state", content=body)
    assert answer.status_code == 400
    assert "not JSON" in answer.json()["title"]
    assert world.state is before


async def test_half_a_body_sets_nothing() -> None:
    world = World()
    before, sent = world.state, []
    messages = iter([{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}])

    async def receive() -> Any:
        return next(messages)

    async def send(message: Any) -> None:
        sent.append(message)

    await state_endpoint(world.get, world.set)({"type": "http", "method": "PUT"}, receive, send)
    assert (world.state is before, sent) == (True, [])


async def test_a_server_that_speaks_lifespan_can_host_it() -> None:
    sent = []
    messages = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])

    async def receive() -> Any:
        return next(messages)

    async def send(message: Any) -> None:
        sent.append(message["type"])

    await state_endpoint(World().get)({"type": "lifespan"}, receive, send)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
