"""A race shown again: the two requests that a finding names, in both orders and then together (`session.race`)."""

from __future__ import annotations

from replayproxy.errors import CannotJudge
from replayproxy.session.race import SHOWN as RACED
from replayproxy.session.race import UNDECIDED as OPEN
from replayproxy.session.race import Ask, race
from replayproxy.session.reproduce_case import NOT_SHOWN, SHOWN, UNDECIDED, Came, Case

TIMES = 20
"""A race seldom shows at once: together at least so often, whatever --repeat says."""


async def side_by_side(case: Case) -> Came:
    """Together N times. Raises CannotJudge where the finding's requests are not two of one episode."""
    roles = ("claim", "write")
    seqs = list(dict.fromkeys(p.seq for p in case.points if p.role in roles and p.episode == case.episode))
    address = f"{case.run.name}/{case.episode}"
    if len(seqs) < 2:
        raise CannotJudge(
            "one after the other a race is not shown again, and its requests are not two of one episode",
            hint=f"replayproxy race {address}",
        )
    a, b = seqs[-2:]
    done = await race(
        case.store,
        Ask(address=address, words=case.ask.words, times=max(case.repeat, TIMES), only=(a, b), limit=case.ask.limit),
        case.say,
    )
    (one,) = done.raced
    k, n = len(one.shown), len(one.attempts)
    verdict = SHOWN if done.verdict == RACED else UNDECIDED if done.verdict == OPEN else NOT_SHOWN
    return Came(
        verdict=verdict, k=k, n=n, told=f"{case.episode}/{a} and {b} together {k}/{n}, in turn 0/{len(one.orders)}",
        confirmed=k > 0, reasons=(one.reason,) if one.reason else (),
        evidence={"pair": [f"{address}#{a}", f"{address}#{b}"]},
        blame_reason="what no order of the two explains" if k else "",
    )  # fmt: skip
