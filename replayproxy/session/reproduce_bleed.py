"""State bleed and dirty resets shown again: the victim alone, then after the polluter, then after less and less of it.

Both ways are the same but for the polluter's exchanges: its recorded start is put back; its exchanges are sent, or none
of them; the environment's own reset is sent, where one is known; the victim is sent up to the read. So whatever is
different in the victim's answer comes of the exchanges, and not of the restore, the reset or another task's start.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import comb
from typing import Any

from replayproxy.core.effects import is_write, segments
from replayproxy.core.plans import only
from replayproxy.core.rules import RuleBook
from replayproxy.core.values import Exchange, RowChange, Snapshot
from replayproxy.detect.residue import residue
from replayproxy.detect.states import States, TooMuchChanged
from replayproxy.errors import CannotJudge, RestoreUnfaithful
from replayproxy.session.minimise import Minimal, minimise
from replayproxy.session.redrive_once import Before, Repetition, Way
from replayproxy.session.reproduce_case import (
    NOT_SHOWN,
    SHOWN,
    UNDECIDED,
    Came,
    Case,
    Point,
    answered,
    differ,
    differs_from_recorded,
    gone,
    spelled,
    told_exchanges,
    up_to,
    values_at,
)

ALPHA = 0.05
"""Of what comes now and then: how seldom chance alone may give as many."""

SHOWN_ROWS = 5

EARLIER = 3
"""So many earlier episodes are tried as the polluter where the finding names none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """The polluter (as much of it as was sent), then the victim."""

    polluter: Repetition
    victim: Repetition


class Bleed:
    """One polluter and one victim. `read`: the exchange that showed it; None: the victim's start state is looked at."""

    def __init__(self, case: Case, polluter: str, read: Point | None) -> None:
        self.case, self.read, self.name = case, read, polluter
        self.reasons: list[str] = []
        self.before = Before.NOTHING
        self._number = 0

    async def prepare(self) -> None:
        case = self.case
        victim = case.trace(case.episode)
        self.upto = up_to(victim, self.read.seq) if self.read is not None else frozenset[int]()
        self.one, self.source = await case.session(case.trace(self.name))
        self.two, self.victim = await case.session(victim)
        assert self.two.targets is not None
        itself = self.name == case.episode and self.read is not None
        if (
            not itself
            and case.finding.get("sub") != "isolation"
            and (self.two.targets.resets or self.two.targets.fallbacks)
        ):
            self.before = Before.RESET

    @property
    def whole(self) -> list[int]:
        """Everything of the polluter that is sent."""
        assert self.one.plan is not None
        return [step.seq for step in self.one.plan.steps if not step.skip]

    async def passage(self, chosen: Collection[int]) -> Passage:
        assert self.one.plan is not None
        assert self.two.plan is not None
        self._number += 1
        polluter = await self.source.once(self._number, Way(plan=only(self.one.plan, chosen)))
        victim = await self.victim.once(
            self._number, Way(before=self.before, plan=only(self.two.plan, self.upto))
        )  # fmt: skip
        gone([polluter, victim])
        return Passage(polluter=polluter, victim=victim)

    async def several(self, chosen: Collection[int], times: int) -> list[Passage]:
        """As many as were asked for; fewer where the start can no longer be put back, and says so."""
        found: list[Passage] = []
        for number in range(times):
            self.case.say(f"{'alone' if not chosen else f'after {self.name}'}: {number + 1} of {times}")
            try:
                found.append(await self.passage(chosen))
            except RestoreUnfaithful as left:
                if not found and not chosen:
                    raise
                self.reasons.append(f"after {number} of {times} times the start could not be put back: {left.what}")
                break
        return found

    # -- what is looked at -----------------------------------------------------------------------------------------

    def shows(self, control: Passage, one: Passage) -> bool:
        """Whether the victim was answered otherwise than alone (or began otherwise), and nothing explains it."""
        if self.read is None:
            return bool(self.rows(control, one))
        return differ(self.victim, control.victim, one.victim, self.read.seq)

    def shows_alone(self, control: Passage) -> bool:
        """Whether it was so although nothing of the polluter was sent."""
        if self.read is None:
            return self._unlike_reference(control)
        return not differs_from_recorded(self.two.trace, control.victim, self.read.seq)

    def same_value(self, one: Passage) -> bool:
        """Whether the very value that was recorded is there again, by the name that it has now."""
        if self.read is None or not self.read.pointer:
            return False
        value = self.case.finding["values"][1]
        if value is None or isinstance(value, dict | list):
            return False
        texts = spelled(value, one.polluter.bindings, one.victim.bindings)
        shown = values_at(answered(one.victim, self.read.seq), self.read.pointer, anywhere=True)
        return any(str(leaf) in texts for leaf in shown)

    def starts(self, one: Passage) -> dict[str, Snapshot]:
        return {s.name: s for s in one.victim.live.snapshots if s.when == "start" and s.root is not None}

    def rows(self, a: Passage, b: Passage) -> list[str]:
        """The rows in which the victim's two starts differ, clocks and fresh ids taken out."""
        ours, theirs = self.starts(a), self.starts(b)
        return [row for name in ours if name in theirs for row in self._between(ours[name], theirs[name])]

    def _between(self, a: Snapshot, b: Snapshot) -> list[str]:
        assert a.root is not None
        assert b.root is not None
        return self._changes(a.root, a.wall, b)

    def _changes(self, root: bytes, wall: int, b: Snapshot) -> list[str]:
        assert b.root is not None
        rules = RuleBook(self.case.rules, self.case.ask.today)
        try:
            found = residue(States(self.victim.load), root, b.root, wall, b.wall, rules)
        except TooMuchChanged:
            return [f"{b.name}: quite another state"]
        return [_row(change) for change in found.changes]

    def _unlike_reference(self, one: Passage) -> bool:
        known = self.case.references()
        return any(
            name in known and self._changes(known[name], shot.wall, shot) for name, shot in self.starts(one).items()
        )

    def outside(self, control: Passage, one: Passage) -> bool:
        """Whether the victim began in equal states, as far as snapshots show them, and was answered otherwise."""
        known = self.starts(control)
        return self.read is not None and bool(known) and not self.rows(control, one)

    # -- the polluter made smaller ---------------------------------------------------------------------------------

    async def smaller(self, control: Passage, one: Passage) -> Minimal:
        needs: dict[int, set[int]] = {}
        for item in one.polluter.bindings.substitutions:
            if item.producer is not None:
                needs.setdefault(item.consumer, set()).add(item.producer)

        async def shows(chosen: frozenset[int]) -> bool:
            self.case.say("looking for the part of the polluter that is enough")
            return self.shows(control, await self.passage(chosen))

        return await minimise(self.whole, shows, needs=needs, first=self._guesses())

    def _guesses(self) -> list[list[int]]:
        """The write that the finding names; the writes to what was read; all writes."""
        sent = set(self.whole)
        trace = self.one.trace
        named = [point.seq for point in self.case.points if point.role == "write" and point.episode == self.name]
        reads = self.one.targets.reads if self.one.targets is not None else {}
        writes = [e for e in trace.exchanges if e.seq in sent and is_write(e.request, reads.get(e.env, ()))]
        where = self._looked_at()
        near = [e.seq for e in writes if _collection(e) in where]
        return [[seq for seq in named if seq in sent], near, [e.seq for e in writes]]

    def _looked_at(self) -> set[object]:
        seq = self.read.seq if self.read is not None else None
        return {_collection(e) for e in self.two.trace.exchanges if e.seq == seq}


