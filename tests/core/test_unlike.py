"""Where two requests differ, for people."""

from __future__ import annotations

import gzip
from decimal import Decimal
from typing import Any

import pytest

from replayproxy.core.canonical import request_key
from replayproxy.core.unlike import SHOWN, differences, plain
from replayproxy.core.values import Request
from replayproxy.testing import request

JSON = {"Content-Type": "application/json"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
TEXT = {"Content-Type": "text/plain"}


def unlike(recorded: Request, asked: Request) -> list[tuple[str, Any, Any]]:
    return list(differences(request_key("app", recorded), recorded, request_key("app", asked), asked))


def posted(body: bytes, headers: dict[str, str]) -> Request:
    return request("POST", "/x", body, headers=headers)


@pytest.mark.parametrize(
    ("recorded", "asked", "found"),
    [
        (b'{"a": [1, {"b": 2}]}', b'{"a": [1, {"b": 3}]}', [("body/a/1/b", 2, 3)]),
        (b'{"a": [1]}', b'{"a": [1, null]}', [("body/a/1", None, None)]),
        (b'{"a": 1}', b'{"a": true}', [("body/a", 1, True)]),
        (b'{"a": 1}', b'{"a": 1.0}', []),
        (b'{"a": 1.5}', b'{"a": "1.5"}', [("body/a", 1.5, "1.5")]),
        (b'{"a/b": 1}', b'{"a/b": 2}', [("body/a~1b", 1, 2)]),
        (b"1", b"2", [("body", 1, 2)]),
    ],
)
def test_json_bodies_differ_by_pointer(recorded: bytes, asked: bytes, found: list[Any]) -> None:
    assert unlike(posted(recorded, JSON), posted(asked, JSON)) == found


def test_forms_differ_by_name_and_texts_near_their_first_difference() -> None:
    assert unlike(posted(b"a=1&b=2", FORM), posted(b"b=3&a=1", FORM)) == [("body/b", "2", "3")]
    long = b"x" * 100
    (found,) = unlike(posted(long + b"left", TEXT), posted(long + b"right", TEXT))
    assert found == ("body", "…" + "x" * 20 + "left", "…" + "x" * 20 + "right")


def test_bodies_that_are_no_text_for_people_are_summed_up() -> None:
    assert unlike(posted(b'{"a": 1}', JSON), posted(b"{not json", JSON)) == [
        ("body", "json, 8 bytes", "bytes, 9 bytes")
    ]


def test_a_repeated_name_and_a_bare_one_are_told_apart() -> None:
    assert unlike(request(target="/x?a=1&a=2"), request(target="/x?a=2&a=1")) == [("query.a", ["1", "2"], ["2", "1"])]
    assert unlike(request(target="/x?tag"), request(target="/x?tag=")) == [("query.tag", "tag", "tag=")]
    assert unlike(request(target="/x"), request(target="/x?"))[0] == ("query", None, "?")


def test_what_is_named_like_a_credential_is_never_shown_only_that_it_differs() -> None:
    hidden = ("(a credential)", "(another credential)")
    assert unlike(request(target="/x?api_key=AAA"), request(target="/x?api_key=BBB")) == [("query.api_key", *hidden)]
    assert unlike(posted(b"token=AAA", FORM), posted(b"token=BBB", FORM)) == [("body/token", *hidden)]
    mine, yours = (posted(b'{"user": {"password": "%s"}}' % word, JSON) for word in (b"AAA", b"BBB"))
    assert unlike(mine, yours) == [("body/user/password", *hidden)]
    (found,) = unlike(posted(b"{}", JSON), mine)
    assert "AAA" not in str(found)


def test_a_missing_credential_is_told_apart_from_another_one() -> None:
    key = {"X-Api-Key": "AAA"}
    assert unlike(request(headers=key), request(headers={})) == [("header/x-api-key", "(a credential)", None)]
    assert unlike(request(headers={}), request(headers=key)) == [("header/x-api-key", None, "(a credential)")]
    other = unlike(request(headers=key), request(headers={"X-Api-Key": "BBB"}))
    assert other == [("header/x-api-key", "(a credential)", "(another credential)")]


def test_values_are_shown_so_that_any_encoder_keeps_them() -> None:
    assert plain(Decimal("0.1")) == 0.1
    assert plain(Decimal("0.10000000000000000001")) == "0.10000000000000000001"
    assert plain(2**70) == "1180591620717411303424"
    assert plain({"a": [1]}) == '{"a":[1]}'
    assert plain("x" * 1000) == "x" * SHOWN + "…"


def test_a_coding_that_cannot_be_undone_is_told() -> None:
    def sent(data: bytes, coding: str) -> Request:
        return request("POST", "/x", data, headers={"Content-Type": "application/json", "Content-Encoding": coding})

    def first(a: Request, b: Request) -> tuple[str, object, object]:
        return next(differences(request_key("app", a), a, request_key("app", b), b))

    assert first(sent(b'{"a":1}', "gzip"), sent(b'{"a":2}', "gzip")) == (
        "body",
        "bytes, 7 bytes, compared as sent: gzip cannot be undone",
        "bytes, 7 bytes, compared as sent: gzip cannot be undone",
    )
    assert "br cannot be undone" in str(first(sent(b"x", "br"), sent(gzip.compress(b"{}"), "gzip"))[1])
    assert first(sent(gzip.compress(b'{"a":1}'), "gzip"), sent(gzip.compress(b'{"a":2}'), "gzip")) == ("body/a", 1, 2)
