"""Connection events on their way to the episode whose traffic used the connection.

A connection opens before any request says whose it is, and closes when its last exchange may long be over. So an
event waits until an exchange names its connection, and later ones follow the episode of the last such exchange.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from replayproxy.core.values import Event, Exchange
from replayproxy.proxy.scribe import AGENT_CLOSED, UPSTREAM_CLOSED

KEPT = 20_000
"""Connections remembered at once; events of more than these are let go, which loses no evidence of an exchange."""


class Connections:
    """`put` stores an event of an episode by key, and lets it go when that episode takes nothing more."""

    def __init__(self, put: Callable[[int, Event], None], *, now: Callable[[], int], wall: Callable[[], int]) -> None:
        self._put, self._now, self._wall = put, now, wall
        self._waiting: dict[str, list[Event]] = {}
        self._episode_of: dict[str, int] = {}

    def event(self, key: int | None, kind: str, detail: Mapping[str, Any], at: int) -> None:
        """`key`: the episode of the exchange that was under way on the connection, if any."""
        event = Event(at=at, wall=self._wall() - (self._now() - at), kind=kind, detail=dict(detail))
        connection = str(detail.get("connection", ""))
        key = self._episode_of.get(connection) if key is None else key
        if key is not None:
            self._put(key, event)
        elif connection and (connection in self._waiting or len(self._waiting) < KEPT):
            self._waiting.setdefault(connection, []).append(event)
        if kind in (AGENT_CLOSED, UPSTREAM_CLOSED):
            self._episode_of.pop(connection, None)
            self._waiting.pop(connection, None)

    def used_by(self, exchange: Exchange, key: int) -> None:
        """The connections of an exchange belong to its episode from now on, with what happened on them before."""
        for connection in (exchange.agent_connection, exchange.env_connection):
            if not connection:
                continue
            for event in self._waiting.pop(connection, ()):
                self._put(key, event)
            if connection in self._episode_of or len(self._episode_of) < KEPT:
                self._episode_of[connection] = key
