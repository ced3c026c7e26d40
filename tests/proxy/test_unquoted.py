"""What is told of bytes that cannot be read, without these bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replayproxy.proxy.unquoted import unquoted

LEADS = ["Bad HTTP response line: ", "illegal chunk header: bytearray(", "Illegal character '\\' in header name: "]


@given(
    lead=st.sampled_from(LEADS),
    before=st.binary(max_size=8),
    after=st.binary(max_size=8),
    show=st.sampled_from([repr, lambda raw: repr(raw.decode("latin-1")), lambda raw: repr([raw, raw])]),
)
def test_no_byte_of_what_is_quoted_stays(lead, before, after, show) -> None:  # type: ignore[no-untyped-def]
    told = unquoted(lead + show(before + b"SECRET" + after) + ")")
    assert "SECRET" not in told
    assert told.startswith(lead.split("'")[0])
    assert "characters, not kept)" in told
    assert unquoted(told) == told


@pytest.mark.parametrize(
    "told",
    [
        "",
        "the environment closed the connection in the middle of the answer's head",
        "a chunk's first line or the trailers of the environment's answer: longer than 1048576 bytes",
        "HTTP/2 protocol error: InvalidBodyLengthError: Expected 5 bytes, received 3",
        "answer's and agents' words",
    ],
)
def test_a_message_that_quotes_nothing_stays(told: str) -> None:
    assert unquoted(told) == told


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("[Errno 111] Connect call failed ('127.0.0.1', 9)", "[Errno 111] no connection to 127.0.0.1 port 9"),
        (
            "Connect call failed ('::1', 9, 0, 0), Connect call failed ('127.0.0.1', 9)",
            "no connection to ::1 port 9, no connection to 127.0.0.1 port 9",
        ),
        ("Connect call failed ('fe80::1%eth0', 9, 0, 2)", "no connection to fe80::1%eth0 port 9"),
        ("Connect call failed ('%eth0', 9, 0, 2)", "Connect call failed ((7 characters, not kept), 9, 0, 2)"),
        ("Connect call failed ('sk-live', 9)", "Connect call failed ((9 characters, not kept), 9)"),
    ],
)
def test_the_address_that_could_not_be_reached_stays(said: str, told: str) -> None:
    assert unquoted(said) == told
