"""Hooks reach the add-ons in order, and one that raises stops no other."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from mitmproxy import exceptions
from mitmproxy.proxy.layers.http._hooks import HttpRequestHook

from replayproxy.proxy.dispatch import BareMaster


class Addon:
    def __init__(self, name: str, seen: list[str], error: Exception | None = None) -> None:
        self.name, self._seen, self._error = name, seen, error
        self.addons: list[Addon] = []

    def request(self, flow: Any) -> Any:
        self._seen.append(self.name)
        if self._error:
            raise self._error


class Slow(Addon):
    async def request(self, flow: Any) -> None:
        self._seen.append(self.name)


async def test_parents_come_before_their_parts_and_one_that_raises_stops_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[str] = []
    master = BareMaster()
    parent = Addon("b", seen)
    parent.addons = [Slow("b1", seen)]
    master.addons.add(Addon("a", seen, RuntimeError("planted")), parent, Addon("c", seen))  # type: ignore[no-untyped-call]
    flow: Any = object()
    with caplog.at_level(logging.ERROR):
        await master.addons.handle_lifecycle(HttpRequestHook(flow))
    assert seen == ["a", "b", "b1", "c"]
    assert "planted" in caplog.text


async def test_an_add_on_may_halt_the_others() -> None:
    seen: list[str] = []
    master = BareMaster()
    master.addons.add(Addon("a", seen, exceptions.AddonHalt()), Addon("b", seen))  # type: ignore[no-untyped-call]
    flow: Any = object()
    await master.addons.handle_lifecycle(HttpRequestHook(flow))
    assert seen == ["a"]
