from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from replayproxy.core.extract import run_examples
from replayproxy.core.extractrule import extract_rules, secrets_of
from replayproxy.errors import WrongUsage

GOOD: dict[str, Any] = {
    "name": "n", "action": "extract", "header": "X-Thread", "fills": "alias",
    "example": {"request": "GET /x", "headers": ["X-Thread: s"], "value": "s"},
}  # fmt: skip
TWO = {key: value for key, value in GOOD.items() if key != "header"}


def check(table: dict[str, Any]) -> None:
    run_examples(extract_rules([table]))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"name": ""}, "has no name"),
        ({"name": None}, "has no name"),
        ({"colour": "red"}, "unknown key 'colour'"),
        ({"fills": "mood"}, "fills is 'mood'"),
        ({"fills": None}, "fills is None"),
        ({"cookie": "sid"}, "names 2 sources, cookie and header"),
        ({"header": "X Thread"}, "no name of a header field"),
        ({"header": 7}, "header must be a text"),
        ({"at": "step"}, "METHOD TEMPLATE"),
        ({"at": 7}, "at must be a text"),
        ({"env": "1x"}, "no name of an environment"),
        ({"reason": 7}, "reason must be a text"),
        ({"until": "soon"}, "until is 'soon'"),
        ({"frame": "/a"}, "frame goes with connection"),
        ({"decode": ["rot13"]}, "'rot13' is no step"),
        ({"decode": 7}, "list of steps"),
        ({"decode": ["regex:((?:a+)+)"]}, "for ever"),
        ({"secret": "yes"}, "true or false"),
        ({"secret": 1}, "true or false"),
        ({"fills": "task", "secret": True}, "would be stored and shown"),
        ({"space": 7}, "space must be a text"),
        ({"example": None}, "has no example"),
        ({"example": "x"}, "example must be a table"),
        ({"example": {"request": "GET /x"}}, "example lacks value"),
        ({"example": {"request": "/x", "value": "s"}}, "must be as"),
        ({"example": {"request": "GET /x", "value": "s", "verb": "x"}}, "unknown key 'verb'"),
        ({"example": {"request": "GET /x", "value": "s", "headers": ["X-Thread"]}}, "Name: value"),
        ({"example": {"request": "GET /x", "value": "s", "headers": "X-Thread: s"}}, "headers is"),
        ({"example": {"request": "GET /x", "value": "s"}}, "gives no value, not 's'"),
        ({"example": {"request": "GET /x", "value": "t", "headers": ["X-Thread: s"]}}, "gives 's', not 't'"),
    ],
)
def test_a_rule_that_cannot_be_meant_is_refused_in_one_line(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(WrongUsage, match=why) as refused:
        check({**GOOD, **changes})
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ({}, "names no source"),
        ({"connection": False}, "connection is true"),
        ({"connection": True, "frame": "a"}, "no JSON pointer"),
        ({"connection": True, "frame": 7}, "frame must be"),
        ({"connection": True, "fills": "seed"}, "add frame"),
        ({"connection": True, "fills": "lane", "frame": "/a"}, "found in the request"),
        ({"answer": "/x", "fills": "lane"}, "found in the request"),
        ({"path": 0}, "count from 1"),
        ({"path": "/x/y"}, "no template with one parameter"),
        ({"path": "/{a}/{b}"}, "no template with one parameter"),
        ({"path": True}, "path must be a number or a text"),
        ({"body": "x"}, "no JSON pointer"),
        ({"body": "/x", "pointer": "/y"}, "pointer and body are the same"),
        ({"query": ""}, "query must be a text"),
        ({"api-key": "Authorization", "secret": False}, "always secret"),
        ({"api-key": "Authorization", "fills": "task"}, "would be stored and shown"),
        ({"path": 1, "secret": True}, "kept as it is"),
        ({"baggage": "a", "secret": True}, "kept as it is"),
        ({"connection": True, "frame": "/id", "secret": True}, "kept as it is"),
        ({"cookie": "sid", "fills": "episode"}, "would be stored and shown"),
    ],
)
def test_a_source_that_cannot_be_is_refused(source: dict[str, Any], why: str) -> None:
    with pytest.raises(WrongUsage, match=why):
        check({**TWO, **source})


def test_two_rules_of_one_name_are_refused() -> None:
    with pytest.raises(WrongUsage, match="two rules are named 'n'"):
        extract_rules([GOOD, GOOD])


def test_rules_of_other_actions_are_left_to_others() -> None:
    assert extract_rules([{"action": "ignore", "pointer": "/x"}]) == ()


def test_pointer_is_body_in_each_of_its_spellings() -> None:
    for pointer in ("/a/b", "body/a/b", "request/body/a/b"):
        (rule,) = extract_rules([{**TWO, "pointer": pointer}])
        assert (rule.source, rule.wanted) == ("body", "/a/b")


@pytest.mark.parametrize(
    ("source", "secret"),
    [
        ({"cookie": "theme"}, True), ({"answer-cookie": "theme"}, True), ({"api-key": "X-Api-Key"}, True),
        ({"header": "Authorization"}, True), ({"header": "X-Auth-Token"}, True),
        ({"header": "Mcp-Session-Id"}, True),
        ({"query": "vf_state_signature"}, True), ({"body": "/params/session_id"}, True),
        ({"header": "X-Thread"}, False),
        ({"path": 1}, False), ({"query": "run"}, False), ({"answer": "/env_id"}, False),
        ({"path": "/{token}"}, False),
        ({"baggage": "token"}, False),
        ({"connection": True, "frame": "/data/session_id"}, True),
        ({"connection": True, "frame": "/data/episode_id"}, False),
        ({"cookie": "theme", "secret": False}, False), ({"header": "X-Thread", "secret": True}, True),
    ],
)  # fmt: skip
def test_what_is_named_like_a_credential_is_secret_unless_the_rule_says_otherwise(
    source: dict[str, Any], secret: bool
) -> None:
    (rule,) = extract_rules([{**TWO, **source}])
    assert rule.secret is secret


def test_until_is_the_last_day() -> None:
    (rule,) = extract_rules([{**GOOD, "until": "2027-02"}])
    assert rule.until == date(2027, 2, 28)


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ({"api-key": "X-Worker"}, ("header", "X-Worker")),
        ({"query": "vf_state_signature"}, ("query", "vf_state_signature")),
        ({"answer": "/deep/my-token-2"}, ("pointer", "/deep/my-token-2")), ({"api-key": "Authorization"}, None),
        ({"cookie": "theme"}, None), ({"header": "X-Thread"}, None), ({"body": "/session_id"}, None),
    ],
)  # fmt: skip
def test_a_secret_that_is_not_known_by_its_name_is_kept_out_of_the_store_where_it_stands(
    source: dict[str, Any], place: tuple[str, str] | None
) -> None:
    found = secrets_of(extract_rules([{**TWO, **source}]))
    assert [(one.place, one.what) for one in found] == ([] if place is None else [place])
