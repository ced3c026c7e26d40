"""Where a snapshot's spec leads to, so that it can be refused before anything is looked up or connected to."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from urllib.parse import parse_qsl, unquote, urlsplit

from replayproxy.state.spec import with_secrets

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+]*://[^\s,\"]+")
_WORD = re.compile(r"(\w+)\s*=\s*('(?:[^'\\]|\\.)*'|[^\s]*)")
_WHERE = ("host", "hostaddr")


def spec_hosts(spec: str, environ: Mapping[str, str]) -> list[str]:
    """Every host that a snapshot's spec leads to; none for a file, a folder or a program of the user's own.

    What cannot be told from here (a `service` of libpq's own files) stands there as a name that is no host.
    """
    kind, _, rest = spec.partition(":")
    if kind not in ("http", "postgres", "redis"):
        return []
    text = with_secrets(rest, environ)
    if kind == "postgres":
        return [host for host in _of_postgres(text, environ) if host and not host.startswith(("/", "@"))]
    if text.startswith("//"):
        text = f"{kind}:{text}"
    return [urlsplit(url).hostname or "" for url in _URL.findall(text)]


def _of_postgres(dsn: str, environ: Mapping[str, str]) -> list[str]:
    """libpq takes lists of hosts, in a URL and in words, and variables for what is not said."""
    if dsn.startswith("//"):
        dsn = f"postgresql:{dsn}"
    words: list[tuple[str, str]] = []
    hosts: list[str] = []
    if re.match(r"postgres(ql)?://", dsn):
        parts = urlsplit(dsn)
        hosts = [_without_port(unquote(one)) for one in parts.netloc.rpartition("@")[2].split(",")]
        words = parse_qsl(parts.query, keep_blank_values=True)
    else:
        words = [(name, re.sub(r"\\(.)", r"\1", value.strip("'"))) for name, value in _WORD.findall(dsn)]
    hosts += _named(words)
    if not any(hosts):
        hosts = _named((name.removeprefix("PG").lower(), value) for name, value in environ.items() if name[:2] == "PG")
    return hosts


def _named(words: Iterator[tuple[str, str]] | list[tuple[str, str]]) -> list[str]:
    found: list[str] = []
    for name, value in words:
        if name in _WHERE:
            found += value.split(",")
        elif name == "service" and value:
            found.append(f"service {value}")
    return found


def _without_port(authority: str) -> str:
    if authority.startswith("["):
        return authority[1:].partition("]")[0]
    return authority if authority.startswith("/") else authority.partition(":")[0]
