"""What stood in the environment before anything happened: a value that was there is not fresh."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from replayproxy.core import prolly
from replayproxy.core.renaming import row_id, table_noun
from replayproxy.core.tokens import long_tokens
from replayproxy.core.values import Snapshot

MOST_ROWS = 50_000
"""A larger state is not searched: then only traffic can tell that a value is not fresh."""

type Load = Callable[[bytes], bytes]
type Keys = Mapping[str, frozenset[str]]


class Seeds:
    """The long tokens and the keys of the start snapshots of two runs, read when the first value is to be fresh."""

    def __init__(self, a: Sequence[tuple[Snapshot, Load]], b: Sequence[tuple[Snapshot, Load]]) -> None:
        self._starts = (a, b)
        self._tokens: tuple[frozenset[str], frozenset[str]] | None = None
        self._keys: list[tuple[str, frozenset[str]]] | None = None

    def seeded(self, a: str, b: str) -> bool:
        """Whether A's value stood in B's start state, or B's in A's."""
        if self._tokens is None:
            self._tokens = _all(self._starts[0]), _all(self._starts[1])
        return a in self._tokens[1] or b in self._tokens[0]

    def standing(self, nouns: Collection[str] | None, a: str, b: str) -> bool:
        """Whether a small id is that of a row which both runs began with, in a table that had the same keys in both.

        Such a row is itself in the other run, and no other one. `nouns`: what the id may name; None: anything. A
        table whose keys differ proves nothing, because a reset may count on.
        """
        if self._keys is None:
            left, right = (_all_keys(side) for side in self._starts)
            alike = {table: keys for table, keys in left.items() if keys and right.get(table) == keys}
            self._keys = [(table_noun(table), keys) for table, keys in alike.items()]
        return any((a in keys or b in keys) and (nouns is None or noun in nouns) for noun, keys in self._keys)


def _all(starts: Sequence[tuple[Snapshot, Load]]) -> frozenset[str]:
    found: set[str] = set()
    for snapshot, load in starts:
        if snapshot.root is not None and snapshot.rows <= MOST_ROWS:
            found |= _tokens_of(snapshot.root, load)
    return frozenset(found)


def _all_keys(starts: Sequence[tuple[Snapshot, Load]]) -> dict[str, frozenset[str]]:
    """The keys of each table, as traffic would spell them; a table that two snapshots show counts as one."""
    found: dict[str, frozenset[str]] = {}
    for snapshot, load in starts:
        if snapshot.root is not None and snapshot.rows <= MOST_ROWS:
            for table, keys in _keys_of(snapshot.root, load).items():
                found[table] = found.get(table, frozenset()) | keys
    return found


@lru_cache(maxsize=64)
def _keys_of(root: bytes, load: Load) -> Keys:
    return {table: frozenset(map(row_id, rows)) for table, rows in prolly.rows(root, load).items()}


@lru_cache(maxsize=64)
def _tokens_of(root: bytes, load: Load) -> frozenset[str]:
    """Pure: a root is the address of its content."""
    found: set[str] = set()
    for rows in prolly.rows(root, load).values():
        for key, row in rows.items():
            found.update(long_tokens(key))
            for text in _texts(row):
                found.update(long_tokens(text))
    return frozenset(found)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
