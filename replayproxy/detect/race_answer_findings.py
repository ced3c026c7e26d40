"""Findings of answers that contradict what was done."""

from __future__ import annotations

from replayproxy.core import jsonvalue
from replayproxy.detect.finding import Blame, Finding, Grade, Kind, plain, seconds
from replayproxy.detect.race_answers import Done, Phantom, Twice
from replayproxy.detect.race_findings import Told, interval, pointer

IN_TIME = "a write takes effect within the time between its request and its answer"


def done_all_the_same(told: Told, found: Done) -> Finding:
    """A refused write (G1a), or one that was answered as failed, whose words the state shows."""
    op, doubt = found.op, told.covered()
    says = "an answer 4xx says that nothing was done" if op.refused else "an answer 5xx says that it was not done"
    return Finding(
        kind=Kind.RACE, sub="refused-but-done" if op.refused else "failed-but-done",
        grade=Grade.SUSPECTED if doubt else Grade.PROVEN,
        blame=Blame.ENVIRONMENT, blame_reason=f"it did what it had answered with {op.status}",
        run=told.run, episode=told.episode, lane=op.lane, pointer=pointer(found.row, found.column),
        values=(plain(found.was), plain(found.value)),
        exchanges=(told.witness(op, "write", jsonvalue.pointer(found.column), found.value),),
        snapshots=told.at([found.before, found.after]),
        assumptions=(says, *((IN_TIME,) if op.refused else ()), told.assumed()),
        ruled_out=("another write that can have done it between the two snapshots: none",),
        reproduce=told.reproduce(op.env),
        title=f"{op.method} {op.target} was answered {op.status}, and {found.row.table}/{found.row.key} is as it asked",
        cannot_say="what the answer meant" + (f"; {doubt}" if doubt else ""),
        times=seconds(write=interval(op)), effect={"anomaly": "G1a"} if op.refused else {}, scope=told.scope,
        covers=frozenset({(op.episode, op.seq)}), at=op.fwd,
    )  # fmt: skip


def made_twice(told: Told, found: Twice) -> Finding:
    """Two rows of one request: what failed was done, and done again by its repeat."""
    failed, again, doubt = found.failed, found.again, told.covered()
    said = f"answered {failed.status}" if failed.status is not None else "never answered"
    keyed = bool(failed.once) and failed.once == again.once
    shot = told.shots[found.index].snapshot
    times = seconds(rival=interval(failed), write=interval(again), snapshot=(shot.begun, shot.done))
    return Finding(
        kind=Kind.RACE, sub="applied-twice", grade=Grade.SUSPECTED if doubt else Grade.PROVEN,
        blame=Blame.INFRASTRUCTURE if failed.status is None and not keyed else Blame.ENVIRONMENT,
        blame_reason="both bear one idempotency key" if keyed else f"it did what was {said}",
        run=told.run, episode=told.episode, lane=again.lane, pointer=pointer(found.second, ""),
        values=(1, 2), exchanges=(told.witness(failed, "write"), told.witness(again, "write")),
        snapshots=told.at([found.index]),
        assumptions=("the same request of the same client, sent once more, is a repeat", IN_TIME, told.assumed()),
        ruled_out=(f"one row: the snapshot shows {found.first.key} and {found.second.key} of {found.first.table}",
                   "another request that made either: none"),
        reproduce=told.reproduce(again.env),
        title=f"{again.method} {again.target} was {said}, sent again, and done twice",
        cannot_say="whether two were meant" + (f"; {doubt}" if doubt else ""), times=times,
        effect={"granted": 1, "rows": [f"{row.table}/{row.key}" for row in (found.first, found.second)]},
        scope=told.scope, covers=frozenset({(again.episode, again.seq)}), at=again.fwd,
    )  # fmt: skip


def held_by_nobody(told: Told, found: Phantom) -> Finding:
    """A claim that was refused for a holder that the state does not know."""
    op, doubt = found.refused, told.covered()
    reads = (told.witness(found.read, "read"),) if found.read is not None else ()
    said = "it was shown free, and " if found.read is not None else ""
    return Finding(
        kind=Kind.RACE, sub="phantom-conflict", grade=Grade.SUSPECTED if doubt else Grade.PROVEN,
        blame=Blame.ENVIRONMENT, blame_reason="it refused what nobody held",
        run=told.run, episode=told.episode, lane=op.lane, pointer=pointer(found.row, found.column),
        values=(None, plain(found.holder)),
        exchanges=(*reads, told.witness(op, "claim", jsonvalue.pointer(found.column), found.holder)),
        snapshots=told.at([found.before, found.after]),
        assumptions=(f"{found.column} of {found.row.table} names who has the row", told.assumed()),
        ruled_out=("a rival's claim between the snapshots, or between the read and the claim: none",),
        reproduce=told.reproduce(op.env),
        title=f"{said}{op.target} was refused for a holder, while the state has none before and after",
        cannot_say="where the environment saw the holder" + (f"; {doubt}" if doubt else ""),
        times={k: v for k, v in seconds(read=interval(found.read) if found.read else None,
                                        claim=interval(op)).items() if v is not None},
        effect={"row": f"{found.row.table}/{found.row.key}"}, scope=told.scope,
        covers=frozenset({(op.episode, op.seq)}), at=op.fwd,
    )  # fmt: skip
