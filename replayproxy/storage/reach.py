"""Which blobs records lead to: bodies, conversations, the trees of states, and the references a check compared with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from replayproxy.core.jsonvalue import leaves
from replayproxy.core.prolly import children
from replayproxy.core.values import Snapshot
from replayproxy.storage import cold
from replayproxy.storage.codec import bodies_of, decode_exchange
from replayproxy.storage.frame import Broken, Shelf, dictionary_of, open_blob
from replayproxy.storage.layout import exchange_order

_ADDRESS = 64  # hexadecimal digits of a content address


class Reach:
    """Gathers addresses of blobs, in memory, from the records it is shown. A damaged record raises Broken."""

    def __init__(self, txn: Any, dbs: Mapping[str, Any], dictionaries: Shelf) -> None:
        self.blobs: set[bytes] = set()
        self.dictionaries: set[int] = set()
        """The numbers of those that exchanges name."""
        self._shelf = dictionaries
        self._txn, self._dbs = txn, dbs

    def exchange(self, key: bytes, raw: bytes) -> None:
        self.dictionaries.add(dictionary_of(raw))
        for _, body in bodies_of(decode_exchange(raw, exchange_order(key), 1, self._shelf)):
            self.blobs.update(body.pieces)

    def snapshot(self, raw: bytes) -> None:
        shot = cold.decode(Snapshot, raw)
        self._tree(root for root in (shot.root, shot.aside) if root is not None)

    def document(self, raw: bytes) -> None:
        """Of a check or a trial: any text in it may be a content address."""
        self._tree(_named(cold.decode_document(raw)))

    def _tree(self, roots: Iterable[bytes]) -> None:
        todo = list(roots)
        while todo:
            address = todo.pop()
            raw = None if address in self.blobs else self._txn.get(address, db=self._dbs["blobs"])
            if raw is None:
                continue
            self.blobs.add(address)
            try:
                todo += children(open_blob(address, raw))
            except (Broken, ValueError):
                continue  # a text that is by chance the address of a piece of a body: it leads nowhere


def _named(document: Any) -> Iterator[bytes]:
    for _, text in leaves(document):
        if isinstance(text, str) and len(text) == _ADDRESS:
            try:
                yield bytes.fromhex(text)
            except ValueError:
                continue
