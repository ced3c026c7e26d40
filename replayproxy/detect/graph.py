"""Whether acts side by side can be put in an order: what depends on what, and the shortest circle that forbids one.

An act is a transaction on registers: what it read and what it wrote, in an interval. Edges say which came first in
every order that explains the recording: `ww` (its version is older), `wr` (the other read what it wrote), `rw` (it read
a version that the other replaced), `rt` (it had ended before the other began), `lane` (the same lane, earlier). A
circle of them means that no order does. Circles are named as Adya and Elle name them:

| name | the circle |
|---|---|
| G0 | writes only: `ww` |
| G1a | no circle: something shows what a refused write had written |
| G1b | no circle: something shows what its own writer had replaced at once |
| G1c | `ww` and `wr` |
| G-single | exactly one `rw`: a lost update, a read of two moments |
| G2 | more than one `rw`: two acts that did not see each other |

Registers give their versions only in part: the value found at the beginning is older than all others, what an act read
of a cell is older than what it wrote there, and a write that had ended before another began is older. A value with two
possible writers gives no edge, so a circle is never guessed.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

type Cell = Any
"""A register's name, hashable."""

MOST_ACTS = 400
"""More acts than these in one graph are not judged: edges of time are quadratic."""


class Fate(StrEnum):
    OK = "ok"
    REFUSED = "refused"  # its answer says that it did nothing
    OPEN = "open"  # it may have done it, at any time after it began, or never


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """`reads`: what it saw of cells that it had not written itself. `writes`: what it left in each cell; `passing`:
    what it wrote there before. `ref` is the caller's. `end` of an open act is not looked at."""

    inv: int
    end: int
    lane: str = ""
    fate: Fate = Fate.OK
    reads: Mapping[Cell, str] = field(default_factory=dict)
    writes: Mapping[Cell, str] = field(default_factory=dict)
    passing: Mapping[Cell, Sequence[str]] = field(default_factory=dict)
    ref: Any = None


@dataclass(frozen=True, slots=True)
class Edge:
    """`kind`: ww, wr, rw, rt or lane; `a` and `b` are the numbers of acts. `timed`: it rests on the clock."""

    a: int
    b: int
    kind: str
    cell: Cell = None
    timed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomaly:
    """`name` as in the table of the module; `cycle`: its edges in order, each beginning where the last one ended."""

    name: str
    cycle: tuple[Edge, ...]

    @property
    def timeless(self) -> bool:
        """Whether it needs no clock: no order at all explains it, not even one that ignores when things happened."""
        return not any(edge.timed for edge in self.cycle)


