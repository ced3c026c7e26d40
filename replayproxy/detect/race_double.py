"""Two claims of one thing that were both granted: counted, with the releases that can have come between.

Pigeonhole: a cell holds one holder. Among claims granted to different holders, with no instant between them at which
the cell was surely free, all but one need a release that took effect in between. Fewer releases than that can have
done so: then two held it at once. Every write that may be a release counts as one; refused and repeated claims count
as nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from replayproxy.core.times import parse_number, parse_text
from replayproxy.detect.cells import Row
from replayproxy.detect.normal import normal
from replayproxy.detect.ops import Effect, Op
from replayproxy.detect.race_claims import Claim, row_of
from replayproxy.detect.race_names import capacity, empty, until
from replayproxy.detect.timeline import Timeline, cell

LONGEST_OVERLAP_NS = 1_000_000_000
"""A hold that may end by itself is taken to last at least this long when its row says that it ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Double:
    """Claims of one cell of which more were granted than it holds. `wronged`: those that came upon a held row.

    `same`: some are repeats of others, so that it is a fault only where the environment refuses a repeat. `overlap`:
    the wronged claims were under way at the same time as another one. `shots`: snapshots beside them. `agrees`: whether
    a snapshot after them shows one of the holders in the cell. `doubt`: why it may be no fault; "" none.
    """

    claims: tuple[Claim, ...]
    wronged: tuple[Claim, ...]
    same: bool
    overlap: bool
    releases: tuple[Op, ...]
    shots: tuple[int, ...]
    agrees: bool
    doubt: str = ""

    def beside(self, claim: Claim) -> bool:
        """Whether the claim was under way at the same time as another of them."""
        return any(_meet(claim.op, other.op) for other in self.claims if other is not claim)


@dataclass(slots=True)
class _Group:
    """Claims since the cell was last surely free, or surely with one known holder."""

    claims: list[Claim] = field(default_factory=list)
    since: int = 0


def doubles(timeline: Timeline, row: Row, column: str, claimed: Sequence[Claim]) -> Iterator[Double]:
    """O(n log n) in the claims of the cell, times the writes beside them. None of a row that has room for several: its
    cell then names one of them."""
    rooms = [capacity(timeline.row_at(row, index)) for index in (0, len(timeline.shots) - 1)] if timeline.shots else []
    if any(room is not None and room[1] > 1 for room in rooms):
        return
    group = _Group()
    for claim in sorted(claimed, key=lambda one: (one.op.fwd, one.op.end)):
        if group.claims:
            seen = _known_between(timeline, row, column, group.claims, claim)
            if seen is not None:
                yield from _judge(timeline, row, column, group)
                group = _after(timeline, group, seen, column, row)
        if not any(claim.op.once and claim.op.once == other.op.once for other in group.claims):
            group.claims.append(claim)
    yield from _judge(timeline, row, column, group)


def _known_between(
    timeline: Timeline, row: Row, column: str, claims: Sequence[Claim], following: Claim
) -> int | None:  # fmt: skip
    """The last snapshot that was read wholly between the claims and the next one."""
    index = bisect_left(timeline.line.done, following.op.fwd) - 1
    if index < 0 or timeline.line.begun[index] <= max(claim.op.end for claim in claims):
        return None
    return index


def _after(timeline: Timeline, group: _Group, index: int, column: str, row: Row) -> _Group:
    """What the snapshot leaves of the group: the one who holds it now, if that is one of them."""
    value = cell(timeline.row_at(row, index), column)
    held = [claim for claim in group.claims if claim.holder == value]
    return _Group(claims=held[-1:], since=timeline.line.begun[index])


