"""Opens the origin's doors where the recorder would open listeners: agents get addresses of the same form."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import TYPE_CHECKING

from replayproxy.proxy.listeners import EnvOptions, Listener, asked_by, bind, bound_address, listener_for
from replayproxy.proxy.routes import parse_upstream
from replayproxy.serve.doors import Door
from replayproxy.serve.origin import Origin
from replayproxy.session.wiring import DYNAMIC

if TYPE_CHECKING:
    from replayproxy.session.replay_front import ReplayFront


class Doors:
    """What `session.addresses` opens listeners with, over a replay origin."""

    def __init__(
        self, origin: Origin, front: Callable[[], ReplayFront | None] = lambda: None, *, avoid: Container[int] = ()
    ) -> None:
        """`front`: what speaks TLS, and is told of every door. `avoid`: ports that no door is given unasked."""
        self._origin, self._front, self._avoid = origin, front, avoid
        self._doors: dict[Listener, Door] = {}

    async def listen(
        self,
        env: str,
        upstream: str,
        *,
        host: str,
        port: int,
        port_episode: str | None,
        advertise: str | None,
        options: EnvOptions | None,
    ) -> Listener:
        """Accepts when it returns. Of `upstream` only the path is used. Raises WorldTrouble."""
        target = None if upstream == DYNAMIC or not upstream else parse_upstream(upstream)
        bound = bind(host, port, avoid=self._avoid, option=asked_by(env))
        listener = listener_for(
            env, upstream, target, bound_address(bound),
            port_episode=port_episode, advertise=advertise, options=options,
        )  # fmt: skip
        door = Door(
            env=env,
            origin=listener.origin,
            port=listener.bound[1],
            path=listener.url.removeprefix(listener.origin),
            port_episode=port_episode,
        )
        front = self._front()
        if front is not None and listener.options.tls:
            await front.listen_tls(listener, door, bound)
        else:
            await self._origin.listen(door, bound)
            if front is not None:
                front.knows_listener(listener, door)
        self._doors[listener] = door
        return listener

    async def unlisten(self, listener: Listener) -> None:
        """Stops accepting there; connections that exist go on."""
        door = self._doors.pop(listener, None)
        if door is not None:
            self._origin.close(door)
            if front := self._front():
                await front.unlisten(listener)
