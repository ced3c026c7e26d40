"""The ground of a race: the recorded start put back, what came before sent again, then two requests in one of three
ways - A before B, B before A, or both released from a barrier - and the state read before and after.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from replayproxy.core.canonical import Kind, field, view
from replayproxy.core.jsonvalue import leaves, pointer
from replayproxy.core.plans import in_turn, only
from replayproxy.core.schedule import Plan, ended_at, sent_at, settled
from replayproxy.core.values import Exchange, Outcome, RowChange, Snapshot
from replayproxy.detect import racing
from replayproxy.detect.pairs import TWICE, Risky
from replayproxy.detect.racing_effect import Effect, Names, effect_of
from replayproxy.detect.states import States as Differences
from replayproxy.detect.states import TooMuchChanged
from replayproxy.drive.driver import Driver, aimed, live_exchange
from replayproxy.drive.message import message
from replayproxy.drive.volley import Loaded, volley
from replayproxy.drive.wire import Answer
from replayproxy.errors import CannotJudge, WorldTrouble
from replayproxy.session.redrive_once import Session
from replayproxy.session.redrive_secrets import SecretBindings

SETTLE = 0.2
"""Seconds after which a state that goes on changing by itself is seen to."""
CREDENTIALS = (b"authorization", b"cookie", b"x-api-key", b"api-key")


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """What is sent: `prefix` in turn, then `a` and `b`. `other`: b goes out in another's name than a."""

    risky: Risky
    prefix: Plan
    a: Exchange
    b: Exchange
    other: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One time through. `order`: `ab`, `ba`, or `together`, then with the seconds that B's last byte came after A's.
    `changes`: the rows that differ from before both, as they were found; `effect` tells them for comparison."""

    order: str
    after: float
    a: Exchange
    b: Exchange
    outcome: racing.Outcome
    names: Names
    before: Mapping[str, bytes]
    changes: Sequence[RowChange] = ()

    @property
    def took(self) -> float:
        """Seconds that the first answer took."""
        first = self.a if self.order != "ba" else self.b
        return max(0, ended_at(first) - sent_at(first)) / 1e9 if first.times.up_end is not None else 0.0


class Still:
    """Watches nothing: what comes before the two is only sent."""

    async def answered(self, recorded: Exchange, live: Exchange) -> bool:
        return False


class Ground(Session):
    """A re-drive's session that ends in a contest instead of a comparison."""

    def contest(self, risky: Risky, drawn: Mapping[int, set[int]]) -> Contest:
        """The pair with what has to be sent before it: all that came before A, and what B took a name from since."""
        exchanges = {e.seq: e for e in self._trace.exchanges}
        a, b = exchanges[risky.a], exchanges[risky.b]
        before = {e.seq for e in exchanges.values() if (e.times.head, e.seq) < (a.times.head, a.seq)}
        plan = in_turn(only(self._plan, (before | _sources(b.seq, drawn)) - {a.seq, b.seq}))
        if risky.how != TWICE:
            return Contest(risky=risky, prefix=plan, a=a, b=b)
        copy = replace(a, seq=max(exchanges) + 1, lane=f"{a.lane}-b")
        theirs = _as_another(copy, [exchanges[seq] for seq in sorted(before)])
        return Contest(risky=risky, prefix=plan, a=a, b=theirs or copy, other=theirs is not None)

    async def attempt(self, contest: Contest, order: str, after: float = 0.0) -> Attempt:
        """One time through, from the restore to the last reading. Raises what stands against a judgement."""
        restored = await self._states.restore()
        for env in {contest.a.env, contest.b.env} & set(restored.open):
            raise CannotJudge(f"the start state of {env} is not known to be the recorded one: {restored.open[env]}")
        bindings = SecretBindings(self._targets.authorities, self._writes, self._credentials, self._redactor)
        await self._prefix(contest, bindings)
        start = dict(restored.verified)
        before = await self._roots("before")
        names = Names(self._changes(start, before))
        pair, first = await self._sent(contest, bindings, order, after, before, names)
        left = await self._roots("after")
        changes = self._changes(before, left)
        told = racing.Outcome(
            a=_call(pair[0]), b=_call(pair[1]), effect=effect_of(changes, names) if before else None, first=first
        )
        if order != "together":
            await self._at_rest(left)
        return Attempt(order=order, after=after, a=pair[0], b=pair[1], outcome=told, names=names, before=before,
                       changes=changes)  # fmt: skip

    async def settled(self, attempt: Attempt) -> Attempt:
        """The attempt with the state read once more, after the environment has had time to finish."""
        if not attempt.before:
            return attempt
        await asyncio.sleep(SETTLE)
        changes = self._changes(attempt.before, await self._roots("after"))
        return replace(
            attempt, changes=changes, outcome=replace(attempt.outcome, effect=effect_of(changes, attempt.names))
        )

    async def _prefix(self, contest: Contest, bindings: SecretBindings) -> None:
        """Sends what came before. CannotJudge when an answer has another status than the recorded one."""
        if all(step.skip for step in contest.prefix.steps):
            return
        exchanges = settled(self._trace.exchanges, self._trace.events)
        driver = Driver(exchanges, contest.prefix, self._targets.envs, bindings, Still(), pieces=self._reader.pieces,
                        limit=self._ask.limit)  # fmt: skip
        drive = await driver.run()
        recorded = {e.seq: e for e in exchanges}
        for seq, live in sorted(drive.live.items()):
            if live.outcome is Outcome.REFUSED:
                raise WorldTrouble(f"environment {live.env} went away at #{seq}: {live.error or 'refused'}")
            if _status(live) != _status(recorded[seq]):
                raise CannotJudge(
                    f"#{seq}, which comes before them, is answered {_status(live)} and was recorded as "
                    f"{_status(recorded[seq])}: this is not the recorded situation",
                    hint=f"replayproxy redrive {self._trace.address}",
                )

    async def _sent(
        self, contest: Contest, bindings: SecretBindings, order: str, after: float, before: Mapping[str, bytes],
        names: Names,
    ) -> tuple[tuple[Exchange, Exchange], Effect | None]:  # fmt: skip
        """The two live exchanges, A's first; and what the first of a serial order had done by itself."""
        loaded = [self._loaded(e, bindings) for e in (contest.a, contest.b)]
        if order == "together":
            shots = [replace(loaded[0][0], after=max(0.0, -after)), replace(loaded[1][0], after=max(0.0, after))]
            answers = await volley(shots)
            return (loaded[0][1](answers[0]), loaded[1][1](answers[1])), None
        turn = (0, 1) if order == "ab" else (1, 0)
        first = loaded[turn[0]][1]((await volley([loaded[turn[0]][0]]))[0])
        alone = None
        if before:
            mid = await self._roots("between")
            alone = effect_of(self._changes(before, mid), names)
            await self._at_rest(mid)
        second = loaded[turn[1]][1]((await volley([loaded[turn[1]][0]]))[0])
        return ((first, second) if order == "ab" else (second, first)), alone

    def _loaded(self, recorded: Exchange, bindings: SecretBindings) -> tuple[Loaded, Callable[[Answer], Exchange]]:
        target = self._targets.envs[recorded.env]
        request = aimed(recorded, target, bindings)
        limit = self._ask.limit + 2 * max(0, ended_at(recorded) - sent_at(recorded)) / 1e9
        shot = Loaded(
            origin=target.origin, message=message(request, host=target.host, pieces=self._reader.pieces),
            limit=min(limit, 2 * self._ask.limit),
        )  # fmt: skip

        def lived(answer: Answer) -> Exchange:
            live = live_exchange(recorded, request, target.host, answer, answer.fwd, time.time_ns(), target.origin)
            return bindings.clean(live)

        return shot, lived

    async def _roots(self, when: str) -> dict[str, bytes]:
        shots: Mapping[str, Snapshot] = await self._states.now(when)
        return {name: shot.root for name, shot in shots.items() if shot.root is not None}

    async def _at_rest(self, seen: Mapping[str, bytes]) -> None:
        """CannotJudge when the state goes on changing although nothing is sent."""
        if not seen:
            return
        await asyncio.sleep(SETTLE)
        if await self._roots("between") != seen:
            raise CannotJudge(
                "the state goes on changing after the answers, so what an order of the two leaves is not known",
                hint="see to what changes it (a job, a cache that is written back), or leave it out of the snapshot",
            )

    def _changes(self, a: Mapping[str, bytes], b: Mapping[str, bytes]) -> list[RowChange]:
        """The rows that differ, of all snapshots; with several, the snapshot's name stands before the table's."""
        states = Differences(self.load)
        found: list[RowChange] = []
        try:
            for name in sorted(a.keys() & b.keys()):
                lead = f"{name}." if len(b) > 1 else ""
                found += [replace(one, table=lead + one.table) for one in states.changes(a[name], b[name])]
        except TooMuchChanged:
            raise CannotJudge("too many rows differ before and after", hint="leave out what is no state") from None
        return found