def _collection(exchange: Exchange) -> object:
    return exchange.env, segments(exchange.request.target)[:1]


def _row(change: RowChange) -> str:
    return f"{change.table}/{change.key}"


async def bleed(case: Case) -> Came:
    """A bleed, or a dirty reset, by the episode that the finding names as its source."""
    read = case.point("read") if case.finding["kind"] == "state-bleed" else None
    if read is not None and read.episode != case.episode:
        read = None
    names = list(dict.fromkeys(point.episode for point in case.points if point.role in ("write", "witness")))
    names = [name for name in names if name != case.episode] or [case.episode]
    one = Bleed(case, names[0], read)
    await one.prepare()
    if read is None and one.before is not Before.RESET:
        raise CannotJudge("no reset is known to be tried again", hint='--reset NAME="METHOD URL"')
    if read is None and names[0] == case.episode:
        return await _by_reset_alone(one)
    return await one_after_another(one)


async def after_earlier(case: Case, read: Point, most: int = EARLIER) -> Came | None:
    """For an answer that its episode alone does not show: the episodes that ended last before it began, tried as its
    polluter. None: none of them is."""
    for name in case.earlier(most):
        one = Bleed(case, name, read)
        await one.prepare()
        came = await one_after_another(one)
        if came.confirmed:
            return came
    return None


async def _by_reset_alone(one: Bleed) -> Came:
    """Nobody is known to have left it: the reset is tried again, and the starts that it gives are compared."""
    passages = await one.several((), one.case.repeat)
    known = bool(one.case.references())
    bad = [p for p in passages if (one.shows_alone(p) if known else bool(one.rows(passages[0], p)))]
    k, n = len(bad), len(passages)
    rows = sorted({row for p in bad for row in one.rows(passages[0], p)})[:SHOWN_ROWS]
    told = f"after the reset {k}/{n} starts unlike " + ("the reference" if known else "the first")
    return Came(
        verdict=SHOWN if k else NOT_SHOWN, k=k, n=n, told=told, confirmed=k > 0, reasons=tuple(one.reasons),
        evidence={"rows": rows, "between": one.before.value}, blame_reason="the reset gives other starts" if k else "",
    )  # fmt: skip


