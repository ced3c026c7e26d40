from __future__ import annotations

import errno
import itertools
import socket

import pytest

from replayproxy.core.values import Episode
from replayproxy.session import addresses
from replayproxy.session.addresses import Addresses, has_address, plainly, spare_hosts
from replayproxy.session.wiring import EnvSpec
from tests.session.desk_kit import URL, FakeEngine


def episode(name: str = "e", **envs: str) -> Episode:
    return Episode(key=1, run_key=1, name=name, envs=envs)


def spec(name: str, upstream: str = URL, **given: object) -> EnvSpec:
    return EnvSpec(name=name, upstream=upstream, **given)  # type: ignore[arg-type]


async def started(*envs: EnvSpec, **given: object) -> Addresses:
    made = Addresses(engine=FakeEngine(), envs=envs, **given)  # type: ignore[arg-type]
    await made.start()
    return made


async def test_environments_get_different_loopback_addresses_where_the_system_has_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(addresses, "has_address", lambda host: True)
    made = await started(spec("a"), spec("b", port=8101), spec("c", host="127.0.0.9"), spec("d"))
    assert [one.bound[0] for one in made.listeners.values()] == ["127.0.0.1", "127.0.0.1", "127.0.0.9", "127.0.0.2"]
    monkeypatch.setattr(addresses, "has_address", lambda host: False)
    made = await started(spec("a"), spec("b"))
    assert [one.bound[0] for one in made.listeners.values()] == ["127.0.0.1", "127.0.0.1"]


async def test_listen_puts_all_on_one_host() -> None:
    made = await started(spec("a"), spec("b"), host="127.0.0.1")
    assert {one.bound[0] for one in made.listeners.values()} == {"127.0.0.1"}


async def test_a_listener_on_every_address_is_named_by_the_host_that_the_caller_used() -> None:
    made = await started(spec("a", URL + "/api"), host="0.0.0.0")
    assert made.plain_urls() == {"a": "http://127.0.0.1:4001/api"}
    assert made.urls(episode(), (), "host.docker.internal") == {"a": "http://host.docker.internal:4001/rp/e/api"}
    assert made.urls(episode(), (), "fd00::1") == {"a": "http://[fd00::1]:4001/rp/e/api"}


async def test_advertise_is_what_the_urls_name() -> None:
    made = await started(
        spec("a", URL + "/api"), spec("b"), host="0.0.0.0", advertised="gw.example",
        advertised_urls={"b": "https://b.example"},
    )  # fmt: skip
    assert made.plain_urls("10.0.0.1") == {"a": "http://gw.example:4001/api", "b": "https://b.example"}
    own = await made.listen_for("e", {})
    assert made.urls(episode(), own) == {"a": "http://gw.example:4003/api", "b": "https://b.example:4004"}


async def test_names_are_percent_encoded_in_the_path() -> None:
    made = await started(spec("a"))
    assert made.urls(episode("crm:7+é"), ()) == {"a": "http://127.0.0.1:4001/rp/crm%3A7%2B%C3%A9"}


def test_an_address_that_the_system_lacks_is_found_out() -> None:
    assert has_address("127.0.0.1")
    assert not has_address("203.0.113.1")


def test_when_the_addresses_run_out_the_first_serves_again() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(addresses, "has_address", lambda host: not host.endswith(".3"))
        assert list(itertools.islice(spare_hosts(), 4)) == ["127.0.0.1", "127.0.0.2", "127.0.0.1", "127.0.0.1"]


def test_reasons_are_in_the_system_s_words() -> None:
    assert plainly(ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('x', 1)")) == "connection refused"
    assert plainly(TimeoutError()) == "no answer"
    assert plainly(socket.gaierror(-2, "Name or service not known")) == "Name or service not known"
    assert plainly(OSError("odd")) == "odd"
