"""The addresses that agents are given: one listener an environment, or one an episode and environment (port style)."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlsplit

from replayproxy.core.names import encode_name
from replayproxy.core.values import Episode
from replayproxy.proxy.listeners import EnvOptions, Listener
from replayproxy.session.wiring import DYNAMIC, EnvSpec, is_wildcard

LOOPBACK = "127.0.0.1"


class Listening(Protocol):
    """The part of the proxy that opens listeners."""

    async def listen(
        self, env: str, upstream: str, *, host: str, port: int, port_episode: str | None, advertise: str | None,
        options: EnvOptions | None,
    ) -> Listener: ...  # fmt: skip


@dataclass(slots=True, kw_only=True)
class Addresses:
    """`host`: of `--listen`, for environments without one of their own. `advertised`: of `--advertise HOST`;
    `advertised_urls`: of `--advertise NAME=URL`."""

    engine: Listening
    envs: Sequence[EnvSpec]
    host: str | None = None
    advertised: str | None = None
    advertised_urls: Mapping[str, str] = field(default_factory=dict)
    listeners: dict[str, Listener] = field(default_factory=dict)

    async def start(self) -> None:
        """Every environment's listener accepts when it returns. Raises WorldTrouble for a port that is taken."""
        spare = spare_hosts()
        for spec in self.envs:
            # Cookies know hosts and no ports: two environments on one host would read each other's.
            host = spec.host or self.host or (LOOPBACK if spec.port else next(spare))
            self.listeners[spec.name] = await self.engine.listen(
                spec.name, spec.upstream, host=host, port=spec.port, port_episode=None,
                advertise=self._advertise(spec.name), options=options_of(spec),
            )  # fmt: skip

    async def listen_for(self, name: str, envs: Mapping[str, str]) -> list[Listener]:
        """Listeners of one episode's own, on the hosts of the environments' common ones."""
        opened = []
        for spec in self.envs:
            if spec.upstream == DYNAMIC and spec.name not in envs:
                continue
            opened.append(
                await self.engine.listen(
                    spec.name, spec.upstream, host=self.listeners[spec.name].bound[0], port=0, port_episode=name,
                    advertise=self._advertise(spec.name, own_port=True), options=options_of(spec),
                )
            )  # fmt: skip
        return opened

    def _advertise(self, env: str, *, own_port: bool = False) -> str | None:
        if env in self.advertised_urls:
            given = urlsplit(self.advertised_urls[env])
            return f"{given.scheme}://{bracketed(given.hostname or '')}:{{port}}" if own_port else given.geturl()
        scheme = "https" if any(spec.tls for spec in self.envs if spec.name == env) else "http"
        return f"{scheme}://{bracketed(self.advertised)}:{{port}}" if self.advertised else None

    def plain_urls(self, reached_by: str = "") -> dict[str, str]:
        """The addresses without an episode."""
        return {env: self._seen(listener, listener.url, reached_by) for env, listener in self.listeners.items()}

    def urls(self, episode: Episode, own: Sequence[Listener], reached_by: str = "") -> dict[str, str]:
        """The addresses that put a request into the episode; a dynamic environment without upstream has none."""
        if own:
            return {one.env: self._seen(one, one.url + self._path(episode, one.env), reached_by) for one in own}
        urls = {}
        for spec in self.envs:
            if spec.upstream == DYNAMIC and spec.name not in episode.envs:
                continue
            listener = self.listeners[spec.name]
            url = listener.episode_url(encode_name(episode.name)) + self._path(episode, spec.name)
            urls[spec.name] = self._seen(listener, url, reached_by)
        return urls

    def _path(self, episode: Episode, env: str) -> str:
        """A dynamic upstream's path; a fixed one's is in its listener's URL already."""
        return urlsplit(episode.envs[env]).path if env in episode.envs else ""

    def _seen(self, listener: Listener, url: str, reached_by: str) -> str:
        """The URL by which the caller gets there: a listener on every address has none of its own."""
        if not is_wildcard(listener.bound[0]) or self._advertise(listener.env):
            return url
        host = bracketed(reached_by or LOOPBACK)
        scheme = "https" if listener.options.tls else "http"
        return f"{scheme}://{host}:{listener.bound[1]}{url.removeprefix(listener.origin)}"


def options_of(spec: EnvSpec) -> EnvOptions:
    return EnvOptions(host_header=spec.host_header, ca=spec.ca, insecure=spec.insecure, tls=spec.tls)


def bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def spare_hosts() -> Iterator[str]:
    """127.0.0.1, 127.0.0.2, .. as far as the system has them, and then the first for ever."""
    for last in range(1, 255):
        if last > 1 and not has_address(f"127.0.0.{last}"):
            break
        yield f"127.0.0.{last}"
    while True:
        yield LOOPBACK


def has_address(host: str) -> bool:
    """Whether a socket can be bound there. Linux has all of 127.0.0.0/8, macOS only 127.0.0.1."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((host, 0))
        except OSError as error:
            return error.errno not in (errno.EADDRNOTAVAIL, errno.EACCES, errno.EPERM)
    return True


def plainly(error: OSError) -> str:
    """asyncio's own text names a call that failed; people know the system's words."""
    if isinstance(error, TimeoutError):
        return "no answer"
    if isinstance(error, socket.gaierror):
        return error.strerror or "the name is not known"
    return os.strerror(error.errno).lower() if error.errno else str(error)
