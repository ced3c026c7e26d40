from __future__ import annotations

from replayproxy.core.difference import Difference
from replayproxy.core.validators import Validators, split_validators, uri_of
from replayproxy.core.values import Exchange
from replayproxy.testing import exchange


def gets(*tags: str, target: str = "/doc", name: str = "ETag") -> list[Exchange]:
    return [exchange("GET", target, headers={name: tag}) for tag in tags]


def etag(a: str, b: str, name: str = "etag", *, asked: bool = False) -> Difference:
    tokens = ("request", "header", name) if asked else ("header", name)
    return Difference(tokens=tokens, kind="value", a=a, b=b, role="validator")


URI = uri_of(exchange("GET", "/doc"))


def test_validators_are_renamed_injectively_for_each_uri() -> None:
    known = Validators(list(zip(gets('"1"', '"2"', '"1"'), gets('"a"', '"b"', '"a"'), strict=True)))
    assert known.explains(etag('"1"', '"a"'), URI)
    assert known.explains(etag('"2"', '"b"'), URI)
    assert not known.explains(etag('"1"', '"b"'), URI)
    assert not known.explains(etag('"1"', '"a"'), "app /other")


def test_a_validator_that_stays_or_moves_alone_is_not_explained() -> None:
    stays = Validators(list(zip(gets('"1"', '"2"'), gets('"a"', '"a"'), strict=True)))
    assert not stays.explains(etag('"2"', '"a"'), URI)
    moves = Validators(list(zip(gets('"1"', '"1"'), gets('"a"', '"b"'), strict=True)))
    assert not moves.explains(etag('"1"', '"b"'), URI)


def test_weak_and_strong_are_two_things() -> None:
    known = Validators(list(zip(gets('"1"'), gets('W/"1"'), strict=True)))
    assert not known.explains(etag('"1"', 'W/"1"'), URI)


def test_a_condition_may_name_validators_of_any_uri() -> None:
    known = Validators(list(zip(gets('"1"', '"2"'), gets('"a"', '"b"'), strict=True)))
    assert known.explains(etag('"1"', '"a"', "if-match", asked=True), "app /elsewhere")
    assert known.explains(etag('"1", "2"', '"a", "b"', "if-none-match", asked=True), URI)
    assert not known.explains(etag('"1", "2"', '"a"', "if-none-match", asked=True), URI)
    assert known.knows("1", "a")
    assert not known.knows("1", "b")


def test_lists_of_validators_and_dates() -> None:
    assert split_validators('"a", W/"b"') == ['"a"', 'W/"b"']
    assert split_validators("Sun, 29 Nov 2026 12:00:00 GMT") == ["Sun, 29 Nov 2026 12:00:00 GMT"]
