"""When is a read surely out of date? The rule for one register, exact about what overlapping intervals leave open.

A version is a write of the register: it took effect somewhere in [`inv`, `end`]; an `end` of `NEVER` is a write whose
answer never came. A version is surely overwritten at the instant D when a later version was established, or when a
trusted reading of the state showed something else. A read is stale only if *every* version that could have given its
value was surely overwritten before the read began. All comparisons are strict: a tie counts as overlap. Values that
nobody is known to have written give UNKNOWN, never a finding.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate
from typing import Any, NamedTuple

NEVER = 1 << 63
ALWAYS = -(1 << 63)


class Version(NamedTuple):
    """A write of the register with its value. `ref` is the caller's; None marks the version found at the beginning."""

    inv: int
    end: int
    value: str
    ref: Any = None


class Blind(NamedTuple):
    """A write that may have set the register, to a value nobody knows."""

    inv: int
    end: int


class Blinds:
    """Such writes by time: one index serves every cell of which the same writes say nothing."""

    def __init__(self, writes: Iterable[Blind] = ()) -> None:
        self.writes = sorted(writes)
        self.invs = [write.inv for write in self.writes]
        self.latest = list(accumulate((write.end for write in self.writes), max))  # end among the first i + 1 of them


class Reading(NamedTuple):
    """A read and the value it returned."""

    fwd: int
    up_end: int
    value: str
    ref: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """The snapshots of one state in order: the interval in which each was read."""

    begun: Sequence[int]
    done: Sequence[int]


NO_LINE = Line(begun=(), done=())


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """All that is known of one register. `runs`: (index of the first snapshot showing it, value), in order."""

    versions: Sequence[Version]
    blind: Blinds
    readings: Sequence[Reading]
    line: Line = NO_LINE
    runs: Sequence[tuple[int, str]] = ()


class State(Enum):
    CURRENT = "current"  # some instant of the read allows the value
    STALE = "stale"
    UNKNOWN = "unknown"  # nobody is known to have written the value, or the evidence contradicts itself


class Verdict(NamedTuple):
    """`delta`: a guaranteed lower bound, in ns, on how long the value had been overwritten when the read began.
    `by`: the version that overwrote it, or the index of the snapshot that showed it gone. `newer`: how many versions,
    at least, came after the last that the value can be from, and had taken effect before the read. `earliest`: when
    the first write began that can have given the value (`ALWAYS`: it may always have been there). `unexplained`: a
    snapshot shows of the register what no write is known to have set, only what one of unknown effect may have."""

    reading: Reading
    state: State
    delta: int = 0
    by: Version | None = None
    by_snapshot: int | None = None
    newer: int = 0
    earliest: int = ALWAYS
    unexplained: bool = False


def judge(history: History) -> list[Verdict]:
    """A verdict per reading, in their order. O((readings + versions) log versions), not counting equal values."""
    register = _Register(history)
    if register.contradicted():
        return [Verdict(reading=reading, state=State.UNKNOWN, unexplained=True) for reading in history.readings]
    unexplained = register.unexplained()
    return [register.verdict(reading)._replace(unexplained=unexplained) for reading in history.readings]


class _Gone(NamedTuple):
    """What is known of a value as a read returned it: the versions that can have given it were established by `last`,
    and all of them gone by `instant`."""

    last: int
    instant: int
    by: Version | None
    by_snapshot: int | None
    earliest: int


