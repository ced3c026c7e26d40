"""Over HTTP/2 and TLS: an IPv6 authority, and what is kept of secrets and of a cookie's crumbs."""

from __future__ import annotations

import base64
import json

import pytest

from replayproxy.core.redact import TOKEN
from replayproxy.session import secrecy
from replayproxy.storage import Store
from tests.cases.h2lab import WAYS, Ask, Desk, Heard, Pairs, Say, Site, recorded, replayed

ways = pytest.mark.parametrize("way", WAYS)


@ways
async def test_an_ipv6_authority_keeps_its_brackets(store: Store, desk: Desk, way: str) -> None:
    async with Site(desk, way, lambda heard: Say((heard.all(b":path")[0],)), host="::1") as site:
        async with recorded(store, site, listen="::1", **({"forward": ("::1", 0)} if site.forward else {})) as on:
            (live,) = await on.ask(Ask(b"/x"))
            agent = on.agents[0]
            (one,) = await on.on.exchanges(count=1)
        assert (live.body, one.request.agent_host) == (b"/x", agent.authority)
        assert agent.authority.startswith(b"[::1]:")
        assert one.upstream == site.url
        assert site.asked[0].all(b"Host" if way == "http/1.1" else b":authority") == [site.authority]
    async with replayed(store, site) as again:
        (told,) = await again.ask(Ask(b"/x"))
    assert told.said == live.said


A, B = b"AAAkJ3v9QzX7secret", b"BBBmT5w2LpR8secret"
SECRET: Pairs = (
    (b"authorization", b"Bearer " + A), (b"cookie", b"theme=dark"), (b"cookie", b"sid=" + A), (b"cookie", b"b=2"),
    (b"x-api-key", A), (b"proxy-authorization", b"Basic " + base64.b64encode(b"user:" + A)),
)  # fmt: skip
COOKIE = ((b"set-cookie", b"sid=" + B + b"; Path=/"), (b"content-type", b"application/json"))


@ways
async def test_no_record_holds_a_secret_the_wire_carries_the_live_one_and_crumbs_match(
    store: Store, desk: Desk, way: str
) -> None:
    def handler(heard: Heard) -> Say:
        if heard.all(b":path") == [b"/cut"]:
            return Say((b'{"token": "', B), COOKIE, then="reset")
        early = [(103, ((b"set-cookie", b"s=" + B),))]
        return Say((b'{"access_token": "' + B + b'"}',), COOKIE, interims=early, trailers=((b"x-api-key", B),))

    fields = SECRET if way != "h2 in a tunnel" else SECRET[:-1]  # a proxy user in a tunnel names the episode
    asks = [
        Ask(b"/x", fields),
        Ask(b"/y?api_key=" + A, fields, (b'{"password": "' + A + b'"}',), b"POST", ((b"x-api-key", A),)),
        Ask(b"/cut", fields),
    ]
    async with Site(desk, way, handler) as site:
        async with recorded(store, site, discreet=True) as on:
            live = await on.ask(*asks)
            kept = await on.on.exchanges(count=3)
            said = repr((kept, on.on.said, on.on.recorder.recording.tally.faults)).encode()
        assert live[0].all(b"set-cookie") == [b"sid=" + B + b"; Path=/"]
        seen = site.asked[0]
        assert A in b"; ".join(value for name, value in seen.head if name.lower() == b"cookie")
        assert site.asked[1].body == b'{"password": "' + A + b'"}'
    crumbs = [value for name, value in kept[0].request.fields if name == b"cookie"]
    assert [TOKEN.sub(b"T", one) for one in crumbs] == [b"theme=T", b"sid=T", b"b=T"], "crumbs stay crumbs"
    for secret in (A, B, base64.b64encode(b"user:" + A)):
        assert secret not in said
        for path in store.path.rglob("*"):
            assert not path.is_file() or secret not in path.read_bytes(), path
    async with replayed(store, site, redactor=secrecy.load(store.path, store.reader().run("r"))) as again:
        joined: Pairs = (SECRET[0], (b"cookie", b"theme=dark; sid=" + A + b"; b=2"), *fields[4:])
        told = await again.ask(Ask(b"/x", joined), *asks[1:])
        assert [one.status for one in told] == [one.status for one in live], again.on.misses
        assert A not in json.dumps(again.on.receipt()).encode()
        assert not any(A in one.body or B in one.body for one in told)
