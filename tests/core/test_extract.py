from __future__ import annotations

import gzip
import json
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replayproxy.core import extract
from replayproxy.core.extract import BODY_LIMIT, NOTHING, Extracted, Extractors, compile_extractors
from replayproxy.core.extractrule import extract_rules
from replayproxy.core.values import Fields

TOKEN = "rp-secret-" + "a" * 24


def rules(*sources: dict[str, Any]) -> Extractors:
    return compile_extractors(
        [{"name": f"r{n}", "action": "extract", "fills": "alias", **source} for n, source in enumerate(sources)]
    )


def asked(
    source: dict[str, Any], target: str = "/x", *, method: str = "POST", body: bytes | None = b"", **headers: str
) -> list[str]:
    fields: Fields = tuple((name.replace("_", "-").encode(), value.encode()) for name, value in headers.items())
    found = rules(source).of_request("app", method.encode(), target.encode(), fields, body)
    return [one.value for one in found.found]


@pytest.mark.parametrize(
    ("source", "target", "headers", "values"),
    [
        ({"cookie": "sid"}, "/x", {"Cookie": "a=1; sid=s7; b=2"}, ["s7"]),
        ({"cookie": "sid"}, "/x", {"Cookie": 'sid="s7"'}, ["s7"]),
        ({"cookie": "*___*"}, "/x", {"Cookie": "A___x=1; B___y=2; c=3"}, ["1", "2"]),
        ({"cookie": "sid"}, "/x", {"Cookie": "xsid=1; sid"}, []),
        ({"header": "x-THREAD"}, "/x", {"X_Thread": " t "}, ["t"]),
        ({"baggage": "run"}, "/x", {"baggage": "a=1, run=r9;p=q"}, ["r9"]),
        ({"path": 2}, "/a/b?c", {}, ["b"]),
        ({"path": 3}, "/a/b", {}, []),
        ({"path": "/{id}/tools/*"}, "/e1/tools/get/more", {}, ["e1"]),
        ({"path": "/{org}/{id}"}, "/o/7", {}, ["7"]),
        ({"path": "/{id}/tools/*"}, "/tools/x", {}, []),
        ({"query": "s"}, "/x?a=1&s=%41&s=2", {}, ["%41", "2"]),
        ({"query": "s"}, "/x?s", {}, []),
        ({"api-key": "Authorization"}, "/x", {"Authorization": "Bearer k1"}, ["k1"]),
        ({"api-key": "X-Api-Key"}, "/x", {"X_Api_Key": "k1"}, ["k1"]),
        ({"header": "X-A", "at": "GET /x"}, "/x", {"X_A": "1"}, []),
        ({"header": "X-A", "env": "other"}, "/x", {"X_A": "1"}, []),
        ({"header": "X-A", "env": "app"}, "/x", {"X_A": "1"}, ["1"]),
    ],
)  # fmt: skip
def test_where_a_value_stands(source: dict[str, Any], target: str, headers: dict[str, str], values: list[str]) -> None:
    assert asked(source, target, **headers) == values


@pytest.mark.parametrize(
    ("body", "values"),
    [
        (b'{"params": {"session_id": "s7"}}', ["s7"]),
        (b'{"params": {"session_id": 7}}', ["7"]),
        (b'{"params": {"session_id": null}}', []),
        (b'{"params": []}', []),
        (b"not json", []),
        (b'{"params": {"session_id": "s7"}', []),
        (b"", []),
        (b"[" * 100_000, []),
        (b'{"params": {"session_id": "' + b"x" * 5000 + b'"}}', []),
    ],
)
def test_a_field_of_a_json_body(body: bytes, values: list[str]) -> None:
    assert asked({"body": "/params/session_id"}, body=body) == values


def test_a_body_that_is_coded_is_decoded_first() -> None:
    body = gzip.compress(b'{"id": "s7"}')
    assert asked({"body": "/id"}, body=body, Content_Encoding="gzip") == ["s7"]
    assert asked({"body": "/id"}, body=body[:-4], Content_Encoding="gzip") == []
    assert asked({"body": "/id"}, body=body, Content_Encoding="br") == []


def test_rules_are_not_applied_to_a_body_above_the_limit_and_that_shows() -> None:
    body = json.dumps({"id": "s7", "pad": "x" * BODY_LIMIT}).encode()
    for data, fields in ((body, ()), (gzip.compress(body), ((b"Content-Encoding", b"gzip"),))):
        found = rules({"body": "/id"}).of_request("app", b"POST", b"/x", fields, data)
        assert (found.found, found.too_large) == ((), True)


