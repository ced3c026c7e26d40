"""Messages over HTTP/2 and TLS: where they end, what precedes them, their fields, and that a replay says the same.

The environment speaks HTTP/2 behind a listener or a tunnel, or HTTP/1.1; the agent always speaks HTTP/2.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from replayproxy.core.canonical import decoded
from replayproxy.core.values import Outcome
from replayproxy.storage import Store
from tests.cases.h2ends import Handler
from tests.cases.h2lab import WAYS, Ask, Desk, Pairs, Say, Site, both, recorded, replayed
from tests.cases.lab import over_a_store

few = settings(max_examples=2, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
ways = pytest.mark.parametrize("way", WAYS)


def scripted(*answers: Say) -> Handler:
    """The n-th request gets the n-th answer; its number is the end of its path."""
    return lambda heard: answers[int(dict(heard.head)[b":path"].rpartition(b"/")[2])]


@ways
async def test_an_answer_without_a_body_keeps_the_length_of_the_absent_one(store: Store, desk: Desk, way: str) -> None:
    cases = [
        (method, status, length)
        for method, status in ((b"HEAD", 200), (b"HEAD", 404), (b"GET", 304), (b"GET", 204))
        for length in ((None, 0, 1, 4096, 10**12) if status != 204 else (None,))
    ]
    lengths: list[Pairs] = [() if n is None else ((b"content-length", b"%d" % n),) for _, _, n in cases]
    answers = [Say((), ((b"etag", b'"v"'), *f), status) for (_, status, _), f in zip(cases, lengths, strict=True)]
    async with Site(desk, way, scripted(*answers)) as site:
        live, _ = await both(store, site, *(Ask(b"/%d" % n, method=m) for n, (m, _, _) in enumerate(cases)))
    for heard, (_, status, _), fields in zip(live, cases, lengths, strict=True):
        assert (heard.status, heard.body, heard.ended) == (status, b"", "whole")
        assert heard.head[1:] == ((b"etag", b'"v"'), *fields)


@ways
async def test_an_informational_answer_is_never_taken_for_the_final_one(store: Store, desk: Desk, way: str) -> None:
    cases = [[103], [102, 103], [103, 103, 103], [199]]
    told = [[(status, ((b"link", b"</a.css>; n=%d" % n),)) for n, status in enumerate(one)] for one in cases]
    async with Site(desk, way, scripted(*(Say((b"ok",), interims=one) for one in told))) as site:
        methods = (b"GET", b"POST", b"HEAD", b"PUT")
        live, kept = await both(store, site, *(Ask(b"/%d" % n, method=m) for n, m in enumerate(methods)))
    for heard, one, exchange in zip(live, told, kept, strict=True):
        assert heard.status == exchange.response.status == 200
        assert heard.interims == [((b":status", b"%d" % status), *fields) for status, fields in one]
        assert [status for status, _ in exchange.response.informational] == [status for status, _ in one]


TRAILERS: list[Pairs] = [
    ((b"x-sum", b"1"),),
    ((b"x-sum", b""), (b"x-sum", b"\xe9")),
    ((b"server-timing", b"a"), (b"x-sum", b"1"), (b"server-timing", b"b")),
]


@ways
async def test_trailers_pass_both_ways(store: Store, desk: Desk, way: str) -> None:
    async with Site(desk, way, scripted(*(Say((b"a", b"b"), trailers=one) for one in TRAILERS))) as site:
        asks = [Ask(b"/%d" % n, (), (b"c", b"d"), b"POST", one) for n, one in enumerate(TRAILERS)]
        live, kept = await both(store, site, *asks)
        for asked, heard, exchange, one in zip(site.asked, live, kept, TRAILERS, strict=True):
            assert asked.trailers == heard.trailers == exchange.request.trailers == exchange.response.trailers == one
            assert (asked.body, heard.body) == (b"cd", b"ab")


@ways
async def test_framing_of_http1_is_never_seen_over_http2(store: Store, desk: Desk, way: str) -> None:
    hop: Pairs = ((b"connection", b"x-hop"), (b"keep-alive", b"timeout=5")) if way == "http/1.1" else ()
    async with Site(desk, way, lambda heard: Say((b"one", b"two"), hop)) as site:
        live, kept = await both(store, site, Ask(b"/a"), Ask(b"/b", pieces=(b"x", b"y"), method=b"POST"))
        hops = {b"connection", b"keep-alive", b"transfer-encoding", b"upgrade", b"host", b"proxy-connection"}
        for heard in (*live, *(site.asked if site.protocol == "h2" else ())):
            assert not hops & {name for name, _ in heard.head}
    if way == "http/1.1":
        assert (b"keep-alive", b"timeout=5") in kept[0].response.fields, "stored as it came"


COOKIES = [
    b"sid=a; Expires=Wed, 01 Jan 2031 00:00:00 GMT", b"lang=en", b"sid=b; HttpOnly", b"", b"empty=",
    b"odd=\xff; Secure", b'quoted="a, b"',
]  # fmt: skip
BYTES = st.binary(min_size=1, max_size=20).map(
    lambda raw: b"a" + bytes(b for b in raw if b >= 0x20 and b != 0x7F) + b"\xe9z"
)


@ways
@given(cookies=st.lists(st.sampled_from(COOKIES), min_size=2, max_size=6), odd=st.lists(BYTES, min_size=1, max_size=3))
@few
def test_repeated_fields_and_bytes_that_are_no_utf_8_stay_as_they_are(
    desk: Desk, way: str, cookies: list[bytes], odd: list[bytes]
) -> None:
    @over_a_store
    async def check(store: Store) -> None:
        told: Pairs = (*((b"set-cookie", one) for one in cookies), *((b"x-odd", one) for one in odd), (b"link", b"<b>"))
        asked: Pairs = ((b"cookie", b"a=1"), *((b"x-odd", one) for one in odd), (b"accept", b"x"), (b"accept", b"y"))
        async with Site(desk, way, lambda heard: Say((), told)) as site:
            live, kept = await both(store, site, Ask(b"/caf\xc3\xa9?\xff=\xfe", asked))
            assert site.asked[0].all(b"x-odd") == odd
            assert site.asked[0].all(b":path") == [b"/caf\xc3\xa9?\xff=\xfe"]
        assert live[0].head[1:] == told
        assert kept[0].response.fields[: len(told)] == told
        assert [pair for pair in kept[0].request.fields if pair in asked] == list(asked)

    check()


@ways
async def test_a_replay_refreshes_no_date_and_no_cookie(store: Store, desk: Desk, way: str) -> None:
    dates = (b"Thu, 21 Mar 2030 12:45:00 GMT", b"Thursday, 21-Mar-30 12:45:00 GMT", b"0", b"-1", b"soon", b"")
    cookie = b"sid=1; Expires=Thu, 01 Jan 1970 00:00:00 GMT"
    told: list[Pairs] = [
        ((b"date", one), (b"expires", one), (b"last-modified", one), (b"age", b"7"), (b"set-cookie", cookie))
        for one in dates
    ]
    async with Site(desk, way, scripted(*(Say((), one) for one in told))) as site:
        live, _ = await both(store, site, *(Ask(b"/%d" % n) for n in range(len(dates))))
    for heard, one in zip(live, told, strict=True):
        assert heard.head[1 : 1 + len(one)] == one


PLAIN = [b'{"a":1}', b"", b"\x1f\x8b", b"\x1f\x8b\x08\x00garbage", b"\xff" * 9]


@ways
async def test_a_body_that_does_not_fit_its_coding_or_type_is_kept_and_replayed_as_it_is(
    store: Store, desk: Desk, way: str
) -> None:
    codings = [b"gzip", b"deflate", b"br", b"zstd", b"gzip, br", b"identity", b"x-odd", b"GZIP", b""]
    cases = [(coding, PLAIN[(n + more) % 5]) for n, coding in enumerate(codings) for more in (0, 2)]
    fields: list[Pairs] = [((b"content-encoding", c), (b"content-type", b"application/json")) for c, _ in cases]
    answers = [Say((body,) if body else (), f) for f, (_, body) in zip(fields, cases, strict=True)]
    async with Site(desk, way, scripted(*answers)) as site:
        asks = [
            Ask(b"/%d" % n, f, (body,), b"POST") for n, (f, (_, body)) in enumerate(zip(fields, cases, strict=True))
        ]
        live, kept = await both(store, site, *asks)
        for one, heard, asked, (coding, body) in zip(kept, live, site.asked, cases, strict=True):
            assert heard.body == asked.body == body
            assert heard.all(b"content-encoding") == [coding]
            assert one.request.body.inline == one.response.body.inline == body
            decoded(one.request.fields, body)  # never raises


@ways
async def test_an_empty_body_under_a_typed_field_is_not_two_quote_characters(
    store: Store, desk: Desk, way: str
) -> None:
    json, form = ((b"content-type", b"application/json"),), ((b"content-type", b"multipart/form-data; boundary=b"),)
    coded = (*json, (b"content-encoding", b"gzip"))
    asks = [
        Ask(b"/x", json, (), b"POST"), Ask(b"/x", json, (b'""',), b"POST"), Ask(b"/x", form, (b"",), b"POST"),
        Ask(b"/x", coded, (), b"PUT"), Ask(b"/x", json, (), b"DELETE"), Ask(b"/x", json, (), b"HEAD"), Ask(b"/x", json),
    ]  # fmt: skip
    count = iter(range(99))
    async with Site(desk, way, lambda heard: Say((), ((b"x-n", b"%d" % next(count)), *coded))) as site:
        await both(store, site, *asks)
    async with replayed(store, site) as again:
        quoted, once_more, empty = await again.ask(asks[1], asks[1], asks[0])
        assert (quoted.all(b"x-n"), once_more.status, empty.all(b"x-n")) == ([b"1"], 470, [b"0"])


@ways
async def test_a_length_that_the_body_does_not_have_is_never_a_whole_answer(store: Store, desk: Desk, way: str) -> None:
    short = Say((b"abc",), ((b"content-length", b"5"),), then="gone" if way == "http/1.1" else "end")
    async with Site(desk, way, lambda heard: short if heard.all(b":path") == [b"/short"] else Say()) as site:
        async with recorded(store, site) as on:
            (heard,) = await on.ask(Ask(b"/short"))
            (after,) = await on.ask(Ask(b"/after"))
            first, second = await on.on.exchanges(count=2)
        assert (after.body, second.outcome) == (b"ok", Outcome.ANSWERED)
        assert first.outcome in (Outcome.CUT, Outcome.INVALID)
        # Where the head was held back it is told as a problem, marked as ours; else the stream ends as a cut one.
        assert heard.ended in ("reset", "closed") or heard.all(b"replay-local") == [b"invalid"]
    async with replayed(store, site) as again:
        (told,) = await again.ask(Ask(b"/short"))
        assert (told.head, told.body, told.ended) == (heard.head, heard.body, heard.ended)
