"""mitmproxy's Master with a short way from a connection's hook to the add-ons that have one.

Stock mitmproxy walks all add-ons for each hook, and once more for an `update` that only user interfaces listen to:
half of what recording costs.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any

from mitmproxy import exceptions, hooks, options
from mitmproxy.addonmanager import AddonManager
from mitmproxy.master import Master

_logger = logging.getLogger("mitmproxy.addonmanager")


class ShortWay(AddonManager):
    """The same calls in the same order, with the same guard. No add-on may be added once traffic flows."""

    def __init__(self, master: Master) -> None:
        super().__init__(master)  # type: ignore[no-untyped-call]
        self._hooks: dict[str, list[tuple[Callable[..., Any], bool]]] = {}

    async def handle_lifecycle(self, event: hooks.Hook) -> None:
        found = self._hooks.get(event.name)
        if found is None:
            funcs = [func for addon in self.chain for _, func in self._iter_hooks(addon, event)]
            found = self._hooks[event.name] = [(func, inspect.iscoroutinefunction(func)) for func in funcs]
        given = event.args() if found else []
        for func, is_coroutine in found:
            try:
                result = func(*given)
                if is_coroutine or (result is not None and inspect.isawaitable(result)):
                    await result
            except exceptions.AddonHalt:
                return
            except Exception as error:
                _logger.error("Addon error: %s", error, exc_info=error)


class BareMaster(Master):
    """A Master without a user interface."""

    def __init__(self) -> None:
        super().__init__(options.Options())
        self.addons = ShortWay(self)
