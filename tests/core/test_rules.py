from __future__ import annotations

from datetime import date, datetime
from typing import Any

import pytest

from replayproxy.core.rules import Rule, RuleBook, parse_rules
from replayproxy.errors import WrongUsage

MASK = frozenset({"ignore", "mask"})


def table(**more: Any) -> dict[str, Any]:
    return {"pointer": "/x", "action": "ignore", "reason": "why"} | more


def test_a_rule_is_read_from_a_table_and_from_a_whole_config() -> None:
    given = table(name="n", at="GET /deals/{id}", until=date(2027, 3, 1))
    (rule,) = parse_rules([given])
    wanted = {"name": "n", "at": "GET /deals/{id}", "pointer": "/x", "action": "ignore", "reason": "why"}
    assert rule == Rule(**wanted, until=date(2027, 3, 1))
    assert parse_rules({"rule": [given]}) == (rule,)
    assert parse_rules({}) == ()


def test_a_rule_without_a_name_is_named_by_its_place() -> None:
    assert [rule.name for rule in parse_rules([table(), table(at="GET /a")])] == ["* /x", "GET /a /x"]


@pytest.mark.parametrize(
    ("until", "last"),
    [("2027-02", date(2027, 2, 28)), ("2026-12", date(2026, 12, 31)), ("2027-03-01", date(2027, 3, 1)),
     (datetime(2027, 3, 1, 12), date(2027, 3, 1)), ("", None)],  # noqa: DTZ001
)  # fmt: skip
def test_until_is_the_last_day_on_which_a_rule_applies(until: Any, last: date | None) -> None:
    (rule,) = parse_rules([table(until=until)])
    assert rule.until == last
    if last is not None:
        assert rule.applies(last)
        assert not rule.applies(date.fromordinal(last.toordinal() + 1))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ([table(action="forget")], "action is 'forget'"),
        ([table(reason=" ")], "gives no reason"),
        ([table(pointer="")], "names no pointer"),
        ([table(until="soon")], "until is 'soon'"),
        ([table(nmae="x")], "unknown key 'nmae'"),
        ([table(at=3)], "at is no text"),
        ([table(name="n"), table(name="n")], "two rules are named 'n'"),
        (["x"], "rule 1 is no table"),
        ({"rule": "x"}, "no list of tables"),
    ],
)
def test_a_rule_that_cannot_be_meant_is_refused_with_the_reason(wrong: Any, says: str) -> None:
    with pytest.raises(WrongUsage, match=says):
        parse_rules(wrong)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"at": "POST act"}, "whose path does not begin with /"), ({"at": "act"}, "neither a method nor a path"),
        ({"pointer": "go"}, "no place"), ({"pointer": "title.x"}, "no place"), ({"pointer": "request/go"}, "no place"),
        ({"pointer": "method"}, "no rule lets that differ"), ({"pointer": "request/method"}, "no rule lets"),
        ({"pointer": "env"}, "no rule lets"),
    ],
)  # fmt: skip
def test_a_rule_that_can_never_match_is_refused(more: dict[str, Any], says: str) -> None:
    with pytest.raises(WrongUsage, match=says):
        parse_rules([table(**more)])


def test_rules_that_speak_to_recording_and_replay_pass_without_being_used() -> None:
    rules = parse_rules([{"action": "extract", "source": "cookie"}, {"action": "repeat", "at": "GET /poll"}])
    book = RuleBook(rules)
    assert (bool(book), book.unused()) == (False, ())


@pytest.mark.parametrize(
    ("at", "template", "applies"),
    [
        ("", "GET /deals/{id}", True), ("*", "GET /deals/{id}", True), ("GET /deals/{id}", "GET /deals/{id}", True),
        ("GET /deals/{deal}", "GET /deals/{id}", True), ("GET /deals/{id}", "PUT /deals/{id}", False),
        ("GET /deals/{id}", "GET /deals/{id}/notes", False), ("GET /deals/*", "GET /deals/{id}/notes", True),
        ("/deals/{id}", "PUT /deals/{id}", True), ("GET", "GET /anything", True), ("GET /deals", "GET /deals.", False),
        ("POST /mcp tools/call *", "POST /mcp tools/call add_note", True),
    ],
)  # fmt: skip
def test_where_a_rule_applies(at: str, template: str, applies: bool) -> None:
    book = RuleBook([Rule(name="r", at=at, pointer="/x", reason="y")])
    assert (book.find(template, "body/x", MASK) is not None) == applies


@pytest.mark.parametrize(
    ("pointer", "places", "not_these"),
    [
        ("/x", ["body/x", "request/body/x", "body/x/deep/1"], ["body/xy", "header/x", "body"]),
        ("body/x", ["body/x"], ["request/body/x"]),
        ("request/body/x", ["request/body/x"], ["body/x"]),
        ("/items/*/at", ["body/items/*/at", "body/items/3/at"], ["body/items/at"]),
        ("/**/at", ["body/at", "body/a/*/b/at"], ["body/ta"]),
        ("header/ETag", ["header/etag"], ["request/header/etag"]),
        ("header.etag", ["header/etag"], []),
        ("request/header/cookie", ["request/header/cookie/sid"], ["header/set-cookie/sid"]),
        ("query.fields", ["request/query/fields"], ["query/fields"]),
        ("query/fields", ["request/query/fields"], []),
        ("path", ["request/path"], ["body/path"]),
        ("status", ["status"], ["body/status"]),
        ("state/deals/*/updated_at", ["state/deals/42/updated_at"], ["state/deals/42/stage"]),
    ],
)
def test_what_a_pointer_names(pointer: str, places: list[str], not_these: list[str]) -> None:
    book = RuleBook([Rule(name="r", pointer=pointer, reason="y")])
    assert [place for place in places if book.find("GET /", place, MASK) is None] == []
    assert [place for place in not_these if book.find("GET /", place, MASK) is not None] == []


def test_uses_are_counted_and_expired_rules_never_apply() -> None:
    rules = [Rule(name="used", pointer="/a", reason="y"), Rule(name="idle", pointer="/b", reason="y"),
             Rule(name="old", pointer="/a", reason="y", until=date(2020, 1, 1))]  # fmt: skip
    book = RuleBook(rules, date(2020, 1, 2))
    found = book.find("GET /", "body/a", MASK)
    assert found is not None
    book.used(found)
    assert (book.uses, book.unused()) == ({"used": 1, "idle": 0}, ("idle",))
    assert [rule.name for rule in book.expired] == ["old"]
