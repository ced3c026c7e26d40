"""What an agent may have made up, and what only looks like it: there another value is another request."""

from __future__ import annotations

import base64
import hashlib
import secrets
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replayproxy.testing import exchange
from tests.core.play import Play
from tests.core.world import relaxed

CHANCE = Random(7)


def token(size: int, letters: str = "ABCDEFGHJKMNPQRSTVWXYZabcdefghjkmnpqrstvwxyz23456789") -> str:
    return "".join(CHANCE.choice(letters) for _ in range(size))


def uuid() -> str:
    raw = "".join(CHANCE.choice("0123456789abcdef") for _ in range(32))
    return f"{raw[:8]}-{raw[8:12]}-4{raw[13:16]}-8{raw[17:20]}-{raw[20:]}"


def understood(name: str, recorded: str, live: str) -> bool:
    return Play(exchange("POST", "/act", sent={name: recorded})).ask("POST", "/act", {name: live}) == 1


@pytest.mark.parametrize("name", ["call_id", "anything", "requestId", "idempotency-key", "clientMessageId", "x_uuid"])
def test_a_uuid_is_minted_under_any_name_that_is_no_collections(name: str) -> None:
    assert understood(name, uuid(), uuid())


@pytest.mark.parametrize("name", ["call_id", "callId", "nonce", "idempotency_key", "clientRef", "correlation", "uid"])
def test_another_token_of_chance_is_minted_where_its_name_says_so(name: str) -> None:
    assert understood(name, "call_" + token(22), "call_" + token(22))


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("iban", lambda: "DE" + token(20, "0123456789")), ("card_id", lambda: "4" + token(15, "0123456789")),
        ("file", lambda: base64.b64encode(CHANCE.randbytes(30)).decode()), ("license", lambda: token(25)),
        ("content_id", lambda: base64.b64encode(CHANCE.randbytes(300)).decode()),
        ("commit_id", lambda: hashlib.sha1(CHANCE.randbytes(4)).hexdigest()),
        ("md5", lambda: hashlib.md5(CHANCE.randbytes(4)).hexdigest()),
        ("ref", lambda: "sha256:" + hashlib.sha256(CHANCE.randbytes(4)).hexdigest()),
        ("checksum", uuid), ("call_id", lambda: "c-" + token(4)),
    ],
)  # fmt: skip
def test_an_account_a_file_a_digest_or_a_short_id_is_never_bound(name: str, make) -> None:
    recorded, live = make(), make()
    assert recorded != live
    assert not understood(name, recorded, live)
    assert understood(name, recorded, recorded)


@pytest.mark.parametrize("name", ["account_id", "userId", "customer-uuid", "to", "payee", "order_id"])
def test_a_name_that_refers_to_a_thing_is_the_things_also_where_nothing_else_shows_it(name: str) -> None:
    a, b = uuid(), uuid()
    play = Play(exchange("POST", "/payments", sent={name: a}))
    assert play.ask("POST", "/payments", {name: b}) is None
    assert play.ask("POST", "/payments", {name: a}) == 1


def test_who_creates_a_thing_names_it() -> None:
    a, b = uuid(), uuid()
    play = Play(exchange("POST", "/orders", sent={"order_id": a}), exchange("GET", f"/orders/{a}"))
    assert (play.ask("POST", "/orders", {"order_id": b}), play.ask("GET", f"/orders/{b}")) == (1, 2)


@relaxed
@given(st.uuids(version=4), st.uuids(version=4), st.sampled_from(["left", "right"]))
def test_fresh_uuids_pass_and_nothing_else_of_the_request_does(a, b, action: str) -> None:
    play = Play(exchange("POST", "/act", sent={"call_id": str(a), "action": "left"}))
    served = play.ask("POST", "/act", {"call_id": str(b), "action": action})
    assert (served == 1) is (action == "left")


def test_many_values_are_looked_for_as_fast_as_few() -> None:
    ids = [secrets.token_hex(16) for _ in range(200)]
    told = exchange("GET", "/next", body={"calls": ids[:100]})
    play = Play(told, *(exchange("POST", "/act", sent={"call_id": one}) for one in ids))
    assert play.ask("POST", "/act", {"call_id": uuid().replace("-", "")}) == 102  # the first that was not told
