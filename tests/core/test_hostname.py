from __future__ import annotations

import pytest

from replayproxy.core.hostname import why_no_host


@pytest.mark.parametrize(
    "host",
    [
        "localhost", "h", "a.b.example.", "under_score", "bücher.example", "h" * 63, "0x10", "1a.2b",
        "127.0.0.1", "127.1", "2130706433", "0.0.0.0", "::1", "fe80::1%eth0",
    ],
)  # fmt: skip
def test_names_and_addresses_are_hosts(host: str) -> None:
    assert why_no_host(host) is None


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("", "it is empty"), ("a b", "' ' is in no host's name"), ("\x00", r"'\x00' is in no host's name"),
        ("ha=http", "'=' is in no host's name"), ("a\n", r"'\n' is in no host's name"),
        ("..", "1 to 63 characters"), ("a..b", "1 to 63 characters"), ("h" * 64, "1 to 63 characters"),
        ("ü" * 64, "1 to 63 characters"),
        ("1.2.3.4.5", "no IPv4 address"), ("999.1.1.1", "no IPv4 address"), ("a.1", "no IPv4 address"),
        ("4294967296", "no IPv4 address"), ("9" * 5000, "no IPv4 address"), ("127.0.0.١", "no IPv4 address"),
        ("::g", "no IPv6 address"), ("1:2", "no IPv6 address"),
    ],
)  # fmt: skip
def test_anything_else_is_none_and_says_why(host: str, why: str) -> None:
    assert why in (why_no_host(host) or "")
