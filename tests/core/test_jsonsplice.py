from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replayproxy.core.jsonsplice import inserted, members, renewed, written

TEXT = st.text(st.characters(codec="utf-8"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
PAIRS = st.lists(st.tuples(st.sampled_from(["a", "mask", 'qu"ote', "back\\slash", "ключ"]) | TEXT, VALUES), max_size=6)
SPACE = st.text(st.sampled_from(" \t"), max_size=2)


@st.composite
def objects(draw: st.DrawFn) -> bytes:
    """An object as anybody may have written it: names that stand twice, odd spaces, escapes or none."""
    ascii_only = draw(st.booleans())
    gaps = draw(st.tuples(*[SPACE] * 6))
    body = f"{gaps[0]},{gaps[1]}".join(
        f"{json.dumps(k, ensure_ascii=ascii_only)}{gaps[2]}:{gaps[3]}{json.dumps(v, ensure_ascii=ascii_only)}"
        for k, v in draw(PAIRS)
    )
    end = draw(st.sampled_from(["", "\n", "\r\n", " \r\n"]))
    return f"{gaps[4]}{{{gaps[5]}{body}{gaps[0]}}}{end}".encode()


def pairs(raw: bytes) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []

    def outermost(listed: list[tuple[str, Any]]) -> dict[str, Any]:
        found[:] = listed
        return dict(listed)

    json.loads(raw, object_pairs_hook=outermost)
    return found


@settings(deadline=None)
@given(objects())
def test_what_is_put_in_can_be_taken_out_again_and_nothing_else_has_changed(raw: bytes) -> None:
    before = pairs(raw)
    changed = inserted(raw, b'"m": true', empty=not before)
    assert pairs(changed) == [*before, ("m", True)]
    assert changed.replace(b'"m": true' if not before else b', "m": true', b"") == raw


@settings(deadline=None)
@given(objects())
def test_the_members_found_are_those_that_a_parser_finds(raw: bytes) -> None:
    assert [(m.name, json.loads(raw[m.start : m.end])) for m in members(raw)] == pairs(raw)


@settings(deadline=None)
@given(objects())
def test_a_member_that_is_there_is_renewed_where_it_stands_and_the_others_stay(raw: bytes) -> None:
    before = pairs(raw)
    changed = pairs(renewed(raw, {"mask": b"true", "new-one": b"[1]"}))
    kept = [(name, True if name == "mask" else [1] if name == "new-one" else value) for name, value in before]
    assert changed[: len(kept)] == kept
    assert {name for name, _ in changed} == {name for name, _ in before} | {"mask", "new-one"}


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"{}", b'{"m": true}'),
        (b"{ }\r\n", b'{ "m": true}\r\n'),
        (b'{"a": {"m": 1}}', b'{"a": {"m": 1}, "m": true}'),
        (b'{"m": 1, "m" : [1, {"m": 2}] }', b'{"m": true, "m" : true }'),
        (b'{"\\u006d": 1e2}', b'{"\\u006d": true}'),
        (b'{"a": "}\\"{", "m":"x,y"}', b'{"a": "}\\"{", "m":true}'),
    ],
)
def test_renewed(raw: bytes, expected: bytes) -> None:
    assert renewed(raw, {"m": b"true"}) == expected


def test_a_name_is_written_as_json() -> None:
    assert written({'a"b': b"1", "c": b"[]"}) == b'"a\\"b": 1, "c": []'