def test_a_body_is_parsed_once_and_only_where_a_rule_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[bytes] = []
    monkeypatch.setattr(extract, "documents", lambda fields, plain: parsed.append(plain) or [json.loads(plain)])
    three = rules({"body": "/a", "at": "POST /step"}, {"body": "/b", "at": "POST /step"}, {"header": "X-C"})
    body = b'{"a": "1", "b": "2"}'
    assert three.of_request("app", b"POST", b"/other", (), body) == Extracted()
    assert parsed == []
    assert [one.value for one in three.of_request("app", b"POST", b"/step", (), body).found] == ["1", "2"]
    assert parsed == [body]


def test_what_an_answer_says() -> None:
    fields = (
        (b"Set-Cookie", b"sid=s7; Path=/; HttpOnly"), (b"Mcp-Session-Id", b"m1"),
        (b"Content-Type", b"text/event-stream"),
    )  # fmt: skip
    told = rules({"answer-cookie": "sid"}, {"answer-header": "mcp-session-id"}, {"answer": "/result/id"})
    body = b': hello\n\ndata: {"other": 1}\n\nid: 1\ndata: {"result": {"id": "r1"}}\n\n'
    found = told.of_answer("app", b"POST", b"/x", fields, body)
    assert [one.value for one in found.found] == ["s7", "m1", "r1"]
    assert told.of_request("app", b"POST", b"/x", fields, body) == Extracted()


def test_a_frame_of_the_agent_names_a_connection_and_the_environment_s_does_not() -> None:
    one = rules({"connection": True, "frame": "/data/episode_id", "at": "GET /ws"})
    text = b'{"type": "reset", "data": {"episode_id": "ep-42"}}'
    assert [found.value for found in one.of_frame("app", b"/ws", text, True).found] == ["ep-42"]
    assert one.of_frame("app", b"/ws", text, False) == NOTHING
    assert one.of_frame("app", b"/other", text, True) == NOTHING
    assert not one.of_frame("app", b"/ws", b"\xff\xfe", True)


def test_a_token_in_place_of_a_secret_is_taken_as_it_is() -> None:
    one = rules({"cookie": "sid", "decode": ["dot:1", "base64"]})
    (found,) = one.of_request("app", b"GET", b"/x", ((b"Cookie", f"sid={TOKEN}".encode()),), b"").found
    assert (found.value, found.redacted) == (TOKEN, True)


def test_an_expired_rule_is_named_and_not_applied() -> None:
    tables = [{"name": "old", "action": "extract", "header": "X-A", "fills": "alias", "until": "2026-01-31"}]
    last_day, after = date(2026, 1, 31), date(2026, 2, 1)
    assert Extractors(extract_rules(tables), last_day).expired == ()
    gone = Extractors(extract_rules(tables), after)
    assert (gone.expired, bool(gone), gone.names) == (("old",), False, ())


@pytest.mark.parametrize(("value", "says"), [("true", True), ("0", True), ("false", False), ("null", False)])
def test_end_and_probe_say_yes_unless_the_value_says_no(value: str, says: bool) -> None:
    one = rules({"header": "X-Done", "fills": "end"})
    assert one.of_request("app", b"GET", b"/x", ((b"X-Done", value.encode()),), b"").says("end") is says


def test_a_probe_needs_no_source() -> None:
    one = rules({"at": "GET /health", "fills": "probe"})
    assert one.of_request("app", b"GET", b"/health", (), None).says("probe")
    assert not one.of_request("app", b"GET", b"/step", (), None).says("probe")


WIRE = st.binary(max_size=200)


@given(WIRE, WIRE, st.lists(st.tuples(st.sampled_from([b"Cookie", b"baggage", b"X-A", b"Set-Cookie"]), WIRE)), WIRE)
def test_nothing_on_the_wire_makes_a_rule_fail(method: bytes, target: bytes, fields: Any, body: bytes) -> None:
    every = rules(
        {"cookie": "*"}, {"header": "X-A"}, {"baggage": "a"}, {"path": 1}, {"path": "/{id}"}, {"query": "a"},
        {"body": "/a"}, {"answer": "/a"}, {"answer-cookie": "*"}, {"answer-header": "X-A"}, {"api-key": "X-A"},
        {"connection": True, "frame": "/a"},
    )  # fmt: skip
    for found in (
        every.of_request("app", method, target, tuple(fields), body),
        every.of_answer("app", method, target, tuple(fields), body),
        every.of_frame("app", target, body, True),
    ):
        assert all(one.value and len(one.value) <= 4096 for one in found.found)


@given(st.text(st.characters(codec="ascii", exclude_characters='";,\\ \t\r\n\x0b\x0c\x00'), min_size=1, max_size=50))
def test_a_cookie_among_others_gives_its_value(value: str) -> None:
    assert asked({"cookie": "sid"}, Cookie=f"a=b; sid={value}; c=d") == [value]
