"""Specs taken apart: options from the right, secrets from variables, braces never pasted, nothing secret printed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replayproxy.errors import WrongUsage
from replayproxy.state import StateUnreadable
from replayproxy.state.spec import Spec, as_path, redacted, take_apart, unknown_words, with_secrets

HTTP = ("header", "restore")


@pytest.mark.parametrize(
    ("text", "target", "options"),
    [
        ("http://h/s", "http://h/s", {}),
        ("http://h/s?a=1,2,b=3", "http://h/s?a=1,2,b=3", {}),
        ("http://h/s,restore=none", "http://h/s", {"restore": ("none",)}),
        ('http://h/s,restore="PUT http://h/t?x=1,2"', "http://h/s", {"restore": ("PUT http://h/t?x=1,2",)}),
        ("http://h/s,header=A:1,header=B: 2, 3", "http://h/s", {"header": ("A:1", "B: 2, 3")}),
        ("http://h/s,header=A:x=y,restore=none", "http://h/s", {"header": ("A:x=y",), "restore": ("none",)}),
        ("http://h/,other=1,restore=none", "http://h/,other=1", {"restore": ("none",)}),
    ],
)
def test_options_are_split_from_the_right(text: str, target: str, options: dict[str, Any]) -> None:
    assert take_apart(text, HTTP) == (target, options)


def test_without_known_options_all_is_target() -> None:
    assert take_apart("/a,exclude=b", ()) == ("/a,exclude=b", {})


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("env:V", "s3"),
        ("Authorization:env:V", "Authorization:s3"),
        ("Authorization: Bearer env:V", "Authorization: Bearer s3"),
        ("host=h password=env:V dbname=d", "host=h password=s3 dbname=d"),
        ("/data/env:V.db", "/data/env:V.db"),
        ("myenv:V", "myenv:V"),
        ("postgresql://u:env:ODD@h/d", "postgresql://u:a%40b%2Fc%26d@h/d"),
        ("http://h/?token=env:ODD&x=1", "http://h/?token=a%40b%2Fc%26d&x=1"),
        ("X-Key:env:ODD", "X-Key:a@b/c&d"),
    ],
)
def test_secrets_come_from_variables(text: str, filled: str) -> None:
    assert with_secrets(text, {"V": "s3", "ODD": "a@b/c&d"}) == filled


def test_a_variable_that_is_not_set_is_named() -> None:
    with pytest.raises(WrongUsage, match="env:CRM_DSN"):
        with_secrets("env:CRM_DSN", {})


def spec(target: str, **options: str) -> Spec:
    context = {"episode": "e 1", "meta.step": "4"}
    given = {name: (value,) for name, value in options.items()}
    return Spec(name="crm", kind="x", target=target, options=given, context=context)


def test_braces_are_filled_in_by_the_given_encoding() -> None:
    assert (
        spec("/{episode}/{meta.step}/{other}").filled("/{episode}/{meta.step}/{other}", str.upper) == "/E 1/4/{other}"
    )
    assert spec("/{episode}", where="x = {meta.step}").needs == {"episode", "meta.step"}
    assert spec("/{episode}").scope == "episode"
    assert spec("/x").scope == "instance"


def test_a_word_that_this_episode_does_not_have_is_named() -> None:
    with pytest.raises(StateUnreadable, match=r"\{task\} is not known"):
        spec("/{task}").filled("/{task}", str)


def test_typing_errors_in_braces_are_found() -> None:
    assert unknown_words("/{epsiode}/{episode}/{meta.x}/{}") == ["epsiode"]


@pytest.mark.parametrize("value", ["", ".", "..", "a/b", "a\0b"])
def test_a_value_in_a_path_names_one_thing(value: str) -> None:
    with pytest.raises(StateUnreadable, match="lead elsewhere"):
        as_path(value)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("sqlite:/data/crm.db", "sqlite:/data/crm.db"),
        ("postgres:postgresql://me:hidden@h:5432/db?schema=a", "postgres:postgresql://me:***@h:5432/db?schema=a"),
        ("postgres:postgresql://me:hid@den@h/db", "postgres:postgresql://me:***@h/db"),
        ("postgres:host=h password=hidden dbname=d", "postgres:host=h password=*** dbname=d"),
        ("postgres:host=h password='hid den' dbname=d", "postgres:host=h password=*** dbname=d"),
        ("postgres:postgresql://me:env:PW@h/db", "postgres:postgresql://me:env:PW@h/db"),
        ("postgres:postgresql://h/db?password=hidden&schema=a", "postgres:postgresql://h/db?password=***&schema=a"),
        ("postgres:env:DSN", "postgres:env:DSN"),
        ("http:http://h/s?api_key=hidden&x=1", "http:http://h/s?api_key=***&x=1"),
        ("http:http://h/s?access_token=hidden", "http:http://h/s?access_token=***"),
        ("http:http://h/s,header=Authorization: Bearer hidden", "http:http://h/s,header=Authorization: ***"),
        ("http:http://h/s,header=A:env:T,header=B:hidden,restore=none", "http:http://h/s,header=A:env:T,header=B:***,restore=none"),
        ("http:http://h/s,header=A:Bearer env:T", "http:http://h/s,header=A:Bearer env:T"),
        ('http:http://h/s,restore="PUT http://u:hidden@h/t"', 'http:http://h/s,restore="PUT http://u:***@h/t"'),
    ],
)  # fmt: skip
def test_what_is_printed_holds_no_secret(text: str, shown: str) -> None:
    assert redacted(text) == shown


words = st.text(st.sampled_from("xyz0!$()*+;~^"), min_size=4)


@settings(max_examples=50, deadline=None)
@given(words)
def test_a_password_is_never_printed(password: str) -> None:
    for text in ("postgresql://u:{}@h/d", "http://h/,header=X:{}", "h=1 password={} d=2", "http://h/?token={}&x=1"):
        assert password not in redacted(text.format(password)).replace("***", "")
