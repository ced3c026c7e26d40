"""HARs of others: what is optional may be missing, what is needed and is not right is named."""

from __future__ import annotations

import base64
import copy
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from replayproxy.core.canonical import body_of
from replayproxy.core.harread import read_entry
from replayproxy.core.harvalues import NotHar
from replayproxy.core.shapes import wrong_member
from replayproxy.core.values import Exchange, Outcome

# As Chromium's developer tools write it, over HTTP/2.
CHROMIUM: dict[str, Any] = {
    "_connectionId": "12", "_priority": "High", "_resourceType": "fetch", "cache": {}, "pageref": "page_1",
    "request": {
        "method": "POST", "url": "https://shop.test/api/v1/cart?x=1#top", "httpVersion": "http/2.0",
        "headers": [
            {"name": ":authority", "value": "shop.test"}, {"name": ":method", "value": "POST"},
            {"name": "content-type", "value": "application/json"}, {"name": "content-length", "value": "10"},
        ],
        "queryString": [{"name": "x", "value": "1"}], "cookies": [], "headersSize": -1, "bodySize": 10,
        "postData": {"mimeType": "application/json", "text": '{"id": 42}'},
    },
    "response": {
        "status": 200, "statusText": "", "httpVersion": "http/2.0",
        "headers": [
            {"name": "content-encoding", "value": "br"}, {"name": "content-type", "value": "application/json"},
            {"name": "set-cookie", "value": "a=1; Path=/\nb=2"}, {"name": "content-length", "value": "7"},
        ],
        "cookies": [], "content": {"size": 15, "mimeType": "application/json", "text": '{"name": "\u00e9"}'},
        "redirectURL": "", "headersSize": -1, "bodySize": -1, "_transferSize": 120, "_error": None,
    },
    "serverIPAddress": "10.0.0.1", "startedDateTime": "2026-11-29T17:40:12.250Z", "time": 41.5,
    "timings": {"blocked": 1, "dns": -1, "ssl": -1, "connect": -1, "send": 0.5, "wait": 30, "receive": 10,
                "_blocked_queueing": 1},
}  # fmt: skip


def read(entry: Any, notes: Counter[str] | None = None) -> Exchange:
    made = read_entry(entry, 7, lambda origin: {"https://shop.test": "shop"}.get(origin, "other"),
                      Counter() if notes is None else notes, own=False)  # fmt: skip
    assert wrong_member(made) is None
    return made


def test_an_entry_of_a_browser_becomes_an_exchange_that_agrees_with_itself() -> None:
    notes: Counter[str] = Counter()
    one = read(CHROMIUM, notes)
    assert (one.env, one.upstream) == ("shop", "https://shop.test")
    assert one.request.target == b"/api/v1/cart?x=1"
    assert one.request.fields[0] == (b"Host", b"shop.test")
    assert not any(name.startswith(b":") for name, _ in one.request.fields)
    assert one.request.body == body_of(b'{"id": 42}')
    assert one.response is not None
    text = '{"name": "é"}'.encode()
    assert one.response.fields == (
        (b"content-type", b"application/json"), (b"set-cookie", b"a=1; Path=/"), (b"set-cookie", b"b=2"),
        (b"content-length", str(len(text)).encode()),
    )  # fmt: skip
    assert one.response.body == body_of(text)
    assert one.response.version == b"HTTP/2.0"
    assert notes == {"imported: body as decoded": 1}
    assert one.times.wall == 1_795_974_012_250_000_000
    assert (one.times.c_out or 0) - one.times.head == 41_500_000


def without(*path: str) -> dict[str, Any]:
    entry = copy.deepcopy(CHROMIUM)
    place = entry
    for step in path[:-1]:
        place = place[step]
    del place[path[-1]]
    return entry


OPTIONAL = [
    ("pageref",), ("serverIPAddress",), ("time",), ("timings",), ("cache",), ("request", "queryString"),
    ("request", "cookies"), ("request", "headers"), ("request", "httpVersion"), ("request", "headersSize"),
    ("request", "postData"), ("request", "postData", "mimeType"), ("response", "statusText"),
    ("response", "httpVersion"), ("response", "headers"), ("response", "cookies"), ("response", "content"),
    ("response", "content", "text"), ("response", "content", "mimeType"), ("response", "redirectURL"), ("response",),
]  # fmt: skip


