"""Re-drive end to end, with environments in this process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from replayproxy.core import prolly
from replayproxy.core.values import Outcome, Trace, WebSocket
from replayproxy.drive import wire
from replayproxy.drive.origin import Origin
from replayproxy.errors import CannotJudge, RestoreUnfaithful, WorldTrouble, WrongUsage
from replayproxy.session.redrive import Ask, Redriven, redrive
from replayproxy.session.redrive_report import document, exit_code
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
    store: Store, url: str, *addresses: str, snapshot: tuple[str, ...] = (), reset: tuple[str, ...] = (),
    env: tuple[str, ...] | None = None, disposable: tuple[str, ...] = (), told: list[str] | None = None, **more: Any,
) -> list[Redriven]:  # fmt: skip
    words = Words(env=(f"app={url}",) if env is None else env, snapshot=snapshot, reset=reset, disposable=disposable)
    say = (told if told is not None else []).append
    return await redrive(store, Ask(addresses=addresses or ("r/e",), words=words, **more), say)


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
