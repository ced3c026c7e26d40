"""What lies under content addresses: bodies, conversations, the nodes of snapshots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from replayproxy.core.messagelog import Damaged, unpacked
from replayproxy.core.values import Body, Message, WebSocket
from replayproxy.errors import DamagedRecord
from replayproxy.storage.dictionaries import Dictionaries
from replayproxy.storage.frame import Broken, open_blob


class Readable(Protocol):
    """What a reader reads: a store's environment, or an archive."""

    @property
    def path(self) -> Path: ...

    @property
    def dbs(self) -> Mapping[str, Any]:
        """The handles of the databases, by name."""

    @property
    def dictionaries(self) -> Dictionaries:
        """What its records are compressed with."""

    def reading(self, *, buffers: bool = False) -> AbstractContextManager[Any]:
        """A read transaction."""

    def is_writing(self, session: int) -> bool:
        """Whether the writer of that number still lives."""


class Contents:
    """Reads by address. What is missing or changed raises DamagedRecord."""

    def __init__(self, env: Readable) -> None:
        self._env = env

    @property
    def path(self) -> Path:
        """The store's directory."""
        return self._env.path

    @property
    def env(self) -> Readable:
        """What it reads."""
        return self._env

    def body(self, body: Body) -> bytes:
        """All its bytes. Raises DamagedRecord when they are not there or not those that passed."""
        if body.inline is not None:
            return body.inline
        data = b"".join(self.pieces(body))
        if len(data) != body.size:
            raise self._damaged("a body", f"{len(data)} of {body.size} bytes are there")
        return data

    def pieces(self, body: Body) -> Iterator[bytes]:
        """Its bytes, piece by piece. A piece that is missing or changed raises DamagedRecord."""
        if body.inline is not None:
            yield body.inline
            return
        for address in body.pieces:
            yield self.node(address)

    def messages(self, talk: WebSocket) -> Iterator[Message]:
        """What was said, in order; memory stays flat. Raises DamagedRecord."""
        if not talk.is_apart or talk.log is None:
            yield from talk.messages
            return
        try:
            yield from unpacked(self.pieces(talk.log.body))
        except Damaged as damaged:
            raise self._damaged("a conversation", str(damaged)) from damaged

    def node(self, address: bytes) -> bytes:
        """The bytes under a content address: a piece of a body, a node of a snapshot's tree."""
        with self._env.reading() as txn:
            raw = txn.get(address, db=self._env.dbs["blobs"])
        if raw is None:
            raise self._damaged(f"blob {address.hex()[:16]}", "it is missing")
        try:
            return open_blob(address, raw)
        except Broken as broken:
            raise self._damaged(f"blob {address.hex()[:16]}", broken) from broken

    def _damaged(self, what: str, why: Broken | str) -> DamagedRecord:
        return DamagedRecord(f"{what} in {self._env.path} is damaged: {why}", hint="replayproxy fsck")
