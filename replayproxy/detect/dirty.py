"""Dirty starts: what an episode began with beside the reference, who had written it, and whether the episode saw it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from replayproxy.core import jsonvalue
from replayproxy.core.canonical import view
from replayproxy.core.opaque import is_opaque
from replayproxy.core.times import parse_text
from replayproxy.core.tokens import short_form
from replayproxy.core.values import Exchange, RowChange, Snapshot
from replayproxy.detect.cells import Row
from replayproxy.detect.normal import normal
from replayproxy.detect.ops import PRESENCE, Op
from replayproxy.detect.reference import Group, Reference
from replayproxy.detect.timeline import cell, columns
from replayproxy.detect.tracers import in_text
from replayproxy.detect.written import Written

STRONG_BITS = 20.0
"""So much must the surviving values say before they are taken for the earlier episode's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survivor:
    """A row of the start that is not the reference's. `writer` None: no recorded exchange left it so. `maker`: of a
    row too many, who made it, where that is another exchange of the same episode."""

    change: RowChange
    writer: Written | None
    maker: Written | None = None
    perhaps: frozenset[str] = frozenset()  # episodes of which one wrote it

    @property
    def row(self) -> Row:
        return Row(self.change.table, self.change.key)

    @property
    def by(self) -> Op | None:
        """The exchange that is to be named: who left the row so, else who made it."""
        named = (self.writer, self.maker) if self.writer is not None else ()
        return next((w.by for w in named if w is not None and w.by is not None), None)

    @property
    def differing(self) -> list[str]:
        before, after = self.change.before, self.change.after
        return sorted(c for c in columns(before, after) if cell(before, c) != cell(after, c))


@dataclass(frozen=True, slots=True, kw_only=True)
class Dirt:
    """What is wrong with one start.

    `at_work`: other episodes that had written to the instance and were still open while the start was read. What they
    did, or may have done, is not among the `survivors`.
    """

    episode: str
    series: str
    instance: str
    start: Snapshot
    reference: Reference
    survivors: tuple[Survivor, ...]
    too_much: bool
    only_counters: bool
    at_work: tuple[str, ...]
    unchanged_since: str | None  # the episode whose end state this start is, whole
    settled: Snapshot | None = None  # the next snapshot, if without a write all was right in it
    reset: Exchange | None = None  # the recorded reset before it
    roots: tuple[Mapping[str, Any], ...] = ()  # the start states of this task and seed
    group: Group = (None, None, "")
    before_settled: tuple[int, ...] = ()  # exchanges that ran while the reset may still have been at work
    changed_since: frozenset[Row] = frozenset()  # of the survivors: what the episode before had not ended with

    def among(self, survivors: tuple[Survivor, ...]) -> Dirt:
        """The same, of these rows only."""
        return replace(self, survivors=survivors)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """An answer that showed a survivor."""

    seq: int
    lane: str
    pointer: str
    value: Any
    survivor: Survivor
    exchange: Exchange


def sightings(dirt: Dirt, own: Sequence[Op], exchanges: Sequence[Exchange]) -> list[Sighting]:
    """The answers of the episode that showed what should not have been there, in order; own work is left out."""
    by_seq = {exchange.seq: exchange for exchange in exchanges}
    found: list[Sighting] = []
    open_rows = {survivor.row: survivor for survivor in dirt.survivors}
    names = {name: s for s in dirt.survivors for name in _names(s)}
    written: set[Row] = set()
    sent: set[str] = set()
    for op in sorted(own, key=lambda op: op.seq):
        exchange = by_seq[op.seq]
        written |= {row for row, _ in op.sets}
        sent |= _words(exchange) & set(names)
        if not op.reads:
            continue
        at = len(found)
        found += _by_structure(op, exchange, open_rows, written)
        if len(found) == at:
            found += _by_name(op, exchange, names, sent, written)
    return found


