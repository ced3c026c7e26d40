"""What an injector writes down of its own deeds, and the true history of the state. The detectors never see either.

A mark is `EPISODE~LANE~N`: the agents send it with each request as `X-Call`, so that the environment can say which
request a fault befell. `EPISODE~~0` is the episode's reset.
"""

from __future__ import annotations

import json
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

NEVER = 1 << 62
MARK: ContextVar[str] = ContextVar("mark", default="")
"""The mark of the request that is being answered."""

type State = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""Table -> key -> row."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One place of the state. `column` "": the row itself, whether it is there."""

    table: str
    key: str
    column: str = ""

    @property
    def row(self) -> tuple[str, str]:
        return self.table, self.key


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One deed. `mark`: the request that it befell; `by`: other requests that had a part in it (who wrote what is
    shown, who lost). `right` and `given`: what the answer should have held, and what it held. `spot`: the member of
    the answer, where that is no cell. [`t0`, `t1`] on the monotonic clock of the machine."""

    fault: str
    mark: str
    cell: Cell | None = None
    right: Any = None
    given: Any = None
    by: tuple[str, ...] = ()
    spot: str = ""
    t0: int = 0
    t1: int = 0


@dataclass(frozen=True, slots=True)
class Version:
    """A row (None: it is not there) that came into force at some instant of [lo, hi], by the request `mark`. `order`:
    its place among the versions, where instants alone do not tell it."""

    lo: int
    hi: int
    row: Mapping[str, Any] | None
    mark: str
    order: int = 0


def value_in(row: Mapping[str, Any] | None, column: str) -> Any:
    """What a cell holds; of the row itself whether it is there."""
    return row is not None if column == "" else None if row is None else row.get(column)


@dataclass(slots=True)
class Ledger:
    """The deeds and the history of one instance of an environment."""

    acts: list[Act] = field(default_factory=list)
    history: dict[tuple[str, str], list[Version]] = field(default_factory=lambda: defaultdict(list))

    def act(self, **given: Any) -> None:
        now = time.monotonic_ns()
        self.acts.append(Act(**{"t0": now, "t1": now, **given}))

    def changed(self, before: State, after: State, lo: int, hi: int, mark: str) -> list[tuple[str, str]]:
        """Notes the rows in which the two states differ, and gives them."""
        found = []
        for table in {*before, *after}:
            old, new = before.get(table, {}), after.get(table, {})
            for key in {*old, *new}:
                if old.get(key) != new.get(key):
                    row = new.get(key)
                    self.history[table, key].append(Version(lo, hi, None if row is None else dict(row), mark))
                    found.append((table, key))
        return found

    def current(self, row: tuple[str, str]) -> Mapping[str, Any] | None:
        versions = self.history.get(row)
        return versions[-1].row if versions else None

    def at(self, row: tuple[str, str], instant: int) -> Mapping[str, Any] | None:
        """The row as it was at an instant."""
        versions = self.history.get(row, [])
        index = bisect_right(versions, instant, key=lambda version: version.hi)
        return versions[index - 1].row if index else None

    def writer(self, row: tuple[str, str]) -> str:
        """The mark of the last request that changed the row; "" if none did."""
        versions = self.history.get(row)
        return versions[-1].mark if versions else ""

    def could_hold(self, cell: Cell, value: Any, since: int, until: int) -> bool:
        """Whether the cell may have held the value at some instant of [since, until]."""
        versions = self.history.get(cell.row, [])
        if value_in(None, cell.column) == value and since <= (versions[0].lo if versions else NEVER):
            return True
        ends = [*(version.hi for version in versions[1:]), NEVER][: len(versions)]
        return any(
            version.lo <= until and end >= since and value_in(version.row, cell.column) == value
            for version, end in zip(versions, ends, strict=True)
        )

    def overwriter(self, cell: Cell, value: Any, before: int) -> Version | None:
        """The write after which, last before an instant, the cell no longer held the value."""
        found: Version | None = None
        held = value_in(None, cell.column) == value
        for version in self.history.get(cell.row, []):
            if version.lo >= before:
                break
            now = value_in(version.row, cell.column) == value
            found = version if held and not now else None if now else found
            held = now
        return found

    def write(self, path: Path) -> None:
        """As JSON lines, for people."""
        with path.open("w") as out:
            for act in self.acts:
                out.write(json.dumps(asdict(act), default=str) + "\n")


def episode_of(mark: str) -> str:
    return mark.partition("~")[0]


def lane_of(mark: str) -> str:
    return mark.split("~")[1]


def number_of(mark: str) -> int:
    return int(mark.rpartition("~")[2])


def differing(right: State, got: State) -> Iterator[Cell]:
    """The cells in which a state differs from the one that it should be; of a row too many or missing the row."""
    for table in sorted({*right, *got}):
        a, b = right.get(table, {}), got.get(table, {})
        for key in sorted({*a, *b}):
            x, y = a.get(key), b.get(key)
            if x is None or y is None:
                if x is not y:
                    yield Cell(table, key)
            else:
                yield from (Cell(table, key, c) for c in sorted({*x, *y}) if x.get(c) != y.get(c))


def all_acts(ledgers: Iterable[Ledger]) -> list[Act]:
    return [act for ledger in ledgers for act in ledger.acts]
