"""HAR out and back: our own entries are the exchanges that they were; the shape is the one that readers demand."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replayproxy.core import har
from replayproxy.core.canonical import body_of
from replayproxy.core.harread import read_entry
from replayproxy.core.harvalues import NotHar
from replayproxy.core.shown import json_bytes
from replayproxy.core.values import Chunk, Exchange, Message, Outcome, WebSocket
from replayproxy.testing import exchange
from tests.storage import strategies

ORIGIN = "http://127.0.0.1:9000"


def there(one: Exchange, lost: Counter[str] | None = None) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(json_bytes(har.entry(one, ORIGIN, Counter() if lost is None else lost)))
    return document


def and_back(document: Any, *, own: bool = True, notes: Counter[str] | None = None) -> Exchange:
    return read_entry(document, 3, lambda _origin: "app", Counter() if notes is None else notes, own=own)


def held(raw: bytes, chunks: tuple[Chunk, ...] = ()) -> Any:
    return replace(body_of(raw), chunks=chunks)


tokens = st.from_regex(rb"[A-Za-z][A-Za-z0-9-]{0,8}", fullmatch=True)
values = st.binary(max_size=12)
pairs = st.lists(st.tuples(tokens, values), max_size=4).map(tuple)
bodies = st.none() | st.builds(held, st.binary(max_size=60), strategies.chunks)
exchanges = st.builds(
    replace, strategies.exchanges, env=st.just("app"), lane=st.sampled_from(["main", "tool-a"]),
    websocket=st.none(), upstream=st.just(ORIGIN), error=st.text(max_size=5), carrier=st.just("prefix"),
    request=st.builds(
        replace, strategies.requests, method=tokens, target=st.binary(max_size=12).map(lambda raw: b"/" + raw),
        version=st.sampled_from([b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0"]), fields=pairs, trailers=pairs, body=bodies,
    ),
    response=st.none() | st.builds(
        replace, strategies.responses, status=st.integers(200, 599), version=st.just(b"HTTP/1.1"), fields=pairs,
        trailers=pairs, body=bodies,
    ),
    times=st.builds(replace, strategies.times, wall=st.integers(0, 2**61)),
)  # fmt: skip


@settings(deadline=None, max_examples=40)
@given(exchanges)
def test_an_exchange_comes_back_as_it_was(one: Exchange) -> None:
    assert and_back(there(one)) == replace(one, seq=0)


def test_a_coded_body_is_shown_decoded_and_kept_as_it_was() -> None:
    raw = gzip.compress(b'{"a": 1}')
    one = exchange(body=raw, headers={"Content-Type": "application/json", "Content-Encoding": "gzip"})
    lost: Counter[str] = Counter()
    document = there(one, lost)
    content = document["response"]["content"]
    assert (content["text"], content["size"], content["compression"]) == ('{"a": 1}', 8, 8 - len(raw))
    assert and_back(document) == one
    assert lost == {"bytes of coded answers (only under _replayproxy)": 1}
    notes: Counter[str] = Counter()
    other = and_back(document, own=False, notes=notes)  # as somebody reads it who takes HAR at its word
    assert other.response is not None
    assert other.response.body == body_of(b'{"a": 1}')
    assert (b"Content-Length", b"8") in other.response.fields
    assert not any(name == b"Content-Encoding" for name, _ in other.response.fields)
    assert (other.notes, notes) == (("imported: body as decoded",), {"imported: body as decoded": 1})


def test_a_conversation_is_written_as_browsers_do() -> None:
    said = (
        Message(from_agent=True, text=True, payload=b'{"id": 1}', at=2_000_000),
        Message(from_agent=False, text=False, payload=b"\x00\xff", at=3_000_000),
    )
    talk = WebSocket(messages=said, close_code=1000, close_reason="bye", closed_by_agent=False)
    one = exchange(status=101, websocket=talk)
    document = there(one)
    assert document["request"]["url"] == "ws://127.0.0.1:9000/x"
    assert document["_resourceType"] == "websocket"
    assert [(m["type"], m["opcode"], m["data"]) for m in document["_webSocketMessages"]] == [
        ("send", 1, '{"id": 1}'), ("receive", 2, "AP8="),
    ]  # fmt: skip
    assert and_back(document) == one
    other = and_back(document, own=False).websocket
    assert other is not None
    assert [m.payload for m in other.messages] == [b'{"id": 1}', b"\x00\xff"]
    assert (other.close_code, other.closed_by_agent) == (1005, True)


def test_what_har_has_no_place_for_is_counted_where_it_occurs() -> None:
    lost: Counter[str] = Counter()
    there(exchange(), lost)
    assert lost == {}
    there(exchange(lane="b", sent=b"\xff", chunks=[(2, 1.0)], body=b"ab", outcome=Outcome.CUT), lost)
    assert sorted(lost) == [
        "answers that did not end as they should (only under _replayproxy)",
        "lanes (only under _replayproxy)",
        "request bodies that are no text (base64, which HAR does not know there)",
        "times and order of chunks (only under _replayproxy)",
    ]


DEMANDED: dict[str, dict[str, Any]] = {
    # of HAR 1.2: what is not optional, by object
    "": {"startedDateTime": str, "time": (int, float), "request": dict, "response": dict, "cache": dict,
         "timings": dict},
    "request": {"method": str, "url": str, "httpVersion": str, "cookies": list, "headers": list, "queryString": list,
                "headersSize": int, "bodySize": int},
    "request.postData": {"mimeType": str, "params": list, "text": str},
    "response": {"status": int, "statusText": str, "httpVersion": str, "cookies": list, "headers": list,
                 "content": dict, "redirectURL": str, "headersSize": int, "bodySize": int},
    "response.content": {"size": int, "mimeType": str},
    "timings": {"send": (int, float), "wait": (int, float), "receive": (int, float)},
}  # fmt: skip


@settings(deadline=None, max_examples=40)
@given(exchanges)
def test_every_entry_has_what_har_demands(one: Exchange) -> None:
    document = there(one)
    for where, members in DEMANDED.items():
        place: Any = document
        for step in filter(None, where.split(".")):
            place = place.get(step)
        if place is None:
            assert where == "request.postData"
            continue
        for name, kind in members.items():
            assert isinstance(place[name], kind), f"{where}.{name}"
    for part in ("request", "response"):
        for header in document[part]["headers"]:
            assert set(header) == {"name", "value"}


def test_forms_queries_and_cookies_are_taken_apart() -> None:
    one = exchange(
        "POST", "/a?q=%C3%A9+x&q=2&flag", sent="a=1&b=%20", request_headers=[
            ("Cookie", "s=1; t=a=b"), ("Content-Type", "application/x-www-form-urlencoded")],
        headers=[("Set-Cookie", "s=2; Path=/x; HttpOnly; SameSite=Lax"), ("Location", "/next")], status=302,
    )  # fmt: skip
    document = there(one)
    assert document["request"]["queryString"] == [
        {"name": "q", "value": "é x"}, {"name": "q", "value": "2"}, {"name": "flag", "value": ""},
    ]  # fmt: skip
    assert document["request"]["postData"]["params"] == [{"name": "a", "value": "1"}, {"name": "b", "value": " "}]
    assert document["request"]["cookies"] == [{"name": "s", "value": "1"}, {"name": "t", "value": "a=b"}]
    assert document["response"]["cookies"] == [
        {"name": "s", "value": "2", "path": "/x", "httpOnly": True, "secure": False, "sameSite": "Lax"}
    ]
    assert document["response"]["redirectURL"] == "/next"


@pytest.mark.parametrize("wrong", [{"order": [1]}, {"times": {}}, {"lane": 5}, {"env": "a b"}, {"outcome": "x"}])
def test_what_was_put_aside_and_edited_is_refused(wrong: dict[str, Any]) -> None:
    document = there(exchange())
    document["_replayproxy"] |= wrong
    with pytest.raises(NotHar, match="entry 3"):
        and_back(document)
