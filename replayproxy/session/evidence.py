"""What a finding rests on, read again from the store: its exchanges, its snapshots, the row that it is about."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from replayproxy.core import jsonvalue, prolly
from replayproxy.core.canonical import VIEW_LIMIT
from replayproxy.core.values import Episode, Exchange, Row, Run, Snapshot
from replayproxy.detect.states import DOCUMENT, opened, starts
from replayproxy.errors import DamagedRecord, UnknownAddress
from replayproxy.storage import Reader

MOST_STARTS = 2000
"""Starts of the same task and seed that are compared."""

SAME_CLOCK_NS = 600 * 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One line of the evidence: an exchange or a snapshot. `begun` and `done` are instants of one clock for all items
    (None: not known, or not yet). `witness`: the finding's own word for an exchange. `row`: what the snapshot holds of
    the row that the finding is about (None: nothing; `has_row` False: it is about none)."""

    address: str
    role: str
    begun: int | None
    done: int | None
    wall: int | None
    run: Run | None = None
    episode: Episode | None = None
    exchange: Exchange | None = None
    snapshot: Snapshot | None = None
    witness: Mapping[str, Any] | None = None
    row: Row | None = None
    has_row: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The other starts of the task and seed, of which so many have the row as the victim's start had it."""

    task: str | None
    seed: int | None
    wall: int | None  # when the row was written; None: it is not known
    before: tuple[int, int]
    since: tuple[int, int]

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """In the order of time."""

    items: tuple[Item, ...]
    row: str
    compared: Compared | None


def evidence(reader: Reader, finding: Mapping[str, Any]) -> Evidence:
    """What is no longer in the store is told by what the finding itself says of it."""
    row = about(finding)
    items = [_exchange(reader, witness) for witness in finding.get("exchanges") or ()]
    items += [item for at in finding.get("snapshots") or () if (item := _snapshot(reader, str(at), row)) is not None]
    timed = sorted(_on_one_clock(items), key=lambda item: (item.begun is None, item.begun or 0))
    return Evidence(items=tuple(timed), row="/".join(row) if row else "", compared=_compared(reader, finding, row))


def about(finding: Mapping[str, Any]) -> tuple[str, str] | None:
    """Table and key of the row that a finding is about."""
    effect = finding.get("effect") or {}
    named = effect.get("row") or next(iter(effect.get("rows") or ()), None)
    if not isinstance(named, str) or "/" not in named:
        return None
    table, _, key = named.partition("/")
    return table, key


def place(reader: Reader, address: str) -> tuple[Run, Episode, str] | None:
    """What RUN/EPISODE#SEQ or RUN/EPISODE/sN names, and its last part; None where it is not there."""
    try:
        found = reader.resolve(address)
    except (UnknownAddress, DamagedRecord):
        return None
    if found.episode is None:
        return None
    return found.run, found.episode, str(found.seq if found.seq is not None else found.snapshot)


def _exchange(reader: Reader, witness: Mapping[str, Any]) -> Item:
    address = str(witness.get("address") or "")
    told = Item(
        address=address, role=str(witness.get("role") or ""), begun=witness.get("fwd"), done=witness.get("up_end"),
        wall=witness.get("wall"), witness=witness,
    )  # fmt: skip
    at = place(reader, address)
    if at is None:
        return told
    run, episode, seq = at
    try:
        exchange = reader.exchange(episode, int(seq), bodies=VIEW_LIMIT)
    except (UnknownAddress, DamagedRecord, ValueError):
        return told
    t = exchange.times
    return Item(
        address=address, role=told.role, begun=t.fwd or t.head, done=t.up_end or t.c_out, wall=t.wall, run=run,
        episode=episode, exchange=exchange, witness=witness,
    )  # fmt: skip


