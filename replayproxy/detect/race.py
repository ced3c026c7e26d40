"""Races: what was granted to two, what was acknowledged and then lost, in what overlapped.

Looks at one state of one episode with the writes of every lane and episode beside it. A finding falls on the episode
whose exchange was wronged, the later of the two, and names both. What only the whole run can tell, whether the
environment refuses a second claim, is asked at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from replayproxy.detect.finding import Finding, Kind
from replayproxy.detect.lost_findings import lost_write
from replayproxy.detect.lost_write import Kept, Lost, look
from replayproxy.detect.ops import Op
from replayproxy.detect.race_capacity import Fulls, Over
from replayproxy.detect.race_capacity import over_capacity as over_capacity_in
from replayproxy.detect.race_claims import Refusals, claims
from replayproxy.detect.race_double import Double, doubles
from replayproxy.detect.race_findings import Told, double_claim, over_capacity, settled, settled_over
from replayproxy.detect.race_names import is_holder
from replayproxy.detect.timeline import Timeline

ALONE = "one lane only"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """A finding that waits for the end of the run. `settle`: what it is then; None: nothing."""

    settle: Callable[[], Finding | None]


class Races:
    """What the sweep collects. `why`: per kind and episode, why it was not looked for; "" it was."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._refusals = Refusals()
        self._fulls = Fulls()
        self._candidates: list[_Candidate] = []
        self._kept: set[Kept] = set()
        self.why: dict[Kind, dict[str, str]] = {Kind.RACE: {}, Kind.LOST_UPDATE: {}}

    def look(self, episode: str, timeline: Timeline, own: Sequence[Op]) -> None:
        """Judges one state of one episode, whose operations are `own`. Linear for an episode that ran alone."""
        lanes = {(op.episode, op.lane) for op in own} | {(op.episode, op.lane) for op in timeline.writes.all}
        told = Told(run=self._run, episode=episode, timeline=timeline, lanes=len(lanes))
        held = claims(timeline, timeline.writes.all)
        self._refusals.note(timeline, own, held)
        self._fulls.note(timeline, own)
        for (row, column), claimed in held.items():
            if len(claimed) > 1:
                for double in doubles(timeline, row, column, claimed):
                    self._double(told, double)
        if len(lanes) > 1 and timeline.shots and not timeline.too_much:
            for over in over_capacity_in(timeline):
                self._over(told, over)
        kept = self._lost(told, timeline, own)
        why = _why_no_race(timeline, own, len(lanes))
        self._cover(Kind.RACE, episode, why)
        self._cover(Kind.LOST_UPDATE, episode, why or ("" if kept else "no write could be compared with a snapshot"))

    def _double(self, told: Told, double: Double) -> None:
        wronged = [claim for claim in double.wronged if claim.op.episode == told.episode]
        if not wronged:
            return  # it falls on the other's episode, which sees it too
        finding = double_claim(told, double, wronged)
        rule = wronged[0].rule

        def settle() -> Finding | None:
            refusal = self._refusals.of(rule, own=double.same)
            return settled(finding, double, self._run, refusal, strong=is_holder(rule[2]))

        self._candidates.append(_Candidate(settle=settle))

    def _over(self, told: Told, over: Over) -> None:
        wronged = [op for op in over.wronged if op.episode == told.episode]
        if wronged:
            finding = over_capacity(told, over, wronged)
            env, table = wronged[0].env, over.thing.table
            self._candidates.append(
                _Candidate(settle=lambda: settled_over(finding, over, self._run, self._fulls.of(env, table)))
            )

    def _lost(self, told: Told, timeline: Timeline, own: Sequence[Op]) -> int:
        """How many cells that a write set were looked up in the snapshot after it."""
        seen = 0
        for one in look(timeline, own) if timeline.shots else ():
            seen += 1
            if isinstance(one, Kept):
                self._kept.add(one)
            else:
                self._candidates.append(_Candidate(settle=self._if_kept(one, lost_write(told, one))))
        return seen

    def _if_kept(self, lost: Lost, finding: Finding) -> Callable[[], Finding | None]:
        """Only a column that another write was seen to set is known to be what the answers say it is."""
        known = Kept(env=lost.op.env, table=lost.row.table, column=lost.columns[0])
        return lambda: finding if known in self._kept else None

    def _cover(self, kind: Kind, episode: str, why: str) -> None:
        """An episode of several states was looked at if one of them was."""
        known = self.why[kind].get(episode)
        if known != "":
            self.why[kind][episode] = why

    def findings(self) -> Iterator[Finding]:
        """All of the run, once it was swept."""
        for candidate in self._candidates:
            finding = candidate.settle()
            if finding is not None:
                yield finding


def _why_no_race(timeline: Timeline, own: Sequence[Op], lanes: int) -> str:
    if not own:
        return "no exchanges"
    if lanes < 2:
        return ALONE
    if not timeline.shots:
        return "no snapshots: what a write did cannot be counted"
    if timeline.too_much:
        return "too much changed between two snapshots"
    if not any(op.place is not None for op in timeline.writes.all):
        return "no write names a row of the state"
    return ""
