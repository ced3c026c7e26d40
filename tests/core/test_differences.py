from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from replayproxy.core.compare import compare
from replayproxy.core.differences import between
from replayproxy.core.values import Outcome, Trace, WebSocket
from replayproxy.testing import exchange, trace
from tests.core.world import JSON, World, played, pointers


def test_how_an_exchange_ended_is_compared() -> None:
    whole = trace([exchange("GET", "/x", body=b"abc")])
    cut = trace([exchange("GET", "/x", body=b"ab", outcome=Outcome.CUT)])
    refused = trace([exchange("GET", "/x", status=None, outcome=Outcome.REFUSED)])
    assert compare(whole, cut).roots[0].values == ("answered", "cut")
    assert compare(whole, refused).roots[0].values == ("answered", "refused")
    assert compare(cut, trace([exchange("GET", "/x", body=b"abc", outcome=Outcome.CUT)])).verdict == "same"


def test_the_end_of_a_lost_conversation_is_not_known() -> None:
    closed = exchange(status=101, websocket=WebSocket(messages=(), close_code=1000, closed_by_agent=True))
    broken = exchange(status=101, websocket=WebSocket(messages=(), close_code=None), outcome=Outcome.OPEN_AT_END)
    for outcome, told in ((Outcome.OPEN_AT_END, "open at the end"), (Outcome.LOST, "not known")):
        (_, ended) = between(closed, replace(broken, outcome=outcome))
        assert (ended.pointer, ended.a, ended.b) == ("websocket/close", "1000 by the agent", told)


@pytest.mark.parametrize(
    ("a", "b", "values"),
    [
        (b"", None, ("empty", "not captured")),
        (b"", b'""', ("empty", "json, 2 bytes")),
        (None, b'""', ("not captured", "json, 2 bytes")),
    ],
)
def test_not_captured_empty_and_the_empty_text_are_three_things(a: Any, b: Any, values: tuple[str, str]) -> None:
    sides = [trace([exchange("DELETE", "/x", sent=body, request_headers=JSON)]) for body in (a, b)]
    (root,) = compare(*sides).roots
    assert (root.pointer, root.values) == ("request/body", values)


def test_each_cookie_is_an_item_of_its_own_and_its_value_is_never_shown() -> None:
    def cookies(sid: str, lang: str) -> Trace:
        headers = [("Set-Cookie", f"sid={sid}; Path=/; Expires=Wed, 01 Jan 2031 00:00:00 GMT"), ("Set-Cookie", lang),
                   ("Link", "</a>; rel=a"), ("Link", "</b>; rel=b")]  # fmt: skip
        return trace([exchange("GET", "/", headers=headers)])

    one, other = cookies("8b1c7f2a9d3e4c5b", "lang=en; Path=/"), cookies("0a9f8e7d6c5b4a39", "lang=de; Path=/app")
    comparison = compare(one, other)
    assert dict(comparison.explained) == {"fresh-id": 1}
    assert pointers(comparison) == ["header/set-cookie/lang"]
    assert comparison.roots[0].folded[0].pointer == "header/set-cookie/lang/path"
    text = json.dumps(comparison.to_json())
    assert not [secret for secret in ("8b1c7f2a", "0a9f8e7d", '"en"', '"de"') if secret in text]


def test_a_credential_is_not_shown_where_else_it_turns_up() -> None:
    def login(token: str) -> Trace:
        return trace([
            exchange("POST", "/login?api_key=K3Y", body={"key": token, "plan": token[:3]}),
            exchange("GET", "/me", request_headers={"Authorization": f"Bearer {token}"}, body={"echo": f"hi {token}"}),
        ])  # fmt: skip

    comparison = compare(login("open sesame one"), login("open sesame two"))
    text = json.dumps(comparison.to_json())
    assert comparison.verdict == "different"
    assert "sesame" not in text
    assert "K3Y" not in text


def test_multipart_uploads_are_their_parts() -> None:
    def upload(boundary: str, inner: bytes) -> Trace:
        mark = boundary.encode()
        head = b'Content-Disposition: form-data; name="f"; filename="a.txt"'
        body = b"--%s\r\n%s\r\n\r\n%s\r\n--%s--\r\n" % (mark, head, inner, mark)
        kind = f"multipart/form-data; boundary={boundary}"
        return trace([exchange("POST", "/up", sent=body, request_headers={"Content-Type": kind})])

    tricky = b"line\r\n--b2x and more"
    assert compare(upload("b1", tricky), upload("b2", tricky)).verdict == "same"
    (root,) = compare(upload("b1", b"one"), upload("b2", b"two")).roots
    assert (root.pointer, root.values) == ("request/body/0/content", ("one", "two"))
    cut = upload("b1", tricky)
    broken = replace(cut.exchanges[0].request, body=exchange(sent=b"--b1\r\nno end").request.body)
    torn = replace(cut, exchanges=[replace(cut.exchanges[0], request=broken)])
    assert pointers(compare(cut, torn)) == ["request/body"]


def test_a_blank_parameter_is_no_missing_one() -> None:
    def asked(target: str) -> Trace:
        return trace([exchange("GET", target)])

    targets = ["/list?tag=", "/list?tag", "/list", "/list?"]
    for index, left in enumerate(targets):
        for right in targets[index + 1 :]:
            assert compare(asked(left), asked(right)).verdict == "different", (left, right)
    assert compare(asked("/list?a=1&b=2"), asked("/list?b=2&a=1")).verdict == "same"
    assert compare(asked("/list?a=1&a=2"), asked("/list?a=2&a=1")).roots[0].kind == "order"


def test_event_streams_are_compared_event_by_event() -> None:
    def stream(world: World) -> None:
        text = "".join(f'id: {world.id(f"event {n}")}\ndata: {{"n": {n}, "at": "{world.iso()}"}}\n\n' for n in range(3))
        text += ": ping\n\n" * world.seed
        world.step("GET", "/events", body=text.encode(), headers={"Content-Type": "text/event-stream"})

    comparison = compare(played(stream, 0), played(stream, 1, start_ms=70_000))
    assert (comparison.verdict, dict(comparison.explained)) == ("same", {"fresh-id": 3, "clock": 3})


def test_text_differs_at_its_line() -> None:
    texts = [trace([exchange("GET", "/t", body=t.encode(), headers={"Content-Type": "text/plain"})])
             for t in ("one\ntwo\nthree\n", "one\n2\nthree\n")]  # fmt: skip
    (root,) = compare(*texts).roots
    assert (root.pointer, root.values) == ("body#line=2", ("two", "2"))
