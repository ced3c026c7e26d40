"""The tries of one pair: in turn, together, and in turn again as often as it takes to believe what was seen."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from replayproxy.core.values import Trace
from replayproxy.detect import racing
from replayproxy.detect.finding import Finding, Grade
from replayproxy.detect.pairs import Risky
from replayproxy.detect.racing import Fate
from replayproxy.errors import CannotJudge
from replayproxy.session.race_finding import Shown, finding_of
from replayproxy.session.race_ground import Attempt, Contest, Ground

SHOWN, NOT_SHOWN, UNDECIDED = "shown", "not shown", "undecided"
LARGEST_OFFSET = 0.05
SHARES = (0.0, -0.0, 0.05, -0.05, 0.1, -0.1, 0.25, -0.25, 0.5, -0.5)
"""How much of the first answer's time B's last byte comes after A's; -0.0 is together, B's byte first."""
DOUBT = 0.01
MOST_CONTROLS = 60


@dataclass(slots=True, kw_only=True)
class Raced:
    """What came of one pair. `orders`: the times in turn; `shown` has what no order of the two explains; `reason`: why
    nothing can be said."""

    contest: Contest
    serial: racing.Serial = field(default_factory=lambda: racing.Serial(ab=(), ba=()))
    orders: list[Attempt] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    shown: list[Shown] = field(default_factory=list)
    reason: str = ""
    finding: Finding | None = None

    @property
    def risky(self) -> Risky:
        return self.contest.risky

    @property
    def verdict(self) -> str:
        if self.reason:
            return UNDECIDED
        return SHOWN if self.shown else NOT_SHOWN


def controls(k: int, n: int) -> int:
    """How often it has to stay away in turn before it may not be a thing that comes so often by itself."""
    if k >= n:
        return 1
    return min(MOST_CONTROLS, math.ceil(math.log(DOUBT) / math.log(1 - k / n)))


class Tries:
    """See the module. `what` names the pair to the one who waits."""

    def __init__(
        self, ground: Ground, contest: Contest, times: int, what: str, say: Callable[[str], None]
    ) -> None:  # fmt: skip
        self._ground, self._contest, self._times, self._what, self._say = ground, contest, times, what, say
        self._one = Raced(contest=contest)

    async def run(self, trace: Trace) -> Raced:
        one = self._one
        try:
            self._say(f"{self._what}: #{one.risky.a} and #{one.risky.b} in turn, both orders")
            await self._in_turn("ab", "ba", "ab")
            one.reason = one.serial.unsteady() or _another_situation(one)
            if not one.reason:
                self._say(f"{self._what}: together, {self._times} times")
                await self._together()
                one.shown = _shown(one)
            if one.shown:
                await self._controlled()
        except CannotJudge as problem:
            one.reason = str(problem)
        if one.shown and not one.reason:
            one.finding = finding_of(trace, one.contest, one.serial, one.attempts, one.shown, _grade(one))
        return one

    async def _in_turn(self, *orders: str) -> None:
        one = self._one
        for order in orders:
            one.orders.append(await self._ground.attempt(self._contest, order))
        ab, ba = ([a.outcome for a in one.orders if a.order == order] for order in ("ab", "ba"))
        one.serial = racing.Serial(ab=ab, ba=ba)

    async def _together(self) -> None:
        one = self._one
        offset = min(LARGEST_OFFSET, max(attempt.took for attempt in one.orders))
        for number in range(self._times):
            # Together with B's byte first: the least delay that puts A behind it.
            share = SHARES[number % len(SHARES)]
            after = offset * share or (0.0 if number % len(SHARES) == 0 else -1e-9)
            attempt = await self._ground.attempt(self._contest, "together", after)
            if racing.anomaly(one.serial, attempt.outcome) is not None:
                attempt = await self._ground.settled(attempt)
            one.attempts.append(attempt)

    async def _controlled(self) -> None:
        """In turn again: a value that varies by itself, a limit that is used up, a number that no restore puts back
        would show here as often as it did together."""
        one = self._one
        self._say(f"{self._what}: in turn again, to see that it stays away")
        enough = controls(len(one.shown), len(one.attempts))
        for number in range(enough):
            await self._in_turn("ab" if number % 2 == 0 else "ba")
            one.reason = one.serial.unsteady()
            if one.reason:
                return
        one.shown = _shown(one)


def _shown(one: Raced) -> list[Shown]:
    found = []
    outcomes = [attempt.outcome for attempt in one.attempts]
    for attempt, same in zip(one.attempts, racing.repeated(one.serial, outcomes), strict=True):
        broken = racing.anomaly(one.serial, attempt.outcome)
        if broken is None and same is not None:
            broken = racing.Anomaly(sub="same-value", pointer=same[0], expected=same[1], found=same[2])
        if broken is not None:
            found.append(Shown(attempt=attempt, anomaly=broken))
    return found


def _grade(one: Raced) -> Grade:
    """Confirmed, but for what came so seldom that its staying away in turn says little."""
    rate, stayed_away = len(one.shown) / len(one.attempts), len(one.orders)
    return Grade.CONFIRMED if (1 - rate) ** stayed_away < DOUBT else Grade.SUSPECTED


def _another_situation(one: Raced) -> str:
    """Why the requests do not meet what they met when they were recorded; "" they do."""
    a, first = one.contest.a, one.orders[0]
    recorded = a.response.status if a.response is not None else None
    live = first.outcome.a
    if recorded is not None and recorded < 400 and live.fate is not Fate.GRANTED:
        return f"#{a.seq} alone is answered {live.status} and was recorded as {recorded}: not the recorded situation"
    effects = [outcome.effect for outcome in one.serial.all]
    if one.risky.row is not None and all(effect is not None and not effect for effect in effects):
        return (
            f"in turn the two change nothing, and when recorded #{a.seq} changed {one.risky.row.table}/"
            f"{one.risky.row.key}: something that no restore puts back knows them already"
        )
    return ""