def _judge(timeline: Timeline, row: Row, column: str, group: _Group) -> Iterator[Double]:
    if len(group.claims) < 2:
        return
    begin, end = max(group.claims[0].op.fwd, group.since), max(claim.op.end for claim in group.claims)
    mine = {(claim.op.episode, claim.op.seq) for claim in group.claims}
    releases = [
        op for op in (*timeline.writes.within(begin, end), *_open(timeline, end))
        if (op.episode, op.seq) not in mine and may_release(timeline, op, row)
    ]  # fmt: skip
    told = _distinct(group.claims)
    if len(told) - len(releases) < 2:
        told = group.claims
    if len(told) - len(releases) < 2:
        return
    holders = {claim.holder for claim in told}
    wronged = tuple(told[1:])
    overlap = all(any(_meet(claim.op, other.op) for other in told if other is not claim) for claim in wronged)
    after = _first_after(timeline, end)
    shots = list(timeline.near(begin, end))
    shown = {cell(timeline.row_at(row, index), column) for index in after}
    yield Double(
        claims=tuple(told), wronged=wronged, same=len(_distinct(told)) < len(told), overlap=overlap,
        releases=tuple(releases), shots=tuple(shots), agrees=bool(shown & holders),
        doubt=_may_end(timeline, row, told),
    )  # fmt: skip


def _distinct(claims: Sequence[Claim]) -> list[Claim]:
    """The claims without the repeats, which were answered with what their first one had got."""
    found: list[Claim] = []
    for claim in claims:
        if not any(claim.same(other) for other in found):
            found.append(claim)
    return found


def _open(timeline: Timeline, end: int) -> list[Op]:
    return [op for op in timeline.writes.floating if op.fwd <= end]


def _first_after(timeline: Timeline, end: int) -> list[int]:
    index = bisect_left(timeline.line.begun, end + 1)
    return [index] if index < len(timeline.shots) else []


def _meet(a: Op, b: Op) -> bool:
    return a.fwd <= b.end and b.fwd <= a.end


def may_release(timeline: Timeline, op: Op, row: Row) -> bool:
    """Whether the write may have made the row free, or given it to another. In doubt it may.

    What was refused did nothing. A write whose path names another row of the same table, or a row of a table that does
    not mention this one, is taken to be about something else; so is one that alone, between two snapshots, left it be.
    """
    if op.refused or op.effect is Effect.NONE:
        return False
    if (op.episode, op.seq) in timeline.accounted:
        return any(change.may_be_of(op) and change.row == row for change in timeline.changes)
    if op.is_reset or op.place is None or row in op.about:
        return True
    if row.of_path:
        # No table is known: what lies under the same thing's path, or names it, may free it.
        thing = row.table.rpartition("/")[0]
        return op.place.table.startswith(thing) or mentions(op.asked, Row("", thing.rpartition("/")[2]))
    if op.place.table == row.table:
        return op.place.key in (None, row.key)
    return mentions(op.asked, row) or any(mentions(content, row) for content in _contents(timeline, op))


def _contents(timeline: Timeline, op: Op) -> Iterator[Any]:
    """The row that the write's path names, as snapshots beside it show it."""
    named = row_of(op)
    if named is not None and timeline.shows(named):
        for index in timeline.near(op.fwd, op.end if op.effect is Effect.DONE else op.fwd):
            yield timeline.row_at(named, index)


def mentions(content: Any, row: Row) -> bool:
    if isinstance(content, Mapping):
        return any(mentions(value, row) for value in content.values())
    if isinstance(content, list):
        return any(mentions(value, row) for value in content)
    return not isinstance(content, bool) and content is not None and normal(content) == normal(row.key)


def _may_end(timeline: Timeline, row: Row, claims: Sequence[Claim]) -> str:
    """Why the first hold may have ended by itself before the last claim; "" it cannot have."""
    last = claims[-1].op
    short = last.end - claims[0].op.fwd < LONGEST_OVERLAP_NS
    for claim in claims[:-1]:
        for name in until({**_content(timeline, row), **claim.op.said}):
            value = claim.op.said.get(name)
            if short and (empty(value) or not isinstance(value, str) or parse_text(value) is None):
                continue  # when it ends is not told
            if empty(value) or not _later(value, last.wall + (last.end - last.fwd), last.wall):
                return f"the hold may have ended by itself: the row has {name}"
    return ""


def _content(timeline: Timeline, row: Row) -> Mapping[str, Any]:
    content = timeline.row_at(row, len(timeline.shots) - 1) if timeline.shots else None
    return content if isinstance(content, Mapping) else {}


def _later(value: Any, instant: int, near: int) -> bool:
    found = parse_text(value) if isinstance(value, str) else None
    if found is None and isinstance(value, str | int):
        found = parse_number(value, near)
    return found is not None and found.at > instant
