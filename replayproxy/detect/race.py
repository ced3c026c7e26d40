"""Races: what was granted to two, what was acknowledged and then lost, what was answered and not so.

Looks at one state of one episode with the writes of every lane and episode beside it. A finding falls on the episode
whose exchange was wronged, the later of the two, and names both. What only the whole run can tell, whether the
environment refuses a second claim and what an action adds, is asked at the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from replayproxy.core.values import Run
from replayproxy.detect.added_steps import Steps, Window
from replayproxy.detect.finding import Finding, Grade, Kind
from replayproxy.detect.lost_addition import missing, windows
from replayproxy.detect.lost_condition import ignored
from replayproxy.detect.lost_findings import lost_write
from replayproxy.detect.lost_more import (
    crossed_writes,
    ignored_condition,
    lost_addition,
    put_over,
    torn_read,
    written_back,
)
from replayproxy.detect.lost_return import returned
from replayproxy.detect.lost_write import Kept, Lost, look, taken_back
from replayproxy.detect.lost_writeback import put_back
from replayproxy.detect.ops import ABSENT, Op
from replayproxy.detect.race_answer_findings import done_all_the_same, held_by_nobody, made_twice
from replayproxy.detect.race_answers import applied_twice, failed_but_done, phantoms, refused_but_done
from replayproxy.detect.race_capacity import Fulls, Over, over_capacity
from replayproxy.detect.race_claims import Claims, Declared, Refusals, Rule, claims
from replayproxy.detect.race_double import Double, doubles
from replayproxy.detect.race_findings import Told, double_claim, settled, settled_over, too_many
from replayproxy.detect.race_habits import Habits, ever_held
from replayproxy.detect.race_names import is_holder
from replayproxy.detect.race_row import Crossed, came_through, crossed
from replayproxy.detect.timeline import Timeline

ALONE = "one lane only"
MANY_UNSEEN = 3
"""So many acknowledged writes that no snapshot shows are not all lost: the snapshots are of something else."""

NO_SNAPSHOTS = "no snapshots, and no two claims of one thing were granted"

type Settle = Callable[[], Finding | None]
"""What a candidate is, once the whole run is known; None: nothing."""


class Races:
    """What the sweep collects. `why`: per kind and episode, why it was not looked for; "" it was."""

    def __init__(self, run: str, declared: Declared = frozenset()) -> None:
        self._run = run
        self._declared = declared
        self._refusals = Refusals()
        self._fulls = Fulls()
        self._steps = Steps()
        self._shared: set[Rule] = set()  # cells that were granted to a second one when the first had it
        self._windows: list[Window] = []
        self._kept: set[Kept] = set()
        self._unseen: Counter[str] = Counter()  # by snapshots: acknowledged writes that these do not show
        self._moved: set[str] = set()  # snapshots that were seen to differ from each other in an episode
        self._habits = Habits()
        self._held: set[tuple[str, str, str]] = set()  # columns in which some snapshot shows a holder
        self._conditions: set[str] = set()  # environments that refused a write for the version it demanded
        self._candidates: list[Settle] = []
        self._pairs: list[tuple[Settle, frozenset[tuple[str, int]]]] = []  # of writes that a lost one may explain
        self.why: dict[Kind, dict[str, str]] = {Kind.RACE: {}, Kind.LOST_UPDATE: {}}

    def look(self, episode: str, timeline: Timeline, own: Sequence[Op]) -> None:
        """Judges one state of one episode, whose operations are `own`. Linear for an episode that ran alone."""
        lanes = {(op.episode, op.lane) for op in own} | {(op.episode, op.lane) for op in timeline.writes.all}
        told = Told(
            run=self._run, episode=episode, lanes=len(lanes), shots=timeline.shots, changes=len(timeline.changes),
            explained=timeline.explained,
        )  # fmt: skip
        why, compared = _why_not(timeline, own, len(lanes)), 0
        if timeline.shots and not timeline.too_much:
            alone = len(lanes) < 2
            held = (
                {}
                if alone and not any(op.refused for op in own)
                else claims(timeline, timeline.writes.all, self._declared)
            )
            self._learn(timeline, own, held)
            compared = self._alone(told, timeline, own)
            if not alone:
                self._beside(told, timeline, own, held)
        elif len(lanes) > 1 and not timeline.shots:
            held = claims(timeline, timeline.writes.all, self._declared)
            self._doubles(told, timeline, held)
            if any(len(claimed) > 1 for claimed in held.values()):
                why = ""
        self._cover(Kind.RACE, episode, why)
        lost = why or ("" if compared else "no snapshot shows what a write had set")
        self._cover(Kind.LOST_UPDATE, episode, lost if timeline.shots else lost and "no snapshots")

    def _learn(self, timeline: Timeline, own: Sequence[Op], held: Claims) -> None:
        self._refusals.note(timeline, own, held, self._declared)
        self._fulls.note(timeline, own)
        self._steps.note(timeline)
        self._habits.note(timeline)
        if timeline.changes:
            self._moved.add(timeline.name)
        self._conditions |= {op.env for op in own if op.status == 412 or (op.status == 409 and op.condition)}

    def _alone(self, told: Told, timeline: Timeline, own: Sequence[Op]) -> int:
        """What needs no second lane. Gives how many cells that a write set were looked up in the snapshot after it."""
        compared = 0
        for one in look(timeline, own):
            compared += 1
            if isinstance(one, Kept):
                self._kept.add(one)
            else:
                self._unseen[timeline.name] += 1
                self._add(partial(self._if_lost, lost_write(told, timeline, one), one))
        for back in taken_back(timeline):
            if back.op.episode == told.episode:
                self._add(partial(self._unless_derived, lost_write(told, timeline, back), back))
        for done in refused_but_done(timeline):
            if done.op.episode == told.episode:
                self._add(partial(_sure, done_all_the_same(told, done)))
        again = list(applied_twice(timeline, own))
        for twice in again:
            self._add(partial(_sure, made_twice(told, twice)))
        repeated = {(twice.failed.episode, twice.failed.seq) for twice in again}
        for done in failed_but_done(timeline, own):
            if (done.op.episode, done.op.seq) not in repeated:
                self._add(partial(_sure, done_all_the_same(told, done)))
        for phantom in phantoms(timeline, own):
            of = phantom.refused.env, phantom.row.table, phantom.column
            if ever_held(timeline, *of[1:]):
                self._held.add(of)
            self._add(partial(self._if_held, held_by_nobody(told, phantom), of))
        for both in ignored(timeline):
            if both.second.episode == told.episode:
                given = bool(both.second.condition and both.first.tag and both.second.tag)
                found = {strict: ignored_condition(told, both, strict=strict) for strict in (False, True)}
                self._add(partial(self._condition, found, both.second.env, given))
        for window in windows(timeline):
            last = max((*window.done, *window.open), key=lambda op: op.fwd)
            if last.episode == told.episode:
                self._windows.append(window)
                self._add(partial(self._sum, told, window, last))
        return compared

    def _beside(self, told: Told, timeline: Timeline, own: Sequence[Op], held: Claims) -> None:
        """What takes two lanes."""
        self._doubles(told, timeline, held)
        for over in over_capacity(timeline):
            wronged = [op for op in over.wronged if op.episode == told.episode]
            self._fulls.let_in(over)
            if wronged:
                finding = too_many(told, over, wronged)
                self._add(partial(self._over, finding, over))
        for back in put_back(timeline, own):
            self._add(partial(_sure, written_back(told, back)))
        for one in crossed(timeline, own):
            self._crossed(told, timeline, one)
        for gone in returned(timeline):
            if gone.by.episode == told.episode:
                known = Kept(env=gone.by.env, table=gone.row.table, column=gone.column)
                ops = frozenset((op.episode, op.seq) for op in gone.beside)
                self._pairs.append((partial(self._if_kept, put_over(told, gone), (known,)), ops))

    def _doubles(self, told: Told, timeline: Timeline, held: Claims) -> None:
        for (row, column), claimed in held.items():
            for double in doubles(timeline, row, column, claimed) if len(claimed) > 1 else ():
                self._double(told, double)

    def _double(self, told: Told, double: Double) -> None:
        wronged = [claim for claim in double.wronged if claim.op.episode == told.episode]
        if not wronged:
            return  # it falls on the other's episode, which sees it too
        finding, rule = double_claim(told, double, wronged), wronged[0].rule

        def settle() -> Finding | None:
            refusal = self._refusals.of(rule, own=double.same)
            said, shared = rule in self._declared, rule in self._shared
            return settled(
                finding, double, self._run, refusal, strong=is_holder(rule[2]) or said, declared=said, shared=shared
            )

        if any(not double.beside(claim) for claim in double.wronged):
            self._shared.add(rule)
        self._add(settle)

    def _crossed(self, told: Told, timeline: Timeline, one: Crossed) -> None:
        known = tuple(Kept(env=one.ops[0].env, table=one.row.table, column=column) for column in one.columns)
        if one.reader is not None:
            if one.reader.episode == told.episode:
                self._add(partial(self._if_kept, torn_read(told, one), known))
            return
        last = max(one.ops, key=lambda op: (op.fwd, op.end))
        if last.episode == told.episode and not came_through(timeline, one):
            ops = frozenset((op.episode, op.seq) for op in one.ops)
            self._pairs.append((partial(self._if_kept, crossed_writes(told, one, last), known), ops))

    def _add(self, settle: Settle) -> None:
        self._candidates.append(settle)

    # At the end of the run

    def unseen(self, series: str) -> int:
        """How many acknowledged writes snapshots do not show that never change: they may be of another state."""
        return self._unseen[series] if series not in self._moved and self._unseen[series] >= MANY_UNSEEN else 0

    def _if_kept(self, finding: Finding, columns: Sequence[Kept]) -> Finding | None:
        """Only a column that some write was seen to set is known to be what the answers say it is."""
        return finding if self._kept.issuperset(columns) else None

    def _if_lost(self, finding: Finding, lost: Lost) -> Finding | None:
        """A row that a DELETE leaves is lost only where one was seen to go: rows may be marked as deleted."""
        column = Kept(env=lost.op.env, table=lost.row.table, column=lost.columns[0], gone=lost.value == ABSENT)
        return self._unless_derived(finding, lost) if column in self._kept else None

    def _unless_derived(self, finding: Finding, lost: Lost) -> Finding:
        """What a PATCH of other columns does by right to this one is no proof of a loss."""
        patched = any(rival.method == "PATCH" for rival in lost.rivals)
        doubt = self._habits.doubt(lost.op.env, lost.row.table, lost.columns[0], lost.old) if patched else ""
        if not doubt or finding.grade is not Grade.PROVEN:
            return finding
        return replace(finding, grade=Grade.SUSPECTED, cannot_say=f"{finding.cannot_say}; {doubt}")

    def _if_held(self, finding: Finding, of: tuple[str, str, str]) -> Finding | None:
        """Where no snapshot of the run ever shows a holder, the environment may keep them elsewhere."""
        if of in self._held or finding.grade is not Grade.PROVEN:
            return finding
        doubt = f"whether {of[2]} is kept in this state at all: no snapshot ever shows a holder"
        return replace(finding, grade=Grade.SUSPECTED, cannot_say=f"{finding.cannot_say}; {doubt}")

    def _over(self, finding: Finding, over: Over) -> Finding | None:
        return settled_over(finding, over, self._run, self._fulls.of(over), lawful=self._fulls.lawful(over))

    def _condition(self, found: dict[bool, Finding], env: str, given: bool) -> Finding:
        return found[given or env in self._conditions]

    def _sum(self, told: Told, window: Window, last: Op) -> Finding | None:
        found = missing(window, self._steps)
        return lost_addition(told, found, last) if found is not None else None

    def _cover(self, kind: Kind, episode: str, why: str) -> None:
        """An episode of several states was looked at if one of them was."""
        known = self.why[kind].get(episode)
        if known != "":
            self.why[kind][episode] = why

    def findings(self) -> Iterator[Finding]:
        """All of the run, once it was swept; of what one exchange suffered, the first that was found."""
        told: set[tuple[Kind, frozenset[tuple[str, int]]]] = set()
        for window in self._windows:
            self._steps.fit(window)
        self._windows.clear()
        for settle in self._candidates:
            finding = settle()
            if finding is not None and (finding.kind, finding.covers) not in told:
                told.add((finding.kind, finding.covers))
                self.why[finding.kind][finding.episode] = ""  # what was found was looked for
                yield finding
        lost = {place for kind, covers in told for place in covers if kind is Kind.LOST_UPDATE}
        for settle, ops in self._pairs:
            finding = settle() if not ops & lost else None
            if finding is not None:
                lost |= ops
                yield finding


def declared(run: Run) -> Declared:
    """The columns that the config declares to name who has the row."""
    found = {(env, *line.rpartition(".")[::2]) for env, wiring in run.envs.items() for line in wiring.claims}
    return frozenset(found)


def _sure(finding: Finding) -> Finding:
    return finding


def _why_not(timeline: Timeline, own: Sequence[Op], lanes: int) -> str:
    if not own:
        return "no exchanges"
    keys = [op.once for op in own if op.once and op.ok]
    if lanes < 2 and len(keys) == len(set(keys)):
        return ALONE  # a key that was sent again needs no second lane
    if not timeline.shots:
        return NO_SNAPSHOTS
    if timeline.too_much:
        return "too much changed between two snapshots"
    if not any(op.place is not None for op in timeline.writes.all):
        return "no write names a row of the state"
    return ""
