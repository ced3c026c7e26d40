"""What the agent sees of an environment's links and cookie paths."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replayproxy.core.links import LinkCounter, to_agent
from replayproxy.core.values import Fields

ORIGINS = ("http://127.0.0.1:8080",)
BASE = "http://127.0.0.1:4001"
PREFIX = "/rp/e1"


def seen(name: str, value: str, *, prefix: str = PREFIX, origins: tuple[str, ...] = ORIGINS, base: str = BASE) -> str:
    fields = to_agent(((name.encode(), value.encode()),), origins=origins, base_url=base, prefix=prefix)
    return fields[0][1].decode()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("http://127.0.0.1:8080/a?b=1#c", BASE + "/rp/e1/a?b=1#c"),
        ("HTTP://127.0.0.1:8080/a", BASE + "/rp/e1/a"),
        ("http://localhost:8080/a", BASE + "/rp/e1/a"),
        ("http://[::1]:8080/a", BASE + "/rp/e1/a"),
        ("//127.0.0.1:8080/a", BASE + "/rp/e1/a"),
        ("http://127.0.0.1:8080", BASE + "/rp/e1"),
        ("http://127.0.0.1:8080?x", BASE + "/rp/e1?x"),
        ("/a%2Fb", "/rp/e1/a%2Fb"),
        ("next", "next"),
        ("../up", "../up"),
        ("?page=2", "?page=2"),
        ("", ""),
        ("http://127.0.0.1:80801/a", "http://127.0.0.1:80801/a"),
        ("http://127.0.0.1:8080.evil.test/a", "http://127.0.0.1:8080.evil.test/a"),
        ("http://user@127.0.0.1:8080/a", "http://user@127.0.0.1:8080/a"),
        ("https://127.0.0.1:8080/a", "https://127.0.0.1:8080/a"),
        ("http://other.test/a", "http://other.test/a"),
    ],
)
@pytest.mark.parametrize("name", ["Location", "content-location"])
def test_a_location_that_leads_to_the_environment_leads_back_to_the_proxy(name: str, value: str, expected: str) -> None:
    assert seen(name, value) == expected


def test_without_a_prefix_only_absolute_links_change() -> None:
    assert seen("Location", "/a", prefix="") == "/a"
    assert seen("Location", "http://127.0.0.1:8080/a", prefix="") == BASE + "/a"
    assert seen("Set-Cookie", "a=1; Path=/", prefix="") == "a=1; Path=/"


def test_a_default_port_may_be_written_or_left_out() -> None:
    for origin in ("https://crm.test", "https://crm.test:443", "https://CRM.test/v1"):
        assert seen("Location", "https://crm.test/a", origins=(origin,)) == BASE + "/rp/e1/a"
        assert seen("Location", "https://crm.test:443/a", origins=(origin,)) == BASE + "/rp/e1/a"


def test_every_target_of_a_link_header_is_rewritten() -> None:
    value = '<http://127.0.0.1:8080/p?page=2>; rel="next", </p?page=1>; rel="first", <http://x.test/>; rel="x"'
    assert seen("Link", value) == (
        f'<{BASE}/rp/e1/p?page=2>; rel="next", </rp/e1/p?page=1>; rel="first", <http://x.test/>; rel="x"'
    )


def test_any_other_header_that_begins_with_the_own_origin_is_rewritten() -> None:
    assert seen("Next-Page", "http://127.0.0.1:8080/v1/x?_token=a") == BASE + "/rp/e1/v1/x?_token=a"
    assert seen("Next-Page", "/v1/x") == "/v1/x"
    assert seen("X-Note", "see http://127.0.0.1:8080/") == "see http://127.0.0.1:8080/"
    # An origin has no path: a prefix behind it would make a browser refuse the answer.
    assert seen("Access-Control-Allow-Origin", "http://127.0.0.1:8080") == BASE


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("sid=a; Path=/api", "sid=a; Path=/rp/e1/api"),
        ("sid=a; path=/api/; HttpOnly", "sid=a; path=/rp/e1/api/; HttpOnly"),
        (
            "sid=a;Path=/;Expires=Wed, 01 Jan 2031 00:00:00 GMT",
            "sid=a;Path=/rp/e1;Expires=Wed, 01 Jan 2031 00:00:00 GMT",
        ),
        ('sid=a; Path="/api"', 'sid=a; Path="/rp/e1/api"'),
        ("sid=a", "sid=a"),
        ("path=/x; Path=rel", "path=/x; Path=rel"),
        ("sid=/; Domain=d.test", "sid=/; Domain=d.test"),
    ],
)
def test_a_cookie_path_gets_the_prefix(value: str, expected: str) -> None:
    assert seen("set-cookie", value) == expected


def test_order_case_and_number_of_fields_stay() -> None:
    fields: Fields = (
        (b"X-Odd", b"caf\xe9"),
        (b"LOCATION", b"/a"),
        (b"Set-Cookie", b"a=1; Path=/"),
        (b"set-cookie", b"b=2"),
        (b"x-odd", b""),
    )
    assert to_agent(fields, origins=ORIGINS, base_url=BASE, prefix=PREFIX) == (
        (b"X-Odd", b"caf\xe9"),
        (b"LOCATION", b"/rp/e1/a"),
        (b"Set-Cookie", b"a=1; Path=/rp/e1"),
        (b"set-cookie", b"b=2"),
        (b"x-odd", b""),
    )


BODY = (
    b'{"a": "http://127.0.0.1:8080/v1", "b": "http:\\/\\/127.0.0.1:8080\\/v1", "c": "//localhost:8080", '
    b'"d": "http://127.0.0.1:80801/", "e": "127.0.0.1:8080", "f": "see http://127.0.0.1:8080."}'
)


@given(cuts=st.lists(st.integers(0, len(BODY)), max_size=12))
def test_links_in_bodies_are_counted_wherever_the_body_is_cut(cuts: list[int]) -> None:
    counter = LinkCounter(ORIGINS)
    edges = [0, *sorted(cuts), len(BODY)]
    for start, end in itertools.pairwise(edges):
        counter.feed(BODY[start:end])
    assert counter.end() == 4


def test_a_default_port_left_out_in_a_body_is_counted_and_a_longer_name_is_not() -> None:
    counter = LinkCounter(("http://crm.test",))
    counter.feed(b"http://crm.test/a http://crm.test:80/b http://crm.test.evil/ http://crm.test:81/ https://crm.test")
    assert counter.end() == 3
