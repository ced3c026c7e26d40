"""How far the evidence of a stale read goes, and what it rests on: the grade, the assumptions, what was ruled out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from replayproxy.detect.agreement import Agreement
from replayproxy.detect.bracket import Bracket, Said, bracket_of
from replayproxy.detect.finding import Grade
from replayproxy.detect.ops import PRESENCE, Op
from replayproxy.detect.sights import pair_of
from replayproxy.detect.stale_doubts import own_view, ran_out, side_effect
from replayproxy.detect.stale_read import COVERAGE_GATE, Stale
from replayproxy.detect.timeline import Timeline
from replayproxy.detect.token_order import Token
from replayproxy.detect.tokens import Tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is known of one stale read. `token` and `against` only where the recording shows that they are tokens."""

    timeline: Timeline
    stale: Stale
    agreement: Agreement
    tokens: Tokens
    bracket: Bracket | None

    @property
    def token(self) -> Token | None:
        return self._held(self.stale.token)

    @property
    def against(self) -> Token | None:
        return self._held(self.stale.against)

    def _held(self, token: Token | None) -> Token | None:
        return token if token is not None and self.tokens.holds(token.key) else None

    @property
    def agrees(self) -> bool:
        return self.bracket is not None and self.bracket.said is Said.AGREES

    @property
    def coverage(self) -> float | None:
        """The share of the state's changes that recorded writes explain; None: no change was seen."""
        total = len(self.timeline.changes)
        return self.timeline.explained / total if total else None


def evidence_of(
    timeline: Timeline, stale: Stale, agreement: Agreement, tokens: Tokens, own: Sequence[Op]
) -> Evidence:  # fmt: skip
    probes = [op for op in own if op.is_probe and op.reads]
    return Evidence(
        timeline=timeline, stale=stale, agreement=agreement, tokens=tokens,
        bracket=bracket_of(timeline, stale.sight, probes) if probes else None,
    )  # fmt: skip


def grade_of(evidence: Evidence) -> tuple[Grade, str]:
    """The grade, and what keeps it from being proven."""
    if evidence.stale.late:
        return Grade.SUSPECTED, "the write may act after its answer by design, or snapshots be read from a lagging copy"
    if evidence.stale.sight.op.weak:
        return Grade.SUSPECTED, "the 304 speaks of a weak validator, which may stay when a change does not matter"
    if evidence.against is not None:
        return Grade.SUSPECTED, f"{evidence.against.key.name} contradicts it: the read shows the newest that was seen"
    if evidence.agrees or (evidence.token is not None and evidence.token.sure):
        return Grade.PROVEN, ""
    if evidence.stale.by_token:
        return Grade.SUSPECTED, "only another read showed the later version: one of the two is out of date"
    doubt = doubt_of(evidence.timeline, evidence.stale, evidence.agreement)
    return (Grade.SUSPECTED, doubt) if doubt else (Grade.PROVEN, "")


def doubt_of(timeline: Timeline, stale: Stale, agreement: Agreement) -> str:
    """What keeps the intervals alone from proving it; "" when nothing does."""
    total, explained = len(timeline.changes), timeline.explained
    if not timeline.shots:
        return "there are no snapshots: writers that do not pass the proxy would go unnoticed"
    if stale.sight.row.of_path:
        return "no snapshot shows this path: writers that do not pass the proxy would go unnoticed"
    if total == 0:
        return "no snapshot shows the write: how many writers go unnoticed is not known"
    if explained < COVERAGE_GATE * total:
        return f"only {explained} of {total} state changes are explained by recorded writes"
    if stale.sight.doubt:
        return stale.sight.doubt
    if stale.unexplained:
        return "snapshots show values in this column that no recorded write is known to have set"
    if stale.unknown_beside:
        return f"{stale.unknown_beside} other reads of this cell show a value that nobody wrote"
    return side_effect(timeline, stale.sight) or ran_out(timeline, stale.sight) or own_view(timeline, stale, agreement)


def assumptions(evidence: Evidence) -> Iterator[str]:
    timeline, sight, token = evidence.timeline, evidence.stale.sight, evidence.token
    if evidence.stale.late:
        yield "a write has taken effect when it is answered 2xx: its value came into the snapshots only later"
    elif token is None or not evidence.stale.by_token:
        yield "a write sets its values within the time between its request and its answer"
    if token is not None:
        rises = evidence.tokens.rises(token.key)
        yield f"{token.key.name} never goes back: it rose at each of {rises} changes in this recording"
    if sight.op.again is not None:
        yield f"a 304 says that what #{sight.op.again.seq} showed is current, as RFC 9110 has it"
    if timeline.shows(sight.row):
        yield (
            f"snapshots show the system of record, each row at one instant; {timeline.explained} of "
            f"{len(timeline.changes)} state changes are explained by recorded writes"
        )
    if sight.pair is not None:
        where = "the row" if sight.column == PRESENCE else f"column {sight.column}"
        times = evidence.agreement.agreed(sight.pair)
        seen = f"at {times} quiet points" if times else "in two values or more, while others wrote"
        yield f"what it showed is {where} of {sight.row.table}: agreed {seen}"


def ruled_out(evidence: Evidence) -> Iterator[str]:
    timeline, stale = evidence.timeline, evidence.stale
    yield "overlap of the read with the write: none"
    if evidence.token is not None and evidence.token.sure:
        newest = evidence.token.newest.value
        yield f"a writer that nobody recorded: {evidence.token.key.name} had been {newest} before the read began"
    elif not stale.late:
        others = len(timeline.writes.all) - (stale.writer is not None)
        coverage = evidence.coverage
        known = "write coverage not known" if coverage is None else f"write coverage {coverage:.0%}"
        yield f"another write of the value that was read: none of {others} can have set it so late ({known})"
    if evidence.agrees and evidence.bracket is not None:
        yield f"a change in between: asked again as #{evidence.bracket.again.seq}, the state the same before and after"
    again = stale.sight.op.again
    if again is not None:
        yield f"another representation: the reader was given but one under that validator, in #{again.seq}"
    if not stale.sight.op.fresh_for:
        yield "a declared cache: no Age, Cache-Status or max-age"
    elif stale.verdict.delta > stale.sight.op.fresh_for * 1e9:
        yield f"a declared cache: it may be {stale.sight.op.fresh_for:g} s old, and is older"
    else:
        yield "a declared cache: it must drop what its own client has just written to this path"


def scope_of(evidence: Evidence, own: Sequence[Op]) -> dict[str, Any]:
    """How far the evidence reaches in this episode: members of answers that are known to be columns, of all."""
    timeline, agreement = evidence.timeline, evidence.agreement
    mapped, members = 0, set()
    for op in own:
        for one in op.rows if op.reads and not op.is_probe else ():
            members |= {pair_of(op, one, column) for column in one.members}
    if timeline.shots:
        mapped = sum(not pair.table.startswith("/") and agreement.holds(pair) for pair in members)
    coverage = evidence.coverage
    return {
        "cells_mapped": [mapped, len(members)], "lanes": len({op.lane for op in own}),
        "write_coverage": None if coverage is None else round(coverage, 4),
    }  # fmt: skip


def healed(evidence: Evidence) -> str:
    """What the second read says where it does not agree; "" where there was none, or it does."""
    bracket = evidence.bracket
    if bracket is None or bracket.said is Said.AGREES:
        return ""
    if bracket.said is Said.HEALED:
        return f"asked again as #{bracket.again.seq}, it showed the new value"
    return f"asked again as #{bracket.again.seq}, with a write or no clear state meanwhile"
