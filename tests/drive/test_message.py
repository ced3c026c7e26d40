"""A request that was recorded over HTTP/2, written as HTTP/1.1."""

from __future__ import annotations

from replayproxy.core.values import Request
from replayproxy.drive.message import message


def test_host_comes_in_and_the_crumbs_of_the_cookie_are_one_field_again() -> None:
    fields = ((b"accept", b"*/*"), (b"cookie", b"a=1"), (b"x", b"1"), (b"cookie", b"b=2"))
    request = Request(method=b"GET", target=b"/a", version=b"HTTP/2.0", fields=fields, body=None)
    head = message(request, host=b"h:1", pieces=lambda body: iter(())).head
    assert head == b"GET /a HTTP/1.1\r\nhost: h:1\r\naccept: */*\r\ncookie: a=1; b=2\r\nx: 1\r\n\r\n"


def test_what_http1_sent_in_two_fields_stays_two() -> None:
    fields = ((b"Host", b"x"), (b"Cookie", b"a=1"), (b"Cookie", b"b=2"))
    request = Request(method=b"GET", target=b"/a", version=b"HTTP/1.1", fields=fields, body=None)
    head = message(request, host=None, pieces=lambda body: iter(())).head
    assert head == b"GET /a HTTP/1.1\r\nHost: x\r\nCookie: a=1\r\nCookie: b=2\r\n\r\n"
