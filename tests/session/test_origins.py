"""Which environment an address belongs to."""

from __future__ import annotations

from replayproxy.core.values import EnvWiring
from replayproxy.proxy.routes import Upstream, parse_upstream
from replayproxy.session.origins import Origins


def at(url: str) -> Upstream:
    return parse_upstream(url)


def origins(**envs: str) -> Origins:
    return Origins.of(EnvWiring(name=name, upstream=url) for name, url in envs.items())


def test_an_origin_is_scheme_host_and_port_whatever_the_spelling() -> None:
    made = origins(a="https://Api.example/v1", b="http://api.example", c="dynamic")
    assert made.name_of(at("https://api.example:443")) == "a"
    assert made.name_of(at("http://API.example")) == "b"
    assert made.name_of(at("https://api.example:8443")) is None


def test_of_two_on_one_origin_the_longest_path_decides() -> None:
    made = origins(a="http://h:1", b="http://h:1/api", c="http://h:1/api/v2")
    names = {target: made.name_of(at("http://h:1"), target) for target in (b"/", b"/api?x", b"/apis", b"/api/v2/x")}
    assert names == {b"/": "a", b"/api?x": "b", b"/apis": "a", b"/api/v2/x": "c"}


def test_the_names_of_the_loopback_are_one_unless_both_are_named() -> None:
    made = origins(a="http://127.0.0.1:9000", b="http://[::1]:9000")
    assert made.name_of(at("http://localhost:9000")) == "a"
    assert made.name_of(at("http://[::1]:9000")) == "b"


def test_an_origin_that_nobody_named_gets_a_name_that_no_other_has() -> None:
    made = origins(named="http://h:1")
    assert made.name_for(at("https://a-b.example")) == ("a-b-example", True)
    assert made.name_for(at("https://a.b.example")) == ("a-b-example-2", True)
    assert made.name_for(at("https://a.b.example"), b"/x") == ("a-b-example-2", False)
