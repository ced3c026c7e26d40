"""Takes a body as it passes and keeps it in pieces, so that a body of any size needs the memory of one piece."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b

from replayproxy.core.canonical import digest
from replayproxy.core.messagelog import Packer
from replayproxy.core.values import Body, Chunk, Log, Message
from replayproxy.storage.layout import INLINE_LIMIT, PIECE_SIZE


class BodySink:
    """One body. Hashing happens in the caller; compressing and writing in the writer's thread.

    `write` blocks only while the writer's queue is full, and raises StoreTrouble when that will not end. `close` may
    be called again and gives the same body.
    """

    def __init__(self, put_blob: Callable[[bytes, bytes], None]) -> None:
        self.size = 0
        self._put_blob = put_blob
        self._hash = blake2b(digest_size=32)
        self._buffer = bytearray()
        self._pieces: list[bytes] = []
        self._chunks: list[Chunk] = []
        self._body: Body | None = None

    def write(self, data: bytes, at: int | None = None) -> None:
        """Appends `data`; with `at` it is kept as a chunk that passed at that instant."""
        if self._body is not None:
            raise ValueError("the body is closed")
        if at is not None:
            self._chunks.append(Chunk(size=len(data), at=at))
        self.size += len(data)
        self._hash.update(data)
        self._buffer += data
        while len(self._buffer) >= PIECE_SIZE:
            self._queue(bytes(self._buffer[:PIECE_SIZE]))
            del self._buffer[:PIECE_SIZE]

    def _queue(self, piece: bytes) -> None:
        address = digest(piece)
        self._put_blob(address, piece)
        self._pieces.append(address)

    def close(self) -> Body:
        """The whole body; its pieces are queued before whatever is queued after this call."""
        if self._body is None:
            apart = self.size >= INLINE_LIMIT
            if apart and self._buffer:
                self._queue(bytes(self._buffer))
            self._body = Body(
                size=self.size,
                digest=self._hash.digest(),
                inline=None if apart else bytes(self._buffer),
                pieces=tuple(self._pieces),
                chunks=tuple(self._chunks),
            )
            self._buffer.clear()
        return self._body


MESSAGE_COST = 64
"""What a message counts in memory beside its payload."""


class TalkSink:
    """The messages of one conversation: held while they are few and short, else passed on to a `BodySink`.

    `add` blocks and raises as `BodySink.write` does. `close` may be called again and gives the same.
    """

    def __init__(
        self, put_blob: Callable[[bytes, bytes], None], clean: Callable[[Message], Message] = lambda message: message
    ) -> None:
        """`clean` takes the secrets out of a message."""
        self._put_blob, self._clean = put_blob, clean
        self._held: list[Message] = []
        self._cost = 0
        self._packer: Packer | None = None
        self._sink: BodySink | None = None
        self._log: Log | None = None

    def add(self, message: Message) -> None:
        if self._log is not None:
            raise ValueError("the conversation is closed")
        message = self._clean(message)
        if self._sink is None:
            self._held.append(message)
            self._cost += len(message.payload) + MESSAGE_COST
            if self._cost < INLINE_LIMIT:
                return
            self._sink, self._packer = BodySink(self._put_blob), Packer()
            waiting, self._held = self._held, []
        else:
            waiting = [message]
        assert self._packer is not None
        for one in waiting:
            for part in self._packer.packed(one):
                self._sink.write(part)

    def close(self) -> tuple[tuple[Message, ...], Log | None]:
        """The messages, or where they are."""
        if self._log is None and self._sink is not None and self._packer is not None:
            self._log = Log(body=self._sink.close(), count=self._packer.count, said=self._packer.said)
        return tuple(self._held), self._log