def _by_structure(op: Op, exchange: Exchange, rows: dict[Row, Survivor], written: set[Row]) -> Iterable[Sighting]:
    gone = rows.get(op.absent) if op.absent is not None and op.absent not in written else None
    if gone is not None and gone.change.after is None:
        yield Sighting(seq=op.seq, lane=op.lane, pointer="", value=None, survivor=gone, exchange=exchange)
    for one in op.rows:
        survivor = rows.get(one.row)
        if survivor is None or one.row in written or survivor.change.after is None:
            continue
        after, members = survivor.change.after, one.members
        shown = [c for c in survivor.differing if c in members and normal(members[c]) == cell(after, c)]
        column = next(iter(_telling(shown, survivor)), None)
        if column is not None:
            yield Sighting(
                seq=op.seq, lane=op.lane, pointer=one.pointer(column), value=one.members[column],
                survivor=survivor, exchange=exchange,
            )  # fmt: skip


def _telling(shown: list[str], survivor: Survivor) -> list[str]:
    """The members that say most, first: of a row too many its key, then what the writer had asked for."""
    by = survivor.by
    asked = by.asked if by is not None else {}

    def rank(column: str) -> tuple[bool, bool, bool, int]:
        value = cell(survivor.change.after, column).lstrip("'")
        return value != survivor.change.key, column not in asked, parse_text(value) is not None, -len(value)

    return sorted(shown, key=rank)


def _names(survivor: Survivor) -> set[str]:
    """What tells the surviving row by itself, wherever it is shown: its key, and its values full of chance."""
    if survivor.change.after is None:
        return set()
    found: set[str] = set()
    if survivor.change.before is None and distinctive(survivor.change.key):
        found.add(survivor.change.key)
    before = {leaf for _, leaf in jsonvalue.leaves(survivor.change.before) if isinstance(leaf, str)}
    for _, leaf in jsonvalue.leaves(survivor.change.after):
        if isinstance(leaf, str) and leaf not in before and is_opaque(leaf):
            found.add(leaf)
    return found


def distinctive(key: str) -> bool:
    """Whether a key is told from ordinary words and small numbers by its form: `D-9f41`, a uuid."""
    if is_opaque(key):
        return True
    form = short_form(key)
    return form is not None and len(key) >= 5 and any(c.isalpha() for c in key) and any(c.isdigit() for c in key)


def _by_name(
    op: Op, exchange: Exchange, names: dict[str, Survivor], sent: set[str], written: set[Row]
) -> Iterable[Sighting]:
    response = exchange.response
    if response is None or not names:
        return
    for pointer, text in _texts(exchange):
        for name, survivor in names.items():
            if name in sent or survivor.row in written or not _holds(text, name):
                continue
            yield Sighting(seq=op.seq, lane=op.lane, pointer=pointer, value=text, survivor=survivor, exchange=exchange)
            return


def _holds(text: str, name: str) -> bool:
    at = text.find(name)
    if at < 0:
        return False
    end = at + len(name)
    return not (at and text[at - 1].isalnum()) and not (end < len(text) and text[end].isalnum())


def _texts(exchange: Exchange) -> Iterable[tuple[str, str]]:
    assert exchange.response is not None
    seen = view(exchange.response.fields, exchange.response.body)
    if seen.kind == "json":
        for path, leaf in jsonvalue.leaves(seen.value):
            if isinstance(leaf, str):
                yield jsonvalue.pointer(*path), leaf
    elif seen.kind == "text":
        yield "", seen.value[:200_000].decode("utf-8", "replace")


def _words(exchange: Exchange) -> set[str]:
    seen = view(exchange.request.fields, exchange.request.body)
    words = set(exchange.request.target.decode("utf-8", "replace").replace("?", "/").replace("=", "/").split("/"))
    if seen.kind == "json":
        for _, leaf in jsonvalue.leaves(seen.value):
            if isinstance(leaf, str):
                words |= {leaf, *in_text(leaf)}
    return words


def weight(survivors: Iterable[Survivor]) -> float:
    """How much the surviving values say: about two bits a character, a fresh row's key included."""
    total = 0.0
    for survivor in survivors:
        if survivor.change.before is None or survivor.change.after is None:
            total += 8 + 2 * min(len(survivor.change.key), 32)
        for column in survivor.differing:
            value = cell(survivor.change.after, column)
            if column != PRESENCE and value not in ("null", "0", "1", "(no value)"):
                total += 2 * min(len(value.lstrip("'")), 64)
    return total
