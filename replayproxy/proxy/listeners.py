"""Where agents connect: one reverse listener per environment or per episode, each on a socket of our own."""

from __future__ import annotations

import errno
import socket
from collections.abc import Container
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from replayproxy.errors import WorldTrouble
from replayproxy.proxy.routes import Upstream

DYNAMIC = "dynamic"
"""The upstream of a listener whose environment comes with each request's ticket."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvOptions:
    """What `--env NAME=URL,key=value` says about an environment.

    `host_header`: "upstream" writes the environment's own authority in place of the agent's Host, "keep" leaves it.
    `ca`: PEM file that an https upstream is verified against; `insecure`: it is not verified at all. `tls`: agents
    speak TLS to its listener.
    """

    host_header: Literal["upstream", "keep"] = "upstream"
    ca: Path | None = None
    insecure: bool = False
    tls: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """A listening address. `origin` is `scheme://host:port`; `url` is the origin plus the upstream's path; neither
    ends in a slash. Both are the advertised form where one was given, `bound` is what the socket says."""

    env: str
    url: str
    origin: str
    upstream: str
    bound: tuple[str, int]
    port_episode: str | None = None
    options: EnvOptions = field(default_factory=EnvOptions)

    def episode_url(self, encoded_name: str) -> str:
        """The URL for one episode in path style; `encoded_name` is percent-encoded."""
        return f"{self.origin}/rp/{encoded_name}{self.url.removeprefix(self.origin)}"


def bind(host: str, port: int, *, avoid: Container[int] = (), option: str = "") -> socket.socket:
    """A socket of our own for one listener; port 0 lets the system choose, without a gap in which it could be taken,
    any port but those to `avoid`.

    Raises WorldTrouble, which names the option that asked for the port.
    """
    sock = _bound(host, port, option)
    while not port and bound_address(sock)[1] in avoid:
        sock.close()
        sock = _bound(host, port, option)  # the system chooses at random
    return sock


def _bound(host: str, port: int, option: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With protocol 0 asyncio does not know the socket for TCP and leaves Nagle's algorithm on: 44 ms per answer.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        where = authority(host, port)
        if error.errno == errno.EADDRINUSE:
            wanted = f"another port for {option}" if option else "another port"
            raise WorldTrouble(f"port taken: {where}", hint=f"choose {wanted}, or none for a free one") from None
        reason = error.strerror or str(error)
        raise WorldTrouble(f"cannot listen on {where}: {reason}", hint="choose another address") from None
    return sock


def asked_by(env: str) -> str:
    """The words by which a user gives an environment's listener its port."""
    return f"listen= of --env {env}"


def bound_address(sock: socket.socket) -> tuple[str, int]:
    host, port = sock.getsockname()[:2]
    return host, port


def authority(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def listener_for(
    env: str,
    upstream: str,
    target: Upstream | None,
    bound: tuple[str, int],
    *,
    port_episode: str | None,
    advertise: str | None,
    options: EnvOptions | None,
) -> Listener:
    """The value for a bound socket. `target` None: the upstream is dynamic. `{port}` in `advertise`: the bound one."""
    options = options or EnvOptions()
    scheme = "https" if options.tls else "http"
    origin = advertise.rstrip("/").replace("{port}", str(bound[1])) if advertise else f"{scheme}://{authority(*bound)}"
    return Listener(
        env=env,
        url=origin + (target.path if target else ""),
        origin=origin,
        upstream=upstream,
        bound=bound,
        port_episode=port_episode,
        options=options,
    )