def _sources(seq: int, drawn: Mapping[int, set[int]]) -> set[int]:
    """All exchanges that a request took a name from, by whatever way."""
    found: set[int] = set()
    todo = [seq]
    while todo:
        new = drawn.get(todo.pop(), set()) - found
        found |= new
        todo += new
    return found


def _as_another(copy: Exchange, before: Sequence[Exchange]) -> Exchange | None:
    """The request in the name of somebody else who speaks to the environment in this episode; None: there is none."""
    own = _credentials(copy)
    for exchange in reversed(before):
        other = _credentials(exchange)
        if exchange.env == copy.env and other and other.keys() == own.keys() and other != own:
            fields = tuple((name, other.get(name.lower(), value)) for name, value in copy.request.fields)
            return replace(copy, request=replace(copy.request, fields=fields))
    return None


def _credentials(exchange: Exchange) -> dict[bytes, bytes]:
    found = ((name, field(exchange.request.fields, name)) for name in CREDENTIALS)
    return {name: value for name, value in found if value is not None}


def _status(exchange: Exchange) -> int | None:
    return exchange.response.status if exchange.response is not None else None


def _call(live: Exchange) -> racing.Call:
    response = live.response
    status = response.status if response is not None and live.outcome is Outcome.ANSWERED else None
    told = {}
    if response is not None and status is not None:
        seen = view(response.fields, response.body)
        if seen.kind is Kind.JSON:
            told = {pointer(*at): value for at, value in leaves(seen.value)}
    return racing.Call(status=status, fate=racing.fate_of(status), told=told)