class Graph:
    """The dependencies of acts on registers that held `initial`."""

    def __init__(self, acts: Sequence[Act], initial: Mapping[Cell, str]) -> None:
        self.acts = list(acts)
        self._initial = initial
        self._writers: dict[tuple[Cell, str], list[int]] = defaultdict(list)
        for number, act in enumerate(self.acts):
            if act.fate is not Fate.REFUSED:
                for cell, value in act.writes.items():
                    self._writers[cell, value].append(number)
        self._seen = self._shown()
        self.edges: dict[tuple[int, int, str], Edge] = {}
        self._add_time()
        self._add_versions()

    def _writer(self, cell: Cell, value: str) -> int | None:
        """Who wrote the value; -1 it was there at the beginning; None: nobody, or one of several."""
        found = list(self._writers.get((cell, value), ()))
        if self._initial.get(cell) == value:
            found.append(-1)
        return found[0] if len(found) == 1 else None

    def _shown(self) -> set[int]:
        """The open acts that something shows to have taken effect."""
        seen: set[int] = set()
        sure = [number for number, act in enumerate(self.acts) if act.fate is Fate.OK]
        while sure:
            number = sure.pop()
            for cell, value in self.acts[number].reads.items():
                writer = self._writer(cell, value)
                if writer is None or writer in (-1, number) or writer in seen:
                    continue
                seen.add(writer)
                if self.acts[writer].fate is Fate.OPEN:
                    sure.append(writer)
        return seen

    def _counts(self, number: int) -> bool:
        """Whether the act took effect for certain."""
        fate = self.acts[number].fate
        return fate is Fate.OK or (fate is Fate.OPEN and number in self._seen)

    def _add(self, a: int, b: int, kind: str, cell: Cell = None, *, timed: bool = False) -> None:
        if a != b and a >= 0 and b >= 0:
            known = self.edges.get((a, b, kind))
            if known is None or known.timed > timed:
                self.edges[a, b, kind] = Edge(a, b, kind, cell, timed)

    def _add_time(self) -> None:
        for a, first in enumerate(self.acts):
            for b, second in enumerate(self.acts):
                if a != b and first.fate is Fate.OK and self._counts(b) and first.end < second.inv:
                    same = bool(first.lane) and first.lane == second.lane
                    self._add(a, b, "lane" if same else "rt", timed=True)

    def _add_versions(self) -> None:
        readers: dict[Cell, list[tuple[int, int]]] = defaultdict(list)  # (reader, writer of what it read)
        writers: dict[Cell, list[int]] = defaultdict(list)
        for number, act in enumerate(self.acts):
            if not self._counts(number):
                continue
            for cell, value in act.writes.items():
                if self._writer(cell, value) == number:
                    writers[cell].append(number)
            for cell, value in act.reads.items():
                writer = self._writer(cell, value)
                if writer is not None:
                    readers[cell].append((number, writer))
                    self._add(writer, number, "wr", cell)
        for cell, numbers in writers.items():
            self._order(cell, numbers, readers[cell])

    def _order(self, cell: Cell, writers: Sequence[int], readers: Sequence[tuple[int, int]]) -> None:
        read_by = dict(readers)
        later: dict[int, dict[int, bool]] = {-1: dict.fromkeys(writers, False)}  # -> whether only the clock says so
        for number in writers:
            later[number] = {
                other: read_by.get(other) != number for other in writers
                if other != number and (read_by.get(other) == number or self._ended_before(number, other))
            }  # fmt: skip
            for other, timed in later[number].items():
                self._add(number, other, "ww", cell, timed=timed)
        for reader, writer in readers:
            for other, timed in later.get(writer, {}).items():
                self._add(reader, other, "rw", cell, timed=timed)

    def _ended_before(self, a: int, b: int) -> bool:
        return self.acts[a].fate is Fate.OK and self.acts[a].end < self.acts[b].inv

    # What cannot be

    def anomalies(self) -> Iterator[Anomaly]:
        """The shortest circle of the first kind that is there, for each knot of acts; and reads of what never was."""
        yield from self._never_were()
        for knot in _knots(len(self.acts), self.edges.values()):
            found = self._circle(knot)
            if found is not None:
                yield found

    def _never_were(self) -> Iterator[Anomaly]:
        for number, act in enumerate(self.acts):
            for cell, value in act.reads.items() if self._counts(number) else ():
                if self._initial.get(cell) == value or self._writers.get((cell, value)):
                    continue
                for other, writer in enumerate(self.acts):
                    if other == number:
                        continue
                    if writer.fate is Fate.REFUSED and writer.writes.get(cell) == value:
                        yield Anomaly(name="G1a", cycle=(Edge(other, number, "wr", cell),))
                        break
                    if writer.fate is not Fate.REFUSED and value in writer.passing.get(cell, ()):
                        yield Anomaly(name="G1b", cycle=(Edge(other, number, "wr", cell),))
                        break

    def _circle(self, knot: set[int]) -> Anomaly | None:
        inside = [edge for edge in self.edges.values() if edge.a in knot and edge.b in knot]
        for usable in ([edge for edge in inside if not edge.timed], inside):
            time = ("rt", "lane")
            for name, kinds in (("G0", ("ww",)), ("G1c", ("ww", "wr"))):
                cycle = _shortest([edge for edge in usable if edge.kind in (*kinds, *time)])
                if cycle:
                    return Anomaly(name=name, cycle=cycle)
            plain = [edge for edge in usable if edge.kind != "rw"]
            cycle = _shortest(plain, through=[edge for edge in usable if edge.kind == "rw"])
            if cycle:
                return Anomaly(name="G-single", cycle=cycle)
            cycle = _shortest(usable)
            if cycle:
                return Anomaly(name="G-single" if self._one_cell(cycle) else "G2", cycle=cycle)
        return None

    def _one_cell(self, cycle: Sequence[Edge]) -> bool:
        """Whether all read one version of a cell and replaced it: whichever did so first, one `rw` is a `ww`."""
        cells = {edge.cell for edge in cycle}
        return len(cells) == 1 and all(cells <= set(self.acts[edge.a].writes) for edge in cycle)


