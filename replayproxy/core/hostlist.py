"""Hosts as `--pass` names them: `api.example.com`, `*.example.com`, `HOST:PORT`, an IPv6 host in brackets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


def split_authority(text: str) -> tuple[str, int | None]:
    """(host in lower case without brackets, port or None). ValueError for what is neither HOST nor HOST:PORT."""
    if not text or any(char.isspace() or char in "/@?#" for char in text):
        raise ValueError("it is neither HOST nor HOST:PORT")
    host, port = text, ""
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError("an IPv6 host stands in brackets: [::1] or [::1]:443")
        port = rest[1:]
        colon = bool(rest)
    elif text.count(":") > 1:  # a bare IPv6 address
        colon = False
    else:
        host, sign, port = text.partition(":")
        colon = bool(sign)
    if not host or (colon and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536)):
        raise ValueError("it is neither HOST nor HOST:PORT")
    return host.lower(), int(port) if colon else None


@dataclass(frozen=True, slots=True)
class HostList:
    """`entries`: (host, port or None), a host of the form `*.example.com` stands for every name below it."""

    entries: tuple[tuple[str, int | None], ...] = ()

    @classmethod
    def parse(cls, texts: Iterable[str]) -> HostList:
        """ValueError, naming the entry, for one that is no host."""
        entries = []
        for text in texts:
            try:
                host, port = split_authority(text)
            except ValueError as wrong:
                raise ValueError(f"{text!r}: {wrong}") from None
            if "*" in host.removeprefix("*."):
                raise ValueError(f"{text!r}: a star stands for whole names in front, *.example.com")
            entries.append((host, port))
        return cls(tuple(entries))

    def __bool__(self) -> bool:
        return bool(self.entries)

    def has(self, host: str, port: int) -> bool:
        host = host.lower().strip("[]").removesuffix(".")
        return any(
            (wanted is None or wanted == port)
            and (host == name or (name.startswith("*.") and host.endswith(name[1:]) and len(host) > len(name) - 1))
            for name, wanted in self.entries
        )
