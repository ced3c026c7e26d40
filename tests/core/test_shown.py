from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replayproxy.core.shown import json_bytes, safe


@given(st.text(st.characters(codec=None)) | st.binary())
def test_safe_text_changes_nothing_but_what_it_says(text: str | bytes) -> None:
    for lines in (False, True):
        shown = safe(text, lines=lines)
        assert all(char.isprintable() or (lines and char in "\n\t") for char in shown.replace("\u00a0", " ")), shown
        shown.encode()  # no surrogate is left


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred", "\\x1b[31mred"), (b"caf\xc3\xa9 \xff", "café \\xff"), ("a\u202eb", "a\\u202eb"),
        ("\ud800", "\\ud800"), ("line\nfeed", "line\\x0afeed"), ("漢字", "漢字"), ("", ""),
    ],
)  # fmt: skip
def test_what_is_shown(text: str | bytes, shown: str) -> None:
    assert safe(text) == shown


def test_lines_may_stay() -> None:
    assert safe("a\n\tb\r", lines=True) == "a\n\tb\\x0d"


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({"a": Decimal("1.10")}, '{"a":1.1}'), ([2**70], "[1180591620717411303424]"), ((1, b"\xff"), '[1,"\\\\xff"]'),
        ({"\ud800": "\ud800"}, '{"\\\\ud800":"\\ud800"}'), (Decimal("NaN"), '"NaN"'),
        ({"\x1b": 2**70}, '{"\\u001b":1180591620717411303424}'), ([True, None, 1.5], "[true,null,1.5]"),
    ],
)  # fmt: skip
def test_json_is_exact(document: Any, text: str) -> None:
    assert json_bytes(document).decode() == text


def test_a_number_of_any_length_is_printed() -> None:
    digits = "9" * 10_000
    assert json_bytes({"n": Decimal(digits)}).decode() == f'{{"n":{digits}}}'
    assert json.loads(json_bytes([10**30])) == [10**30]


def test_what_is_no_document_is_refused() -> None:
    with pytest.raises(TypeError):
        json_bytes(object())
