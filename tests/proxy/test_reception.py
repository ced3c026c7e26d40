"""A connection stays with the listener that accepted it."""

from __future__ import annotations

from typing import Any

from replayproxy.proxy.reception import Reception
from tests.proxy.wire import Wire, says

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
GET = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"


async def test_a_port_that_changes_hands_takes_no_old_connection_along(w: Wire) -> None:
    environment = await w.environment(says(OK))
    first = await w.listen(environment, port_episode="first")
    old = await w.agent(first)
    assert await old.ask(GET) == OK
    await w.engine.unlisten(first)
    second = await w.listen(environment, port_episode="second", port=first.bound[1])
    assert second.bound == first.bound
    new = await w.agent(second)
    assert await new.ask(GET) == OK
    assert await old.ask(GET) == OK
    await w.scribe.exchange(3)
    named = [t.attribution.episode.name for t in w.scribe.tickets if t.attribution.episode]
    assert named == ["first", "second", "first"]


async def test_a_listener_on_every_address_finds_its_connections(w: Wire) -> None:
    environment = await w.environment(says(OK))
    w.scribe.urls["app"] = environment.url
    listener = await w.engine.listen("app", environment.url, host="0.0.0.0")
    assert await (await w.agent(listener)).ask(GET) == OK
    assert (await w.scribe.exchange()).env == "app"


def test_a_connection_without_a_listener_is_dropped() -> None:
    class Client:
        id, sockname, error = "c", ("127.0.0.1", 1), None

    client: Any = Client()
    Reception().client_connected(client)
    assert client.error
