from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from replayproxy.core.headerdiff import REQUEST_HEADERS, RESPONSE_HEADERS, count_beside, headers
from replayproxy.testing import exchange, fields


def found(a: Any, b: Any, listed: frozenset[bytes] = RESPONSE_HEADERS) -> list[tuple[str, str, str]]:
    return [(d.pointer, d.kind, d.role) for d in headers(("header",), fields(a), fields(b), listed)]


@pytest.mark.parametrize(
    ("a", "b", "differences"),
    [
        ({"ETag": "1"}, {"etag": "2"}, [("header/etag", "value", "validator")]),
        ({"Location": "/a"}, {"Location": "/b"}, [("header/location", "value", "url")]),
        ({"Age": "3"}, {}, [("header/age", "removed", "text")]),
        ({}, {"Retry-After": "3"}, [("header/retry-after", "added", "text")]),
        ({"Date": "x", "Server": "a"}, {"Date": "y", "Server": "b"}, []),
        ({"Allow": "GET, POST"}, {"Allow": "POST,GET"}, []),
        ({"Content-Type": "Text/HTML; charset=utf-8"}, {"Content-Type": "text/html;charset=utf-8"}, []),
        ({"Content-Type": "multipart/form-data; boundary=a"}, {"Content-Type": "multipart/form-data; boundary=b"}, []),
        ({"Content-Type": "text/html"}, {"Content-Type": "text/plain"}, [("header/content-type", "value", "text")]),
        ([("Link", "<a>"), ("Link", "<b>")], [("Link", "<a>"), ("Link", "<c>")], [("header/link/1", "value", "text")]),
    ],
)  # fmt: skip
def test_which_headers_differ(a: Any, b: Any, differences: list[tuple[str, str, str]]) -> None:
    assert found(a, b) == differences


def test_each_cookie_is_an_item_of_its_own() -> None:
    a = [("Set-Cookie", "sid=1; Path=/; HttpOnly"), ("Set-Cookie", "lang=en; Expires=Wed, 01 Jan 2031 00:00:00 GMT")]
    b = [("Set-Cookie", "lang=en; Expires=Wed, 01 Jan 2031 00:00:00 GMT"), ("Set-Cookie", "sid=2; Path=/app")]
    assert found(a, b) == [
        ("header/set-cookie/sid", "value", "cookie"),
        ("header/set-cookie/sid/path", "value", "text"),
        ("header/set-cookie/sid/httponly", "removed", "text"),
    ]
    assert found(a, a[:1]) == [("header/set-cookie/lang", "removed", "cookie")]


def test_cookies_sent_are_compared_by_name_and_secret() -> None:
    sides = [fields({"Cookie": text}) for text in ("a=1; b=2", "b=2; a=3; c=4")]
    differences = list(headers(("request", "header"), *sides, REQUEST_HEADERS))
    assert [(d.pointer, d.kind, d.secret) for d in differences] == [
        ("request/header/cookie/a", "value", True), ("request/header/cookie/c", "added", True),
    ]  # fmt: skip


def test_credentials_are_secret() -> None:
    sides = [fields({"Authorization": f"Bearer {n}"}) for n in (1, 2)]
    (difference,) = headers(("request", "header"), *sides, REQUEST_HEADERS)
    assert difference.secret


def test_bytes_that_are_no_text_stay_two_values() -> None:
    assert found([("Link", b"caf\xe9")], [("Link", b"caf\xe8")]) == [("header/link", "value", "text")]


def test_headers_that_are_never_compared_are_counted_when_they_differ() -> None:
    beside: Counter[str] = Counter()
    a = exchange(headers={"Date": "1", "ETag": "x", "Server": "s"}, request_headers={"User-Agent": "a"})
    b = exchange(headers={"Date": "2", "ETag": "y", "Server": "s"}, request_headers={"User-Agent": "b"})
    count_beside(a, b, beside)
    assert beside == {"date": 1, "user-agent": 1}
