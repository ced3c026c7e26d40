"""Links and cookie paths as the agent must see them: an environment's own origin becomes the listener and prefix.

Rules of this file: the store keeps the environment's bytes, and what the agent sees is derived from them by
`to_agent`, while recording and in replay alike. Only header fields are rewritten, never bodies: absolute links in
bodies are counted (`LinkCounter`), because they lead the agent past the proxy.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from replayproxy.core.values import Fields

_DEFAULT_PORTS = {b"http": b"80", b"https": b"443"}
_LOOPBACK = frozenset({b"localhost", b"127.0.0.1", b"[::1]"})
_ABSOLUTE = re.compile(rb"(?:(https?):)?//([^/?#\s,;<>\"'\\@]*)", re.IGNORECASE)
_TARGET = re.compile(rb"<([^>]*)>")
_COOKIE_PATH = re.compile(rb"(;[ \t]*path[ \t]*=[ \t]*\"?)(/[^;\"]*)", re.IGNORECASE)
_REFERENCES = frozenset({b"location", b"content-location"})
_REWRITTEN = _REFERENCES | {b"link", b"set-cookie"}
_ORIGIN_ONLY = frozenset({b"access-control-allow-origin"})


def _authority(scheme: bytes, authority: bytes) -> bytes:
    """host:port in lower case with the port written out. The names of the loopback are one."""
    host, colon, port = authority.lower().rpartition(b":")
    if not colon or host.endswith(b":") or port.endswith(b"]"):  # no port: the colon was part of an IPv6 address
        host, port = authority.lower(), b""
    return (b"localhost" if host in _LOOPBACK else host) + b":" + (port or _DEFAULT_PORTS[scheme])


@lru_cache(maxsize=1024)
def _known(origins: tuple[str, ...]) -> frozenset[tuple[bytes, bytes]]:
    found = set()
    for origin in origins:
        match = _ABSOLUTE.match(origin.encode())
        if match and match[1]:
            found.add((match[1].lower(), _authority(match[1].lower(), match[2])))
    return frozenset(found)


def _rest_after_own_origin(value: bytes, known: frozenset[tuple[bytes, bytes]]) -> bytes | None:
    """What follows the environment's own origin in an absolute or scheme-relative reference; None for any other."""
    match = _ABSOLUTE.match(value)
    if not match or not match[2]:
        return None
    schemes = [match[1].lower()] if match[1] else [b"http", b"https"]
    if any((scheme, _authority(scheme, match[2])) in known for scheme in schemes):
        return value[match.end() :]
    return None


def to_agent(fields: Fields, *, origins: Iterable[str], base_url: str, prefix: str) -> Fields:
    """The fields of an answer as the agent gets them.

    `origins` are the environment's own (`scheme://host[:port]`; a path behind is ignored), `base_url` is the origin
    under which the agent reaches the proxy, and `prefix` is "" or `/rp/EPISODE` as the agent wrote it. Rewritten are:
    any value that begins with an own origin; in Location, Content-Location and the targets of Link also a
    root-relative path, which gets the prefix; and the Path of cookies, which gets the prefix. Order, case and number
    of fields stay. References that are relative to the request's own path need nothing and get nothing.
    """
    if not any([name.lower() in _REWRITTEN or value[:4].lower() == b"http" for name, value in fields]):  # noqa: C419 - a generator costs more
        return fields
    known = _known(tuple(origins))
    base, lead = base_url.rstrip("/").encode(), prefix.encode()

    def reference(value: bytes) -> bytes:
        if value[:1] == b"/" and value[1:2] != b"/":
            return lead + value
        rest = _rest_after_own_origin(value, known)
        return value if rest is None else base + lead + rest

    out = []
    for name, value in fields:
        lowered = name.lower()
        if lowered in _REFERENCES:
            value = reference(value)
        elif lowered == b"link":
            value = _TARGET.sub(lambda match: b"<" + reference(match[1].strip()) + b">", value)
        elif lowered == b"set-cookie":
            value = _COOKIE_PATH.sub(lambda match: match[1] + _cookie_path(lead, match[2]), value) if lead else value
        elif value[:4].lower() == b"http" and (rest := _rest_after_own_origin(value, known)) is not None:
            value = base + (b"" if lowered in _ORIGIN_ONLY else lead) + rest
        out.append((name, value))
    return tuple(out)


def _cookie_path(lead: bytes, path: bytes) -> bytes:
    # `/rp/E` matches `/rp/E`, `/rp/E?x` and everything below it; `/rp/E/` would miss the first two.
    return lead if path.rstrip(b" \t") == b"/" else lead + path


class LinkCounter:
    """Counts absolute links to the environment in a body that arrives in pieces. `count` is right after `end`."""

    def __init__(self, origins: Iterable[str]) -> None:
        self.count = 0
        self._needles, self._keep = _needles(tuple(origins))
        self._tail = b""
        self._done = 0  # how much of the tail's front lies in links that have been counted

    def feed(self, data: bytes) -> None:
        window = self._tail + data
        # The byte behind a match decides whether the authority ends there, so the last bytes wait for more.
        self._scan(window, len(window) - self._keep)
        start = max(len(window) - 2 * self._keep, 0)
        self._done = max(self._done - start, 0)
        self._tail = window[start:]

    def end(self) -> int:
        self._scan(self._tail, len(self._tail))
        self._tail = b""
        return self.count

    def _scan(self, window: bytes, limit: int) -> None:
        for needle in self._needles:
            at = window.find(needle)
            while at != -1 and at < limit:
                if at >= self._done and _is_link(window, at, at + len(needle)):
                    self.count += 1
                at = window.find(needle, at + 1)
        self._done = max(self._done, limit)


def _is_link(window: bytes, start: int, end: int) -> bool:
    before = window[max(start - 4, 0) : start].replace(b"\\", b"")  # JSON may write `http:\/\/`
    if not before.endswith(b"//"):
        return False
    following = window[end : end + 1]
    if b":" in window[start:end].rpartition(b"]")[2]:
        return not following.isdigit()
    return not (following.isalnum() or following in (b"-", b"_", b".", b":"))


@lru_cache(maxsize=1024)
def _needles(origins: tuple[str, ...]) -> tuple[tuple[bytes, ...], int]:
    """The authorities to look for, and how many bytes must be kept so that none is missed between two pieces."""
    found = set()
    for scheme, authority in _known(origins):
        host, _, port = authority.rpartition(b":")
        for name in _LOOPBACK if host == b"localhost" else (host,):
            found.add(name + b":" + port)
            if _DEFAULT_PORTS[scheme] == port:
                found.add(name)
    return tuple(found), max(map(len, found), default=0) + 4
