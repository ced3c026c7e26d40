"""Opens the origin's doors where the recorder would open listeners: agents get addresses of the same form."""

from __future__ import annotations

from replayproxy.proxy.listeners import EnvOptions, Listener, bind, bound_address, listener_for
from replayproxy.proxy.routes import parse_upstream
from replayproxy.serve.doors import Door
from replayproxy.serve.origin import Origin
from replayproxy.session.wiring import DYNAMIC


class Doors:
    """What `session.addresses` opens listeners with, over a replay origin."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
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
        bound = bind(host, port)
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
        await self._origin.listen(door, bound)
        self._doors[listener] = door
        return listener

    async def unlisten(self, listener: Listener) -> None:
        """Stops accepting there; connections that exist go on."""
        door = self._doors.pop(listener, None)
        if door is not None:
            self._origin.close(door)