def _snapshot(reader: Reader, address: str, row: tuple[str, str] | None) -> Item | None:
    at = place(reader, address)
    if at is None:
        return None
    run, episode, n = at
    shot = next((shot for shot in reader.snapshots(episode) if str(shot.n) == n), None)
    if shot is None:
        return None
    return Item(
        address=address, role=f"s{shot.n}", begun=shot.begun, done=shot.done, wall=shot.wall, run=run, episode=episode,
        snapshot=shot, row=None if row is None else row_of(reader, shot, *row),
        has_row=row is not None and shot.root is not None,
    )  # fmt: skip


def row_of(reader: Reader, shot: Snapshot, table: str, key: str) -> Row | None:
    """A row of a snapshot; None: it is not there, or cannot be read."""
    return None if shot.root is None else row_at(reader, shot.root, table, key)


def row_at(reader: Reader, root: bytes, table: str, key: str) -> Row | None:
    """A row of a state; of one that is an opaque document, as findings name its parts."""
    try:
        found = prolly.row(root, table, key, reader.node)
        if found is None and prolly.row(root, DOCUMENT, "", reader.node) is not None:
            return opened(prolly.rows(root, reader.node)).get(table, {}).get(key)
    except (ValueError, DamagedRecord):
        return None
    return found


def _on_one_clock(items: list[Item]) -> Iterator[Item]:
    """As they are, if their monotonic and wall clocks tell the same distance; else by the wall clock."""
    offsets = [item.wall - item.begun for item in items if item.wall is not None and item.begun is not None]
    if not offsets or max(offsets) - min(offsets) <= SAME_CLOCK_NS:
        yield from items
        return
    for item in items:
        took = None if item.begun is None or item.done is None else item.done - item.begun
        done = None if item.wall is None or took is None else item.wall + took
        yield Item(**{name: getattr(item, name) for name in Item.__slots__} | {"begun": item.wall, "done": done})


def _compared(reader: Reader, finding: Mapping[str, Any], row: tuple[str, str] | None) -> Compared | None:
    """Only for what an episode began with: the finding names its start snapshot, and a row of it. A finding that was
    handed on alone says itself how the starts compared that it left behind."""
    told = finding.get("compared")
    if isinstance(told, Mapping):
        return Compared(
            task=told.get("task"), seed=told.get("seed"), wall=told.get("wall"), before=_pair(told.get("before")),
            since=_pair(told.get("since")),
        )  # fmt: skip
    at = place(reader, str(next(iter(finding.get("snapshots") or ()), "")))
    if at is None or row is None or finding.get("kind") not in ("state-bleed", "dirty-reset"):
        return None
    run, episode, n = at
    shot = next((shot for shot in reader.snapshots(episode) if str(shot.n) == n), None)
    if shot is None or shot.when != "start" or (episode.task is None and episode.seed is None):
        return None
    here = _key(row_of(reader, shot, *row))
    writes = [w.get("wall") for w in finding.get("exchanges") or () if w.get("role") == "write" and w.get("wall")]
    wall = min(writes, default=None)
    counts = {False: [0, 0], True: [0, 0]}
    others = [e for e in reader.episodes(run) if (e.task, e.seed) == (episode.task, episode.seed)]
    for other in others[:MOST_STARTS]:
        start = starts(reader.snapshots(other)).get(shot.name) if other.key != episode.key else None
        if start is not None and start.root is not None:
            side = counts[wall is not None and start.wall > wall]
            side[0] += _key(row_of(reader, start, *row)) == here
            side[1] += 1
    (b, b_of), (s, s_of) = counts[False], counts[True]
    return Compared(task=episode.task, seed=episode.seed, wall=wall, before=(b, b_of), since=(s, s_of))


def _pair(told: Any) -> tuple[int, int]:
    return (int(told[0]), int(told[1])) if isinstance(told, list | tuple) and len(told) == 2 else (0, 0)


def _key(row: Row | None) -> bytes:
    return b"" if row is None else jsonvalue.canonical(row)
