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
    """`contacts`: how often something tried while the guard was closed."""

    def __init__(self) -> None:
        self.contacts = 0
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

    def _hook(self, event: str, _arguments: tuple[Any, ...]) -> None:
        if self._closed and event in REACHING_OUT:
            self.contacts += 1
            raise ReplayIsClosed(f"a replay is closed, and {event} was tried")
