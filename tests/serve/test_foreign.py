"""A recording made with another key: credentials bind, one for one, and no secret is shown."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from replayproxy.core.redact import Redactor
from replayproxy.core.relax import Relaxation
from replayproxy.core.replayer import Miss, Replayer, Serve
from replayproxy.core.values import Exchange, Run
from replayproxy.serve.loading import load_script
from replayproxy.session import secrecy
from replayproxy.storage import Store, open_store
from replayproxy.testing import exchange
from tests.serve.staged import record, staged
from tests.serve.talks import agent, connected, talk
from tests.serve.test_websocket_unlike import closed

JSON = {"Content-Type": "application/json"}
THEIRS, OURS = Redactor(b"t" * 32), Redactor(b"o" * 32)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "store", create=True) as opened:
        yield opened


def imported(store: Store, *exchanges: Exchange) -> Run:
    clean = [THEIRS.exchange(one) for one in exchanges]
    return record(store, {"e": clean}, config={"secrets": secrecy.wired(THEIRS)})


def by(credential: str, scheme: str = "Bearer") -> dict[str, str]:
    return {"Authorization": f"{scheme} {credential}"}


def basic(user: str, password: str) -> str:
    return base64.b64encode(f"{user}:{password}".encode()).decode()


async def test_a_live_credential_stands_for_the_recorded_one_and_for_no_other(store: Store) -> None:
    run = imported(
        store, *(exchange("GET", "/x", request_headers=by(name)) for name in ("AAAA-secret-1", "BBBB-secret-2")),
        exchange("GET", "/y", request_headers=by("AAAA-secret-1")),
    )  # fmt: skip
    async with staged(store, run, redactor=OURS) as on:
        assert b" 200 " in await on.get("/x", **by("live-secret-1"))
        assert b" 200 " in await on.get("/x", **by("live-secret-2"))
        crossed = await on.get("/y", **by("live-secret-2"))
        assert b" 470 " in crossed
        assert b" 200 " in await on.get("/y", **by("live-secret-1"))
        receipt = on.receipt()
    assert [one["kind"] for one in receipt["bindings"]] == ["credential", "credential"]
    assert receipt["bindings"][0]["live"] == OURS.token(b"live-secret-1").decode()
    told = json.dumps(receipt) + crossed.decode()
    assert all(secret not in told for secret in ("AAAA-secret-1", "live-secret-1", "live-secret-2"))


async def test_of_basic_credentials_only_the_password_is_another(store: Store) -> None:
    run = imported(store, *(exchange("GET", "/x", request_headers=by(basic("ada", "AAAA-pw"), "Basic")) for _ in "ab"))
    async with staged(store, run, redactor=OURS) as on:
        assert b" 470 " in await on.get("/x", **by(basic("eve", "live-pw"), "Basic"))
        assert b" 200 " in await on.get("/x", **by(basic("ada", "live-pw"), "Basic"))
        assert b" 470 " in await on.get("/x", **by(basic("ada", "other-pw"), "Basic"))


async def test_under_the_same_key_another_credential_is_another_request(store: Store) -> None:
    clean = THEIRS.exchange(exchange("GET", "/x", request_headers=by("AAAA-secret-1")))
    run = replace(record(store, {"e": [clean]}, config={"secrets": secrecy.wired(THEIRS)}))
    async with staged(store, run, redactor=THEIRS) as on:
        assert b" 470 " in await on.get("/x", **by("live-secret-1"))
        assert b" 200 " in await on.get("/x", **by("AAAA-secret-1"))
        assert on.receipt()["bindings"] == []


async def test_a_credential_inside_a_text_follows_its_binding(store: Store) -> None:
    def noted(name: str) -> Exchange:
        sent = {"note": f"run curl -H 'Authorization: Bearer {name}' twice", "of": "ada"}
        return exchange("POST", "/n", sent=sent, request_headers=by(name) | JSON, env="app")

    run = imported(store, exchange("GET", "/x", request_headers=by("AAAA-secret-1")), noted("AAAA-secret-1"),
                   noted("AAAA-secret-1"))  # fmt: skip
    live = OURS.request(noted("live-secret-1").request)
    other = OURS.request(noted("live-secret-2").request)
    script = load_script(store.reader(), run, store.reader().episode(run, "e"), Relaxation(()), OURS)
    play = Replayer(script)
    first = OURS.request(exchange("GET", "/x", request_headers=by("live-secret-1")).request)
    assert isinstance(play.ask(script.identify("app", first), "main"), Serve)
    assert isinstance(play.ask(script.identify("app", live), "main"), Serve)
    assert isinstance(play.ask(script.identify("app", other), "main"), Miss)
    assert isinstance(play.ask(script.identify("app", live), "main"), Serve)


@pytest.mark.parametrize(("ours", "says"), [(OURS, True), (THEIRS, False)])
async def test_a_message_with_another_keys_credential_says_why_it_is_a_miss(
    store: Store, ours: Redactor, says: bool
) -> None:
    run = imported(store, talk(agent('{"data": {"api_key": "AAAA-secret-1"}}')))
    async with staged(store, run, redactor=ours) as on:
        async with connected(on) as socket:
            await socket.send_str('{"data": {"api_key": "live-secret-1"}}')
            assert (await closed(socket))[0] == 4470
        [miss] = on.receipt()["misses"]
    assert ("recorded under another store's key" in miss["detail"]) is says
