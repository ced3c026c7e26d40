"""mitmproxy in this process: a bare Master, listeners of our own, and a stop that reports what it cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from replayproxy.proxy.listeners import EnvOptions, Listener
from replayproxy.proxy.scribe import Scribe, Ticket


class ProxyEngine:
    """One per process: mitmproxy keeps its options in a global, so a second engine would steal the first's flows."""

    def __init__(
        self,
        scribe: Scribe,
        *,
        now: Callable[[], int],
        wall: Callable[[], int],
        upstream_timeout: float | None = None,
    ) -> None:
        raise NotImplementedError

    async def start(self) -> None:
        """Must be called in the running loop, before `listen`."""
        raise NotImplementedError

    async def listen(
        self,
        env: str,
        upstream: str,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        port_episode: str | None = None,
        advertise: str | None = None,
        options: EnvOptions | None = None,
    ) -> Listener:
        """Accepts when it returns. `upstream` is a URL or "dynamic"; `advertise` replaces the origin in `Listener.url`.

        Raises WorldTrouble when the address is taken or not this machine's, WrongUsage for an upstream that is none.
        """
        raise NotImplementedError

    async def unlisten(self, listener: Listener) -> None:
        """Stops accepting there; connections that exist go on."""
        raise NotImplementedError

    def in_flight(self) -> tuple[Ticket, ...]:
        """The tickets whose exchange has not finished."""
        raise NotImplementedError

    def release(self, wanted: Callable[[Ticket], bool]) -> int:
        """Ends the recording of open exchanges that `wanted` names, as OPEN_AT_END: `finished` is called for each
        before this returns. Their traffic goes on, unrecorded. Returns how many."""
        raise NotImplementedError

    async def stop(self, grace: float = 5.0) -> None:
        """Stops accepting, lets what is in flight end for up to `grace` seconds, cuts the rest (OPEN_AT_END, each
        handed to the scribe), and returns within 8 s in any case. May be called twice."""
        raise NotImplementedError

    def stats(self) -> dict[str, Any]:
        """Connections and exchanges under way, for health answers."""
        raise NotImplementedError
