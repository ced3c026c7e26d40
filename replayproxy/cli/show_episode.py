"""`show RUN/EPISODE`: the dialogue, one line an exchange, with what it did to the state."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from replayproxy.cli.common import count, safe
from replayproxy.cli.moments import duration, moment
from replayproxy.cli.show_talk import talk_summary
from replayproxy.core import jsonvalue
from replayproxy.core.annotation import value_of
from replayproxy.core.identity import CONTRADICTION
from replayproxy.core.values import UNATTRIBUTED, Outcome, Row, RowChange, Snapshot, SnapshotStatus
from replayproxy.session.portrait import Change, Line, Portrait, differing, snapshot_json

TARGET_WIDTH = 24
WIDTH = 100
INDENT = " " * 26
VALUE_WIDTH = 60


def episode_text(seen: Portrait, *, all_changes: bool) -> Iterator[str]:
    """Streams, however long the episode is. `all_changes`: every row that a snapshot shows changed, not the first."""
    yield _head(seen)
    yield from _aliases(seen)
    yield from _annotated(seen)
    yield from (f"fault  {safe(fault)}" for fault in seen.episode.faults)
    yield from _shots(seen, "start", "before-restore")
    yield f"{'#':>4}  {'LANE':<8} {'AT':>7}  {'REQUEST':<{TARGET_WIDTH + 12}} ANSWER       STATE"
    total = 0
    for line in seen.lines:
        total += 1
        yield _line(line)
        if all_changes:
            for change in line.changes:
                yield from (f"{'':>15}{text}" for text in change_lines(change))
    yield from _shots(seen, "end", "mark", "probe")
    yield f"{count(total, 'exchange')}, {count(len(seen.snapshots), 'snapshot')}        {_next(seen, all_changes)}"


def _head(seen: Portrait) -> str:
    e = seen.episode
    task = " ".join(
        part for part in (
            safe(e.task) if e.task else "", f"seed {e.seed}" if e.seed is not None else "",
            f"attempt {e.attempt}" if e.attempt is not None else "",
        ) if part
    )  # fmt: skip
    more = [f"{safe(name)} {safe(str(value))}" for name, value in (*e.meta.items(), *e.instance.items())]
    reward = [] if e.reward is None else [f"reward {e.reward:.2f}"]
    ended = e.state.value + (f" ({e.ended_by})" if e.ended_by else "")
    verdict = seen.verdict.upper() + (f" by {', '.join(seen.findings)}" if seen.findings else "")
    verdict += f" after {safe(seen.after)}, which began dirty" if seen.after and not seen.findings else ""
    parts = [f"{safe(seen.run.name)}/{safe(e.name)}", task, *more, *reward, ended, f"verdict {verdict}"]
    return "   ".join(filter(None, parts))


ALIASES_SHOWN = 8


def _aliases(seen: Portrait) -> Iterator[str]:
    aliases = seen.episode.aliases
    if not aliases:
        return
    named = ", ".join(f"{safe(space)} {_cut(safe(value), 40)}" for space, value in aliases[:ALIASES_SHOWN])
    more = len(aliases) - ALIASES_SHOWN
    yield f"alias  {named}{f' and {more:,} more' if more > 0 else ''}"


def _annotated(seen: Portrait) -> Iterator[str]:
    """What was said of the episode after it was sealed, with what the recording was told."""
    annotated = seen.episode.annotated
    for name, told in annotated.get("said", {}).items():
        now = value_of(seen.episode, name)
        recorded = "nothing" if told is None else _cut(safe(str(told)), VALUE_WIDTH)
        yield (
            f"annotated  {safe(name)} {_cut(safe(str(now)), VALUE_WIDTH)}, recorded: {recorded}"
            f"   from {safe(str(annotated.get('source', '')))}, {moment(int(annotated.get('wall', 0)))}"
        )


def _shots(seen: Portrait, *when: str) -> Iterator[str]:
    for shot in seen.snapshots:
        if shot.when in when:
            notes = [safe(seen.notes[shot.n])] if shot.n in seen.notes else []
            yield _noted(f"{shot.when:<5}  {shot_text(shot)}", notes)


def shot_text(shot: Snapshot) -> str:
    """A snapshot in a few words."""
    if shot.status is SnapshotStatus.MISSING:
        what = f"MISSING: {safe(shot.reason)}"
    else:
        what = f"{(shot.root or b'').hex()[:4]}  {count(shot.rows, 'row')}"
        if shot.status is SnapshotStatus.TORN:
            what += "  TORN: read while " + ", ".join(f"#{seq}" for seq in shot.in_flight_seq) + " was in flight"
    label = f" {safe(shot.label)}" if shot.label else ""
    late = "  late" if shot.late else ""
    shared = f"  shared with {', '.join(map(safe, shot.shared_with))}" if shot.shared_with else ""
    return f"s{shot.n}  {safe(shot.name)}{label}  {what}{late}{shared}"


def _line(line: Line) -> str:
    x = line.exchange
    asked = f"{safe(x.request.method):<6} {safe(x.env)} {_cut(safe(x.request.target), TARGET_WIDTH)}"
    status = str(x.response.status) if x.response else "-"
    beside = ["| side by side"] if line.beside else []
    notes = [*map(safe, line.notes), *beside, *(change_text(change) for change in line.changes)]
    if x.websocket is not None:
        notes.insert(0, talk_summary(x.websocket, x.outcome))
    if x.outcome is not Outcome.ANSWERED:
        notes.insert(0, x.outcome.value)
    if x.is_reset or x.is_probe:
        notes.append("reset" if x.is_reset else "probe")
    notes += [safe(note) for note in x.notes if note.startswith(CONTRADICTION)]
    answer = f"{status:>3} {duration(line.took_ns):>7}"
    at = f"{line.at_ns / 1e9:7.2f}"
    return _noted(f"{x.seq:>4}  {safe(x.lane):<8} {at}  {asked:<{TARGET_WIDTH + 12}} {answer}", notes)


def _noted(line: str, notes: Sequence[str]) -> str:
    """With its notes behind it as far as there is room, the others below."""
    below: list[str] = []
    for note in filter(None, notes):
        if below or len(line) + len(note) + 2 > WIDTH:
            below.append(note)
        else:
            line += f"  {note}"
    return line + "".join(f"\n{text}" for text in textwrap.wrap(
        "  ".join(below), WIDTH, initial_indent=INDENT, subsequent_indent=INDENT, break_long_words=False,
        break_on_hyphens=False, drop_whitespace=True,
    ))  # fmt: skip


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width // 2] + "…" + text[-(width - width // 2 - 1) :]


def change_text(change: Change) -> str:
    """A change of state in one line: its first row, and how many more there are."""
    if not change.rows:
        return ""
    more = f"{len(change.rows):,}{' or more' if change.more else ''} rows"
    return row_text(change.rows[0], first=True) + (f"  ({more})" if len(change.rows) > 1 else "")


def row_text(row: RowChange, *, first: bool = False) -> str:
    """`deals/42 /stage lead -> won`; `first`: only the first pointer that differs."""
    where = f"{safe(row.table)}/{safe(row.key)}"
    if row.before is None or row.after is None:
        return f"{where} {'new' if row.before is None else 'gone'}"
    found = [f"{safe(path)} {value(a)} -> {value(b)}" for path, a, b in differing(row)]
    if first and len(found) > 1:
        return f"{where} {found[0]} (+{len(found) - 1})"
    return f"{where} {', '.join(found)}"


def value(row: Row | None, width: int | None = VALUE_WIDTH) -> str:
    """A JSON value, or bytes, on one line; cut to `width` when there is one."""
    text = safe(row if isinstance(row, bytes) else jsonvalue.canonical(row))
    return text if width is None else _cut(text, width)


def change_lines(change: Change) -> Iterator[str]:
    """Every row of a change."""
    rows = count(len(change.rows), "row")
    yield f"s{change.before.n} -> s{change.after.n}  {safe(change.after.name)}  {rows} changed"
    for row in change.rows:
        yield f"  {row_text(row)}"
    if change.more:
        yield "  and more"


def _next(seen: Portrait, all_changes: bool) -> str:
    address = f"{seen.run.name}/{seen.episode.name}"
    if seen.episode.name == UNATTRIBUTED:
        return f"next: replayproxy show '{safe(address)}#1'"
    if seen.findings:
        return f"next: replayproxy show {seen.findings[0]}"
    return f"next: replayproxy show '{safe(address)}#1'" + ("" if all_changes else "   --state")


def episode_json(seen: Portrait) -> dict[str, Any]:
    """What the table shows, and the names of interface."""
    e = seen.episode
    return {
        "run": seen.run.name, "episode": e.name, "task": e.task, "seed": e.seed, "attempt": e.attempt,
        "group": e.group, "meta": dict(e.meta), "instance": dict(e.instance), "state": e.state.value,
        "ended_by": e.ended_by, "reward": e.reward, "outcome": e.outcome, "faults": list(e.faults),
        "declared": e.declared, "escaping_links": e.escaping_links, "opened_wall": e.opened_wall,
        "verdict": seen.verdict, "findings": list(seen.findings), "aliases": [list(one) for one in e.aliases],
        "annotated": dict(e.annotated) or None,
        "snapshots": [snapshot_json(seen.run, e, shot) for shot in seen.snapshots],
        "exchanges": [line_json(line) for line in seen.lines],
    }  # fmt: skip


def line_json(line: Line) -> dict[str, Any]:
    x = line.exchange
    return {
        "seq": x.seq, "lane": x.lane, "env": x.env, "method": safe(x.request.method), "target": safe(x.request.target),
        "status": x.response.status if x.response else None, "outcome": x.outcome.value,
        "at_ns": line.at_ns, "took_ns": line.took_ns, "held_ns": x.held_ns, "carrier": x.carrier,
        "request_bytes": x.request.body.size if x.request.body else None,
        "response_bytes": x.response.body.size if x.response and x.response.body else None,
        "side_by_side": line.beside, "notes": list(x.notes), "findings": list(line.notes), "error": x.error,
        "is_reset": x.is_reset, "is_probe": x.is_probe,
        "changes": [{"to": f"s{c.after.n}", "rows": len(c.rows), "more": c.more} for c in line.changes],
    }  # fmt: skip