def _knots(count: int, edges: Iterable[Edge]) -> Iterator[set[int]]:
    """Tarjan's strongly connected components of more than one node, without recursion."""
    after: list[list[int]] = [[] for _ in range(count)]
    for edge in edges:
        after[edge.a].append(edge.b)
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    for root in range(count):
        work = [(root, iter(after[root]))] if root not in index else []
        if work:
            index[root] = low[root] = len(index)
            stack.append(root)
            on_stack.add(root)
        while work:
            node, rest = work[-1]
            step = next(rest, None)
            if step is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    knot = _popped(stack, on_stack, node)
                    if len(knot) > 1:
                        yield knot
            elif step not in index:
                index[step] = low[step] = len(index)
                stack.append(step)
                on_stack.add(step)
                work.append((step, iter(after[step])))
            elif step in on_stack:
                low[node] = min(low[node], index[step])


def _popped(stack: list[int], on_stack: set[int], node: int) -> set[int]:
    knot = set()
    while True:
        top = stack.pop()
        on_stack.discard(top)
        knot.add(top)
        if top == node:
            return knot


def _shortest(edges: Sequence[Edge], through: Sequence[Edge] | None = None) -> tuple[Edge, ...]:
    """The shortest circle of these edges; with `through`: one of those and these. () there is none."""
    after: dict[int, list[Edge]] = defaultdict(list)
    for edge in edges:
        after[edge.a].append(edge)
    best: tuple[Edge, ...] = ()
    for first in edges if through is None else through:
        if best and len(best) == 2:
            break
        way = _way(after, first.b, first.a, len(best) - 1 if best else None)
        if way is not None and (not best or len(way) + 1 < len(best)):
            best = (first, *way)
    return best


def _way(after: Mapping[int, Sequence[Edge]], start: int, goal: int, limit: int | None) -> tuple[Edge, ...] | None:
    came: dict[int, Edge | None] = {start: None}
    queue = deque([(start, 0)])
    while queue:
        node, far = queue.popleft()
        if node == goal:
            return _walked(came, node)
        if limit is not None and far >= limit:
            continue
        for edge in after.get(node, ()):
            if edge.b not in came:
                came[edge.b] = edge
                queue.append((edge.b, far + 1))
    return None


def _walked(came: Mapping[int, Edge | None], node: int) -> tuple[Edge, ...]:
    way: list[Edge] = []
    edge = came[node]
    while edge is not None:
        way.append(edge)
        edge = came[edge.a]
    return tuple(way[::-1])


def told(anomaly: Anomaly, name: Callable[[int], str]) -> str:
    """The circle for a reader: `#31 -rw deals/42 stage-> #33 -rt-> #31`."""
    parts = [name(anomaly.cycle[0].a)]
    for edge in anomaly.cycle:
        where = f" {edge.cell}" if edge.cell is not None else ""
        parts += [f"-{edge.kind}{where}->", name(edge.b)]
    return " ".join(parts)
