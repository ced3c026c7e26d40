"""Stale reads and nondeterminism shown again: the episode is sent again from its recorded start, up to the read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from replayproxy.core.plans import only
from replayproxy.core.schedule import ended_at, sent_at
from replayproxy.detect import validator_pairs
from replayproxy.detect.finding import plain
from replayproxy.detect.views import Views
from replayproxy.detect.volatility import LOW
from replayproxy.errors import CannotJudge
from replayproxy.session.bounds import bound_text
from replayproxy.session.outcomes import classes, told_histogram
from replayproxy.session.redrive_once import Repetition, Session, Way
from replayproxy.session.redrive_trial import carried
from replayproxy.session.reproduce_bleed import after_earlier
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
    up_to,
    values_at,
)

STILL_THERE = (
    "each time the odd answer: what made it so may still be there, out of a restore's reach: start the environment anew"
)


async def _repetitions(case: Case, seq: int) -> tuple[Session, list[Repetition]]:
    trace = case.trace(case.episode)
    one, session = await case.session(trace)
    assert one.plan is not None
    way = Way(plan=only(one.plan, up_to(trace, seq)))
    found: list[Repetition] = []
    for number in range(1, case.repeat + 1):
        case.say(f"{trace.address} up to #{seq}: {number} of {case.repeat}")
        found.append(await session.once(number, way))
    gone(found)
    return session, found


def _read(case: Case) -> Point:
    read = case.point("read", "witness")
    if read is None or read.episode != case.episode:
        raise CannotJudge("the finding names no exchange of the episode that it falls on")
    return read


async def stale_read(case: Case) -> Came:
    """Whether the same read, after the same write was answered, shows the old value again."""
    read, write = _read(case), case.point("write")
    if write is not None and write.episode != case.episode:
        raise CannotJudge(
            f"the write is in another episode ({write.short}), which ran beside this one",
            hint=f"replayproxy redrive {case.run.name}/{write.episode} {case.run.name}/{case.episode}",
        )
    _, found = await _repetitions(case, read.seq)
    told = [_stale(case, one, read, write) for one in found]
    k, n = told.count("old"), len(told) - told.count("void")
    lost = told.count("void")
    reasons = [f"{lost} of {len(told)} times the write or the read was not answered as recorded"] if lost else []
    if not n:
        return Came(
            verdict=UNDECIDED, k=0, n=0, told=f"0 of {len(told)} times it could be seen", reasons=tuple(reasons)
        )
    if not k:
        reasons.append(bound_text(n) + "; a cache may need the recorded pauses (--pace recorded)")
    shown = [plain(value) for one in found for value in values_at(answered(one, read.seq), read.pointer)]
    return Came(
        verdict=SHOWN if k else NOT_SHOWN, k=k, n=n, told=f"old value again {k}/{n}", confirmed=k > 0,
        reasons=tuple(reasons), evidence={"values": shown, "expected": plain(case.finding["values"][0])},
        blame_reason="the write had been answered before the read was sent" if k else "",
    )  # fmt: skip


def _stale(case: Case, one: Repetition, read: Point, write: Point | None) -> str:
    """`old`, `other`, or `void` where the read does not follow an answered write."""
    after = answered(one, read.seq)
    if after is None or (after.response is not None and after.response.status >= 500):
        return "void"
    if write is not None:
        before = answered(one, write.seq)
        if before is None or before.response is None or not 200 <= before.response.status < 300:
            return "void"
        if ended_at(before) >= sent_at(after):
            return "void"  # side by side both values are right
    old, new = (spelled(value, one.bindings) for value in reversed(case.finding["values"]))
    shown = [str(value) for value in values_at(after, read.pointer)]
    if read.pointer and shown and not isinstance(case.finding["values"][1], dict | list):
        return "old" if set(shown) & old and not set(shown) & new else "other"
    return "other" if differs_from_recorded(case.trace(case.episode), one, read.seq) else "old"


async def nondeterminism(case: Case) -> Came:
    """Whether equal starts and equal requests are answered in several ways again."""
    if case.finding.get("sub") == validator_pairs.SUB:
        return await _validator(case)
    read = _read(case)
    session, found = await _repetitions(case, read.seq)
    groups = classes(found, lambda a, b: not differ(session, a, b, read.seq))
    counts = [len(group) for group in groups]
    k, n = len(found) - max(counts), len(found)
    if not k:
        if not differs_from_recorded(case.trace(case.episode), found[0], read.seq):
            return _still_there(n)
        left = await after_earlier(case, read)
        if left is not None:
            return left
    reasons = [] if k else [bound_text(n)]
    shown = [(values_at(answered(one, read.seq), _body(read.pointer)) or [None])[0] for one in found]
    over = k > 0 and carried([[one.number for one in group] for group in groups], shown)
    if over:
        reasons.append("the outcomes came one after the other, none came back: state that no restore puts back?")
    low = case.finding.get("sub") in LOW
    if k and low:
        reasons.append("another order, or a number that counts on, stays a low finding however often it comes")
    where = f"{told_histogram(counts)} from one start" if k else f"{n}/{n} alike"
    return Came(
        verdict=SHOWN if k else NOT_SHOWN, k=k, n=n, told=where, confirmed=k > 0 and not over and not low,
        reasons=tuple(reasons), evidence={"outcomes": _outcomes(groups, read)},
        blame_reason="from one start the same requests were answered in several ways" if k else "",
    )  # fmt: skip


async def _validator(case: Case) -> Came:
    """Whether one validator names two bodies again."""
    read, first = _read(case), case.point("witness")
    if first is None:
        raise CannotJudge("the finding names no two answers")
    _, found = await _repetitions(case, read.seq)
    pairs = [(answered(one, first.seq), answered(one, read.seq)) for one in found]
    whole = [(a, b) for a, b in pairs if a and b and validator_pairs.name_of(a) and validator_pairs.name_of(b)]
    shown = [validator_pairs.differing(a, b, views=Views(), rules=case.rules) for a, b in whole]
    again = [one for one in shown if one is not None]
    k, n = len(again), len(whole)
    lost = len(pairs) - n
    reasons = [f"{lost} of {len(pairs)} times an answer or its validator did not come"] if lost else []
    if not n:
        return Came(
            verdict=UNDECIDED, k=0, n=0, told=f"0 of {len(pairs)} times it could be seen", reasons=tuple(reasons)
        )
    sure = any(not one.doubt for one in again)
    if not sure:
        reasons.append(f"{again[0].doubt} cannot be said" if again else bound_text(n))
    return Came(
        verdict=SHOWN if k else NOT_SHOWN, k=k, n=n, told=f"one validator, two bodies again {k}/{n}", confirmed=sure,
        reasons=tuple(reasons), evidence={"validators": [one.name.text for one in again]},
        blame_reason="it gave two bodies one name" if k else "",
    )  # fmt: skip


def _still_there(n: int) -> Came:
    """The answer that was the odd one when it was recorded is the only one now."""
    return Came(
        verdict=UNDECIDED,
        k=0,
        n=n,
        told=f"{n}/{n} alike, as recorded",
        reasons=(STILL_THERE,),
    )


def _outcomes(groups: Sequence[Sequence[Repetition]], read: Point) -> list[dict[str, Any]]:
    return [
        {
            "times": len(group), "repeats": [one.number for one in group],
            "values": [plain(value) for value in values_at(answered(group[0], read.seq), _body(read.pointer))],
        }
        for group in groups
    ]  # fmt: skip


def _body(pointer: str) -> str:
    return pointer if pointer.startswith(("/", "body")) else ""
