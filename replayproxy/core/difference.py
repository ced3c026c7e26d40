"""One place at which two exchanges, or two rows, differ."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from replayproxy.core import jsonvalue
from replayproxy.core.treediff import Change


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One place at which two paired exchanges (or two rows of their states) differ.

    `tokens` is the pointer taken apart, as A has it (as B has it where only B has it). `role` tells what kind of
    text stands there: `url`, `validator`, `cookie`, `row` (a row's key), or `text`. `kind` as of `treediff.Change`,
    or `status`, `outcome`. The values of a `secret` place are never shown.
    """

    tokens: tuple[str | int, ...]
    kind: str
    a: Any
    b: Any
    role: str = "text"
    secret: bool = False
    note: str = ""

    @property
    def pointer(self) -> str:
        return jsonvalue.pointer(*self.tokens)[1:]

    @property
    def general(self) -> str:
        """The pointer with `*` for every array index, and for the key of a row."""
        return _general(self.tokens)

    @property
    def asked(self) -> bool:
        """Whether it is the agent's doing, not the environment's."""
        return self.tokens[0] == "request"


@lru_cache(maxsize=4096)
def _general(tokens: tuple[str | int, ...]) -> str:
    general: list[str] = ["*" if isinstance(token, int) else token for token in tokens]
    if general[0] == "state" and len(general) > 2:
        general[2] = "*"
    return jsonvalue.pointer(*general)[1:]


def from_change(at: tuple[str, ...], change: Change) -> Difference:
    """A change of a tree that stands at `at`."""
    path = change.b_path if change.kind == "added" else change.a_path
    return Difference(tokens=(*at, *path), kind=change.kind, a=change.a, b=change.b)
