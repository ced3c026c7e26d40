from __future__ import annotations

import pytest

from replayproxy.core.values import Event
from replayproxy.proxy.scribe import AGENT_CLOSED, AGENT_CONNECTED, UPSTREAM_REFUSED
from replayproxy.session import connections
from replayproxy.session.connections import Connections
from replayproxy.testing import exchange


def made() -> tuple[Connections, list[tuple[int, str, str]]]:
    kept: list[tuple[int, str, str]] = []

    def put(key: int, event: Event) -> None:
        kept.append((key, event.kind, event.detail["connection"]))

    return Connections(put, now=lambda: 100, wall=lambda: 1_000), kept


def test_an_event_waits_for_the_exchange_that_names_its_connection() -> None:
    ours, kept = made()
    ours.event(None, AGENT_CONNECTED, {"connection": "a"}, 1)
    assert kept == []
    ours.used_by(exchange(agent_connection="a", env_connection="u"), 7)
    ours.event(None, AGENT_CLOSED, {"connection": "a"}, 2)
    assert kept == [(7, AGENT_CONNECTED, "a"), (7, AGENT_CLOSED, "a")]


def test_an_event_with_an_exchange_under_way_is_that_episode_s() -> None:
    ours, kept = made()
    ours.event(3, UPSTREAM_REFUSED, {"connection": "u"}, 1)
    assert kept == [(3, UPSTREAM_REFUSED, "u")]


def test_a_connection_that_nobody_used_leaves_nothing() -> None:
    ours, kept = made()
    ours.event(None, AGENT_CONNECTED, {"connection": "a"}, 1)
    ours.event(None, AGENT_CLOSED, {"connection": "a"}, 2)
    ours.used_by(exchange(agent_connection="a"), 7)
    assert kept == []


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "KEPT", 2)
    ours, kept = made()
    for name in "abc":
        ours.event(None, AGENT_CONNECTED, {"connection": name}, 1)
    for name in "abc":
        ours.used_by(exchange(agent_connection=name), 1)
    assert [name for _, _, name in kept] == ["a", "b"]


def test_the_wall_time_is_that_of_the_event_and_not_of_its_keeping() -> None:
    walls: list[int] = []
    ours = Connections(lambda key, event: walls.append(event.wall), now=lambda: 100, wall=lambda: 1_000)
    ours.event(1, UPSTREAM_REFUSED, {"connection": "u"}, 40)
    assert walls == [940]
