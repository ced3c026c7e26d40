"""Which recorded answer an agent over HTTP/2 and TLS gets: targets, order, conditions; and what is kept of secrets."""

from __future__ import annotations

import base64
import json

import pytest

from replayproxy.core.redact import TOKEN
from replayproxy.session import secrecy
from replayproxy.storage import Store
from tests.cases.h2lab import WAYS, Ask, Desk, Heard, Pairs, Say, Site, both, recorded, replayed
from tests.cases.test_urls import UNLIKE

ways = pytest.mark.parametrize("way", WAYS)


def echo(heard: Heard) -> Say:
    return Say((heard.all(b":path")[0].hex().encode(),))


@ways
async def test_targets_that_differ_by_a_byte_are_never_taken_for_each_other(store: Store, desk: Desk, way: str) -> None:
    kept = [family[0] for family in UNLIKE]
    others = [other for family in UNLIKE for other in family[1:]]
    async with Site(desk, way, echo) as site:
        live, exchanges = await both(store, site, *map(Ask, kept))
        assert [one.all(b":path") for one in site.asked] == [[one] for one in kept]
    assert [one.body for one in live] == [one.hex().encode() for one in kept]
    assert [one.request.target for one in exchanges] == kept
    async with replayed(store, site) as again:
        assert [one.status for one in await again.ask(*map(Ask, others))] == [470] * len(others)
        assert [one.body for one in await again.ask(*map(Ask, kept))] == [one.body for one in live]


@ways
async def test_an_ipv6_authority_keeps_its_brackets(store: Store, desk: Desk, way: str) -> None:
    async with Site(desk, way, echo, host="::1") as site:
        async with recorded(store, site, listen="::1", **({"forward": ("::1", 0)} if site.forward else {})) as on:
            (live,) = await on.ask(Ask(b"/x"))
            agent = on.agents[0]
            (one,) = await on.on.exchanges(count=1)
        assert (live.body, one.request.agent_host) == (b"/x".hex().encode(), agent.authority)
        assert agent.authority.startswith(b"[::1]:")
        assert one.upstream == site.url
        assert site.asked[0].all(b"Host" if way == "http/1.1" else b":authority") == [site.authority]
    async with replayed(store, site) as again:
        (told,) = await again.ask(Ask(b"/x"))
    assert told.said == live.said


@ways
async def test_the_nth_equal_request_gets_the_nth_answer_and_one_more_is_a_miss(
    store: Store, desk: Desk, way: str
) -> None:
    count = iter(range(99))
    read, write = Ask(b"/counter"), Ask(b"/inc", method=b"POST")
    asks = [read, write, read, read, write]
    async with Site(desk, way, lambda heard: Say((b"%d" % next(count),))) as site:
        live, _ = await both(store, site, *asks)
    assert [one.body for one in live] == [b"0", b"1", b"2", b"3", b"4"]
    async with replayed(store, site) as again:
        told = await again.ask(*asks, asks[-1])
        assert [one.said for one in told[:-1]] == [one.said for one in live]
        assert (told[-1].status, told[-1].all(b"replay-miss")) == (470, [b"1"])
        assert json.loads(told[-1].body)["status"] == 470
        assert again.on.receipt()["missed"] == 1


CONDITIONS: list[Pairs] = [
    (), ((b"if-none-match", b'"v1"'),), ((b"if-modified-since", b"Thu, 21 Mar 2030 12:45:00 GMT"),),
    ((b"range", b"bytes=0-3"),), ((b"if-range", b'"v1"'), (b"range", b"bytes=0-3")),
]  # fmt: skip
UNKNOWN: list[Pairs] = [((b"if-none-match", b'"v2"'),), ((b"range", b"bytes=4-"),), ((b"if-match", b"*"),)]


def bundle(heard: Heard) -> Say:
    if heard.all(b"range"):
        return Say((b"0123",), ((b"content-range", b"bytes 0-3/10"), (b"content-length", b"4")), 206)
    if any(name.startswith(b"if-") for name, _ in heard.head):
        return Say((), ((b"etag", b'"v1"'),), 304)
    return Say((b"0123456789",), ((b"etag", b'"v1"'),))


@ways
async def test_a_condition_or_range_is_answered_only_by_what_was_recorded_under_it(
    store: Store, desk: Desk, way: str
) -> None:
    asks = [Ask(b"/bundle", one) for one in CONDITIONS]
    async with Site(desk, way, bundle) as site:
        live, _ = await both(store, site, *asks)
    assert [one.status for one in live][:2] == [200, 304]
    async with replayed(store, site) as again:
        assert [one.status for one in await again.ask(*(Ask(b"/bundle", one) for one in UNKNOWN))] == [470] * 3
        mixed = [3, 1, 4, 0, 2]
        told = await again.ask(*(asks[n] for n in mixed))
        assert [one.said for one in told] == [live[n].said for n in mixed]


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
