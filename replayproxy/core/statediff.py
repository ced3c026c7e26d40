"""Where the states of two episodes part, snapshot by snapshot.

Snapshots meet by name, occasion and the exchange they followed. The first pair is compared as a whole; from then on
only rows that either run touched since the last pair are looked at, so the cost follows what the episodes did and not
how often they were photographed. A pair is left out, and said to be, when a write was in flight while either was read
or when lanes had come to different points: two readings of different moments prove nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from replayproxy.core import jsonvalue, prolly
from replayproxy.core.clock import Span
from replayproxy.core.difference import Difference, from_change
from replayproxy.core.explain import Explainer
from replayproxy.core.rowshape import natural, noun_of, shape
from replayproxy.core.treediff import ABSENT, tree_diff
from replayproxy.core.values import Row, Snapshot
from replayproxy.core.where import Classes, Where

type Load = Callable[[bytes], bytes]
type Cell = tuple[str, str]
type Report = Callable[[Difference, Classes], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StateEvent:
    """What differs for the first time in one pair of snapshots. `after`: the index of the pair they followed, or -1."""

    a: Snapshot
    b: Snapshot
    after: int
    differences: tuple[Difference, ...]
    rows: int


class States:
    """Walks the pairs of one snapshot name in order and keeps which rows differ."""

    def __init__(self, explainer: Explainer, report: Report, load_a: Load, load_b: Load) -> None:
        self._explainer = explainer
        self._report = report
        self._load = (load_a, load_b)
        self._roots: tuple[bytes, bytes] | None = None
        self._rows: dict[Cell, tuple[Row | None, Row | None]] = {}
        self._alone: dict[str, tuple[set[str], set[str]]] = {}  # table -> keys only in A, keys only in B, no fellow yet
        self._fellow: dict[Cell, str] = {}  # a row that only A has -> the key of the row that it is in B
        self._back: dict[Cell, str] = {}
        self._open: dict[Cell, tuple[Difference, ...]] = {}

    def step(self, a: Snapshot, b: Snapshot, spans: tuple[Span, Span]) -> tuple[list[Difference], int]:
        """The differences that nothing explains and that the pair before did not have; and how many rows have any."""
        assert a.root is not None
        assert b.root is not None
        touched = self._advance(a.root, b.root)
        found: list[Difference] = []
        for table in sorted({table for table, _ in touched}):
            touched |= self._join(table, spans)
        for cell in sorted(touched):
            row = self._rows.get(cell)
            known = self._open.pop(cell, ())
            if row is None:
                continue
            differences = list(self._judge(cell, row, spans))
            if differences:
                self._open[cell] = tuple(differences)
                found += [difference for difference in differences if difference not in known]
        return found, len(self._open)

    def _advance(self, a: bytes, b: bytes) -> set[Cell]:
        """Brings `_rows` (the rows that are not equal as they stand) up to date; gives the cells that were touched."""
        before, self._roots = self._roots, (a, b)
        if before is None or a == b:
            touched = set(self._rows)
            for cell in list(touched):
                touched |= self._place(cell, None, None)
            if a != b:
                for change in prolly.diff(a, b, *self._load):
                    cell = (change.table, change.key)
                    touched |= self._place(cell, change.before, change.after) | {cell}
            return touched
        moves = [
            {(c.table, c.key): (c.before, c.after) for c in prolly.diff(old, new, load)}
            for old, new, load in zip(before, (a, b), self._load, strict=True)
        ]
        touched = set(moves[0]) | set(moves[1])
        for cell in sorted(touched):
            move_a, move_b, known = moves[0].get(cell), moves[1].get(cell), self._rows.get(cell)
            # A run that did not touch a row has what it had; if the runs were equal there, what the other had.
            now_a = move_a[1] if move_a else known[0] if known else (move_b or (None, None))[0]
            now_b = move_b[1] if move_b else known[1] if known else (move_a or (None, None))[0]
            touched |= self._place(cell, now_a, now_b)
        return touched

    def _place(self, cell: Cell, a: Row | None, b: Row | None) -> set[Cell]:
        """Notes what the two runs have in a cell; gives the cells that lost their fellow by it, and those it had."""
        table, key = cell
        only_a, only_b = alone = self._alone.setdefault(table, (set(), set()))
        for keys in alone:
            keys.discard(key)
        if (a is None) == (b is None):
            parted = self._part(cell)
            for keys in alone:
                keys.discard(key)  # parting put it back, but it is alone no more
            if a is None or jsonvalue.same(a, b):
                self._rows.pop(cell, None)
            else:
                self._rows[cell] = (a, b)
            return parted
        self._rows[cell] = (a, b)
        side = self._fellow if b is None else self._back
        if cell in side:
            return {(table, side[cell])}
        parted = self._part(cell)
        (only_b if b is None else only_a).discard(key)
        (only_a if b is None else only_b).add(key)
        return parted

    def _part(self, cell: Cell) -> set[Cell]:
        """Takes a row and its fellow apart; both are alone again. Gives them."""
        table, key = cell
        key_a, key_b = (key, self._fellow.get(cell)) if cell in self._fellow else (self._back.get(cell), key)
        if key_a is None or key_b is None:
            return set()
        del self._fellow[(table, key_a)], self._back[(table, key_b)]
        self._alone[table][0].add(key_a)
        self._alone[table][1].add(key_b)
        return {(table, key_a), (table, key_b)}

    def _join(self, table: str, spans: tuple[Span, Span]) -> set[Cell]:
        """Finds fellows among the rows that only one side has: by their renamed keys, then by their contents."""
        only_a, only_b = self._alone[table]
        met: set[Cell] = set()
        for key in sorted(only_a, key=natural):
            renamed = self._explainer.renamed_key(table, key)
            if renamed in only_b:
                met |= self._meet(table, key, renamed, spans)
        shapes: dict[bytes, list[str]] = {}
        for key in sorted(only_b, key=natural, reverse=True) if only_a else ():
            shapes.setdefault(shape(table, self._rows[(table, key)][1]), []).append(key)
        for key in sorted(only_a, key=natural) if shapes else ():
            alike = shapes.get(shape(table, self._rows[(table, key)][0]))
            if alike:
                met |= self._meet(table, key, alike.pop(), spans)
        return met

    def _meet(self, table: str, key_a: str, key_b: str, spans: tuple[Span, Span]) -> set[Cell]:
        """Makes two rows fellows if a renaming of their keys explains it; gives the cells that met."""
        renamed = Difference(tokens=("state", table, key_a), kind="value", a=key_a, b=key_b, role="row")
        classes = self._explainer.explain(renamed, _where(table, spans))
        if classes is None:
            return set()
        self._report(renamed, classes)
        self._fellow[(table, key_a)], self._back[(table, key_b)] = key_b, key_a
        self._alone[table][0].discard(key_a)
        self._alone[table][1].discard(key_b)
        return {(table, key_a), (table, key_b)}

    def _judge(self, cell: Cell, row: tuple[Row | None, Row | None], spans: tuple[Span, Span]) -> Iterator[Difference]:
        table, key = cell
        a, b = row
        where, at = _where(table, spans), ("state", table, key)
        if cell in self._back and a is None:
            return  # judged with its fellow
        if cell in self._fellow and b is None:
            b = self._rows[(table, self._fellow[cell])][1]
        if a is None or b is None:
            kind = "added" if a is None else "removed"
            difference = Difference(tokens=at, kind=kind, a=ABSENT if a is None else a, b=ABSENT if b is None else b)
            yield from self._unexplained(difference, where)
        else:
            yield from self._leaves(at, a, b, where)

    def _leaves(self, at: tuple[str, ...], a: Row, b: Row, where: Where) -> Iterator[Difference]:
        for change in tree_diff(a, b, self._explainer.soften):
            yield from self._unexplained(from_change(at, change), where)

    def _unexplained(self, difference: Difference, where: Where) -> Iterator[Difference]:
        classes = self._explainer.explain(difference, where)
        if classes is None:
            yield difference
        else:
            self._report(difference, classes)


def _where(table: str, spans: tuple[Span, Span]) -> Where:
    return Where(template="", path="/" + noun_of(table), uri="", a=spans[0], b=spans[1])
