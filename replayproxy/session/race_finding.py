"""From a race that was shown to a finding: which two requests, what an order would have given, what was there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from replayproxy.core.values import Trace
from replayproxy.detect import racing
from replayproxy.detect.finding import Blame, Finding, Grade, Kind, Witness, exchange_address, seconds
from replayproxy.detect.pairs import TWICE
from replayproxy.session.race_ground import Attempt, Contest

WORDS = {
    "double-claim": "both were granted, and no order of the two grants both",
    "lost-update": "both were granted, and the effect of one is gone",
    "lost-write": "one was granted and did nothing",
    "duplicate": "more was made than any order of the two makes",
    "refused-yet-done": "one was refused and took effect all the same",
    "same-value": "both were given a value that any order gives to one alone",
    "neither-order": "what is left is what no order of the two leaves",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """An attempt that no order of the two explains, and why."""

    attempt: Attempt
    anomaly: racing.Anomaly


def finding_of(
    trace: Trace, contest: Contest, serial: racing.Serial, attempts: Sequence[Attempt], shown: Sequence[Shown],
    grade: Grade,
) -> Finding:  # fmt: skip
    """The finding of one pair: named by the anomaly that came most often."""
    (sub, _), *_ = Counter(one.anomaly.sub for one in shown).most_common()
    first = next(one for one in shown if one.anomaly.sub == sub)
    broken, attempt, risky = first.anomaly, first.attempt, contest.risky
    k, n = len(shown), len(attempts)
    env = contest.a.env
    what = f"{_line(contest.a.request.method, risky.path)}"
    both = f"{what}, sent twice" if risky.how == TWICE else f"{what} (#{risky.a}) and #{risky.b}"
    return Finding(
        kind=Kind.LOST_UPDATE if broken.loses else Kind.RACE, sub=sub, grade=grade, blame=Blame.ENVIRONMENT,
        blame_reason="it answered two requests that came together in a way that no order of them explains",
        run=trace.run.name, episode=trace.episode.name, lane=contest.a.lane, pointer=broken.pointer,
        values=(broken.expected, broken.found), exchanges=_witnesses(trace, contest, attempt),
        snapshots=tuple(f"{trace.address}/s{s.n}" for s in trace.snapshots if s.when == "start" and s.root is not None),
        assumptions=_assumptions(attempt),
        ruled_out=(
            f"A before B: {serial.ab[0].statuses}, sent {times(len(serial.ab))} with the same outcome",
            f"B before A: {serial.ba[0].statuses}, sent {times(len(serial.ba))} with the same outcome",
            "instants, fresh ids, the numbers of new rows and a lawful refusal of either: taken out before comparing",
            "a state that was still changing: it was read again after a pause",
        ),
        reproduce=f"replayproxy race {trace.address} --env {env}=URL --pair {risky.a},{risky.b}",
        title=f"{both} together: {WORDS[sub]}",
        cannot_say="how often it happens in traffic as it comes: these two were released together from a barrier",
        times=_times(attempt),
        effect={
            "k": k, "n": n, "in_turn": [serial.ab[0].statuses, serial.ba[0].statuses],
            "together": dict(Counter(one.outcome.statuses for one in attempts).most_common()),
            "after_ms": round(attempt.after * 1000, 3), "twice": risky.how == TWICE, "as_another": contest.other,
            "guard": risky.guard or None,
        },
        scope={"cells_mapped": None, "write_coverage": None, "lanes": 2},
        count=k, at=contest.a.times.head,
    )  # fmt: skip


def times(n: int) -> str:
    return "once" if n == 1 else f"{n} times"


def _line(method: bytes, path: str) -> str:
    return f"{method.decode('ascii', 'replace')} {path}"


def _assumptions(attempt: Attempt) -> tuple[str, ...]:
    states = "there is no snapshot: only answers were compared, and the reset gives the same start each time"
    if attempt.before:
        states = "the snapshots show all state that the two act on"
    return states, "a request that is granted is in force when its answer comes (nothing acts later unseen)"


def _witnesses(trace: Trace, contest: Contest, attempt: Attempt) -> tuple[Witness, ...]:
    """The recorded exchanges, each with the live answer of the attempt that is shown."""
    found = []
    for seq, recorded, live in ((contest.risky.a, contest.a, attempt.a), (contest.risky.b, contest.b, attempt.b)):
        found.append(
            Witness(
                address=exchange_address(trace.run.name, trace.episode.name, seq), role="claim",
                method=recorded.request.method.decode("ascii", "replace"),
                target=recorded.request.target.decode("utf-8", "replace"),
                status=live.response.status if live.response is not None else None, lane=recorded.lane,
                fwd=live.times.fwd, up_end=live.times.up_end, wall=live.times.wall,
            )
        )  # fmt: skip
    return tuple(found)


def _times(attempt: Attempt) -> dict[str, Any]:
    a, b = ((one.times.fwd or one.times.head, one.times.up_end) for one in (attempt.a, attempt.b))
    return seconds(claim=a, rival=b)
