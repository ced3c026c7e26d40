"""What `show` tells of an episode: its exchanges one by one, with what each did to the state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from replayproxy.core import jsonvalue, prolly
from replayproxy.core.values import UNATTRIBUTED, Episode, Exchange, Row, RowChange, Run, Snapshot
from replayproxy.errors import StoreTrouble
from replayproxy.session.portrait_states import state_notes
from replayproxy.storage import Reader

MOST_CHANGES = 1000
"""Row changes that are counted between two snapshots; beyond it the number is given as at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What differs between a snapshot and the one before it of the same name. `more`: there are more than `rows`."""

    before: Snapshot
    after: Snapshot
    rows: tuple[RowChange, ...]
    more: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One exchange, its body not loaded. `at_ns`: since the episode began. `beside`: it overlaps a neighbour. `notes`:
    what findings say of it, or why no carrier gave it an episode."""

    exchange: Exchange
    at_ns: int
    took_ns: int | None
    beside: bool
    notes: tuple[str, ...]
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Portrait:
    """An episode to be shown. `lines` streams; it reads the store and can be read once."""

    run: Run
    episode: Episode
    verdict: str
    findings: tuple[str, ...]
    snapshots: tuple[Snapshot, ...]
    lines: Iterator[Line]
    notes: Mapping[int, str]  # snapshot number -> what is to be said of it
    after: str = ""  # the episode that suspicion came from


def portrait(reader: Reader, run: Run, episode: Episode) -> Portrait:
    """Raises DamagedRecord where the store is damaged, while `lines` is read too."""
    check = reader.check(run) or {}
    findings = list(enumerate(check.get("findings", ()), 1))
    last = reader.last_check()
    numbered = last is not None and last[0].key == run.key  # else F1 is of another run: the stable id says which
    mine = tuple(
        f"F{number}" if numbered else str(finding.get("id"))
        for number, finding in findings
        if finding.get("episode") == episode.name
    )
    shots = tuple(reader.snapshots(episode))
    return Portrait(
        run=run,
        episode=episode,
        verdict=str((check.get("verdicts") or {}).get(episode.name, "unknown")),
        findings=mine,
        snapshots=shots,
        lines=_lines(reader, episode, _roles(run, episode, findings), _changes_after(reader, shots)),
        notes=state_notes(reader, run, episode, shots, check),
        after=str((check.get("suspected_from") or {}).get(episode.name, "")),
    )


def _roles(run: Run, episode: Episode, findings: Sequence[tuple[int, Mapping[str, Any]]]) -> dict[int, list[str]]:
    """Exchange number -> what findings say of it: `F3 read`."""
    roles: dict[int, list[str]] = {}
    head = f"{run.name}/{episode.name}#"
    for number, finding in findings:
        for witness in finding.get("exchanges", ()):
            address = str(witness.get("address", ""))
            if address.startswith(head) and address[len(head) :].isdigit():
                roles.setdefault(int(address[len(head) :]), []).append(f"F{number} {witness.get('role', '')}".strip())
    return roles


def _changes_after(reader: Reader, shots: Sequence[Snapshot]) -> dict[int, list[tuple[Snapshot, Snapshot]]]:
    """Exchange number -> the snapshots that follow it, each with the one before of its name."""
    pairs: dict[int, list[tuple[Snapshot, Snapshot]]] = {}
    for before, after in successive(shots):
        if after.after_seq is not None:
            pairs.setdefault(after.after_seq, []).append((before, after))
    return pairs


def successive(shots: Sequence[Snapshot]) -> Iterator[tuple[Snapshot, Snapshot]]:
    """Every snapshot that has a state, with the one before it of the same name that has one."""
    last: dict[str, Snapshot] = {}
    for shot in shots:
        if shot.root is None or shot.when == "before-restore":
            continue
        if shot.name in last:
            yield last[shot.name], shot
        last[shot.name] = shot


def change(reader: Reader, before: Snapshot, after: Snapshot) -> Change:
    """What differs; both have a state."""
    assert before.root is not None
    assert after.root is not None
    try:
        rows = tuple(islice(prolly.diff(before.root, after.root, reader.node), MOST_CHANGES + 1))
    except ValueError as error:
        raise StoreTrouble(f"the state of s{before.n} or s{after.n} cannot be read: {error}") from error
    return Change(before=before, after=after, rows=rows[:MOST_CHANGES], more=len(rows) > MOST_CHANGES)


def _lines(
    reader: Reader,
    episode: Episode,
    roles: Mapping[int, Sequence[str]],
    pairs: Mapping[int, Sequence[tuple[Snapshot, Snapshot]]],
) -> Iterator[Line]:
    stream = reader.exchanges(episode)
    current = next(stream, None)
    first = current.times.head if current else 0
    start = min(episode.opened or first, first)  # a bucket that was gone on with was opened after its first exchange
    open_until = 0
    while current is not None:
        following = next(stream, None)
        end = _end(current)
        beside = current.times.head < open_until or (following is not None and following.times.head < end)
        open_until = max(open_until, end)
        yield Line(
            exchange=current,
            at_ns=current.times.head - start,
            took_ns=end - current.times.head or None,
            beside=beside,
            notes=(*roles.get(current.seq, ()), *([current.carrier] if episode.name == UNATTRIBUTED else ())),
            changes=tuple(change(reader, before, after) for before, after in pairs.get(current.seq, ())),
        )
        current = following


def _end(exchange: Exchange) -> int:
    t = exchange.times
    return t.c_out or t.up_end or t.first or t.head


def differing(change: RowChange) -> Iterator[tuple[str, Row | None, Row | None]]:
    """(pointer, before, after) of every scalar that differs in a row that was changed."""
    old, new = (dict(jsonvalue.leaves(row)) for row in (change.before, change.after))
    for path in dict.fromkeys((*old, *new)):
        before, after = old.get(path), new.get(path)
        if path not in old or path not in new or not _same(before, after):
            yield jsonvalue.pointer(*path), before, after


def _same(before: Row, after: Row) -> bool:
    if isinstance(before, bytes) or isinstance(after, bytes):
        return type(before) is type(after) and bool(before == after)
    return jsonvalue.same(before, after)


def snapshot_json(run: Run, episode: Episode, shot: Snapshot) -> dict[str, Any]:
    """A snapshot as `show --json` prints it."""
    return {
        "address": f"{run.name}/{episode.name}/s{shot.n}",
        "n": shot.n, "name": shot.name, "env": shot.env, "when": shot.when, "label": shot.label,
        "status": shot.status.value, "reason": shot.reason, "late": shot.late, "mode": shot.mode,
        "atomic": shot.atomic, "can_restore": shot.can_restore, "scope": shot.scope, "rows": shot.rows,
        "root": shot.root.hex() if shot.root else None, "begun": shot.begun, "done": shot.done, "wall": shot.wall,
        "after": shot.after_seq, "in_flight": list(shot.in_flight_seq), "shared_with": list(shot.shared_with),
    }  # fmt: skip


def change_json(change: Change) -> dict[str, Any]:
    return {
        "from": f"s{change.before.n}",
        "to": f"s{change.after.n}",
        "name": change.after.name,
        "more": change.more,
        "rows": [{"table": row.table, "key": row.key, "before": row.before, "after": row.after} for row in change.rows],
    }
