"""mitmproxy in this process: a bare Master, listeners of our own, and a stop that reports what it cut."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from mitmproxy.addons.core import Core
from mitmproxy.addons.next_layer import NextLayer
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.master import Master
from mitmproxy.proxy.mode_servers import ServerInstance

from replayproxy.core.limits import Limits
from replayproxy.core.values import Outcome
from replayproxy.errors import WrongUsage
from replayproxy.proxy import quick
from replayproxy.proxy.accepting import NEVER, accept, close, close_all
from replayproxy.proxy.ca import Authority
from replayproxy.proxy.dispatch import BareMaster
from replayproxy.proxy.forward import ForwardOptions
from replayproxy.proxy.listeners import DYNAMIC, EnvOptions, Listener, asked_by, bind, bound_address, listener_for
from replayproxy.proxy.live import Clock
from replayproxy.proxy.reception import Reception
from replayproxy.proxy.record_addon import RecordAddon
from replayproxy.proxy.routes import Route, Upstream, parse_upstream
from replayproxy.proxy.scribe import Scribe, Ticket
from replayproxy.proxy.upstream_tls import UpstreamTls

_CLOSING = 1.5
"""Seconds that the connections have to close at a stop, after the grace."""

LONGEST_STOP = 5.5
"""Seconds of grace at most, whatever is asked for."""

_NOWHERE = "http://127.0.0.1:0"
"""Stands where mitmproxy wants an upstream that only the ticket knows. It cannot be connected to."""


class ProxyEngine:
    """One per process: mitmproxy keeps its options in a global, so a second engine would steal the first's flows.

    `limits`: how long environments may take.
    `authority`: whose certificates agents are shown; without it no listener may speak TLS.
    """

    def __init__(
        self,
        scribe: Scribe,
        *,
        now: Callable[[], int],
        wall: Callable[[], int],
        limits: Limits | None = None,
        authority: Authority | None = None,
    ) -> None:
        self._scribe, self._limits, self._authority = scribe, limits or Limits(), authority
        self._listening: dict[Listener, ServerInstance[Any]] = {}
        self._reception = Reception()
        self._addon = RecordAddon(scribe, Clock(now=now, wall=wall), self._reception, limits=self._limits)
        self._addon.open.on_over = self._exchange_over
        self._proxyserver = Proxyserver()  # type: ignore[no-untyped-call]
        self._master: Master | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = self._stopped = False
        self._quiet = asyncio.Event()
        self._log = _Faults(scribe)

    async def start(self) -> None:
        """Must be called in the running loop, before `listen`."""
        self._log.install()
        quick.install()
        master = BareMaster()
        forward = self._reception.forward
        tls = UpstreamTls(self._reception, self._addon.connections.unreadable, forward.passes_tunnel, self._authority)
        master.addons.add(Core(), self._proxyserver, self._reception, tls, NextLayer(), self._addon, forward)  # type: ignore[no-untyped-call]
        master.options.update(  # type: ignore[no-untyped-call]
            mode=[],
            connection_strategy="lazy",
            keep_host_header=True,  # the agent's Host is to be recorded; the add-on writes the environment's
            rawtcp=False,  # an unknown protocol would pass unrecorded
            tcp_timeout=NEVER,
        )
        self._master = master
        self._tasks.append(asyncio.create_task(master.run()))
        if self._limits.answer is not None or self._limits.idle is not None:
            self._tasks.append(asyncio.create_task(self._addon.open.watch_overdue(self._limits, self._scribe.room)))
        await asyncio.sleep(0)
        if self._tasks[0].done():
            self._tasks[0].result()

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
        parsed(upstream)  # before a port is taken
        sock = bind(host, port, option=asked_by(env))
        return await self.adopt(sock, env, upstream, port_episode=port_episode, advertise=advertise, options=options)

    async def adopt(
        self,
        sock: socket.socket,
        env: str,
        upstream: str,
        *,
        port_episode: str | None = None,
        advertise: str | None = None,
        options: EnvOptions | None = None,
    ) -> Listener:
        """The same on a socket that is bound already."""
        if options is not None and options.tls and self._authority is None:
            raise ValueError("a listener that speaks TLS needs an authority")
        target, bound = parsed(upstream), bound_address(sock)
        listener = listener_for(
            env, upstream, target, bound, port_episode=port_episode, advertise=advertise, options=options
        )
        route = Route(
            env=env,
            listener=listener.url,
            fixed=target,
            origin=listener.origin,
            port=bound[1],
            keep_host=listener.options.host_header == "keep",
            port_episode=port_episode,
        )
        await self._accept(listener, route, f"reverse:{target.origin if target else _NOWHERE}@{bound[1]}", sock)
        return listener

    async def listen_forward(self, options: ForwardOptions, *, host: str = "127.0.0.1", port: int = 0) -> Listener:
        """A forward proxy, for plain HTTP and CONNECT; at most one. Accepts when it returns. Raises WorldTrouble."""
        return await self.adopt_forward(bind(host, port, option="--forward"), options)

    async def adopt_forward(self, sock: socket.socket, options: ForwardOptions) -> Listener:
        """The same on a socket that is bound already."""
        bound = bound_address(sock)
        listener = listener_for("", "", None, bound, port_episode=None, advertise=None, options=None)
        self._reception.forward.listens(listener.url, options)
        await self._accept(listener, None, f"regular@{bound[1]}", sock)
        return listener

    async def _accept(self, listener: Listener, route: Route | None, mode: str, sock: socket.socket) -> None:
        self._reception.opened(listener, route)
        self._listening[listener] = await accept(self._proxyserver, mode, sock)

    async def unlisten(self, listener: Listener) -> None:
        """Stops accepting there; connections that exist go on."""
        instance = self._listening.pop(listener, None)
        if instance is not None:
            self._reception.closed(listener)
            await instance.stop()

    def in_flight(self) -> tuple[Ticket, ...]:
        """The tickets whose exchange has not finished."""
        return tuple(live.ticket for live in self._addon.open if live.ticket is not None and not live.ended)

    def release(self, wanted: Callable[[Ticket], bool], *, streams_only: bool = False) -> int:
        """Ends the recording of open exchanges that `wanted` names, as OPEN_AT_END: `finished` is called for each
        before this returns. Their traffic goes on, unrecorded. Returns how many. `streams_only`: only those whose
        answer is passed on as it comes, and WebSockets."""
        chosen = [
            live
            for live in self._addon.open
            if live.ticket and not live.ended and (live.is_stream or not streams_only) and wanted(live.ticket)
        ]
        for live in chosen:
            live.release(Outcome.OPEN_AT_END, error="open at end")
        return len(chosen)

    def stats(self) -> dict[str, Any]:
        """Connections and exchanges under way, for health answers."""
        return {"connections": len(self._proxyserver.connections), "in_flight": len(self.in_flight())}

    # Stopping

    async def stop(self, grace: float = 5.0) -> None:
        """Stops accepting, lets what is in flight end for up to `grace` seconds, cuts the rest (OPEN_AT_END, each
        handed to the scribe), and returns within 8 s in any case. May be called again, also after a call that was
        cancelled: what was left is done then."""
        if self._master is None or self._stopped:
            return
        self._stopping = True
        for listener in list(self._listening):
            await self.unlisten(listener)
        self._close_idle()
        with suppress(TimeoutError):
            async with asyncio.timeout(min(grace, LONGEST_STOP)):
                while self.in_flight():
                    self._quiet.clear()
                    await self._quiet.wait()
        self.release(lambda _: True)
        await close_all(self._proxyserver, _CLOSING)
        self._master.shutdown()  # type: ignore[no-untyped-call]
        await asyncio.wait(self._tasks[:1], timeout=0.5)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._log.uninstall()
        self._stopped = True

    def _busy(self) -> set[str]:
        return {live.agent_connection for live in self._addon.open if not live.ended}

    def _close_idle(self) -> None:
        busy = self._busy()
        for identity, handler in list(self._proxyserver.connections.items()):
            if identity not in busy:
                close(handler)

    def _exchange_over(self, connection: str) -> None:
        if not self._stopping:
            return
        # The connection is closed once its last bytes are written, not in the middle of this call.
        asyncio.get_running_loop().call_soon(self._close_idle)
        self._quiet.set()


def parsed(upstream: str) -> Upstream | None:
    """An upstream's address; None: it is dynamic. Raises WrongUsage."""
    if upstream == DYNAMIC:
        return None
    try:
        return parse_upstream(upstream)
    except ValueError as error:
        raise WrongUsage(f"{upstream!r} is no environment's URL: {error}", hint="--env NAME=http://HOST:PORT") from None


class _Faults(logging.Handler):
    """mitmproxy says in its log, and only there, when it or an add-on has crashed. None of it goes to stderr."""

    def __init__(self, scribe: Scribe) -> None:
        super().__init__(logging.ERROR)
        self._scribe = scribe
        self._logger = logging.getLogger("mitmproxy")
        self._was = (self._logger.level, self._logger.propagate)

    def install(self) -> None:
        self._logger.setLevel(logging.ERROR)
        self._logger.propagate = False
        self._logger.addHandler(self)

    def uninstall(self) -> None:
        self._logger.removeHandler(self)
        self._logger.level, self._logger.propagate = self._was

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1]:  # without one it is about what a peer did
            with suppress(Exception):
                self._scribe.fault(None, "mitmproxy", record.exc_info[1])
