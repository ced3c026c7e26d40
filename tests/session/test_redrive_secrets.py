"""A re-drive of a recording that holds tokens: what it asks for, what it learns, and what it keeps."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from aiohttp import web

from replayproxy.core.redact import TOKEN, Redactor
from replayproxy.errors import WrongUsage
from replayproxy.session import secrecy
from replayproxy.session.redrive_report import document
from replayproxy.session.redrive_secrets import credentials
from replayproxy.storage import Store
from replayproxy.testing import exchange
from tests.session.redrive_lab import Recording, Shop, ask, kept, serving
from tests.session.redrive_shop import recorded, redriven


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path / "shop.db")


@pytest.fixture
def redactor(store: Store) -> Redactor:
    return secrecy.for_recording(store.path)


async def test_a_cookie_that_nobody_gave_is_asked_for_and_one_from_a_login_is_not(
    store: Store, shop: Shop, redactor: Redactor
) -> None:
    await recorded(store, shop, redactor=redactor)
    again = Shop(shop.path, first_id=101)
    async with serving(again.app()) as url:
        with pytest.raises(WrongUsage, match=r"cookie theme \(#2\)") as lacking:
            await redriven(store, url)
        with pytest.raises(WrongUsage, match=r"cookie theme \(#2\); --credential tehme is the name of none -> "):
            await redriven(store, url, credential=("tehme=dark",))
        assert again.seen == []
        lines: list[str] = []
        [one] = await redriven(store, url, credential=("theme=dark", "tehme=x"), told=lines)
    assert [line.partition(":")[0] for line in lines if "not used" in line] == ["--credential tehme"]
    assert "--credential theme=" in str(lacking.value)
    told = document([one])
    assert told["verdict"] == "same", json.dumps(told["roots"])
    assert told["receipt"]["reproduced"] is True
    assert again.sessions
    shown = json.dumps(told)
    assert not [session for session in (*again.sessions, *shop.sessions) if session in shown or session[:6] in shown]


async def test_what_is_saved_holds_tokens_again(store: Store, shop: Shop, redactor: Redactor) -> None:
    await recorded(store, shop, redactor=redactor)
    again = Shop(shop.path)
    async with serving(again.app()) as url:
        await redriven(store, url, credential=("theme=dark",), save="again")
    reader = store.reader()
    run = reader.run("again")
    assert secrecy.same_key(redactor, run)
    trace = reader.trace(run, reader.episode(run, "e"))
    login = trace.exchanges[0].response
    assert login is not None
    (cookie,) = (value for name, value in login.fields if name.lower() == b"set-cookie")
    assert TOKEN.match(cookie.removeprefix(b"sid="))
    assert not any(session in repr(trace) for session in again.sessions)


class Guarded(Shop):
    """Takes one user and password, gives a bearer token for it in JSON, and takes only that afterwards."""

    password = "pass-1"
    bearer = "bearer-aaaa-1111"

    def app(self) -> web.Application:
        app = super().app()
        app.router.add_post("/tokens", self.tokens)
        app.router.add_get("/mine/{token}", self.mine)
        return app

    async def tokens(self, request: web.Request) -> web.Response:
        given = base64.b64encode(f"ada:{self.password}".encode()).decode()
        if request.headers.get("Authorization") != f"Basic {given}":
            return web.json_response({"error": "no"}, status=401)
        return web.json_response({"data": {"access_token": self.bearer}})

    async def mine(self, request: web.Request) -> web.Response:
        told = await request.post() if request.can_read_body else {}
        good = request.headers.get("Authorization") == f"Bearer {self.bearer}" and not told
        return web.json_response({"ok": good and request.match_info["token"] == self.bearer})


async def test_a_fresh_password_goes_out_as_basic_and_the_token_it_earns_is_used(
    store: Store, tmp_path: Path, redactor: Redactor, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = Guarded(tmp_path / "shop.db")
    async with serving(old.app()) as url:
        recording = Recording(url, {"app": f"sqlite:{old.path}"})
        await recording.begin()
        basic = base64.b64encode(b"ada:pass-1").decode()
        await recording.send(ask("POST", "/tokens", headers=[("Authorization", f"Basic {basic}")]))
        bearer = [("Authorization", f"Bearer {old.bearer}")]
        await recording.send(ask("GET", f"/mine/{old.bearer}", headers=bearer))
        await recording.end()
    trace = await kept(store, recording, redactor=redactor)
    assert old.bearer not in repr(trace)
    fresh = Guarded(old.path)
    fresh.password, fresh.bearer = "pass-2", "b2"
    monkeypatch.setenv("REPLAYPROXY_CREDENTIAL_AUTHORIZATION", "ada:pass-2")
    async with serving(fresh.app()) as url:
        [one] = await redriven(store, url)
    assert one.verdict == "same", json.dumps(document([one])["roots"])
    assert [path for _, path in fresh.seen][-1] == "/mine/b2"
    assert "pass-2" not in json.dumps(document([one]))


async def test_a_recording_with_its_secrets_goes_out_as_it_is(store: Store, shop: Shop) -> None:
    keeper = Redactor(None)
    await recorded(store, shop, redactor=keeper)
    async with serving(Shop(shop.path).app()) as url:
        [one] = await redriven(store, url)
    assert one.verdict == "same"


def test_a_credential_is_a_name_and_a_value_and_may_be_a_variable() -> None:
    from replayproxy.session.redrive_secrets import given

    assert given(["a=b=c", "X=env:V"], {"V": "s3"}) == {"a": "b=c", "X": "s3"}
    for wrong in ("a", "=b", "a="):
        with pytest.raises(WrongUsage, match="NAME=VALUE"):
            given([wrong], {})
    with pytest.raises(WrongUsage, match="not set"):
        given(["a=env:V"], {})


def test_a_credential_that_no_token_has_the_name_of_is_told(redactor: Redactor) -> None:
    token = redactor.token(b"hunter2hunter2").decode()
    asked = exchange("GET", "/x", request_headers={"X-Api-Key": token})
    held = credentials([asked], ["x-api-KEY=fresh", "pasword=x"], redactor, {})
    assert held.unused() == ["pasword"]
