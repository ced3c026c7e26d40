"""Plays a script: which recorded answer a request gets, when it may be given, and what a replay did.

Rules of this file: a miss is never guessed; an answer is claimed when it is asked for and belongs to that request
from then on, so the n-th occurrence gets the n-th answer in any interleaving; nothing is ever served twice. No clock
and no waiting here: the edge asks `may_go`, waits, and says `done` or `overdue`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from replayproxy.core.canonical import RequestKey
from replayproxy.core.conversation import Unlike
from replayproxy.core.gates import Progress
from replayproxy.core.matching import Grade as Grade
from replayproxy.core.matching import Matcher, Unmatched
from replayproxy.core.matching import Order as Order
from replayproxy.core.mint import Renames
from replayproxy.core.nearest import Near
from replayproxy.core.nonces import Binding
from replayproxy.core.script import Entry, Identified, Queue, Script
from replayproxy.core.values import Outcome

MISSES_KEPT = 1000
"""So many different misses are kept with their detail; beyond it they are only counted."""


# An attribute of an enumeration costs more than a name of the module.
_EXACT, _CANONICAL = Grade.EXACT, Grade.CANONICAL


class Serve(NamedTuple):
    """This recorded exchange is the answer, and is claimed. `number` counts the requests of the episode.

    `renames`: live values that are to stand in the answer; None: it goes out as it is. `echoes`: bindings that are to
    be listed if the answer holds their values (`Replayer.echoed`).
    """

    entry: Entry
    grade: Grade
    number: int
    renames: Renames | None = None
    echoes: tuple[Binding, ...] = ()


@dataclass(slots=True, kw_only=True, eq=False)
class Miss:
    """No recorded answer is left for this request. The same request in the same lane is one miss, counted.

    `expected`: what `--order strict` would have taken instead. `near`: filled in by whoever looked. `clash`: why a
    recorded request of this form was not taken for it.
    """

    asked: Identified
    lane: str
    number: int
    at: int
    count: int = 1
    expected: Entry | None = None
    near: tuple[Near, ...] = ()
    clash: str = ""


class MessageMiss(NamedTuple):
    """What an agent said in a conversation that was not recorded there. `number` counts the requests."""

    entry: Entry
    number: int
    unlike: Unlike


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """The first thing that was not as recorded. `kind`: miss, message, order, stayed, left, half-sent or fault.

    `entry` is the exchange that was to be served, `other` the one that it waited for.
    """

    kind: str
    number: int
    lane: str
    at: int
    miss: Miss | None = None
    entry: Entry | None = None
    other: Entry | None = None
    text: str = ""
    message: MessageMiss | None = None


@dataclass(slots=True, kw_only=True)
class Tally:
    """What a replay of one episode did so far, in numbers."""

    served: dict[Grade, int] = field(default_factory=lambda: dict.fromkeys(Grade, 0))
    misses: int = 0
    requests_missed: int = 0
    order_divergences: int = 0
    departures: int = 0
    overlapping: int = 0
    half_sent: int = 0
    faults: list[str] = field(default_factory=list)
    first: Divergence | None = None


class Replayer:
    """The replay of one episode. Not safe for threads; one event loop drives it."""

    def __init__(self, script: Script, order: Order = Order.LANE) -> None:
        self.script = script
        self.order = order
        self.tally = Tally()
        self.requests = 0
        self.misses: dict[tuple[str, RequestKey], Miss] = {}
        self.message_misses: list[MessageMiss] = []
        self._matcher = Matcher(script, order)
        self._consumer = self._matcher.consumer
        self._under_way: dict[Queue, int] = {}
        self._progress = Progress(script.gates)

    def set_aside(self) -> None:
        """Nothing is asked until `go_on`. Of the script its name is kept, and of what was played of it what must be."""
        self.script = self.script.emptied()
        self._matcher.set_aside(self.script)
        self._progress.go_on(self.script.gates)

    def go_on(self, script: Script) -> None:
        """With the same script, which was read again."""
        self.script = script
        self._matcher.go_on(script)
        self._progress.go_on(script.gates)

    def has_equal(self, asked: Identified, lane: str) -> bool:
        """Whether an equal request is left. If not, `ask` parses the request once more (`Script.loosened`), unless that
        was done before, in another thread."""
        return self._matcher.head(asked, lane)[0] is not None

    def ask(self, asked: Identified, lane: str, at: int = 0) -> Serve | Miss:
        """Claims the answer to a request that has arrived whole."""
        self.requests += 1
        matcher = self._matcher
        entry = matcher.equal(asked, lane, self.requests)
        guessed = False
        if entry is not None:
            grade = _EXACT if entry.exact == asked.exact else _CANONICAL
        else:
            found = matcher.find(asked, lane)
            if isinstance(found, Unmatched):
                return self._missed(asked, lane, at, found)
            entry, grade = found.entry, found.grade
            guessed = entry.at in self.script.together and (
                any(slot.value != live for slot, live in found.new.items())
                or (bool(entry.ids) and entry.exact != asked.exact)
            )
            matcher.claim(found, self.requests)
        slot = (lane, entry.number)
        others = self._under_way.get(slot, 0)
        if guessed or (others and not (entry.ids and entry.exact == asked.exact)):
            # Two equal requests at once in one lane: which of them is the first cannot be known.
            self.tally.overlapping += 1
        self._under_way[slot] = others + 1
        if entry.exchange.websocket is None:
            self.tally.served[grade] += 1  # of a conversation that is known when it is over: see `conversed`
        if entry.echoes or entry.ids or matcher.renaming.tokens or matcher.named:
            renames, echoes = matcher.renames(entry, asked)
            return Serve(entry, grade, self.requests, renames, echoes)
        return Serve(entry, grade, self.requests)

    def plain(self, asked: Identified, lane: str) -> Entry | None:
        """The entry that `ask` would serve, where its answer goes out as it was recorded, may go now, and belongs to no
        request that is under way. None: it takes `ask`. Nothing is claimed."""
        matcher = self._matcher
        entry = matcher.next_equal(asked, lane)
        if (
            entry is None
            or entry.echoes
            or entry.ids
            or matcher.renaming.tokens
            or matcher.named
            or entry.exchange.websocket is not None
            or (lane, entry.number) in self._under_way
            or not self._progress.is_open(entry.at)
        ):
            return None
        return entry

    def give(self, entry: Entry, asked: Identified, lane: str) -> None:
        """`ask` and `done` for what `plain` gave."""
        grade = _EXACT if entry.exact == asked.exact else _CANONICAL
        self.requests += 1
        self._matcher.take(entry, asked, lane, self.requests)
        self.tally.served[grade] += 1
        self._progress.done(entry.at)

    def echoed(self, serve: Serve) -> None:
        """The answer held a value that its request alone gave, and was given with the live one."""
        for binding in serve.echoes:
            self._matcher.renaming.note(binding)

    def bound(self, bindings: Iterable[Binding]) -> None:
        """A conversation bound these ids."""
        for binding in bindings:
            self._matcher.renaming.note(binding)

    @property
    def bindings(self) -> Sequence[Binding]:
        return self._matcher.renaming.bindings

    @property
    def uses(self) -> Mapping[str, int]:
        """How often each rule was needed, by name."""
        return self._matcher.uses

    def _missed(self, asked: Identified, lane: str, at: int, why: Unmatched) -> Miss:
        self.tally.requests_missed += 1
        known = self.misses.get((lane, asked.key))
        if known is not None:
            known.count += 1
            return known
        miss = Miss(asked=asked, lane=lane, number=self.requests, at=at, expected=why.expected)
        miss.clash = why.clash
        self.tally.misses += 1
        if len(self.misses) < MISSES_KEPT:
            self.misses[lane, asked.key] = miss
        self._diverged(Divergence(kind="miss", number=self.requests, lane=lane, at=at, miss=miss))
        return miss

    def may_go(self, serve: Serve) -> bool:
        """Whether everything recorded to come before this answer has been given."""
        return self._progress.is_open(serve.entry.at)

    def overdue(self, serve: Serve, at: int = 0, cause: int | None = None) -> None:
        """The answer is given though what should come before it was not: counted. `cause`: so is a piece of it, though
        this was not asked for."""
        before = self._progress.waits_for(serve.entry.at) if cause is None else cause
        self.tally.order_divergences += 1
        other = None if before is None else self.script.entries[before]
        self._diverged(
            Divergence(kind="order", number=serve.number, lane=serve.entry.lane, at=at, entry=serve.entry, other=other)
        )

    def stayed(self, serve: Serve, at: int = 0, text: str = "") -> None:
        """The recorded agent left in the middle of this answer; this one did not."""
        self._departed("stayed", serve, at, text)

    def left(self, serve: Serve, at: int = 0, text: str = "") -> None:
        """This agent left before it had the whole of an answer that the recorded one had taken."""
        self._departed("left", serve, at, text)

    def conversed(self, serve: Serve, *, exact: bool) -> None:
        """A conversation went as recorded from the handshake to its end."""
        self.tally.served[serve.grade if exact or serve.grade is not Grade.EXACT else Grade.CANONICAL] += 1

    def unlike(self, serve: Serve, found: Unlike, at: int = 0) -> MessageMiss:
        """The agent said something in a conversation that was not recorded there. It is a miss."""
        miss = MessageMiss(serve.entry, serve.number, found)
        self.tally.misses += 1
        if len(self.message_misses) < MISSES_KEPT:
            self.message_misses.append(miss)
        self._diverged(
            Divergence(
                kind="message", number=serve.number, lane=serve.entry.lane, at=at, entry=serve.entry, message=miss
            )
        )
        return miss

    def _departed(self, kind: str, serve: Serve, at: int, text: str) -> None:
        self.tally.departures += 1
        lane = serve.entry.lane
        self._diverged(Divergence(kind=kind, number=serve.number, lane=lane, at=at, entry=serve.entry, text=text))

    def done(self, serve: Serve) -> bool:
        """The answer has been given, or its agent has left. True: ask `may_go` again for those who wait."""
        slot = (serve.entry.lane, serve.entry.number)
        others = self._under_way[slot] - 1
        if others:
            self._under_way[slot] = others
        else:
            del self._under_way[slot]
        return self._progress.done(serve.entry.at)

    def half_sent(self, env: str, method: bytes, target: bytes, lane: str, at: int = 0) -> None:
        """A request broke off before it was whole. It uses up a recorded one that did so too, else it diverges."""
        for entry in self.script.entries:
            recorded = entry.exchange
            same = (recorded.env, recorded.request.method, recorded.request.target, recorded.lane)
            broke_off = recorded.outcome is Outcome.HALF_SENT and entry.at not in self._consumer
            if broke_off and same == (env, method, target, lane):
                self._consumer[entry.at] = self.requests
                return
        self.tally.half_sent += 1
        text = f"{method.decode('latin-1')} {target.decode('latin-1')} broke off"
        self._diverged(Divergence(kind="half-sent", number=self.requests, lane=lane, at=at, text=text))

    def unreadable(self, text: str, at: int = 0) -> None:
        """A request of this episode that could not be read as HTTP: there is nothing to look up. It is a miss."""
        self.requests += 1
        self.tally.misses += 1
        self.tally.requests_missed += 1
        self._diverged(Divergence(kind="miss", number=self.requests, lane="", at=at, text=text))

    def fault(self, text: str, at: int = 0) -> None:
        """Our own failure: the agent saw something that is neither recorded nor a miss."""
        self.tally.faults.append(text)
        self._diverged(Divergence(kind="fault", number=self.requests, lane="", at=at, text=text))

    def _diverged(self, divergence: Divergence) -> None:
        if self.tally.first is None:
            self.tally.first = divergence

    @property
    def touched(self) -> bool:
        return bool(self.requests or self.tally.faults or self.tally.half_sent)

    @property
    def consumers(self) -> Mapping[int, int]:
        """By place in the script: the number of the request that was answered with it."""
        return self._consumer

    def unused(self) -> Sequence[Entry]:
        """What the recording holds and nobody asked for; resets and probes are left out."""
        return [entry for entry in self.script.entries if entry.owed and entry.at not in self._consumer]
