"""The tree of one provider's readings, grown by what changed, and the nodes that the store has not seen yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from replayproxy.core import prolly
from replayproxy.core.values import Rows
from replayproxy.state.provider import Changes, Reading, StateUnreadable

_PIECE = b"\x01\xff"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grown:
    """A reading as trees: `nodes` are those that were not there after the reading before."""

    root: bytes
    aside: bytes | None
    rows: int
    nodes: Mapping[bytes, bytes]


class GrowingTree:
    """Keeps the nodes of the latest tree, so that changes can be applied; the pieces of large values only by name."""

    def __init__(self) -> None:
        self.root: bytes | None = None
        self._nodes: dict[bytes, bytes] = {}
        self._pieces: set[bytes] = set()
        self._swept = 0

    def take(self, rows: Rows | Changes) -> tuple[prolly.Tree, dict[bytes, bytes]]:
        """The tree of the state, and the nodes that are new. Raises StateUnreadable, NoRow."""
        if isinstance(rows, Changes):
            if self.root is None:
                raise StateUnreadable("the provider gave changes before it gave a whole state")
            tree = prolly.apply(self.root, rows.rows, self._nodes.__getitem__)
        else:
            tree = prolly.build(rows)
        fresh = {
            address: node
            for address, node in tree.nodes.items()
            if address not in self._nodes and address not in self._pieces
        }
        own = {address: node for address, node in tree.nodes.items() if not node.startswith(_PIECE)}
        pieces = tree.nodes.keys() - own.keys()
        if isinstance(rows, Changes):
            self._nodes.update(own)
            self._pieces |= pieces
            self._sweep(tree.root)
        else:
            self._nodes, self._pieces = own, set(pieces)
            self._swept = len(own)
        self.root = tree.root
        return tree, fresh

    def _sweep(self, root: bytes) -> None:
        """Forgets nodes of earlier trees once they are as many as the tree's own."""
        if len(self._nodes) < 2 * self._swept + 64:
            return
        kept = prolly.node_addresses(root, self._nodes.__getitem__)
        self._nodes = {address: self._nodes[address] for address in kept}
        self._swept = len(kept)


class GrowingState:
    """Both trees of a provider: what is compared, and what is kept aside."""

    def __init__(self) -> None:
        self._rows = GrowingTree()
        self._aside = GrowingTree()

    def take(self, reading: Reading) -> Grown:
        """Raises StateUnreadable, NoRow."""
        tree, fresh = self._rows.take(reading.rows)
        aside: bytes | None = self._aside.root
        if isinstance(reading.aside, Changes):
            if reading.aside.rows or aside is not None:
                kept, more = self._aside.take(reading.aside)
                aside, fresh = kept.root, fresh | more
        elif reading.aside:
            kept, more = self._aside.take(reading.aside)
            aside, fresh = kept.root, fresh | more
        else:
            self._aside, aside = GrowingTree(), None
        return Grown(root=tree.root, aside=aside, rows=tree.rows, nodes=fresh)
