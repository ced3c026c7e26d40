"""A state as a tree of content-addressed nodes: equal states are one tree, a small change adds few nodes.

Rows are sorted by table and key and cut into nodes of about 4 KiB. Whether an entry ends its node is decided by the
hash of its own key (and its size), never by its neighbours, so the shape depends on the rows alone and not on how
they came to be; one level above, the nodes are cut in the same way by their last keys, until one is left: the root.
Every table has a mark among the entries, so that a table without rows is part of the state. The bytes of a node:
`core.prollynode`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from replayproxy.core.prollynode import (
    Items,
    Key,
    Load,
    Node,
    Nodes,
    UnknownNode,
    bytes_text,
    child_of,
    children,
    cut,
    decode,
    decode_value,
    document_of,
    encode,
    encode_value,
    ends_node,
    keep,
    text_bytes,
)
from replayproxy.core.rowcode import NoRow
from replayproxy.core.values import Row, RowChange, Rows

__all__ = [
    "Load", "NoRow", "Tree", "UnknownNode", "apply", "build", "children", "count", "diff", "exact", "node_addresses",
    "row", "rows",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """A built state. `nodes` are those that were made for it (after `apply`: only new ones); `rows` counts rows."""

    root: bytes
    nodes: Mapping[bytes, bytes]
    rows: int


def build(rows: Rows) -> Tree:
    """The tree of a whole state; a table without rows is part of it. Raises NoRow."""
    nodes: Nodes = {}
    items: Items = []
    for table, content in rows.items():
        name = text_bytes(table)
        items.append(((name,), b""))
        items += [((name, text_bytes(key)), encode_value(row, nodes)) for key, row in content.items()]
    items.sort()
    return _grown(cut(0, items, nodes), 1, nodes)


def apply(root: bytes, changes: Iterable[RowChange], load: Load) -> Tree:
    """The tree after the changes, the same as `build` of the changed rows; `nodes` holds only what is new.

    Of a change only table, key and `after` count (None removes). A new row makes its table; a table stays when its
    last row goes. Costs the changed nodes and the paths to them.
    """
    nodes: Nodes = {}
    edits: dict[Key, bytes | None] = {}
    for change in changes:
        table = text_bytes(change.table)
        edits[table, text_bytes(change.key)] = None if change.after is None else encode_value(change.after, nodes)
        if change.after is not None:
            edits[(table,)] = b""
    if not edits:
        return Tree(root=root, nodes={}, rows=count(root, load))
    walk = _Walk(load, root)
    for level in range(walk.top.level + 1):
        edits = _rewritten(walk, level, edits, nodes)
    entries: Items = sorted((key, child) for key, child in edits.items() if child is not None)
    tree = _grown(entries, walk.top.level + 1, nodes)
    # A level of one node is the root: what an earlier, larger tree had above it is not part of the shape.
    address, node = tree.root, decode(nodes[tree.root])
    while node.level and len(node.items) == 1:
        address = node.child(0)
        node = decode(nodes[address] if address in nodes else load(address))
    return Tree(root=address, nodes=nodes, rows=tree.rows)


def rows(root: bytes, load: Load) -> Rows:
    """The whole state as JSON values: what JSON cannot hold is shown by its tag (core.rowcode)."""
    return _read(root, load, document_of)


def exact(root: bytes, load: Load) -> Rows:
    """The whole state as it was given to `build`, bytes and all: what a restore writes."""
    return _read(root, load, decode_value)


def _read(root: bytes, load: Load, read: Callable[[bytes, Load], Row]) -> Rows:
    state: dict[str, dict[str, Row]] = {}
    for key, value in _leaves(decode(load(root)), load):
        content = state.setdefault(bytes_text(key[0]), {})
        if len(key) == 2:
            content[bytes_text(key[1])] = read(value, load)
    return state


def _leaves(node: Node, load: Load) -> Iterator[tuple[Key, bytes]]:
    if not node.level:
        yield from node.items
        return
    for at in range(len(node.items)):
        yield from _leaves(decode(load(node.child(at))), load)


def row(root: bytes, table: str, key: str, load: Load) -> Row | None:
    """One row as a JSON value, or None; loads one path."""
    wanted: Key = (text_bytes(table), text_bytes(key))
    node = decode(load(root))
    while True:
        at = bisect_left(node.keys, wanted)
        if at == len(node.items):
            return None
        if not node.level:
            return document_of(node.items[at][1], load) if node.keys[at] == wanted else None
        node = decode(load(node.child(at)))


def count(root: bytes, load: Load) -> int:
    """How many rows the state has; loads one node."""
    return decode(load(root)).rows()


def node_addresses(root: bytes, load: Load) -> set[bytes]:
    """The addresses of the tree's own nodes, the pieces of large values left out."""
    found = {root}
    node = decode(load(root))
    if node.level:
        for at in range(len(node.items)):
            child = node.child(at)
            found |= {child} if node.level == 1 else node_addresses(child, load)
    return found


def diff(a: bytes, b: bytes, load: Load, load_b: Load | None = None) -> Iterator[RowChange]:
    """The rows that differ, as JSON values, in order of table and key; equal subtrees are never loaded.

    `load_b` when `b` lies in another store. A table that came or went without rows is a change of key "" from or
    to an empty object.
    """
    load_b = load_b or load
    mark: RowChange | None = None
    for key, before, after in _differences(_Stream(a, load), _Stream(b, load_b)):
        table = bytes_text(key[0])
        if mark is not None and mark.table != table:
            yield mark
        mark = None
        if len(key) == 1:
            empty: tuple[Row | None, Row | None] = (None if before is None else {}, None if after is None else {})
            mark = RowChange(table=table, key="", before=empty[0], after=empty[1])
        else:
            yield RowChange(
                table=table,
                key=bytes_text(key[1]),
                before=None if before is None else document_of(before, load),
                after=None if after is None else document_of(after, load_b),
            )
    if mark is not None:
        yield mark


