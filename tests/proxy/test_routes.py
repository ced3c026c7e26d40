"""Addresses of environments, and the names by which agents reach the proxy."""

from __future__ import annotations

import pytest

from replayproxy.core.names import why_not_an_env
from replayproxy.proxy.routes import Route, env_of_authority, parse_upstream


@pytest.mark.parametrize(
    ("url", "origin", "path"),
    [
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080", ""),
        ("http://CRM.test:80/v1/", "http://crm.test", "/v1"),
        ("https://crm.test", "https://crm.test", ""),
        ("https://crm.test:80/", "https://crm.test:80", ""),
        ("http://[::1]:8080/a%20b", "http://[::1]:8080", "/a%20b"),
    ],
)
def test_an_upstream_is_read_with_its_origin_and_path(url: str, origin: str, path: str) -> None:
    upstream = parse_upstream(url)
    assert (upstream.origin, upstream.path) == (origin, path)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("localhost:80", "begins with http"),
        ("http:///x", "names no host"),
        ("http://a/?x", "query"),
        ("http://u:p@a/", "credentials"),
        ("http://a:0", "no port"),
        ("http://a:x", "Port could not be cast"),
    ],
)
def test_what_is_no_upstream_says_why(url: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_upstream(url)


@pytest.mark.parametrize(
    ("host", "base"),
    [
        (b"127.0.0.1:4001", "http://127.0.0.1:4001"),
        (b"localhost:4001", "http://localhost:4001"),
        (b"[::1]:4001", "http://[::1]:4001"),
        (b"box.test:9", "http://proxy.test:4001"),
        (b"box.test", "http://proxy.test:4001"),
        (b"caf\xe9:4001", "http://proxy.test:4001"),
        (b"a:b:c", "http://proxy.test:4001"),
        (None, "http://proxy.test:4001"),
    ],
)
def test_links_name_the_proxy_as_the_agent_did_where_that_can_be_true(host: bytes | None, base: str) -> None:
    route = Route(env="e", listener="", fixed=None, origin="http://proxy.test:4001", port=4001)
    assert route.agent_base(host, tls=False) == base


@pytest.mark.parametrize(
    ("authority", "name"),
    [("crm.test", "crm-test"), ("127.0.0.1:80", "env-127-0-0-1-80"), ("[::1]:80", "env-1-80"), ("é.test", "test")],
)
def test_an_unnamed_environment_is_named_by_its_authority(authority: str, name: str) -> None:
    assert env_of_authority(authority) == name
    assert why_not_an_env(name) is None
