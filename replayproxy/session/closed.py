"""The guard of a closed replay: whatever in this process tries to look a name up or to connect is counted and refused.

It is an audit hook of the interpreter, so it holds for every library. The child COMMAND is a process of its own and
is not touched.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

REACHING_OUT = frozenset({
    "socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr", "socket.sendto",
    "socket.sendmsg",
})  # fmt: skip


class ReplayIsClosed(PermissionError):
    """Something in the replaying process tried to reach out."""


class Guard:
    """`contacts`: how often something tried while the guard was closed. Not counted, and not refused: connects to the
    addresses of `allow` - the one between the front and the origin, and the hosts of `--pass` - and, while it is being
    asked for, the look-up of such a host."""

    def __init__(self) -> None:
        self.contacts = 0
        self._allowed: set[tuple[str, int]] = set()
        self._sought: set[str] = set()
        self._closed = False
        self._installed = False

    @contextmanager
    def closed(self) -> Iterator[Guard]:
        """From here to the end of the block nothing gets out."""
        if not self._installed:
            self._installed = True  # hooks cannot be taken off; an open guard does nothing
            sys.addaudithook(self._hook)
        self._closed = True
        try:
            yield self
        finally:
            self._closed = False

    def allow(self, host: str, port: int) -> None:
        """This address, as it is written here, may be connected to."""
        self._allowed.add((host, port))

    @contextmanager
    def seeking(self, host: str) -> Iterator[None]:
        """This name may be looked up until the end of the block."""
        self._sought.add(host)
        try:
            yield
        finally:
            self._sought.discard(host)

    def _is_allowed(self, event: str, arguments: tuple[Any, ...]) -> bool:
        if event == "socket.connect":
            address = arguments[1]
            return isinstance(address, tuple) and (address[0], address[1]) in self._allowed
        return event == "socket.getaddrinfo" and bool(self._sought) and _text(arguments[0]) in self._sought

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._closed and event in REACHING_OUT:
            if event == "socket.sendmsg" and arguments[1] is None:
                return  # no address: it answers on a connection that exists, as asyncio does to a slow reader
            if (self._allowed or self._sought) and self._is_allowed(event, arguments):
                return
            self.contacts += 1
            raise ReplayIsClosed(f"a replay is closed, and {event} was tried")


def _text(host: Any) -> str:
    return host.decode("ascii", "replace") if isinstance(host, bytes) else str(host)
