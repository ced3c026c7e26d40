"""From claims and lost writes to findings: who is named, what is assumed, what was ruled out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from replayproxy.core import jsonvalue
from replayproxy.detect.cells import Row
from replayproxy.detect.finding import (
    Blame,
    Finding,
    Grade,
    Kind,
    Witness,
    exchange_address,
    plain,
    seconds,
    snapshot_address,
)
from replayproxy.detect.history import NEVER
from replayproxy.detect.ops import Op
from replayproxy.detect.race_capacity import Full, Over
from replayproxy.detect.race_claims import Claim, Refusal
from replayproxy.detect.race_double import Double
from replayproxy.detect.stale_read import COVERAGE_GATE
from replayproxy.detect.timeline import Shot


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What every finding of one state says alike: the run, the episode it falls on, its snapshots and its lanes; of
    `changes` between the snapshots `explained` have a recorded write beside them."""

    run: str
    episode: str
    lanes: int
    shots: Sequence[Shot]
    changes: int
    explained: int

    def witness(self, op: Op, role: str, pointer: str = "", value: Any = None) -> Witness:
        return Witness(
            address=exchange_address(self.run, op.episode, op.seq), role=role, method=op.method, target=op.target,
            status=op.status, lane=op.lane, fwd=op.fwd, up_end=None if op.end == NEVER else op.end, wall=op.wall,
            pointer=pointer, value=plain(value),
        )  # fmt: skip

    def at(self, indices: Iterable[int]) -> tuple[str, ...]:
        """The addresses of snapshots."""
        shots = [self.shots[index] for index in sorted({*indices})]
        return tuple(snapshot_address(self.run, shot.episode, shot.snapshot) for shot in shots)

    @property
    def scope(self) -> dict[str, Any]:
        share = self.explained / self.changes if self.changes else None
        return {"cells_mapped": None, "write_coverage": share, "lanes": self.lanes}

    def covered(self) -> str:
        """Why the snapshots cannot carry a proof; "" they can."""
        if not self.shots:
            return "there are no snapshots: writers that do not pass the proxy would go unnoticed"
        if self.explained < COVERAGE_GATE * self.changes:
            return f"only {self.explained} of {self.changes} state changes are explained by recorded writes"
        return ""

    def assumed(self) -> str:
        return (
            f"snapshots show the system of record, each row at one instant; {self.explained} of "
            f"{self.changes} state changes are explained by recorded writes"
        )

    def reproduce(self, env: str) -> str:
        return f"replayproxy race {self.run}/{self.episode} --env {env}=URL"


def interval(op: Op) -> tuple[int, int | None]:
    return op.fwd, None if op.end == NEVER else op.end


def pointer(row: Row, column: str) -> str:
    """A cell of the state, as findings name it."""
    return jsonvalue.pointer(row.table) + jsonvalue.pointer(row.key) + (jsonvalue.pointer(column) if column else "")


def double_claim(told: Told, double: Double, wronged: Sequence[Claim]) -> Finding:
    """The finding on the episode of `wronged`, as far as its own recording tells; `settled` gives it its grade."""
    first, last = double.claims[0], wronged[0]
    doubt = told.covered() or double.doubt
    if not doubt and not double.agrees:
        doubt = "no snapshot after the claims shows one of the holders in this column"
    others = [claim for claim in double.claims if claim not in wronged]
    at = pointer(last.row, last.column) if told.shots else jsonvalue.pointer(last.column)
    witnesses = [told.witness(c.op, "claim", jsonvalue.pointer(c.column), c.shown) for c in (*others, *wronged)]
    covers = frozenset((claim.op.episode, claim.op.seq) for claim in wronged)
    return Finding(
        kind=Kind.RACE, sub="double-claim", grade=Grade.SUSPECTED if doubt else Grade.PROVEN, blame=Blame.ENVIRONMENT,
        blame_reason="it granted one thing to two that asked for it",
        run=told.run, episode=told.episode, lane=last.op.lane, pointer=at,
        values=(plain(first.shown), plain(last.shown)), exchanges=tuple(witnesses), snapshots=told.at(double.shots),
        assumptions=(
            f"{last.column} of {last.row.table} names who has the row, and one at a time has it",
            "a claim takes effect within the time between its request and its answer", told.assumed(),
        ),
        ruled_out=_ruled_out(double),
        reproduce=told.reproduce(last.op.env), title=_title(double, last),
        cannot_say="which of the holders the environment means" + (f"; {doubt}" if doubt else ""),
        times=_times(first, last),
        effect={"granted": len(double.claims), "of": 1, "overlapped": double.overlap},
        scope=told.scope, covers=covers, count=len(wronged), at=last.op.fwd,
    )  # fmt: skip


def _title(double: Double, last: Claim) -> str:
    path = last.op.target.partition("?")[0]
    beside = "side by side" if double.overlap else "one after the other"
    thing = f"{last.row.table}/{last.row.key}".rstrip("/")
    return f"{len(double.claims)} claims of {thing} were granted {beside}, the last by {path}"


