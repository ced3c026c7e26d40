from __future__ import annotations

import base64

import pytest

from replayproxy.core.unpack import readable, signed_parts


def packed(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


@pytest.mark.parametrize("text", ['{"after": 12}', "user:17", "grüße aus Wien"])
def test_base64_of_text_is_readable(text: str) -> None:
    assert readable(packed(text)) == text


@pytest.mark.parametrize(
    "token", ["", "short", "V1StGXR8_Z5jdHi6B-myT", "3f2c8a10-aaaa-4bbb-8ccc-1234567890ab", "a b c d e f"]
)
def test_other_tokens_are_not(token: str) -> None:
    assert readable(token) is None


def test_signed_tokens_are_taken_apart() -> None:
    token = f"{packed('{"sub": 1}')}.Zk1aBc.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
    parts = signed_parts(token)
    assert parts is not None
    assert readable(parts[0]) == '{"sub": 1}'
    assert signed_parts("www.example.org") is None
    assert signed_parts("one.two") is None