class _Stream:
    """A tree in order, as large parts as possible: the head is a node not yet loaded, or an entry of a leaf."""

    def __init__(self, root: bytes, load: Load) -> None:
        self._load = load
        self._nodes: list[tuple[Node, int]] = []  # inner nodes and leaves being read: (node, index of the next)
        self.address: bytes | None = root  # of the head, when it is a node
        self.level = 0
        self.entry: tuple[Key, bytes] | None = None

    def open(self) -> None:
        """Replaces the head, a node, by the first of its parts."""
        assert self.address is not None
        self._nodes.append((decode(self._load(self.address)), 0))
        self.step()

    def step(self) -> None:
        """Goes behind the head."""
        self.address = self.entry = None
        while self._nodes:
            node, at = self._nodes.pop()
            if at == len(node.items):
                continue
            self._nodes.append((node, at + 1))
            if node.level:
                self.address, self.level = node.child(at), node.level
            else:
                self.entry = node.items[at]
            return


def _differences(a: _Stream, b: _Stream) -> Iterator[tuple[Key, bytes | None, bytes | None]]:
    # The roots' levels are known only once they are loaded; equal roots need no load at all.
    if a.address == b.address:
        return
    a.open()
    b.open()
    while True:
        if a.address is not None and a.address == b.address:
            a.step()
            b.step()
        elif a.address is not None and (b.address is None or a.level >= b.level):
            if b.address is not None and a.level == b.level:
                b.open()
            a.open()
        elif b.address is not None:
            b.open()
        elif a.entry is None and b.entry is None:
            return
        elif b.entry is None or (a.entry is not None and a.entry[0] < b.entry[0]):
            assert a.entry is not None
            yield a.entry[0], a.entry[1], None
            a.step()
        elif a.entry is None or b.entry[0] < a.entry[0]:
            yield b.entry[0], None, b.entry[1]
            b.step()
        else:
            if a.entry[1] != b.entry[1]:
                yield a.entry[0], a.entry[1], b.entry[1]
            a.step()
            b.step()


def _grown(entries: Items, level: int, nodes: Nodes) -> Tree:
    """The levels above, until one node is left. `entries` name the nodes below `level`."""
    while len(entries) > 1:
        entries = cut(level, entries, nodes)
        level += 1
    if not entries:
        return Tree(root=keep(encode(Node(0, [])), nodes), nodes=nodes, rows=0)
    address, below = child_of(entries[0][1])
    return Tree(root=address, nodes=nodes, rows=below)


type _Path = list[tuple[Node, int]]
"""From the root down: each node with the index of the child taken; the last is the node that was looked for."""


class _Walk:
    """Finds nodes of a level by key, and what follows them; each node is loaded once."""

    def __init__(self, load: Load, root: bytes) -> None:
        self._load = load
        self._seen: dict[bytes, Node] = {}
        self.top = self._node(root)

    def _node(self, address: bytes) -> Node:
        if address not in self._seen:
            self._seen[address] = decode(self._load(address))
        return self._seen[address]

    def find(self, level: int, key: Key) -> _Path:
        """The node of `level` that holds `key`, or would."""
        path: _Path = []
        node = self.top
        while node.level > level:
            at = min(bisect_left(node.keys, key), len(node.items) - 1)
            path.append((node, at))
            node = self._node(node.child(at))
        return [*path, (node, 0)]

    def after(self, path: _Path) -> _Path | None:
        """The next node of the same level; None behind the last."""
        above = path[:-1]
        while above and above[-1][1] + 1 == len(above[-1][0].items):
            above.pop()
        if not above:
            return None
        node, at = above.pop()
        above.append((node, at + 1))
        while len(above) < len(path):
            node, at = above[-1]
            above.append((self._node(node.child(at)), 0))
        return above


def _rewritten(walk: _Walk, level: int, edits: Mapping[Key, bytes | None], nodes: Nodes) -> dict[Key, bytes | None]:
    """Applies the edits to the nodes of one level; gives the edits of the level above."""
    above: dict[Key, bytes | None] = {}
    todo = sorted(edits, reverse=True)
    while todo:
        path: _Path | None = walk.find(level, todo[-1])
        run: Items = []
        while path is not None:
            node, following = path[-1][0], walk.after(path)
            last = node.keys[-1] if node.items else None
            taken: dict[Key, bytes | None] = {}
            while todo and (following is None or (last is not None and todo[-1] <= last)):
                key = todo.pop()
                taken[key] = edits[key]
            run += _merged(node.items, taken)
            if last is not None:
                above.setdefault(last, None)
            # Where the entry that ended a node is gone, or ends it no longer, the next node's entries belong to it.
            path = None if not run or ends_node(level, *run[-1]) else following
        above.update(cut(level, run, nodes))
    return above


def _merged(items: Items, edits: Mapping[Key, bytes | None]) -> Items:
    if not edits:
        return items
    merged: dict[Key, bytes | None] = {**dict(items), **edits}
    return sorted((key, value) for key, value in merged.items() if value is not None)
