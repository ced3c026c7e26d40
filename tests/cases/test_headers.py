"""Header fields are an ordered list of bytes: repeats, case, bytes that are no UTF-8, odd dates."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from replayproxy.core.headerdiff import headers
from replayproxy.core.shown import json_bytes, safe
from replayproxy.storage import Store
from tests.cases.lab import both, get, over_a_store, recording, replaying, stored, talker
from tests.proxy.wire import says

few = settings(max_examples=8, deadline=None)

COOKIES = st.lists(
    st.sampled_from(
        [
            b"sid=a; Expires=Wed, 01 Jan 2031 00:00:00 GMT",
            b"lang=en",
            b"sid=b; HttpOnly",
            b"",
            b"empty=",
            b"odd=\xff; Secure",
            b'quoted="a, b"',
        ]
    ),
    min_size=2,
    max_size=5,
)


@given(
    cookies=COOKIES,
    links=st.lists(st.sampled_from([b"<a>; rel=x", b"<b>; rel=y", b""]), max_size=3),
    mixed=st.booleans(),
)
@few
@over_a_store
async def test_repeated_fields_stay_apart_in_their_order(
    store: Store, cookies: list[bytes], links: list[bytes], mixed: bool
) -> None:
    lines = [(b"Set-Cookie", one) for one in cookies] + [(b"Link", one) for one in links]
    if mixed:
        lines = [((name.lower() if n % 2 else name), value) for n, (name, value) in enumerate(lines)]
    answer = b"HTTP/1.1 200 OK\r\n" + b"".join(b"%s: %s\r\n" % pair for pair in lines) + b"Content-Length: 0\r\n\r\n"
    asked = get("/x", b"Cookie: a=1", b"cookie: b=2", b"Accept: x", b"ACCEPT: y")
    live, again, _ = await both(store, says(answer), asked)
    assert live == again == [answer]
    (one,) = await stored(store)
    assert one.response is not None
    assert [pair for pair in one.response.fields if pair[0].lower() != b"content-length"] == lines
    assert [value for name, value in one.request.fields if name.lower() == b"cookie"] == [b"a=1", b"b=2"]
    # In a diff each cookie is an item of its own: one that is missing is one difference, by its name.
    without = tuple(pair for pair in one.response.fields if pair != lines[0])
    found = list(headers(("headers",), one.response.fields, without, frozenset({b"set-cookie"})))
    assert len(found) <= len(cookies)
    assert found or cookies.count(cookies[0]) > 1 or not cookies[0]


BYTES = st.binary(min_size=1, max_size=20).map(
    lambda raw: b"a" + bytes(b for b in raw if b >= 0x20 and b != 0x7F) + b"\xe9z"
)


@given(asked=st.lists(BYTES, min_size=1, max_size=3), told=st.lists(BYTES, min_size=1, max_size=3), reason=BYTES)
@few
@over_a_store
async def test_field_bytes_that_are_no_utf_8_are_kept_and_shown_escaped(
    store: Store, asked: list[bytes], told: list[bytes], reason: bytes
) -> None:
    answer = (
        b"HTTP/1.1 200 "
        + reason
        + b"\r\n"
        + b"".join(b"X-Name: %s\r\n" % v for v in told)
        + b"Content-Length: 0\r\n\r\n"
    )
    request = get(b"/caf\xe9?\xff=\xfe", *(b"X-Odd: %s" % v for v in asked))
    async with recording(store, says(answer)) as on:
        agent = await on.agent()
        assert await agent.ask(request) == answer
        (one,) = await on.exchanges(count=1)
        assert on.environment.requests == [request.replace(b"Host: x", b"Host: " + on.environment.authority)]
    assert [value for name, value in one.request.fields if name == b"X-Odd"] == asked
    assert one.response is not None
    assert [value for name, value in one.response.fields if name == b"X-Name"] == told
    assert one.response.reason == reason
    shown = json_bytes({"fields": [safe(value) for value in asked + told], "target": safe(one.request.target)})
    assert b"\\\\xe9" in shown
    shown.decode()
    async with replaying(store) as origin:
        again = await talker(origin.ports["app"])
        assert await again.ask(request) == answer
        assert (await again.ask(request)).startswith(b"HTTP/1.1 470 ")
        again.close()
        assert origin.receipt()["served"]["exact"] == 1
        json_bytes(origin.receipt()).decode()


DATES = st.sampled_from(
    [
        b"Thu, 21 Mar 2030 12:45:00 GMT",
        b"Thursday, 21-Mar-30 12:45:00 GMT",
        b"Thu Mar 21 12:45:00 2030",
        b"0",
        b"-1",
        b"soon",
        b"",
    ]
)


@given(
    date=DATES,
    expires=DATES,
    cookie=st.sampled_from([b"", b"sid=1; Expires=Thu, 01 Jan 1970 00:00:00 GMT", b"=", b"sid"]),
)
@few
@over_a_store
async def test_a_replay_refreshes_no_date_and_no_cookie(
    store: Store, date: bytes, expires: bytes, cookie: bytes
) -> None:
    answer = (
        b"HTTP/1.1 200 OK\r\nDate: %s\r\nLast-Modified: %s\r\nExpires: %s\r\nSet-Cookie: %s\r\nAge: 7\r\n"
        b"Content-Length: 0\r\n\r\n" % (date, date, expires, cookie)
    )
    live, again, _ = await both(store, says(answer), get())
    async with replaying(store) as origin:
        later = await talker(origin.ports["app"])
        third = await later.ask(get())
        later.close()
    assert live == again == [answer]
    assert third == answer
