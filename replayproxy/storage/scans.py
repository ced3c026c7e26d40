"""Walking one run's or one episode's records, and what a seal says of them."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

from replayproxy.core.shown import count
from replayproxy.core.values import Seal
from replayproxy.storage.frame import CHECKSUM_AT
from replayproxy.storage.layout import u64


def under(txn: Any, db: Any, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Every (key, value) whose key begins with `prefix`, in order."""
    with txn.cursor(db) as cursor:
        if not cursor.set_range(prefix):
            return
        for key, value in cursor.iternext():
            if key[: len(prefix)] != prefix:
                return
            yield key, value


def keys_under(txn: Any, db: Any, prefix: bytes) -> Iterator[bytes]:
    """Every key that begins with `prefix`, in order; the values are not touched."""
    with txn.cursor(db) as cursor:
        if not cursor.set_range(prefix):
            return
        for key in cursor.iternext(keys=True, values=False):
            if key[: len(prefix)] != prefix:
                return
            yield key


class Chain:
    """A seal in the making: what an episode holds, folded record by record in the order of the keys."""

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=32)
        self._exchanges = self._snapshots = 0

    def exchange(self, key: bytes, record: bytes) -> None:
        self._exchanges += 1
        self._fold(b"e", key, record)

    def snapshot(self, key: bytes, record: bytes) -> None:
        self._snapshots += 1
        self._fold(b"s", key, record)

    def _fold(self, kind: bytes, key: bytes, record: bytes) -> None:
        # The episode's own number is left out, so that a merge into another store need not seal again.
        for part in (kind, key[8:], record[CHECKSUM_AT]):
            self._hash.update(part)

    def seal(self) -> Seal:
        return Seal(exchanges=self._exchanges, snapshots=self._snapshots, chain=self._hash.digest())


def seal_of(txn: Any, dbs: dict[str, Any], episode: int) -> Seal:
    """The seal that fits what the store holds of an episode now."""
    chain = Chain()
    for key, record in under(txn, dbs["exchanges"], u64(episode)):
        chain.exchange(key, record)
    for key, record in under(txn, dbs["snapshots"], u64(episode)):
        chain.snapshot(key, record)
    return chain.seal()


def seal_trouble(expected: Seal, found: Seal) -> str | None:
    """What is wrong when a seal does not fit; None when it does."""
    if (expected.exchanges, expected.snapshots) != (found.exchanges, found.snapshots):
        return (
            f"it was sealed with {count(expected.exchanges, 'exchange')} and {count(expected.snapshots, 'snapshot')},"
            f" {found.exchanges} and {found.snapshots} are there"
        )
    return None if expected.chain == found.chain else "its records are not those it was sealed with"