@pytest.mark.parametrize("path", OPTIONAL, ids=".".join)
def test_what_may_be_missing_may_be_missing(path: tuple[str, ...]) -> None:
    assert read(without(*path)).request.method == b"POST"


NEEDED = [("startedDateTime",), ("request",), ("request", "method"), ("request", "url"), ("response", "status")]


@pytest.mark.parametrize("path", NEEDED, ids=".".join)
def test_what_is_needed_and_missing_is_named(path: tuple[str, ...]) -> None:
    with pytest.raises(NotHar, match=f"entry 7.*{path[-1]} is missing"):
        read(without(*path))


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(item, (*path, key))


def refusal(entry: Any) -> str | None:
    try:
        read(entry)
    except NotHar as refused:
        return str(refused)
    return None


@pytest.mark.parametrize("wrong", [None, True, -1, 1e300, "x\x00y", [], {}, [[]], [5], "2026", 10**40])
def test_a_wrong_type_in_any_member_is_refused_in_one_line_or_harmless(wrong: Any) -> None:
    for path in places(CHROMIUM):
        entry = copy.deepcopy(CHROMIUM)
        place: Any = entry
        if not path:
            entry = wrong
        else:
            for step in path[:-1]:
                place = place[step]
            place[path[-1]] = wrong
        said = refusal(entry)
        assert said is None or ("entry 7" in said and "\n" not in said)


@pytest.mark.parametrize(
    ("url", "why"),
    [("/relative", "not absolute"), ("http://[::1", "no URL"), ("data:text/plain,x", "not absolute"),
     ("http://x:99999/", "no URL"), ("", "not absolute")],
)  # fmt: skip
def test_a_url_that_leads_nowhere_is_refused(url: str, why: str) -> None:
    entry = copy.deepcopy(CHROMIUM)
    entry["request"]["url"] = url
    with pytest.raises(NotHar, match=why):
        read(entry)


@pytest.mark.parametrize(
    ("error", "outcome"), [("net::ERR_CONNECTION_REFUSED", Outcome.REFUSED), ("net::ERR_ABORTED", Outcome.CUT)]
)
def test_an_entry_without_an_answer_is_kept_as_that(error: str, outcome: Outcome) -> None:
    entry = copy.deepcopy(CHROMIUM)
    entry["response"] = {"status": 0, "_error": error}
    notes: Counter[str] = Counter()
    one = read(entry, notes)
    assert (one.response, one.outcome, one.error) == (None, outcome, error)
    assert notes == {f"entries without an answer ({outcome.value})": 1}


def test_a_body_that_the_file_does_not_hold_is_not_an_empty_one() -> None:
    notes: Counter[str] = Counter()
    answer = read(without("response", "content", "text"), notes).response
    assert answer is not None
    assert answer.body is None
    assert notes == {"answers whose body the file does not hold": 1}


def test_binary_bodies_are_base64_and_what_is_none_is_refused() -> None:
    entry = copy.deepcopy(CHROMIUM)
    entry["response"]["content"] = {"text": base64.b64encode(b"\x00\xff").decode(), "encoding": "base64"}
    answer = read(entry).response
    assert answer is not None
    assert answer.body == body_of(b"\x00\xff")
    entry["response"]["content"]["text"] = "no base64!"
    with pytest.raises(NotHar, match=r"response\.content\.text is no base64"):
        read(entry)


def test_text_goes_back_into_the_charset_that_its_type_names() -> None:
    entry = copy.deepcopy(CHROMIUM)
    entry["response"]["headers"] = [{"name": "Content-Type", "value": "text/html; charset=ISO-8859-1"}]
    entry["response"]["content"] = {"text": "é", "mimeType": "text/html"}
    answer = read(entry).response
    assert answer is not None
    assert answer.body == body_of(b"\xe9")
    assert json.dumps(entry)


def test_fields_that_would_break_the_wire_are_left_out_and_counted() -> None:
    entry = copy.deepcopy(CHROMIUM)
    entry["response"]["headers"] += [{"name": "X-A\r\nX-B", "value": "1"}, {"name": "x", "value": "a\x00b"}]
    notes: Counter[str] = Counter()
    answer = read(entry, notes).response
    assert answer is not None
    assert all(name in (b"content-type", b"set-cookie", b"content-length") for name, _ in answer.fields)
    assert notes["header fields that HTTP cannot carry, left out"] == 2
