"""Re-drive end to end, with environments in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from replayproxy.core.values import Trace
from replayproxy.session.redrive import Ask, Redriven, redrive
from replayproxy.session.redrive_report import document
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


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path / "shop.db")


async def redriven(
    store: Store, url: str, *words: str, snapshot: tuple[str, ...] = (), reset: tuple[str, ...] = (), **more: Any
) -> Redriven:
    told: list[str] = []
    found = await redrive(
        store,
        Ask(addresses=words or ("r/e",), words=Words(env=(f"app={url}",), snapshot=snapshot, reset=reset), **more),
        told.append,
    )
    return found[0]


async def test_an_environment_that_mints_new_ids_is_the_same_after_a_restore(store: Store, shop: Shop) -> None:
    trace = await recorded(store, shop)
    again = Shop(shop.path, first_id=101)
    async with serving(again.app()) as url:
        one = await redriven(store, url)
    shown = one.shown
    assert shown is not None
    assert [(e.seq, e.response and e.response.status) for e in shown.live.exchanges] == [
        (e.seq, e.response and e.response.status) for e in trace.exchanges
    ]
    print(document([one]))
