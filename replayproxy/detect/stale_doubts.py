"""Why a read that looks out of date may be right: what ended by itself, what somebody else is shown, who else writes.

Each is a lawful habit of services that the intervals of writes and reads cannot tell from a cache. None makes a finding
vanish: it says what keeps it from being proven.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from replayproxy.core.times import parse_number, parse_text
from replayproxy.detect.agreement import Agreement
from replayproxy.detect.jobs import by_itself, kind_of
from replayproxy.detect.ops import PRESENCE, Op
from replayproxy.detect.race_names import until
from replayproxy.detect.sights import Sight
from replayproxy.detect.stale_read import Stale
from replayproxy.detect.timeline import Timeline, cell

VIEWS = 2
"""So many values of a member another principal than the writer must have been shown as the state held them."""


def ran_out(timeline: Timeline, sight: Sight) -> str:
    """Whether the row says that it ended before the read did: a hold that ran out may be answered as if it were gone,
    while the state still holds it."""
    if not timeline.shows(sight.row):
        return ""
    last = sight.op.wall + (sight.op.end - sight.op.fwd)
    for index in timeline.near(sight.op.fwd, sight.op.end):
        content: Any = timeline.row_at(sight.row, index)
        for name in until(content):
            at = _instant(content[name], last)
            if at is not None and at <= last:
                return f"{sight.row.table}/{sight.row.key} had run out by its {name}, and may be shown so"
    return ""


def _instant(value: Any, near: int) -> int | None:
    found = parse_text(value) if isinstance(value, str) else None
    if found is None and isinstance(value, str | int):
        found = parse_number(value, near)
    return found.at if found is not None else None


def own_view(timeline: Timeline, stale: Stale, agreement: Agreement) -> str:
    """Whether the read is of another principal than the write, and nobody knows that both are shown the same: a draft
    is the editor's, a cart its owner's."""
    sight = stale.sight
    if sight.pair is None:
        return ""
    writers = [stale.writer] if stale.writer is not None else timeline.writes.all
    if all(op.who == sight.op.who for op in writers) or agreement.views(sight.pair, sight.op.who) >= VIEWS:
        return ""
    return "who asked is not who wrote, and may be shown another value: it was seen to follow the state too seldom"


def side_effect(timeline: Timeline, sight: Sight) -> str:
    """Whether the cell changed while nothing ran that is about its row, and not as a constant side effect either: then
    somebody who does not pass the proxy may write it, and put it back."""
    for change in timeline.changes:
        if change.row != sight.row or cell(change.before, sight.column) == cell(change.after, sight.column):
            continue
        if not by_itself(timeline, change):
            continue
        if change.by is None or not _constant(timeline, change.by, sight):
            return "a change of this cell came while no write of its row ran: a job of the environment's may write it"
    return ""


def _constant(timeline: Timeline, by: Op, sight: Sight) -> bool:
    """Whether writes of this kind, each alone, change this column of the table each time, and did so more than once."""
    kind = kind_of(by)
    seen: dict[bool, int] = defaultdict(int)
    did = {
        (change.by.episode, change.by.seq) for change in timeline.changes
        if change.by is not None and change.row.table == sight.row.table
        and cell(change.before, sight.column) != cell(change.after, sight.column)
    }  # fmt: skip
    for op in timeline.writes.closed:
        if (op.episode, op.seq) in timeline.accounted and op.ok and kind_of(op) == kind:
            seen[(op.episode, op.seq) in did] += 1
    return seen[True] > 1 and not seen[False] and sight.column != PRESENCE
