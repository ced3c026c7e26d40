"""replayproxy: record an agent's HTTP traffic with an environment, replay it, re-drive it, diff it, judge it.

Importing this package imports nothing heavy. What a harness uses is `replayproxy.episode` and
`replayproxy.open_episode` (`replayproxy.client`).
"""

from __future__ import annotations

TYPE_CHECKING = False
"""True for type checkers, as that of `typing`, which is not imported here: it takes long, and before the entry point
nobody catches an interrupt."""

if TYPE_CHECKING:
    from typing import Any

    from replayproxy.client import episode, open_episode
    from replayproxy.state.endpoint import state_endpoint

__version__ = "0.1.0"
__all__ = ["__version__", "episode", "open_episode", "state_endpoint"]


def __getattr__(name: str) -> Any:
    if name in ("episode", "open_episode"):
        from replayproxy import client

        return getattr(client, name)
    if name == "state_endpoint":
        from replayproxy.state.endpoint import state_endpoint

        return state_endpoint
    raise AttributeError(f"module 'replayproxy' has no attribute {name!r}")
