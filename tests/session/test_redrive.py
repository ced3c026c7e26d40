"""Re-drive end to end, with environments in this process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web

from replayproxy.core import prolly
from replayproxy.core.values import Outcome, WebSocket
from replayproxy.drive import wire
from replayproxy.drive.origin import Origin
from replayproxy.errors import CannotJudge, RestoreUnfaithful
from replayproxy.session.redrive_report import document, exit_code
from replayproxy.storage import Store
from tests.session.redrive_lab import Recording, Shop, ask, kept, serving
from tests.session.redrive_shop import agent, recorded, redriven


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path / "shop.db")


async def test_new_ids_cookies_and_tags_of_a_restored_environment_are_the_same(store: Store, shop: Shop) -> None:
    trace = await recorded(store, shop)
    again = Shop(shop.path, first_id=101)
    async with serving(again.app()) as url:
        [one] = await redriven(store, url)
    told = document([one])
    assert told["verdict"] == "same"
    assert exit_code([one]) == 0
    assert told["receipt"]["reproduced"] is True
    assert (told["receipt"]["sent"], told["receipt"]["of"]) == (9, 9)
    assert told["receipt"]["snapshots"]["compared"] == len(trace.snapshots)
    assert {(item["place"], item["kind"]) for item in told["receipt"]["substitutions"]} == {
        ("header/cookie/sid", "cookie"), ("target", "Location"), ("path/2", "fresh id"), ("body/deal_id", "fresh id"),
        ("header/if-none-match", "ETag"), ("header/if-match", "ETag"),
    }  # fmt: skip
    assert one.shown is not None
    assert [e.response.status for e in one.shown.live.exchanges if e.response] == [
        e.response.status for e in trace.exchanges if e.response
    ]


async def test_a_changed_behaviour_is_different_and_names_exchange_pointer_and_row(store: Store, shop: Shop) -> None:
    await recorded(store, shop)
    async with serving(Shop(shop.path, double=True).app()) as url:
        [one] = await redriven(store, url)
    told = document([one])
    assert told["verdict"] == "different"
    assert exit_code([one]) == 1
    root = told["roots"][0]
    assert (root["a"], root["pointer"], root["values"]) == ("r/e#3", "body/amount", [1200, 2400])
    assert told["state"]["table"] == "deals"
    assert told["state"]["values"] == [1200, 2400]


async def test_another_resource_in_an_answer_is_different_and_no_renaming(store: Store, shop: Shop) -> None:
    shop.rows("INSERT INTO deals VALUES (41, 'Acme', 5), (42, 'Acme', 5)")
    async with serving(shop.app()) as url:
        recording = Recording(url, {"app": f"sqlite:{shop.path}"})
        await recording.begin()
        await recording.send(ask("POST", "/deals", {"name": "x", "amount": 1}))
        await recording.send(ask("GET", "/deals/41"))
        await recording.end()
    await kept(store, recording)

    class Wrong(Shop):
        async def deal(self, request: web.Request) -> web.Response:
            return web.json_response({"id": 42, "name": "Acme", "amount": 5})

    async with serving(Wrong(shop.path).app()) as url:
        [one] = await redriven(store, url)
    assert one.verdict == "different"
    assert document([one])["roots"][0]["a"] == "r/e#2"


async def test_what_was_found_is_kept_before_it_is_overwritten(store: Store, shop: Shop) -> None:
    await recorded(store, shop)
    shop.rows("INSERT INTO deals VALUES (500, 'precious', 1)")
    told: list[str] = []
    async with serving(Shop(shop.path).app()) as url:
        [one] = await redriven(store, url, told=told)
    assert one.before is not None
    reader = store.reader()
    kept_there = reader.resolve(one.before)
    assert kept_there.episode is not None
    [found] = reader.snapshots(kept_there.episode)
    assert found.when == "before-restore"
    assert found.root is not None
    assert prolly.rows(found.root, reader.node)["deals"]["500"]["name"] == "precious"
    assert any("overwriting the state of app" in line for line in told)
    assert any(one.before in line for line in told)
    assert reader.resolve("latest").run.name == "r"


async def test_an_environment_that_goes_away_half_way_is_different_and_trouble_with_the_world(
    store: Store, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    await recorded(store, shop)
    connected, opened = wire.connect, 0

    async def connect(where: Origin) -> wire.Connection:
        nonlocal opened
        opened += 1
        if opened > 2:
            raise ConnectionRefusedError("it is gone")
        return await connected(where)

    monkeypatch.setattr(wire, "connect", connect)
    monkeypatch.setattr(wire.Lines, "_kept", lambda *_: None)
    async with serving(Shop(shop.path).app()) as url:
        [one] = await redriven(store, url)
    assert (one.verdict, exit_code([one])) == ("different", 5)


async def test_a_restore_that_did_nothing_is_refused_with_the_row_and_nothing_is_sent(store: Store, shop: Shop) -> None:
    await recorded(store, shop, snapshot="http")

    class Deaf(Shop):
        async def put_state(self, request: web.Request) -> web.Response:
            return web.Response(status=204)

    deaf = Deaf(shop.path)
    async with serving(deaf.app()) as url:
        with pytest.raises(RestoreUnfaithful) as refused:
            await redriven(store, url)
    assert "deals/1 " in str(refused.value)
    assert "nothing was sent" in str(refused.value)
    assert {path for _, path in deaf.seen} == {"/state"}


async def test_a_restored_row_that_differs_is_shown_with_pointer_and_both_values(store: Store, shop: Shop) -> None:
    shop.rows("INSERT INTO deals VALUES (7, 'seven', 70)")
    await recorded(store, shop, snapshot="http")

    class Rounding(Shop):
        async def put_state(self, request: web.Request) -> web.Response:
            answer = await super().put_state(request)
            self.rows("UPDATE deals SET amount = 71 WHERE id = 7")
            return answer

    async with serving(Rounding(shop.path).app()) as url:
        with pytest.raises(RestoreUnfaithful) as refused:
            await redriven(store, url)
    assert "deals/7 /amount 70 | 71" in str(refused.value)


async def test_a_state_that_cannot_be_kept_is_not_overwritten(store: Store, shop: Shop) -> None:
    await recorded(store, shop, snapshot="http")

    class Broken(Shop):
        async def state(self, request: web.Request) -> web.Response:
            return web.Response(status=500)

    broken = Broken(shop.path)
    async with serving(broken.app()) as url:
        with pytest.raises(CannotJudge) as refused:
            await redriven(store, url)
    assert "nothing was overwritten" in str(refused.value)
    assert {method for method, _ in broken.seen} == {"GET"}
    assert len(shop.rows("SELECT id FROM deals")) == 1


async def test_a_reset_that_leaves_a_row_is_refused_with_that_row(store: Store, shop: Shop) -> None:
    await recorded(store, shop)
    again = Shop(shop.path)
    again.reset_leaves = "left over"
    async with serving(again.app()) as url:
        with pytest.raises(RestoreUnfaithful) as refused:
            await redriven(store, url, reset=(f"app=POST {url}/reset",))
    assert "deals/77" in str(refused.value)
    assert "left over" in str(refused.value)
    assert [path for _, path in again.seen] == ["/reset"]


async def test_a_reset_that_gives_the_recorded_start_is_verified(store: Store, shop: Shop) -> None:
    await recorded(store, shop)
    again = Shop(shop.path, first_id=9)
    async with serving(again.app()) as url:
        [one] = await redriven(store, url, reset=(f"app=POST {url}/reset",), repeat=2)
    assert one.verdict == "same"
    assert again.resets == 2
    assert document([one])["receipt"]["restore"]["verified"] == ["app"]


async def test_with_a_reset_and_no_snapshot_only_answers_are_compared_and_the_receipt_says_so(
    store: Store, shop: Shop
) -> None:
    await recorded(store, shop, snapshot=None)
    async with serving(Shop(shop.path).app()) as url:
        [one] = await redriven(store, url, reset=(f"app=POST {url}/reset",))
    told = document([one])
    assert told["verdict"] == "same"
    assert told["receipt"]["restore"]["answers_only"] == ["app"]
    assert told["receipt"]["reproduced"] is False


async def test_a_recorded_reset_is_aimed_at_the_live_environment(store: Store, shop: Shop) -> None:
    async with serving(shop.app()) as url:
        recording = Recording(url)
        await recording.begin()
        await agent(recording)
        await recording.end()
    await kept(store, recording, reset=("POST", f"{url}/reset", ""))
    again = Shop(shop.path)
    async with serving(again.app()) as url:
        [one] = await redriven(store, url)
    assert one.verdict == "same"
    assert again.resets == 1


async def test_with_neither_snapshot_nor_reset_nothing_can_be_said(store: Store, shop: Shop) -> None:
    await recorded(store, shop, snapshot=None)
    async with serving(Shop(shop.path, double=True).app()) as url:
        [one] = await redriven(store, url)
    assert one.verdict == "undecided"
    assert exit_code([one]) == 3
    assert "neither a snapshot nor a reset" in document([one])["receipt"]["undecided"][0]


async def test_a_state_that_nothing_can_restore_must_already_be_the_recorded_one(store: Store, shop: Shop) -> None:
    await recorded(store, shop, snapshot="http")
    async with serving(Shop(shop.path).app()) as url:
        spec = f"app=http:{url}/state,restore=none"
        with pytest.raises(RestoreUnfaithful) as refused:
            await redriven(store, url, snapshot=(spec,))
        shop.rows("DELETE FROM deals")
        shop.rows("DELETE FROM items")
        [one] = await redriven(store, url, snapshot=(spec,))
    assert "nothing restores it" in str(refused.value)
    assert one.verdict == "same"
    assert document([one])["receipt"]["restore"]["by"] == {"app": "found"}


async def test_repetitions_are_restored_each_and_counted(store: Store, shop: Shop) -> None:
    await recorded(store, shop)

    class Moody(Shop):
        calls = 0

        async def add_deal(self, request: web.Request) -> web.Response:
            Moody.calls += 1
            self.double = Moody.calls == 2
            return await super().add_deal(request)

    async with serving(Moody(shop.path).app()) as url:
        [one] = await redriven(store, url, repeat=3)
    told = document([one])
    assert [item["verdict"] for item in told["repeats"]] == ["same", "different", "same"]
    assert (told["verdict"], told["different"], told["times"]) == ("different", 1, 3)
    assert told["roots"][0]["pointer"] == "body/amount"


async def test_it_stops_at_the_first_difference_if_asked(store: Store, shop: Shop) -> None:
    await recorded(store, shop)
    again = Shop(shop.path, double=True)
    async with serving(again.app()) as url:
        [one] = await redriven(store, url, stop_first=True)
    told = document([one])
    assert told["verdict"] == "different"
    assert (told["receipt"]["sent"], told["receipt"]["unsent"]) == (3, 6)
    assert len(again.seen) == 3
    assert told["roots"][0]["a"] == "r/e#3"


async def test_saved_answers_are_a_run_of_their_own(store: Store, shop: Shop) -> None:
    trace = await recorded(store, shop)
    async with serving(Shop(shop.path, double=True).app()) as url:
        [one] = await redriven(store, url, save="today", repeat=2)
    reader = store.reader()
    run = reader.run("today")
    assert (run.origin, run.envs["app"].upstream) == ("redrive", url)
    episodes = reader.episodes(run)
    assert [e.name for e in episodes] == ["e", "e-r2"]
    assert {str(e.state) for e in episodes} == {"sealed"}
    live = reader.trace(run, episodes[0])
    assert (episodes[0].task, episodes[0].seed) == ("t", 1)
    assert [e.request.method for e in live.exchanges] == [e.request.method for e in trace.exchanges]
    assert [(s.when, s.after_seq) for s in live.snapshots] == [(s.when, s.after_seq) for s in trace.snapshots]
    assert all(s.root and prolly.rows(s.root, reader.node) is not None for s in live.snapshots)
    assert document([one])["roots"][0]["b"] == "today/e#3"


async def test_every_episode_of_a_run_is_restored_and_sent(store: Store, shop: Shop) -> None:
    await recorded(store, shop)
    shop.rows("DELETE FROM deals")
    shop.rows("DELETE FROM items")
    shop.next_id = 1
    await recorded(store, shop, episode="f")
    async with serving(Shop(shop.path).app()) as url:
        both = await redriven(store, url, "r")
    told = document(both)
    assert [part["episode"] for part in told["episodes"]] == ["r/e", "r/f"]
    assert told["verdict"] == "same"
    assert (told["receipt"]["sent"], told["receipt"]["reproduced"]) == (18, True)


async def test_one_episode_that_cannot_be_judged_does_not_hide_the_others(store: Store, shop: Shop) -> None:
    await recorded(store, shop)
    await recorded(store, shop, episode="cut", seal=False)
    async with serving(Shop(shop.path).app()) as url:
        both = await redriven(store, url, "r")
    assert [one.verdict for one in both] == ["same", "undecided"]
    assert exit_code(both) == 3


async def test_websockets_and_half_sent_requests_are_skipped_and_leave_it_undecided(store: Store, shop: Shop) -> None:
    async with serving(shop.app()) as url:
        recording = Recording(url, {"app": f"sqlite:{shop.path}"})
        await recording.begin()
        await recording.send(ask("GET", "/deals"))
        socket = await recording.send(ask("GET", "/deals"))
        half = await recording.send(ask("GET", "/deals"))
        recording.exchanges[1] = replace(socket, websocket=WebSocket(messages=(), close_code=1000))
        recording.exchanges[2] = replace(half, outcome=Outcome.HALF_SENT, response=None)
        await recording.send(ask("GET", "/me"))
        await recording.end()
    await kept(store, recording)
    again = Shop(shop.path)
    async with serving(again.app()) as url:
        [one] = await redriven(store, url)
    told = document([one])
    assert told["verdict"] == "undecided"
    assert told["receipt"]["skipped"] == [
        {"exchange": "r/e#2", "why": "websocket"}, {"exchange": "r/e#3", "why": "half-sent"},
    ]  # fmt: skip
    assert [path for _, path in again.seen] == ["/deals", "/me"]


async def test_the_environments_own_address_in_answers_is_explained_as_authority(store: Store) -> None:
    async def index(request: web.Request) -> web.Response:
        return web.json_response({"self": f"http://{request.host}/v1/", "next": f"http://{request.host}/v1/p?2"})

    def app() -> web.Application:
        made = web.Application()
        made.router.add_get("/v1/", index)
        return made

    async with serving(app()) as url:
        recording = Recording(url)
        await recording.begin()
        await recording.send(ask("GET", "/v1/"))
        await recording.end()
    await kept(store, recording)
    async with serving(app()) as url:
        [one] = await redriven(store, url, reset=(f"app=GET {url}/v1/",))
    assert one.verdict == "same"
    assert document([one])["explained"] == {"authority": 2}


async def test_a_request_without_an_answer_is_sent_once(store: Store, shop: Shop) -> None:
    await recorded(store, shop, snapshot=None)

    class Dying(Shop):
        async def add_deal(self, request: web.Request) -> web.Response:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()

    dying = Dying(shop.path)
    async with serving(dying.app()) as url:
        [one] = await redriven(store, url, reset=(f"app=POST {url}/reset",))
    assert one.verdict == "different"
    assert [path for method, path in dying.seen if method == "POST"].count("/deals") == 1
    root = document([one])["roots"][0]
    assert (root["a"], root["pointer"], root["values"]) == ("r/e#3", "outcome", ["answered", "cut"])
