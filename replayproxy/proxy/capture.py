"""One body on its way from the wire to the store."""

from __future__ import annotations

from collections.abc import Callable

from replayproxy.core.canonical import body_of
from replayproxy.core.values import Body
from replayproxy.proxy.scribe import BodySink

_EMPTY = body_of(b"")


class Capture:
    """One body on its way to the store. One that fails on the way is given up: it is then not captured (None)."""

    def __init__(self, sink: Callable[[], BodySink]) -> None:
        """`sink` is asked at the first byte, when the head is known."""
        self._make = sink
        self._sink: BodySink | None = None
        self._body: Body | None = None
        self._open = True
        self.size = 0
        self.withheld = False

    def add(self, data: bytes, at: int | None = None) -> None:
        if not data or not self._open:
            return
        self.size += len(data)
        try:
            if self._sink is None:
                self._sink = self._make()
            self._sink.write(data, at)
        except Exception:
            self._open = False
            raise

    def give_up(self) -> None:
        self._open, self._body = False, None

    def close(self) -> Body | None:
        """The body as far as it came. May be asked again."""
        if self._open:
            self._open = False
            self._body = self._sink.close() if self._sink else _EMPTY
            self.withheld = self._body is None
        return self._body
