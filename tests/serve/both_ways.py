"""One conversation twice: through the recording proxy to an environment, and with the recording in its place."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp import WSMsgType, web

from replayproxy.core.misses import Document
from replayproxy.core.values import Exchange
from replayproxy.proxy.listeners import authority
from replayproxy.serve.sending import INSTANT, Pace
from replayproxy.storage import Store
from tests.proxy.wire import Wire
from tests.serve.staged import record, staged

type Environment = Callable[[web.WebSocketResponse], Awaitable[None]]
type Agent = Callable[[aiohttp.ClientWebSocketResponse], Awaitable[None]]


@dataclass(frozen=True)
class Twice:
    """What the agent saw, with the environment and with the recording; what was recorded, and the receipt."""

    recorded: list[Any]
    replayed: list[Any]
    exchange: Exchange
    receipt: Document


async def twice(store: Store, w: Wire, environment: Environment, agent: Agent, **options: Any) -> Twice:
    """`options`: of the agent's handshake."""
    recorded, exchange = await recorded_from(store, w, environment, agent, **options)
    replayed, receipt = await replayed_to(store, exchange, agent, **options)
    return Twice(recorded, replayed, exchange, receipt)


async def recorded_from(
    store: Store, w: Wire, environment: Environment, agent: Agent, **options: Any
) -> tuple[list[Any], Exchange]:
    async def handler(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(max_msg_size=0, autoclose=False)
        await socket.prepare(request)
        await environment(socket)
        return socket

    app = web.Application()
    app.router.add_get("/ws", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    w.scribe.urls["app"] = url
    writer = store.writer()
    w.scribe.talk = lambda ticket: writer.talk_sink()  # type: ignore[method-assign,assignment]
    listener = await w.engine.listen("app", url)
    try:
        seen = await visit(f"http://{authority(*listener.bound)}/ws", agent, **options)
        exchange = await w.scribe.exchange(len(w.scribe.exchanges) or 1)
        writer.flush().result(10)
    finally:
        writer.close()
        await runner.cleanup()
    assert w.scribe.faults == []
    return seen, exchange


async def replayed_to(
    store: Store, exchange: Exchange, agent: Agent, *, pace: Pace = INSTANT, **options: Any
) -> tuple[list[Any], Document]:
    run = record(store, {"e": [exchange]})
    async with staged(store, run, pace=pace) as s:
        seen = await visit(s.url() + "/ws", agent, **options)
        assert s.faults == []
    return seen, s.receipt()


async def visit(url: str, agent: Agent, **options: Any) -> list[Any]:
    """Everything that the agent received: messages as they came, then how it was closed."""
    seen: list[Any] = []
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(url, max_msg_size=0, autoclose=False, **options) as socket,
    ):
        receive = socket.receive

        async def noted(timeout: float | None = None) -> Any:
            got = await receive(timeout)
            seen.append((got.type, got.data, got.extra) if got.type is not WSMsgType.ERROR else (got.type,))
            return got

        socket.receive = noted  # type: ignore[method-assign,assignment]
        await agent(socket)
    return seen
