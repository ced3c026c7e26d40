"""Which snapshots of two episodes are to be equal, and which pairs of them were read at one point of the story."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from replayproxy.core.values import Exchange, Snapshot, SnapshotStatus

_ASIDE = frozenset({"before-restore", "probe"})
_UNDECLARED = "undeclared"  # the start of an episode that nobody had declared cannot have been read


@dataclass(slots=True)
class Matched:
    """Which snapshots of two episodes are to be equal, and why some are not compared."""

    pairs: list[tuple[Snapshot, Snapshot, int]] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class Progress:
    """How far each lane's writes had come at an instant: the same in both runs where two readings may be compared."""

    def __init__(self, writes: Sequence[tuple[str, Exchange]]) -> None:
        self._ends: dict[str, list[int]] = {}
        self._heads: dict[str, list[int]] = {}
        for lane, exchange in writes:
            end = exchange.times.up_end or exchange.times.c_out or exchange.times.head
            self._heads.setdefault(lane, []).append(exchange.times.head)
            self._ends.setdefault(lane, []).append(end)
        for ends in self._ends.values():
            ends.sort()

    def at(self, snapshot: Snapshot) -> Mapping[str, int] | None:
        """The number of writes done in each lane; None while one was in flight."""
        done = {lane: bisect_right(ends, snapshot.begun) for lane, ends in self._ends.items()}
        begun = {lane: bisect_right(heads, snapshot.done) for lane, heads in self._heads.items()}
        return done if done == begun and snapshot.status is not SnapshotStatus.TORN else None


def match_snapshots(
    a: Sequence[Snapshot], b: Sequence[Snapshot], index_a: Mapping[int, int], index_b: Mapping[int, int]
) -> Matched:
    """`index_a[seq]` is the pair that an exchange of A belongs to; an unpaired one is not there."""
    out = Matched()
    left, right = _keyed(a, index_a), _keyed(b, index_b)
    names_a, names_b = {s.name for s in a}, {s.name for s in b}
    for name in sorted(names_a ^ names_b):
        side = "A" if name in names_a else "B"
        out.notes.append(f"state of {name} not compared: only {side} has snapshots of it")
    lost: set[str] = set()
    for key in dict.fromkeys((*left, *right)):
        (name, *_), x, y = key, left.get(key), right.get(key)
        if name not in names_a & names_b:
            continue
        if x is None or y is None:
            out.undecided.append(f"snapshot {_named(x or y)} is only in {'B' if x is None else 'A'}")
        elif x.root is None or y.root is None:
            which = "both sides" if x.root is None and y.root is None else "A" if x.root is None else "B"
            text = f"snapshot {_named(x)} is missing on {which}: {x.reason or y.reason}"
            (out.notes if which == "both sides" else out.undecided).append(text)
            if which == "both sides" and {x.reason, y.reason} != {_UNDECLARED}:
                lost.add(name)
        else:
            out.pairs.append((x, y, key[3]))
    told = {pair[0].name for pair in out.pairs}
    for name in sorted(lost - told):
        out.undecided.append(f"state of {name} not compared: no snapshot of it is on both sides")
    out.pairs.sort(key=lambda pair: (pair[0].name, pair[2], pair[0].n))
    return out


def _keyed(snapshots: Sequence[Snapshot], index: Mapping[int, int]) -> dict[tuple[str, str, str, int, int], Snapshot]:
    out: dict[tuple[str, str, str, int, int], Snapshot] = {}
    seen: dict[tuple[str, str, str, int], int] = {}
    for snapshot in snapshots:
        if snapshot.when in _ASIDE:
            continue
        after = -1
        if snapshot.after_seq is not None and snapshot.when == "write":
            if snapshot.after_seq not in index:
                continue  # it followed an exchange that only one side has: there is nothing to compare it with
            after = index[snapshot.after_seq]
        elif snapshot.when != "start":
            after = max(index.values(), default=-1)
        key = (snapshot.name, snapshot.when, snapshot.label, after)
        seen[key] = seen.get(key, -1) + 1
        out[(*key, seen[key])] = snapshot
    return out


def _named(snapshot: Snapshot | None) -> str:
    assert snapshot is not None
    after = f" after #{snapshot.after_seq}" if snapshot.when == "write" and snapshot.after_seq else ""
    return f"{snapshot.name} at {snapshot.label or snapshot.when}{after} (s{snapshot.n})"
