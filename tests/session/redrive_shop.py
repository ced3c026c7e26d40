"""An episode at the lab's shop, and a re-drive of it in a few words."""

from __future__ import annotations

from typing import Any

from replayproxy.core.values import Trace
from replayproxy.session.redrive import Ask, Redriven, redrive
from replayproxy.session.redrive_targets import Words
from replayproxy.storage import Store
from tests.session.redrive_lab import Recording, Shop, ask, body_of, kept, serving


async def recorded(store: Store, shop: Shop, *, snapshot: str | None = "sqlite", **more: Any) -> Trace:
    """An agent that logs in, creates things and uses the ids it was given."""
    async with serving(shop.app()) as url:
        specs = {"sqlite": f"sqlite:{shop.path}", "http": f"http:{url}/state"}
        recording = Recording(url, {"app": specs[snapshot]} if snapshot else {})
        await recording.begin()
        await agent(recording)
        await recording.end()
    return await kept(store, recording, **more)


async def agent(recording: Recording) -> None:
    login = await recording.send(ask("POST", "/login", {"user": "ada"}))
    assert login.response is not None
    cookie = next(v for n, v in login.response.fields if n.lower() == b"set-cookie").partition(b";")[0].decode()
    await recording.send(ask("GET", "/me", headers=[("Cookie", f"theme=dark; {cookie}")]))
    deal = body_of(await recording.send(ask("POST", "/deals", {"name": "Acme", "amount": 1200})))["id"]
    await recording.send(ask("GET", f"/deals/{deal}"))
    await recording.send(ask("POST", f"/deals/{deal}/notes", {"deal_id": deal, "text": "17 of 42"}))
    item = await recording.send(ask("POST", "/items", {"name": "chair"}))
    assert item.response is not None
    key, tag = body_of(item)["id"], next(v for n, v in item.response.fields if n.lower() == b"etag").decode()
    await recording.send(ask("GET", f"/items/{key}", headers=[("If-None-Match", tag)]))
    await recording.send(ask("PUT", f"/items/{key}", {"name": "table"}, headers=[("If-Match", tag)]))
    await recording.send(ask("GET", "/deals"))


async def redriven(
    store: Store, url: str, *addresses: str, snapshot: tuple[str, ...] = (), reset: tuple[str, ...] = (),
    env: tuple[str, ...] | None = None, disposable: tuple[str, ...] = (),
    credential: tuple[str, ...] = (), told: list[str] | None = None, **more: Any,
) -> list[Redriven]:  # fmt: skip
    words = Words(
        env=(f"app={url}",) if env is None else env,
        snapshot=snapshot,
        reset=reset,
        disposable=disposable,
        credential=credential,
    )
    say = (told if told is not None else []).append
    return await redrive(store, Ask(addresses=addresses or ("r/e",), words=words, **more), say)