class _Register:
    def __init__(self, history: History) -> None:
        self.line = history.line
        self.runs = list(history.runs)
        self._run_starts = [index for index, _ in self.runs]
        found = []
        if self.runs:
            found = [Version(inv=ALWAYS, end=self.line.done[self.runs[0][0]], value=self.runs[0][1])]
        self.versions = sorted([*found, *history.versions], key=lambda version: version.inv)
        self.invs = [version.inv for version in self.versions]
        self.writers: dict[str, list[int]] = {}
        for index, version in enumerate(self.versions):
            self.writers.setdefault(version.value, []).append(index)
        self.blind = history.blind
        self.established = [version.end for version in self.versions]
        self._sightings(history.readings)
        self._index_killers()
        self._known: dict[tuple[str, int, int], _Gone] = {}

    def _sightings(self, readings: Sequence[Reading]) -> None:
        """Whoever showed a version proves that it had taken effect by then: if only one version can be meant."""
        for reading in readings:
            self._sighted(reading.value, reading.up_end)
        for index, value in self.runs:
            self._sighted(value, self.line.done[index])

    def _sighted(self, value: str, end: int) -> None:
        writers = self.writers.get(value)
        if writers is None or end >= self.established[writers[0]] or bisect_right(self.blind.invs, end):
            return
        if bisect_left(writers, bisect_right(self.invs, end)) == 1:
            self.established[writers[0]] = end

    def _index_killers(self) -> None:
        """`killer[i]`: of the versions from i on, the one that was established first."""
        self.killer: list[int] = [0] * len(self.versions)
        best = len(self.versions) - 1
        for index in range(len(self.versions) - 1, -1, -1):
            if self.established[index] <= self.established[best]:
                best = index
            self.killer[index] = best

    def overwritten(self, established: int, value: str) -> tuple[int, Version | None, int | None]:
        """The earliest instant at which a version of `value`, established by `established`, is surely gone; and why."""
        instant, by, by_snapshot = NEVER, None, None
        after = bisect_right(self.invs, established)
        if after < len(self.versions):
            killer = self.killer[after]
            instant, by = self.established[killer], self.versions[killer]
        shown = self._first_other(established, value)
        if shown is not None and self.line.done[shown] < instant:
            instant, by, by_snapshot = self.line.done[shown], None, shown
        return instant, by, by_snapshot

    def _first_other(self, after: int, value: str) -> int | None:
        """The first snapshot begun after the instant that shows another value."""
        if not self.runs:
            return None
        index = max(bisect_right(self.line.begun, after), self._run_starts[0])
        if index >= len(self.line.begun):
            return None
        run = bisect_right(self._run_starts, index) - 1
        if self.runs[run][1] != value:
            return index
        return self._run_starts[run + 1] if run + 1 < len(self.runs) else None

    def verdict(self, reading: Reading) -> Verdict:
        gone = self._gone(reading.value, reading.up_end)
        if gone is None:
            return Verdict(reading=reading, state=State.UNKNOWN)
        if gone.instant >= reading.fwd:
            return Verdict(reading=reading, state=State.CURRENT, earliest=gone.earliest)
        return Verdict(
            reading=reading, state=State.STALE, delta=reading.fwd - gone.instant, by=gone.by,
            by_snapshot=gone.by_snapshot, newer=self._newer(gone.last, reading.fwd), earliest=gone.earliest,
        )  # fmt: skip

    def _gone(self, value: str, until: int) -> _Gone | None:
        """Of a value that was read by an instant; None: nobody can have written it. Most reads of a cell share it."""
        writers = self.writers.get(value)
        if writers is None:
            return None
        possible = bisect_left(writers, bisect_right(self.invs, until))
        if not possible:
            return None
        blind = bisect_right(self.blind.invs, until)
        found = self._known.get((value, possible, blind))
        if found is None:
            last = max(self.established[i] for i in writers[:possible])
            if blind:
                # What overwrites the blind write that ended last has overwritten all of them.
                last = max(last, self.blind.latest[blind - 1])
            earliest = ALWAYS if blind else self.invs[writers[0]]
            found = _Gone(last, *self.overwritten(last, value), earliest)
            self._known[value, possible, blind] = found
        return found

    def _newer(self, last: int, before: int) -> int:
        """The versions that began after the instant `last` and were established before another. What a snapshot alone
        shows is one more version than none."""
        after = bisect_right(self.invs, last)
        return max(1, sum(established < before for established in self.established[after:]))

    def contradicted(self) -> bool:
        """Whether a snapshot shows what nobody wrote, or what was surely overwritten: a writer that we did not see,
        or snapshots that do not come from the system of record. Nothing is concluded then."""
        return any(self._impossible(index) for index in self._telling())

    def unexplained(self) -> bool:
        """Whether only a write of unknown effect can have made a snapshot show what it shows. Such a write is mostly
        about something else, and the value came back by somebody who does not pass the proxy: for each snapshot that
        shows such a return there may be others which were written over before the next snapshot."""
        return bool(self.blind.invs) and any(self._unexplained(index) for index in self._telling())

    def _unexplained(self, index: int) -> bool:
        value = self.runs[bisect_right(self._run_starts, index) - 1][1]
        writers = self.writers.get(value, ())
        possible = bisect_left(writers, bisect_right(self.invs, self.line.done[index]))
        if not possible:
            return True
        last = max(self.established[i] for i in writers[:possible])
        return self.overwritten(last, value)[0] < self.line.begun[index]

    def _telling(self) -> set[int]:
        """The snapshots that can contradict: both ends of each run, and the first one after each version."""
        telling = set(self._run_starts)
        ends = [*self._run_starts[1:], len(self.line.begun)]
        telling |= {end - 1 for end in ends}
        for established in self.established:
            index = bisect_right(self.line.begun, established)
            if self.runs and self._run_starts[0] <= index < len(self.line.begun):
                telling.add(index)
        return telling if self.runs else set()

    def _impossible(self, index: int) -> bool:
        value = self.runs[bisect_right(self._run_starts, index) - 1][1]
        done = self.line.done[index]
        gone = self._gone(value, done)
        if gone is None:
            return not bisect_right(self.blind.invs, done)
        return gone.instant < self.line.begun[index]
