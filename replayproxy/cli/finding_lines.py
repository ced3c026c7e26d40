"""The evidence of a finding, a line each: what was asked, when, what it did or showed, and a drawing of the order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from replayproxy.cli.common import columns, safe
from replayproxy.cli.drawing import WIDTH as DRAWN
from replayproxy.cli.drawing import Bar, draw
from replayproxy.cli.moments import clock
from replayproxy.cli.shorten import cut, short
from replayproxy.session.evidence import Evidence, Item

COLUMNS = 100
WHAT_LEAST = 14
"""Columns that what happened needs beside the drawing; with less, the drawing stands below it."""


def evidence_lines(finding: Mapping[str, Any], seen: Evidence) -> list[str]:
    """Each exchange and snapshot on a line of its own, with a drawing of when it was."""
    if not seen.items:
        return []
    run = str(finding.get("run") or "")
    bars = [Bar(label=item.role, begun=item.begun, done=item.done) for item in seen.items]
    drawn = draw(bars, _marker(seen.items))
    rows = [
        (cut(_address(item.address, run), 22), item.role if item.snapshot is None else "state", cut(_asked(item), 26),
         _status(item), clock(item.wall) if item.wall else "")
        for item in seen.items
    ]  # fmt: skip
    left = columns(rows)
    width = max(map(len, left))
    room = COLUMNS - 2 - width - 2 - 2 - (DRAWN + 2)
    what = [_what(item, finding, seen.row) for item in seen.items]
    if room < WHAT_LEAST:
        room = COLUMNS - 2 - width - 2
        head = [f"{line:<{width}}  {_fitting(one, room)}".rstrip() for line, one in zip(left, what, strict=True)]
        return [*head, *(f"{'':{width - DRAWN - 2}}{one}" for one in drawn)]
    told = [_fitting(one, room) for one in what]
    room = max(map(len, told))
    return [
        f"{line:<{width}}  {text:<{room}}  {one}" for line, text, one in zip(left, told, drawn, strict=True)
    ]  # fmt: skip


def _fitting(ways: Sequence[str], room: int) -> str:
    """The first way to say it that fits, else the last one, cut."""
    return next((way for way in ways if len(way) <= room), cut(ways[-1], room))


def _marker(items: Sequence[Item]) -> int | None:
    """The end of the write, where something begins only after it: from then on its value holds."""
    ends = [item.done for item in items if item.role == "write" and item.done is not None]
    if not ends:
        return None
    end = max(ends)
    return end if any(item.begun is not None and item.begun > end for item in items) else None


def _address(address: str, run: str) -> str:
    """`EPISODE/SEQ`, short of the run that the finding is of."""
    return safe(address.removeprefix(f"{run}/").replace("#", "/"))


def _asked(item: Item) -> str:
    if item.snapshot is not None:
        return f"snapshot {safe(item.snapshot.name)}, {item.snapshot.when}"
    told = item.witness or {}
    return f"{safe(str(told.get('method', '')))} {safe(str(told.get('target', '')))}".strip()


def _status(item: Item) -> str:
    if item.exchange is not None:
        return str(item.exchange.response.status) if item.exchange.response else item.exchange.outcome.value
    status = (item.witness or {}).get("status")
    return "" if status is None else str(status)


def _what(item: Item, finding: Mapping[str, Any], row: str) -> tuple[str, ...]:
    """What it did, showed, or held: in full, then shorter."""
    column = str(finding.get("pointer") or "").rpartition("/")[2]
    if item.snapshot is not None:
        return _held(item, row, column)
    told = item.witness or {}
    if told.get("pointer"):
        pointer, value = safe(str(told["pointer"])), short(told.get("value"))
        return f"{pointer} = {value}", f"/{pointer.rpartition('/')[2]} = {value}", f"= {value}"
    if told.get("role") == "write" and told.get("value") is not None:
        return (f"wrote {short(told['value'])}",)
    if told.get("role") == "write" and row:
        return f"wrote {row}", f"wrote {row.rpartition('/')[2]}"
    return ("",)


def _held(item: Item, row: str, column: str) -> tuple[str, ...]:
    if item.snapshot is not None and item.snapshot.root is None:
        return (f"missing: {safe(item.snapshot.reason)}", "missing")
    if not item.has_row:
        return ("",)
    if item.row is None:
        return f"no {safe(row)}", "no such row"
    if isinstance(item.row, dict) and column in item.row:
        value = short(item.row[column])
        return f"{safe(row)} /{safe(column)} {value}", f"/{safe(column)} {value}", f"has {value}"
    return f"has {safe(row)}", "has the row"
