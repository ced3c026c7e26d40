"""Hosts as `--pass` names them."""

from __future__ import annotations

import pytest

from replayproxy.core.hostlist import HostList


@pytest.mark.parametrize(
    ("entry", "host", "port", "has"),
    [
        ("api.example", "api.example", 443, True),
        ("api.example", "API.Example.", 80, True),
        ("api.example", "b.api.example", 443, False),
        ("*.example", "a.b.example", 443, True),
        ("*.example", "example", 443, False),
        ("*.example", "badexample", 443, False),
        ("api.example:443", "api.example", 443, True),
        ("api.example:443", "api.example", 80, False),
        ("[::1]:9000", "::1", 9000, True),
        ("[::1]", "[::1]", 9000, True),
        ("::1", "::1", 80, True),
    ],
)
def test_an_entry_stands_for_a_host(entry: str, host: str, port: int, has: bool) -> None:
    assert HostList.parse([entry]).has(host, port) is has


@pytest.mark.parametrize(
    "entry", ["", "http://a", "a/b", "a b", "a:", "a:0", "a:99999", "*", "a.*.b", "[::1", "[::1]x", ":80"]
)
def test_what_is_no_host_is_refused_by_name(entry: str) -> None:
    with pytest.raises(ValueError, match=r"it is|stands"):
        HostList.parse([entry])
