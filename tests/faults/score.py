"""Holds what the detectors said against what the ledger says: hits, misses, wrong ones, by grade."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from replayproxy.detect.finding import CONVINCING, STRENGTH, Finding, Grade
from replayproxy.detect.judge import Judgement
from tests.faults.claims import Claim, Place, claim_of, marks, numbered
from tests.faults.ledger import all_acts
from tests.faults.matrix import Plan
from tests.faults.rig import Recorded
from tests.faults.truth import Unit, units


@dataclass(slots=True, kw_only=True)
class Score:
    """One cell. `best`: for each unit the strongest grade of its hits, "" for a miss. `hits`: findings on units.

    `right`, `aside` and `wrong` count findings by (kind, grade): right ones name a fault, its exchange and its cell;
    those aside name an exchange or a cell of the episode that the injector had spoilt, under another kind; the others
    are wrong.
    """

    plan: Plan
    best: list[str] = field(default_factory=list)
    hits: int = 0
    told: int = 0  # different things that the hits tell: a fault, and the episode that it came from
    right: Counter[tuple[str, str]] = field(default_factory=Counter)
    aside: Counter[tuple[str, str]] = field(default_factory=Counter)
    wrong: Counter[tuple[str, str]] = field(default_factory=Counter)
    missed: list[str] = field(default_factory=list)  # for people: what was missed, and what was wrong
    errors: list[str] = field(default_factory=list)
    episodes: int = 0
    struck: int = 0  # episodes on which a false finding of a convincing grade fell
    exchanges: int = 0
    first: int | None = None  # the number of episodes recorded when the first fault was found
    not_checked: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    judged: float = 0.0

    @property
    def found(self) -> int:
        return sum(grade != "" for grade in self.best)

    @property
    def convincing(self) -> int:
        return sum(grade in CONVINCING for grade in self.best)


def scored(recorded: Recorded, judgement: Judgement | None = None, truth: Sequence[Unit] | None = None) -> Score:
    """The score of a judgement (by default the cell's own) against the cell's ledger."""
    judgement = judgement or recorded.judgement
    exchanges = numbered(recorded.traces)
    truth = units(recorded) if truth is None else truth
    score = Score(
        plan=recorded.plan, episodes=len(recorded.traces), exchanges=len(exchanges),
        seconds=recorded.seconds, judged=recorded.judged,
    )  # fmt: skip
    claims = [claim_of(finding, exchanges) for finding in judgement.findings]
    met = [[unit for unit in truth if unit.met_by(claim) and claim.finding.kind in unit.kinds] for claim in claims]
    spoilt = _spoilt(recorded, marks(exchanges), truth)
    struck, told = set(), set()
    for claim, hit in zip(claims, met, strict=True):
        told |= {(id(unit), *{episode for episode, _ in claim.writes[:1]}) for unit in hit[:1]}
        aside = _aside(claim, spoilt, truth)
        _count(score, claim, hit, aside)
        if not hit and not aside and claim.finding.grade in CONVINCING:
            struck.add(claim.finding.episode)
    score.struck, score.told = len(struck), len(told)
    _units(score, truth, claims, met)
    order = {trace.episode.name: n for n, trace in enumerate(recorded.traces, 1)}
    score.first = min((order[c.finding.episode] for c, hit in zip(claims, met, strict=True) if hit), default=None)
    for coverage in judgement.coverage.values():
        score.not_checked.update(f"{kind}: {why}" for kind, why in coverage.not_checked.items())
    return score


def _spoilt(recorded: Recorded, by_mark: dict[str, Place], truth: Sequence[Unit]) -> set[Place]:
    """Exchanges whose answer was not what it should have been, and those of a lane behind one that differed."""
    if recorded.plan.control:
        return set()
    acts = {by_mark[a.mark] for a in all_acts(recorded.ledgers) if a.mark in by_mark}
    parts = {by_mark[m] for a in all_acts(recorded.ledgers) for m in a.by if m in by_mark}
    return acts | parts | {place for unit in truth for place in unit.shown}


def _aside(claim: Claim, spoilt: set[Place], truth: Sequence[Unit]) -> bool:
    rows = {key for unit in truth if unit.episode == claim.finding.episode for key, _ in unit.cells}
    return bool(spoilt.intersection(claim.reads or claim.places)) or bool(rows & claim.rows)


def _count(score: Score, claim: Claim, hit: Sequence[Unit], aside: bool) -> None:
    name = claim.finding.kind.value, claim.finding.grade.value
    if hit:
        score.right[name] += 1
        score.hits += 1
    elif aside:
        score.aside[name] += 1
    else:
        score.wrong[name] += 1
        score.errors.append(_told(claim.finding))


def _units(score: Score, truth: Sequence[Unit], claims: Sequence[Claim], met: Sequence[Sequence[Unit]]) -> None:
    for unit in truth:
        grades = [c.finding.grade for c, hit in zip(claims, met, strict=True) if any(one is unit for one in hit)]
        best: Grade | None = min(grades, key=lambda grade: STRENGTH[grade], default=None)
        score.best.append(best.value if best else "")
        if best is None:
            cells = ", ".join(f"{key}.{column}" for key, column in sorted(unit.cells)[:3]) or ", ".join(unit.spots)
            at = ", ".join(f"{episode}#{seq}" for episode, seq in sorted(unit.shown)[:3])
            score.missed.append(f"{unit.episode} {at or 'at its start'}: {cells}")


def _told(finding: Finding) -> str:
    places = ", ".join(f"{w.role} {w.address.partition('/')[2]}" for w in finding.exchanges)
    return (
        f"{finding.kind} {finding.sub} {finding.grade} {finding.episode} {finding.pointer} {finding.values} ({places})"
    )
