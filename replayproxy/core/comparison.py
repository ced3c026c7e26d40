"""What a comparison says: the values that `compare` gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from replayproxy.core.treediff import ABSENT

SAME, DIFFERENT, UNDECIDED = "same", "different", "undecided"

NOT_SHOWN = "(not shown)"
"""Stands for a credential: that it differs is said, what it is never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """Differences that follow from a root: how many at one place of one kind of request, and the first of them.

    `by`: `exchange` (the same exchange), `value` (the differing value again), `state` (what the root changed is read),
    `control` (requests after a changed request), `same` (the same change at the same place of another resource).
    """

    template: str
    pointer: str
    count: int
    a: int | None
    b: int | None
    by: str

    def to_json(self) -> dict[str, Any]:
        return {"template": self.template, "pointer": self.pointer, "count": self.count, "a": self.a, "b": self.b,
                "by": self.by}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """A difference that follows from no other. `a`, `b`: the exchanges by number; None: that side has none.

    `values` are what A and B have at `pointer`: JSON values, or ABSENT; credentials never stand there. `kind` is one
    of value, type, added, removed, order, status, outcome, inserted, deleted, renaming, state. `consequences` counts
    the differences folded under it, those of its own exchange included. `state` tells of the states around it: `equal`,
    `differs before`, `differs after`, or "" when they are not known. `snapshots`: of a `state`, the two that differ.
    """

    a: int | None
    b: int | None
    pointer: str
    values: tuple[Any, Any]
    kind: str
    consequences: int = 0
    folded: tuple[Fold, ...] = ()
    lane: str = ""
    template: str = ""
    request: str = ""
    note: str = ""
    state: str = ""
    snapshots: tuple[int, int] | None = None

    def to_json(self, a: str = "", b: str = "") -> dict[str, Any]:
        """`a`, `b`: the addresses of the episodes, so that an exchange is `RUN/EPISODE#SEQ`."""
        document: dict[str, Any] = {
            "a": _address(a, self.a), "b": _address(b, self.b), "pointer": self.pointer,
            "values": [plain(value) for value in self.values], "consequences": self.consequences, "kind": self.kind,
            "lane": self.lane, "template": self.template, "request": self.request, "note": self.note,
            "folded": [fold.to_json() for fold in self.folded],
        }  # fmt: skip
        absent = [side for side, value in zip("ab", self.values, strict=True) if value is ABSENT]
        if absent:
            document["absent"] = absent
        if self.state:
            document["state"] = self.state
        if self.snapshots:
            document["snapshots"] = [
                f"{episode}/s{n}" if episode else n for episode, n in zip((a, b), self.snapshots, strict=True)
            ]
        return document


def _address(episode: str, seq: int | None) -> Any:
    return f"{episode}#{seq}" if episode and seq is not None else seq


def plain(value: Any) -> Any:
    """The value for a document: an absent one is null (the document then names the side under `absent`)."""
    return None if value is ABSENT else value


@dataclass(frozen=True, slots=True, kw_only=True)
class StateDifference:
    """The first snapshot in which the states differ, and the first row that does.

    `a`, `b`: the snapshots by number; `after`: the exchanges they followed; `rows`: how many rows differ there.
    """

    name: str
    when: str
    a: int
    b: int
    after: tuple[int | None, int | None]
    table: str
    key: str
    pointer: str
    values: tuple[Any, Any]
    rows: int = 1

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "when": self.when, "a": self.a, "b": self.b, "after": list(self.after),
                "table": self.table, "key": self.key, "pointer": self.pointer,
                "values": [plain(value) for value in self.values], "rows": self.rows,
                "absent": [side for side, value in zip("ab", self.values, strict=True) if value is ABSENT]}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One explained difference."""

    a: int | None
    b: int | None
    pointer: str
    values: tuple[Any, Any]

    def to_json(self) -> dict[str, Any]:
        return {"a": self.a, "b": self.b, "pointer": self.pointer, "values": [plain(value) for value in self.values]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What came out. `undecided` holds the reasons why nothing can be said, or why `same` cannot be.

    `explained` counts differences by class (one that needs two explanations counts in both), `explained_detail` holds
    the first examples. `not_compared` counts headers that differ and are never judged. `notes` is what a reader has
    to know beside the verdict, such as a snapshot that one side lacks. `apart` names every pair that differs, or whose
    state after it does, as roots and folds do not: of what was folded they keep the first of its kind.
    """

    verdict: str
    roots: tuple[Root, ...]
    explained: Mapping[str, int]
    explained_detail: Mapping[str, tuple[Example, ...]] = field(default_factory=dict)
    pairs: tuple[tuple[int | None, int | None], ...] = ()
    state: StateDifference | None = None
    undecided: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    rules: Mapping[str, int] = field(default_factory=dict)
    expired_rules: tuple[str, ...] = ()
    not_compared: Mapping[str, int] = field(default_factory=dict)
    exchanges_compared: int = 0
    exchanges_different: int = 0
    snapshots_compared: int = 0
    apart: tuple[tuple[int | None, int | None], ...] = ()

    @property
    def differences(self) -> int:
        """How many differences were found that nothing explains."""
        return sum(1 + root.consequences for root in self.roots)

    @property
    def unused_rules(self) -> tuple[str, ...]:
        return tuple(name for name, uses in self.rules.items() if not uses)

    def to_json(self, a: str = "", b: str = "") -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "roots": [root.to_json(a, b) for root in self.roots],
            "explained": dict(self.explained),
            "unpaired": unpaired(self.pairs, a, b),
            "differences": self.differences,
            "exchanges": {"compared": self.exchanges_compared, "different": self.exchanges_different},
            "state": self.state.to_json() if self.state else None,
            "snapshots_compared": self.snapshots_compared,
            "undecided": list(self.undecided),
            "notes": list(self.notes),
            "examples": {name: [e.to_json() for e in examples] for name, examples in self.explained_detail.items()},
            "rules": dict(self.rules),
            "unused_rules": list(self.unused_rules),
            "expired_rules": list(self.expired_rules),
            "not_compared": dict(self.not_compared),
        }


def unpaired(pairs: Sequence[tuple[int | None, int | None]], a: str = "", b: str = "") -> list[dict[str, Any]]:
    """The exchanges that only one side has."""
    return [{"side": "a" if y is None else "b", "exchange": _address(*((a, x) if y is None else (b, y)))}
            for x, y in pairs if x is None or y is None]  # fmt: skip
