"""What stood in the environment before anything happened: a value that was there is not fresh."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from replayproxy.core import prolly
from replayproxy.core.tokens import long_tokens
from replayproxy.core.values import Snapshot

MOST_ROWS = 50_000
"""A larger state is not searched: then only traffic can tell that a value is not fresh."""

type Load = Callable[[bytes], bytes]


class Seeds:
    """The long tokens of the start snapshots of two runs, read when the first value is to be called fresh."""

    def __init__(self, a: Sequence[tuple[Snapshot, Load]], b: Sequence[tuple[Snapshot, Load]]) -> None:
        self._starts = (a, b)
        self._tokens: tuple[frozenset[str], frozenset[str]] | None = None

    def seeded(self, a: str, b: str) -> bool:
        """Whether A's value stood in B's start state, or B's in A's."""
        if self._tokens is None:
            self._tokens = _all(self._starts[0]), _all(self._starts[1])
        return a in self._tokens[1] or b in self._tokens[0]


def _all(starts: Sequence[tuple[Snapshot, Load]]) -> frozenset[str]:
    found: set[str] = set()
    for snapshot, load in starts:
        if snapshot.root is not None and snapshot.rows <= MOST_ROWS:
            found |= _tokens_of(snapshot.root, load)
    return frozenset(found)


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
