"""`show F3 --state`: what differs between the snapshots of a finding, as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from replayproxy.cli.common import columns, count, safe
from replayproxy.cli.shorten import cut
from replayproxy.cli.show_episode import value
from replayproxy.core.values import RowChange
from replayproxy.errors import UnknownAddress
from replayproxy.session.evidence import about, place, row_at
from replayproxy.session.finding_states import StateDiff, state_diffs
from replayproxy.session.portrait import differing
from replayproxy.storage import Reader

ROWS_SHOWN = 40
CELL = 26


def finding_state_lines(reader: Reader, finding: Mapping[str, Any]) -> Iterator[str]:
    """A table for each pair of snapshots; one that nothing can be compared with is named. Raises UnknownAddress where
    the finding rests on none."""
    found = list(state_diffs(reader, finding))
    alone = [str(address) for address in finding.get("snapshots") or () if place(reader, str(address))]
    if not found and not alone:
        raise UnknownAddress(
            f"{finding.get('id')} rests on no snapshots that are in the store",
            hint=f"replayproxy show {finding.get('number') or 'FINDING'}",
        )
    if not found:
        yield f"{', '.join(map(safe, alone))}   with no other state to compare"
        yield f"next  replayproxy show '{safe(alone[0])}'"
    mine = about(finding)
    for at, diff in enumerate(found):
        if at:
            yield ""
        yield from _table(diff, mine)
        if mine is not None and mine not in {(row.table, row.key) for row in diff.rows}:
            held = row_at(reader, diff.root, *mine)
            shown = "in neither" if held is None else f"the same in both: {value(held, None)}"
            yield f"{safe('/'.join(mine))}   {shown}"


def _table(diff: StateDiff, mine: tuple[str, str] | None) -> Iterator[str]:
    more = " or more" if diff.more else ""
    verb = "differs" if len(diff.rows) == 1 else "differ"
    yield f"{safe(diff.before)} -> {safe(diff.after)}   {count(len(diff.rows), 'row')}{more} {verb}"
    if not diff.rows:
        return
    ordered = sorted(diff.rows, key=lambda row: (row.table, row.key) != mine)
    head = ("ROW", "COLUMN", cut(safe(diff.before), CELL), cut(safe(diff.after), CELL))
    yield from columns([head, *(cells for row in ordered[:ROWS_SHOWN] for cells in _cells(row))])
    if len(ordered) > ROWS_SHOWN:
        yield f"and {len(ordered) - ROWS_SHOWN:,} more rows        --json lists all"


def _cells(row: RowChange) -> Iterator[tuple[str, str, str, str]]:
    name = cut(safe(f"{row.table}/{row.key}"), 26)
    if row.before is None or row.after is None:
        held = row.after if row.before is None else row.before
        shown = value(held, CELL)
        yield (name, "(row)", "-", shown) if row.before is None else (name, "(row)", shown, "-")
        return
    for pointer, before, after in differing(row):
        yield name, cut(safe(pointer), 16), value(before, CELL), value(after, CELL)
        name = ""
