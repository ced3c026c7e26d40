"""Where a live environment is."""

from __future__ import annotations

import ipaddress
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from replayproxy.errors import WrongUsage

PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Scheme, host and port of an environment; `path` is what its URL has behind them ("" for none)."""

    scheme: str
    host: str
    port: int
    path: str = ""
    tls: ssl.SSLContext | None = field(default=None, compare=False)

    @property
    def authority(self) -> str:
        """As it stands in a Host field: brackets around IPv6, no port where it is the scheme's own."""
        return self.host_text if self.port == PORTS[self.scheme] else f"{self.host_text}:{self.port}"

    @property
    def host_text(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.authority}"

    def names(self) -> frozenset[str]:
        """Every way in which it writes its own authority."""
        return frozenset({self.authority, f"{self.host_text}:{self.port}"})

    def is_loopback(self) -> bool:
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """By the name alone: nothing is looked up. `localhost` and addresses of the loopback."""
    low = host.lower().rstrip(".")
    if low == "localhost" or low.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(low.strip("[]"))
        return address.is_loopback or address.is_unspecified  # 0.0.0.0 is this machine
    except ValueError:
        return False


def origin(url: str, *, ca: str | None = None, insecure: bool = False) -> Origin:
    """Raises WrongUsage with the reason."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as wrong:
        raise WrongUsage(f"{url!r} is no URL: {wrong}") from None
    if parts.scheme not in PORTS or not parts.hostname:
        raise WrongUsage(f"{url!r} is no http:// or https:// URL")
    if parts.username is not None:
        raise WrongUsage("a URL with a user name in it cannot be sent to", hint="credentials go in header fields")
    if parts.query or parts.fragment:
        raise WrongUsage(f"{url!r} has a query or a fragment", hint="an environment is scheme://host:port[/path]")
    tls = _tls(ca, insecure) if parts.scheme == "https" else None
    return Origin(
        scheme=parts.scheme,
        host=parts.hostname,
        port=port if port is not None else PORTS[parts.scheme],
        path=parts.path.rstrip("/"),
        tls=tls,
    )


def _tls(ca: str | None, insecure: bool) -> ssl.SSLContext:
    if ca is not None and not Path(ca).is_file():
        raise WrongUsage(f"ca={ca}: there is no such file")
    try:
        context = ssl.create_default_context(cafile=ca)
    except ssl.SSLError as wrong:
        raise WrongUsage(f"ca={ca}: {wrong.reason or wrong}") from None
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context
