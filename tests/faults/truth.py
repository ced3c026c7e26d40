"""From the ledger to the faults that occurred and that somebody outside could see: one unit for each.

A unit is what one good finding would tell. What is counted as occurred is stated here, rule by rule:

stale reads      an answer held a value that the cell surely held at no instant between the sending of the request
                 and the end of the answer. All such answers of an episode that missed the same write are one unit.
bleed, resets    an episode whose start snapshot surely showed, or one of whose answers showed, what the right start
                 of its task and seed has not. All of one episode are one unit.
hidden bleed     an answer that held what another episode had left in the process. All of one episode are one unit.
races            in an episode: a row that was given to more than there was room for; a row of which an acknowledged
                 change was written over by a request that had read it before; a request that was done twice although
                 its key said that it was the same; one that was answered 500 and done.
other answers    an episode with an answer other than the one that most of its siblings had at that place (of equals,
                 the one first recorded), of those that had been answered alike in the lane until then. All of one
                 episode are one unit, by the first such place of each lane.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from replayproxy.core.values import Exchange
from replayproxy.detect.finding import Kind
from replayproxy.detect.states import starts
from tests.faults.claims import Claim, Place, marks, numbered
from tests.faults.ledger import Act, Ledger, all_acts, episode_of, lane_of, number_of
from tests.faults.rig import Recorded


@dataclass(slots=True, kw_only=True)
class Unit:
    """One fault as it fell on one episode. `shown`: the exchanges that showed it; `made`: those that had a part in
    making it; `cells`: key and column of all that is wrong ("" stands for the whole row); `kinds`: what it may be
    called."""

    episode: str
    kinds: frozenset[Kind]
    shown: set[Place] = field(default_factory=set)
    made: set[Place] = field(default_factory=set)
    cells: set[tuple[str, str]] = field(default_factory=set)
    spots: set[str] = field(default_factory=set)

    def met_by(self, claim: Claim) -> bool:
        """Whether the claim is about this fault, names a right exchange and a right cell."""
        if claim.finding.episode != self.episode or not self._right_exchanges(claim):
            return False
        if self.spots and not self.cells:
            return True  # no cell of the state: the exchange says it all
        return any(key in claim.rows and (column in ("", "*") or column in claim.columns) for key, column in self.cells)

    def _right_exchanges(self, claim: Claim) -> bool:
        if claim.reads and not self.shown.intersection(claim.reads):
            return False
        if not claim.reads and self.kinds <= {Kind.STALE_READ, Kind.NONDETERMINISM}:
            return False
        return not claim.writes or not self.made or bool(self.made.intersection(claim.writes))


def units(recorded: Recorded) -> list[Unit]:
    """The faults that occurred in a cell of the matrix; of a look-alike none."""
    plan, exchanges = recorded.plan, numbered(recorded.traces)
    if plan.control:
        return []
    by_mark, found = marks(exchanges), list[Unit]()
    if plan.row == "a" or plan.fault.startswith("masked"):
        found += _answers(recorded, by_mark)
    for ledger in recorded.ledgers:
        if plan.row == "b" or plan.fault in ("stale+race", "old-time"):
            found += _stale(ledger, exchanges)
        if plan.row == "d" or plan.fault == "stale+race":
            found += _raced(ledger, by_mark)
    if plan.row in ("c", "f") or plan.fault in ("bleed+reset", "unseeded-time", "unseeded-id"):
        found += _starts_and_flows(recorded, by_mark, by_table=plan.row == "two")
    return found


def _stale(ledger: Ledger, exchanges: Mapping[Place, Exchange]) -> Iterator[Unit]:
    by_mark = marks(exchanges)
    found: dict[tuple[str, str, tuple[str, str]], Unit] = {}
    for act in ledger.acts:
        place = by_mark.get(act.mark)
        if place is None or act.cell is None or number_of(act.mark) == 0 or act.by:
            continue
        fwd, end = exchanges[place].times.fwd, exchanges[place].times.up_end
        if fwd is None or end is None or ledger.could_hold(act.cell, act.given, fwd, end):
            continue
        version = ledger.overwriter(act.cell, act.given, fwd)
        missed = version.mark if version else ""
        unit = found.setdefault(
            (place[0], missed, act.cell.row), Unit(episode=place[0], kinds=frozenset({Kind.STALE_READ}))
        )
        unit.shown.add(place)
        unit.cells.add((act.cell.key, act.cell.column))
    yield from found.values()


def _raced(ledger: Ledger, by_mark: Mapping[str, Place]) -> Iterator[Unit]:
    found: dict[tuple[str, object], Unit] = {}
    for act in ledger.acts:
        place = by_mark.get(act.mark)
        if place is None or act.cell is None or _is_reading(act):
            continue
        # A request that was done twice made two rows: one fault. What was lost or given twice is one by its row.
        about = act.mark if act.cell.column == "" else act.cell.row
        unit = found.setdefault(
            (place[0], about), Unit(episode=place[0], kinds=frozenset({Kind.RACE, Kind.LOST_UPDATE}))
        )
        unit.shown |= {place, *(by_mark[mark] for mark in act.by if mark in by_mark)}
        unit.cells.add((act.cell.key, act.cell.column))
    yield from found.values()


def _is_reading(act: Act) -> bool:
    """Whether the act is an answer that showed something else than was held, and not a write."""
    return act.cell is not None and not act.by and (act.right is not None or act.given is not None)


def _starts_and_flows(recorded: Recorded, by_mark: Mapping[str, Place], *, by_table: bool = False) -> Iterator[Unit]:
    """`by_table`: what is wrong in each table is a fault of its own."""
    found: dict[tuple[str, str], Unit] = {}
    snapshots = {t.episode.name: list(starts(t.snapshots).values()) for t in recorded.traces}
    for ledger in recorded.ledgers:
        for act in ledger.acts:
            episode = episode_of(act.mark)
            if act.cell is None and act.mark in by_mark:
                kinds = {Kind.STATE_BLEED, Kind.NONDETERMINISM}
                at = episode, act.cell.table if by_table and act.cell else ""
                unit = found.setdefault(at, Unit(episode=episode, kinds=frozenset(kinds)))
                unit.spots.add(act.spot)
            elif act.cell is not None and (act.mark in by_mark or _in_start(ledger, act, snapshots.get(episode, ()))):
                kinds = {Kind.STATE_BLEED, Kind.DIRTY_RESET}
                at = episode, act.cell.table if by_table and act.cell else ""
                unit = found.setdefault(at, Unit(episode=episode, kinds=frozenset(kinds)))
                unit.cells.add((act.cell.key, act.cell.column))
            else:
                continue
            if act.mark in by_mark:
                unit.shown.add(by_mark[act.mark])
            unit.made |= {by_mark[mark] for mark in act.by if mark in by_mark}
    yield from found.values()


def _in_start(ledger: Ledger, act: Act, shots: Sequence[object]) -> bool:
    """Whether a start snapshot surely showed what was wrong."""
    assert act.cell is not None
    cell = act.cell
    return any(not ledger.could_hold(cell, act.right, s.begun, s.done) for s in shots)  # type: ignore[attr-defined]


def _answers(recorded: Recorded, by_mark: Mapping[str, Place]) -> Iterator[Unit]:
    acts = {act.mark: act for act in all_acts(recorded.ledgers)}
    groups: dict[tuple[str | None, int | None], list[str]] = defaultdict(list)
    for trace in recorded.traces:
        groups[trace.episode.task, trace.episode.seed].append(trace.episode.name)
    for members in groups.values():
        odd: dict[str, Unit] = {}
        for lane in sorted({lane_of(mark) for mark in acts}):
            places = sorted({number_of(m) for m in acts if lane_of(m) == lane and episode_of(m) in members})
            for name, number in _parted(members, lane, places, acts):
                unit = odd.setdefault(name, Unit(episode=name, kinds=frozenset({Kind.NONDETERMINISM})))
                unit.shown.add(by_mark[f"{name}~{lane}~{number}"])
                unit.spots.add("*")
        yield from odd.values()


def _parted(
    members: Sequence[str], lane: str, places: Sequence[int], acts: Mapping[str, Act]
) -> Iterator[tuple[str, int]]:
    """Each episode with the first place at which it went another way than most of those that had been answered alike
    until then."""
    if not places or len(members) < 2:
        return
    told = {name: repr(a.given) if (a := acts.get(f"{name}~{lane}~{places[0]}")) else "" for name in members}
    counts = Counter(told.values())
    usual = max(told.values(), key=lambda value: counts[value])
    yield from ((name, places[0]) for name in members if told[name] != usual)
    alike = [name for name in members if told[name] == usual]
    yield from _parted(alike, lane, places[1:], acts)
