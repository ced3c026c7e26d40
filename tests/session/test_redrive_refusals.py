"""What re-drive refuses, before anything is sent or overwritten."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from replayproxy.core.values import WebSocket
from replayproxy.errors import CannotJudge, WorldTrouble, WrongUsage
from replayproxy.session.redrive_report import document
from replayproxy.storage import Store
from tests.session.redrive_lab import Recording, Shop, ask, kept, serving
from tests.session.redrive_shop import recorded, redriven


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path / "shop.db")


async def test_the_recorded_upstream_is_no_target_unless_it_is_named(store: Store, shop: Shop) -> None:
    async with serving(shop.app()) as url:
        recording = Recording(url)
        await recording.begin()
        await recording.send(ask("GET", "/deals"))
        await recording.end()
        await kept(store, recording)
        before = list(shop.seen)
        with pytest.raises(WrongUsage) as refused:
            await redriven(store, url, env=())
    assert refused.value.hint == "--env app=URL"
    assert shop.seen == before


async def test_a_recorded_file_is_not_overwritten_while_the_recorded_environment_is_still_there(
    store: Store, shop: Shop, tmp_path: Path
) -> None:
    async with serving(shop.app()) as first:
        recording = Recording(first, {"app": f"sqlite:{shop.path}"})
        await recording.begin()
        await recording.send(ask("POST", "/deals", {"name": "x", "amount": 1}))
        await recording.end()
        await kept(store, recording)
        shop.rows("INSERT INTO deals VALUES (9, 'in use', 1)")
        async with serving(Shop(tmp_path / "copy.db").app()) as url:
            [one] = await redriven(store, url)
    assert one.verdict == "undecided"
    assert f"still at {first}" in document([one])["receipt"]["undecided"][0]
    assert (9,) in shop.rows("SELECT id FROM deals")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"env": ("app=http://203.0.113.9:80",)}, "not on this machine"),
        ({"env": ("app=http://127.0.0.1:1", "other=http://127.0.0.1:2")}, "no environment 'other'"),
        ({"env": ("app=dynamic",)}, "needs one address"),
        ({"env": ("app=ftp://127.0.0.1",)}, "no http:// or https:// URL"),
        ({"env": ("app=http://127.0.0.1:1", "app=http://127.0.0.1:2")}, "given twice"),
        ({"snapshot": ("app=postgres:postgresql://u@203.0.113.9/db",)}, "not on this machine"),
        ({"snapshot": ("app=postgres:host=127.0.0.1,203.0.113.9 dbname=db",)}, "not on this machine"),
        ({"snapshot": ("app=http:http://203.0.113.9/state",)}, "not on this machine"),
        ({"snapshot": ("app=nothing:x",)}, "no snapshot kind"),
        ({"reset": ("app=POST http://203.0.113.9/reset",)}, "not on this machine"),
        ({"reset": ("app",)}, "METHOD URL"),
        ({"disposable": ("nobody",)}, "--disposable nobody"),
        ({"save": "a/b"}, "--save"),
        ({"save": "r"}, "there is a run of that name"),
    ],
)
async def test_what_may_not_be_is_refused_before_anything_is_sent(
    store: Store, shop: Shop, words: dict[str, Any], message: str
) -> None:
    await recorded(store, shop)
    again = Shop(shop.path)
    async with serving(again.app()) as url:
        with pytest.raises(WrongUsage) as refused:
            await redriven(store, url, **words)
    assert message in str(refused.value)
    assert again.seen == []
    assert len(shop.rows("SELECT id FROM deals")) == 1


async def test_a_disposable_target_may_be_elsewhere(store: Store, shop: Shop) -> None:
    await recorded(store, shop)
    with pytest.raises(WorldTrouble):
        await redriven(store, "", env=("app=http://nowhere.invalid:9",), disposable=("app",))


async def test_an_environment_that_is_not_there_is_told_before_anything_is_written(store: Store, shop: Shop) -> None:
    await recorded(store, shop)
    async with serving(Shop(shop.path).app()) as url:
        pass
    with pytest.raises(WorldTrouble) as refused:
        await redriven(store, url)
    assert refused.value.exit == 5
    assert len(shop.rows("SELECT id FROM deals")) == 1


async def test_an_address_inside_an_episode_is_refused(store: Store, shop: Shop) -> None:
    await recorded(store, shop)
    for address in ("r/e#1", "r/e/s0"):
        with pytest.raises(WrongUsage):
            await redriven(store, "http://127.0.0.1:1", address)


async def test_traffic_without_an_episode_is_never_sent(store: Store, shop: Shop) -> None:
    await recorded(store, shop, episode="unattributed")
    with pytest.raises(WrongUsage) as refused:
        await redriven(store, "http://127.0.0.1:1", "r/unattributed")
    assert "never re-driven" in str(refused.value)


async def test_an_episode_that_is_not_sealed_is_not_sent(store: Store, shop: Shop) -> None:
    async with serving(shop.app()) as url:
        recording = Recording(url)
        await recording.begin()
        await recording.send(ask("GET", "/deals"))
        await kept(store, recording, seal=False)
        before = list(shop.seen)
        with pytest.raises(CannotJudge) as refused:
            await redriven(store, url)
    assert "r/e is incomplete" in str(refused.value)
    assert shop.seen == before


async def test_an_episode_of_nothing_but_a_websocket_says_that_it_is_not_redriven(store: Store, shop: Shop) -> None:
    async with serving(shop.app()) as url:
        recording = Recording(url, {"app": f"sqlite:{shop.path}"})
        await recording.begin()
        one = await recording.send(ask("GET", "/deals"))
        recording.exchanges[0] = replace(one, websocket=WebSocket(messages=(), close_code=1000))
        await recording.end()
        await kept(store, recording)
        with pytest.raises(CannotJudge, match="not re-driven: websocket"):
            await redriven(store, url)
