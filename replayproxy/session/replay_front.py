"""The front of a replay: the forward proxy and the TLS listeners, with the replay origin behind them."""

from __future__ import annotations

import asyncio
import secrets
import socket
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from replayproxy.core.misses import MISS_STATUS, no_episode_document
from replayproxy.core.shown import json_bytes
from replayproxy.errors import StoreTrouble, WrongUsage
from replayproxy.proxy.ca import Authority
from replayproxy.proxy.forward import ForwardOptions
from replayproxy.proxy.front import Behind, Front
from replayproxy.proxy.listeners import EnvOptions, Listener, authority, bind, bound_address
from replayproxy.proxy.routes import Route, Upstream
from replayproxy.serve.doors import ASIDE, Door, FrontDoor
from replayproxy.serve.origin import Origin
from replayproxy.serve.stage import Stage
from replayproxy.serve.visit import Watch
from replayproxy.session.closed import Guard
from replayproxy.session.origins import Origins
from replayproxy.session.proxied import ca_variables, proxy_variables
from replayproxy.session.replay_options import ReplayOptions
from replayproxy.session.wiring import is_wildcard
from replayproxy.storage import Reader


class ReplayFront:
    """`forward`: the forward proxy's URL, "" where there is none. `passed`: what went out by `--pass`, by host."""

    def __init__(self, stage: Stage, origin: Origin, watch: Watch, options: ReplayOptions, guard: Guard) -> None:
        self._stage, self._origin, self._watch, self._options, self._guard = stage, origin, watch, options, guard
        self.forward = ""
        self.passed: Counter[str] = Counter()
        self._origins = Origins.of(stage.run.envs.values(), stage.episodes.values())
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._authority = self._authority_of(stage.reader)
        self._door = FrontDoor(header=f"x-{secrets.token_hex(12)}")
        self._front: Front | None = None

    def _authority_of(self, reader: Reader) -> Authority:
        """The store's own; where nothing can be written, one for this replay alone."""
        try:
            return Authority(reader.path / "ca")
        except StoreTrouble:
            self._folder = tempfile.TemporaryDirectory(prefix="replayproxy-ca-")
            return Authority(Path(self._folder.name) / "ca")

    async def start(self) -> None:
        """The origin accepts behind the front when it returns, and nobody in front of it yet."""
        behind = bind("127.0.0.1", 0, avoid=self._origins.ports)
        address = bound_address(behind)
        await self._origin.listen(self._door, behind)
        self._guard.allow(*address)
        header = self._door.header.encode()
        self._front = Front(Behind(address=address, header=header, length=header + ASIDE), self, self._authority)
        await self._front.start()

    async def listen_tls(self, listener: Listener, door: Door, sock: socket.socket) -> None:
        assert self._front is not None
        self._door.doors[listener.url] = door
        await self._front.listen_tls(listener, _route(listener, door), sock)

    def knows_listener(self, listener: Listener, door: Door) -> None:
        """A listener of the origin's own: a forward request to it is answered as if it had come there."""
        assert self._front is not None
        self._door.doors[listener.url] = door
        self._front.knows(listener, _route(listener, door))

    async def unlisten(self, listener: Listener) -> None:
        assert self._front is not None
        self._door.doors.pop(listener.url, None)
        await self._front.unlisten(listener)

    async def listen_forward(self, control: tuple[str, int], advertised: str | None) -> None:
        """Opens the forward proxy, where one is wanted. `control` may be reached through it; `advertised` is the host
        that its URL is to name."""
        if self._options.forward is None:
            return
        assert self._front is not None
        host, port = self._options.forward
        self._must_be_nobodys("--forward", host, port)
        self._must_be_nobodys("--control", *control)
        options = ForwardOptions(
            naming=self, passes=self._options.passes, challenge=self._options.forward_auth,
            aside={(name, control[1]) for name in (control[0], "127.0.0.1", "localhost")},
            on_passed=lambda passed: self.passed.update((passed,)),
        )  # fmt: skip
        listener = await self._front.listen_forward(options, host=host, port=port, avoid=self._origins.ports)
        shown = advertised or ("127.0.0.1" if is_wildcard(host) else host)
        self.forward = f"http://{authority(shown, listener.bound[1])}"

    def _must_be_nobodys(self, option: str, host: str, port: int) -> None:
        """Refuses an address that an environment of the recording has: what is meant by it could not be told."""
        for at in (Upstream(scheme="http", host=host, port=port), Upstream(scheme="https", host=host, port=port)):
            if env := self._origins.name_of(at):
                raise WrongUsage(
                    f"{option} {authority(host, port)}: environment {env} of the recording has this address",
                    hint=f"{option} 0",
                )

    def child_variables(self, environ: Mapping[str, str]) -> dict[str, str]:
        found = proxy_variables(self.forward, environ) if self.forward else {}
        return {**found, **ca_variables(str(self._authority.bundle(environ)), self._authority.key_hash)}

    async def stop(self) -> None:
        if self._front is not None:
            await self._front.stop()
        if self._folder is not None:
            self._folder.cleanup()

    # the forward proxy's `Naming`

    def env_of(self, at: Upstream, target: bytes) -> str:
        """ "" for an address that no environment of the recording has."""
        return self._origins.name_of(at, target) or ""

    def options_of(self, at: Upstream) -> EnvOptions:
        return EnvOptions()  # no TLS goes out from here

    async def learn(self, at: Upstream) -> None:
        """There is nothing to know."""

    # the front's `Watcher`

    def knows(self, at: Upstream) -> bool:
        return self._origins.name_of(at) is not None

    def had_h2(self, env: str) -> bool:
        wired = self._stage.run.envs.get(env)
        return bool(wired and wired.options.get("h2"))

    def unknown_tunnel(self, host: str, port: int) -> tuple[int, bytes]:
        asked = f"CONNECT {authority(host, port)}"
        reason = f"no environment of the recording has the address {authority(host, port)}"
        self._stage.stray(asked, reason)
        document = no_episode_document(self._stage.run.name, asked, reason, "")
        self._watch.miss(document)
        return MISS_STATUS, json_bytes(document)

    def unreadable(self, reason: str) -> None:
        self._stage.stray("(unreadable)", reason)
        self._watch.miss(no_episode_document(self._stage.run.name, "(unreadable)", reason, ""))

    def fault(self, where: str, error: BaseException) -> None:
        self._stage.faults.append(f"{type(error).__name__}: {error} (in {where})")
        self._watch.fault(where, error)

    async def resolve(self, host: str, port: int) -> tuple[str, int]:
        with self._guard.seeking(host):
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        address = (str(found[0][4][0]), port)
        self._guard.allow(*address)
        return address


def _route(listener: Listener, door: Door) -> Route:
    return Route(
        env=door.env, listener=listener.url, fixed=None, origin=listener.origin, port=door.port,
        port_episode=door.port_episode,
    )  # fmt: skip
