"""A body that is not to reach the store before its secrets are out of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from replayproxy.core.canonical import VIEW_LIMIT, body_of
from replayproxy.core.redact_body import Stretch
from replayproxy.core.values import Body, Chunk
from replayproxy.storage.sink import BodySink


class RedactingSink:
    """Holds a body up to `VIEW_LIMIT` and closes with its bytes as they came: they are redacted with their exchange.

    A larger one is redacted as it passes, in windows. Memory is bounded by the limit in either case.
    """

    def __init__(
        self, sink: Callable[[], BodySink], stretch: Callable[[], Stretch], grown: Callable[[bytes, int], None]
    ) -> None:
        """`grown` is told the digest of a larger body and by how much its tokens made it longer."""
        self.size = 0
        self._grown = grown
        self._sink, self._stretch = sink, stretch
        self._held: bytearray | None = bytearray()
        self._chunks: list[Chunk] = []
        self._long: tuple[BodySink, Stretch] | None = None
        self._closed = False
        self._body: Body | None = None

    def write(self, data: bytes, at: int | None = None) -> None:
        if self._closed:
            raise ValueError("the body is closed")
        self.size += len(data)
        if self._held is not None:
            self._held += data
            if at is not None:
                self._chunks.append(Chunk(size=len(data), at=at))
            if self.size > VIEW_LIMIT:
                self._go_on()
            return
        self._pass_on(data, at)

    def _go_on(self) -> None:
        """It is too large to be held: what is here goes the long way, and so will the rest."""
        assert self._held is not None
        held, self._held = bytes(self._held), None
        self._long = self._sink(), self._stretch()
        done = 0
        for chunk in self._chunks:
            self._pass_on(held[done : done + chunk.size], chunk.at)
            done += chunk.size
        self._chunks = []
        if done < len(held):
            self._pass_on(held[done:], None)

    def _pass_on(self, data: bytes, at: int | None) -> None:
        assert self._long is not None
        sink, stretch = self._long
        for piece, instant in stretch.feed(data, at):
            sink.write(piece, instant)

    def close(self) -> Body | None:
        """The body as far as it came; None for a coded one in which a secret was found."""
        if not self._closed:
            self._closed = True
            if self._held is not None:
                self._body = body_of(bytes(self._held))
                if self._chunks:
                    self._body = replace(self._body, chunks=tuple(self._chunks))
                self._held = None
            elif self._long is not None:
                sink, stretch = self._long
                for piece, instant in stretch.end():
                    sink.write(piece, instant)
                if not stretch.given_up:
                    self._body = sink.close()
                    if by := sink.size - self.size:
                        self._grown(self._body.digest, by)
        return self._body
