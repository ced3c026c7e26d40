from __future__ import annotations

import base64
import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replayproxy.core.decoding import VALUE_LIMIT, compiled, decode

IDS = st.text(min_size=1, max_size=60).filter(lambda text: text.isprintable())


def run(text: str, *steps: str) -> str | None:
    return decode(text, compiled(steps))


@given(IDS)
def test_what_was_encoded_comes_back(value: str) -> None:
    raw = value.encode()
    assert run(quote(value, safe=""), "percent") == value
    assert run(base64.b64encode(raw).decode(), "base64") == value
    assert run(base64.urlsafe_b64encode(raw).decode().rstrip("="), "base64url") == value
    assert run(json.dumps({"a/b": [{"id": value}]}), "json:/a~1b/0/id") == value
    assert run(f"lead.{value.replace('.', '')}x.tail", "dot:2") == f"{value.replace('.', '')}x"


@given(st.text(max_size=200), st.lists(st.sampled_from(
    ["percent", "base64", "base64url", "json:", "json:/a", "dot:1", "dot:3", "lower", "prefix:a", "regex:(.)"]
), max_size=5))  # fmt: skip
def test_no_text_makes_any_step_fail(text: str, steps: list[str]) -> None:
    value = run(text, *steps)
    assert value is None or isinstance(value, str)


@pytest.mark.parametrize(
    ("text", "steps", "value"),
    [
        ("x.y", ["dot:3"], None),
        ("Bearer abc", ["prefix:Bearer "], "abc"),
        ("Basic abc", ["prefix:Bearer "], None),
        ("ABC", ["lower"], "abc"),
        ("sid=17; x", ["regex:sid=([0-9]+)"], "17"),
        ("nothing", ["regex:sid=([0-9]+)"], None),
        ("%%%", ["base64"], None),
        ('{"a": 1.0}', ["json:/a"], "1"),
        ('{"a": true}', ["json:/a"], "true"),
        ('{"a": null}', ["json:/a"], None),
        ('{"a": {}}', ["json:/a"], None),
        ("{", ["json:/a"], None),
        ("%ff", ["percent"], None),
        ("", [], None),
        ("x" * (VALUE_LIMIT + 1), [], None),
    ],
)
def test_steps(text: str, steps: list[str], value: str | None) -> None:
    assert run(text, *steps) == value


@pytest.mark.parametrize(
    ("step", "why"),
    [
        ("rot13", "is no step"), ("dot", "is no step"), ("lower:x", "is no step"), ("dot:0", "from 1"),
        ("dot:x", "from 1"), ("json:a", "no JSON pointer"), ("prefix:", "names no text"), ("regex:(a+", "expression"),
    ],
)  # fmt: skip
def test_a_step_that_cannot_be_is_refused(step: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        compiled([step])