async def one_after_another(one: Bleed) -> Came:
    """The victim alone, after the whole polluter, and after the part of it that is enough."""
    case = one.case
    controls = await one.several((), case.repeat)
    base = controls[0]
    alone = sum(one.shows_alone(control) for control in controls)
    unsteady = sum(one.shows(base, control) for control in controls[1:])
    if alone or unsteady:
        return _not_alone(one, len(controls), alone, unsteady)
    first = await one.several(one.whole, 1)
    kept, tries = frozenset(one.whole), 0
    if first and one.shows(base, first[0]):
        kept, tries = await _smallest(one, base, first[0])
    again = await one.several(sorted(kept), case.repeat if kept != frozenset(one.whole) else case.repeat - len(first))
    passages = again if kept != frozenset(one.whole) else [*first, *again]
    return _came(one, controls, passages, sorted(kept), tries)


def _not_alone(one: Bleed, n: int, alone: int, unsteady: int) -> Came:
    if alone:
        told = f"alone {alone}/{n}: nothing of {one.name} is needed"
        reason = (
            "the victim shows it although nothing of the polluter was sent: the start is not clean (state that no "
            "snapshot shows and no restore puts back: start the environment anew), or the cause is another one"
        )
    else:
        told = f"alone it is answered in several ways ({unsteady + 1} of {n} looked at)"
        reason = "from one start the victim alone is not answered the same twice: that is nondeterminism first"
    return Came(verdict=UNDECIDED, k=0, n=0, told=told, reasons=(reason, *one.reasons),
                evidence={"alone": [alone, n], "unsteady": unsteady})  # fmt: skip


async def _smallest(one: Bleed, base: Passage, shown: Passage) -> tuple[frozenset[int], int]:
    """The part that is enough; all of it where the start does not become clean again, and says so."""
    whole = frozenset(one.whole)
    control = await one.several((), 1)
    if not control or one.shows(base, control[0]):
        one.reasons.append(
            "not made smaller: once the polluter has run, putting its start back and the reset do not undo it"
        )
        return whole, 0
    found = await one.smaller(base, shown)
    if not found.finished:
        one.reasons.append(f"after {found.tries} tries the search for a smaller part was ended")
    return found.kept, found.tries


def _came(
    one: Bleed, controls: Sequence[Passage], passages: Sequence[Passage], kept: Sequence[int], tries: int
) -> Came:
    base, case = controls[0], one.case
    shown = [p for p in passages if one.shows(base, p)]
    k, n = len(shown), len(passages)
    same = sum(map(one.same_value, shown))
    outside = bool(shown) and all(one.outside(base, p) for p in shown)
    itself = one.name == case.episode
    # Where no reset is known, what is left is no fault yet: the one that the harness sends might take it away.
    untried = one.before is Before.NOTHING and not (itself or outside or case.finding.get("sub") == "isolation")
    convincing = _convincing(len(controls), k, n, same)
    confirmed = convincing and not untried
    after = "itself" if itself else told_exchanges(one.name, kept)
    told = f"alone 0/{len(controls)}, after {after} {k}/{n}" + (" (bleed outside snapshot scope)" if outside else "")
    told += " (no reset between)" if untried and k else ""
    rows = one.rows(base, shown[0])[:SHOWN_ROWS] if shown else []
    evidence: dict[str, Any] = {
        "alone": [0, len(controls)], "after": [k, n], "polluter": one.name, "same_value": same,
        "minimal": [f"{case.run.name}/{one.name}#{seq}" for seq in kept], "of": len(one.whole), "tries": tries,
        "between": one.before.value, "outside_snapshots": outside, "rows": rows,
    }  # fmt: skip
    reasons = list(one.reasons)
    if convincing and untried:
        reasons.append('no reset is known, and yours may take it away between two episodes: --reset NAME="METHOD URL"')
    elif k and not confirmed:
        reasons.append(f"{k} of {n} is not enough beside 0 of {len(controls)}: more --repeat")
    if not n:
        return Came(verdict=UNDECIDED, k=0, n=0, told=told, reasons=tuple(reasons), evidence=evidence)
    decided = confirmed and (outside or one.before is Before.RESET)
    why = "state that no snapshot shows went over" if outside else "the reset left it: alone it is not so"
    return Came(
        verdict=SHOWN if k else NOT_SHOWN, k=k, n=n, told=told, confirmed=confirmed, reasons=tuple(reasons),
        evidence=evidence, blame_reason=why if decided else "",
    )  # fmt: skip


def _convincing(alone: int, k: int, n: int, same: int) -> bool:
    """Nothing alone, and after the polluter every time, or more often than chance gives it."""
    if not k:
        return False
    if k == n:
        return n > 1 or same > 0
    return comb(n, k) / comb(alone + n, k) < ALPHA  # all k among the n, none among those alone