def _times(first: Claim, last: Claim) -> dict[str, Any]:
    told = seconds(rival=interval(first.op), claim=interval(last.op))
    return {name: at for name, at in told.items() if at is not None}


def _ruled_out(double: Double) -> tuple[str, ...]:
    refused = f"a release between the claims: {len(double.releases)} of {len(double.claims) - 1} needed"
    told = [refused, "a snapshot between them that shows it free: none"]
    if not double.same:
        told.append("one claim sent again: each names a holder, or made a thing, of its own")
    return tuple(told)


def settled(
    finding: Finding,
    double: Double,
    run: str,
    refusal: Refusal | None,
    *,
    strong: bool,
    declared: bool = False,
    shared: bool = False,
) -> Finding | None:
    """The finding once all refusals of the run are known; None: nothing shows that a second claim is a fault.

    `strong`: the column's very name says that one holds it; without it, a change of hands may be lawful. `declared`:
    the config says that it is not. `shared`: it was seen to go to a second one, long after the first.
    """
    if refusal is not None:
        address = exchange_address(run, refusal.episode, refusal.seq)
        whom = "its own holder" if refusal.own else "another"
        return replace(
            finding,
            ruled_out=(*finding.ruled_out, f"that a second claim is lawful: {address} refused one to {whom}"),
        )
    if double.same or not strong:
        return None
    if declared or (double.overlap and not shared):
        return finding
    if finding.grade is Grade.SUSPECTED:
        return None
    return replace(
        finding, grade=Grade.SUSPECTED,
        cannot_say=finding.cannot_say + "; whether taking it over is lawful: no claim of a held row was refused",
    )  # fmt: skip


def too_many(told: Told, over: Over, wronged: Sequence[Op]) -> Finding:
    """More holders than there is room for, as it falls on the episode of `wronged`."""
    last, doubt = wronged[0], told.covered()
    others = [op for op in over.makers if op not in wronged]
    witnesses = [told.witness(op, "claim") for op in (*others[-4:], *wronged)]
    counted = ", ".join(f"{row.table}/{row.key}" for row in over.holders[:6])
    return Finding(
        kind=Kind.RACE, sub="over-capacity", grade=Grade.SUSPECTED if doubt else Grade.PROVEN,
        blame=Blame.ENVIRONMENT, blame_reason="it granted more than there was room for",
        run=told.run, episode=told.episode, lane=last.lane, pointer=pointer(over.thing, over.column),
        values=(over.room, plain(over.shown)), exchanges=tuple(witnesses), snapshots=told.at([over.index]),
        assumptions=(
            f"each row of {over.holders[0].table} that is not cancelled holds one place of {over.thing.table}, "
            f"and no more than {over.column or 'one'} says may"
            if over.holders else f"{over.column} of {over.thing.table} is what it is called",
            told.assumed(),
        ),
        ruled_out=(
            "a release between the claims: the snapshot shows them all at once" + (f" ({counted})" if counted else ""),
            "one claim sent again: each made a row of its own",
        ),
        reproduce=told.reproduce(last.env),
        title=f"{over.thing.table}/{over.thing.key} has room for {over.room} and was given to {over.shown}"
        if over.holders else f"{over.thing.table}/{over.thing.key} {over.column} is {over.shown}",
        cannot_say="whether overbooking is meant: the environment may allow it" + (f"; {doubt}" if doubt else ""),
        times=_spanned(told, others[-1] if others else None, last, over.index),
        effect={"granted": plain(over.shown), "of": over.room, "overlapped": over.overlap},
        scope=told.scope, covers=frozenset((op.episode, op.seq) for op in wronged), count=len(wronged), at=last.fwd,
    )  # fmt: skip


def _spanned(told: Told, rival: Op | None, claim: Op, index: int) -> dict[str, Any]:
    shot = told.shots[index].snapshot
    found = seconds(
        rival=interval(rival) if rival else None, claim=interval(claim), snapshot=(shot.begun, shot.done)
    )  # fmt: skip
    return {name: at for name, at in found.items() if at is not None}


def settled_over(finding: Finding, over: Over, run: str, refused: Full | None, *, lawful: bool) -> Finding | None:
    """As `settled`: without a refusal, what came one after the other may be a policy; a guessed room is no proof.
    `lawful`: one too many was let in with nobody beside it."""
    if refused is not None and refused.exact:
        address = exchange_address(run, refused.episode, refused.seq)
        return replace(finding, ruled_out=(*finding.ruled_out, f"overbooking as a policy: {address} was refused"))
    if refused is None and (not over.overlap or not over.named):
        return None
    if over.overlap and over.named and over.column and not lawful:
        return finding
    doubt = "how many may hold it: no snapshot says so, and no claim was refused"
    if refused is not None:
        doubt = "how many may hold it: none was refused before more than that were there"
    elif over.column:
        doubt = "how many may hold it: one too many was let in with nobody beside it, and none was refused"
    return replace(finding, grade=Grade.SUSPECTED, cannot_say=f"{finding.cannot_say}; {doubt}")
