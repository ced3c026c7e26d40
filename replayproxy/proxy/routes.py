"""From a listener or a user's own proxy mode to: which environment, under which address, reached by what name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal
from urllib.parse import urlsplit

_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """An environment's address. `path` has no trailing slash; it is part of the URLs that are handed out, and never
    added to a request."""

    scheme: Literal["http", "https"]
    host: str
    port: int
    path: str = ""

    @property
    def authority(self) -> str:
        """What a client that connects directly writes into Host."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if _DEFAULT_PORTS[self.scheme] == self.port else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        return f"{self.scheme}://{self.authority}"


@lru_cache(maxsize=4096)
def parse_upstream(url: str) -> Upstream:
    """Raises ValueError with the reason. A query, a fragment or credentials in the URL are refused."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https"):
        raise ValueError("an environment's URL begins with http:// or https://")
    if not parts.hostname:
        raise ValueError("it names no host")
    if parts.query or parts.fragment:
        raise ValueError("it may not have a query or a fragment")
    if "@" in parts.netloc:
        raise ValueError("credentials do not belong into it; let the agent send them")
    port = parts.port if parts.port is not None else _DEFAULT_PORTS[parts.scheme]
    if not 0 < port < 65536:
        raise ValueError(f"{port} is no port")
    scheme: Literal["http", "https"] = "https" if parts.scheme == "https" else "http"
    return Upstream(scheme=scheme, host=parts.hostname, port=port, path=parts.path.rstrip("/"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """How requests of one kind are treated.

    `fixed`: the environment, or None when each request's ticket names it. `reroute`: the ticket decides (a listener
    of ours); otherwise the user's own mitmproxy does, or (`forward`) the agent itself. `origin` is where agents find
    the proxy, "" where it is no reverse proxy; `port` is the port of that listener. `proxy_user`: of the credentials
    that came for a forward proxy.
    """

    env: str
    listener: str
    fixed: Upstream | None
    origin: str = ""
    port: int = 0
    keep_host: bool = False
    port_episode: str | None = None
    reroute: bool = True
    forward: bool = False
    proxy_user: str | None = None

    def agent_base(self, agent_host: bytes | None, *, tls: bool) -> str:
        """The origin to put into links. The name by which the agent itself reached the listener is preferred, because
        cookies belong to names; an agent's Host that cannot be the listener's (another port) is not believed."""
        return _base(self.origin, self.port, agent_host, tls)


@lru_cache(maxsize=256)  # asked for with each request, and an agent calls a listener by one name
def _base(origin: str, listens_at: int, agent_host: bytes | None, tls: bool) -> str:
    if agent_host:
        try:
            host = agent_host.decode("ascii")
            at = urlsplit(f"//{host}")
            port = at.port or _DEFAULT_PORTS["https" if tls else "http"]
        except ValueError:
            return origin
        if port == listens_at and at.hostname:
            return f"{'https' if tls else 'http'}://{host}"
    return origin


def env_of_authority(authority: str) -> str:
    """The name of an environment that nobody named: its authority, spelt as an environment's name may be."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", authority).strip("-")
    return name if name[:1].isalpha() and name.isascii() else f"env-{name}"
