"""One finding on its way to being shown again: what it names, and the episodes of it made ready to be sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from replayproxy.core.bindings import Bindings
from replayproxy.core.canonical import view
from replayproxy.core.compare import compare
from replayproxy.core.comparison import DIFFERENT, Comparison
from replayproxy.core.jsonvalue import leaves, tokens
from replayproxy.core.names import parse_address
from replayproxy.core.rules import parse_rules
from replayproxy.core.schedule import sent_at
from replayproxy.core.values import EpisodeState, Exchange, Outcome, Run, Trace
from replayproxy.errors import CannotJudge, UnknownAddress, WorldTrouble
from replayproxy.session.redrive import prepared, reachable
from replayproxy.session.redrive_keep import Keeper
from replayproxy.session.redrive_once import Ask, Redriven, Repetition, Session
from replayproxy.storage import Reader, Store

SHOWN, NOT_SHOWN, UNDECIDED = "shown again", "not shown again", "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class Came:
    """What came of it: shown `k` of `n` times. `told`: one line for people; `reasons`: why it is not confirmed, or why
    nothing can be said; `blame_reason`: where it was decided that the environment is to blame."""

    verdict: str
    k: int
    n: int
    told: str
    confirmed: bool = False
    reasons: tuple[str, ...] = ()
    evidence: Mapping[str, Any] = field(default_factory=dict)
    blame_reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """An exchange that a finding names."""

    episode: str
    seq: int
    role: str
    pointer: str
    told: Mapping[str, Any]

    @property
    def short(self) -> str:
        return f"{self.episode}/{self.seq}"


class Case:
    """A finding's document with the run it is of. Sessions made here are closed with it."""

    def __init__(
        self, store: Store, reader: Reader, run: Run, finding: Mapping[str, Any], ask: Ask, say: Callable[[str], None]
    ) -> None:  # fmt: skip
        self.finding, self.run, self.ask = finding, run, ask
        self.rules = parse_rules(ask.words.config.rules)
        self._store, self._reader = store, reader
        self._said: set[str] = set()
        self._say = say
        self._sessions: list[Session] = []
        self._keeper: Keeper | None = None
        self._traces: dict[str, Trace] = {}
        self.before: list[str] = []
        self.points = [point for one in finding.get("exchanges", ()) if (point := _point(one)) is not None]

    @property
    def repeat(self) -> int:
        return self.ask.repeat

    @property
    def store(self) -> Store:
        return self._store

    @property
    def episode(self) -> str:
        return str(self.finding["episode"])

    def say(self, line: str) -> None:
        """Each line once: what is done before every repetition is told before the first."""
        if line not in self._said:
            self._said.add(line)
            self._say(line)

    def point(self, *roles: str) -> Point | None:
        """The last exchange that has one of these roles."""
        return next((point for point in reversed(self.points) if point.role in roles), None)

    def trace(self, episode: str) -> Trace:
        if episode not in self._traces:
            try:
                self._traces[episode] = self._reader.trace(self.run, self._reader.episode(self.run, episode))
            except UnknownAddress as gone:
                raise CannotJudge(f"{gone.what}: what the finding names is gone") from gone
        return self._traces[episode]

    def references(self) -> dict[str, bytes]:
        """Snapshot name -> the state that the check took for the right start of the victim's task and seed."""
        group = self.trace(self.episode).episode
        told = (self._reader.check(self.run) or {}).get("references", ())
        return {
            str(one["snapshot"]): bytes.fromhex(one["root"])
            for one in told
            if one.get("root") and (one.get("task"), one.get("seed")) == (group.task, group.seed)
        }

    def earlier(self, most: int) -> list[str]:
        """The episodes that ended before this one began, the last first."""
        began = self.trace(self.episode).episode.opened_wall
        ended = [
            (episode.ended_wall or episode.opened_wall, episode.name)
            for episode in self._reader.episodes(self.run)
            if episode.name != self.episode and episode.state is EpisodeState.SEALED
        ]
        return [name for at, name in sorted(ended, reverse=True) if at <= began][:most]

    async def session(self, trace: Trace) -> tuple[Redriven, Session]:
        """An episode ready to be sent, the state that it will overwrite kept. Raises what stands against it."""
        one = prepared(self._reader, trace, self.ask)
        if one.problem is not None:
            raise one.problem
        assert one.held is not None
        if self._keeper is None:
            self._keeper = Keeper(self._store, None, one.held.redactor)
        await reachable([one])
        session = Session(self._reader, self._keeper, one, self.ask, self.rules, self.say)
        self._sessions.append(session)
        await session.keep_found()
        if one.before is not None:
            self.before.append(one.before)
        return one, session

    async def close(self) -> None:
        for session in self._sessions:
            session.close()
        if self._keeper is not None:
            await self._keeper.close()


def _point(one: Mapping[str, Any]) -> Point | None:
    address = parse_address(str(one.get("address", "")))
    if address.episode is None or address.seq is None:
        return None
    return Point(
        episode=address.episode, seq=address.seq, role=str(one.get("role", "")), pointer=str(one.get("pointer") or ""),
        told=one,
    )  # fmt: skip


def up_to(trace: Trace, seq: int) -> frozenset[int]:
    """The exchanges of an episode that were sent not later than one of them."""
    by_seq = {e.seq: e for e in trace.exchanges}
    if seq not in by_seq:
        raise CannotJudge(f"{trace.address} has no exchange {seq}")
    last = sent_at(by_seq[seq])
    return frozenset(e.seq for e in trace.exchanges if sent_at(e) <= last)


def from_trace(trace: Trace, other: Trace) -> Trace:
    """The episode, to begin in the recorded start of another one."""
    starts = tuple(s for s in other.snapshots if s.when == "start")
    return replace(trace, snapshots=(*starts, *(s for s in trace.snapshots if s.when != "start")))


def answered(repetition: Repetition, seq: int) -> Exchange | None:
    """The live exchange, where it has a whole answer."""
    live = repetition.drive.live.get(seq)
    return live if live is not None and live.outcome is Outcome.ANSWERED and live.response is not None else None


def gone(repetitions: Sequence[Repetition]) -> None:
    """Raises WorldTrouble when the environment refused what was sent: nothing follows from that."""
    for one in repetitions:
        refused = next((e for e in one.drive.live.values() if e.outcome is Outcome.REFUSED), None)
        if refused is not None:
            raise WorldTrouble(f"environment {refused.env} went away at #{refused.seq}: {refused.error or 'refused'}")


def touches(comparison: Comparison, seq: int) -> bool:
    """Whether a difference at this exchange is among those that are named."""
    return any(root.a == seq or any(fold.a == seq for fold in root.folded) for root in comparison.roots)


def differs_from_recorded(trace: Trace, one: Repetition, seq: int) -> bool:
    """Whether the live answer to an exchange is another one than the recorded."""
    if not one.comparison.roots:
        return False
    recorded = next((e for e in trace.exchanges if e.seq == seq), None)
    live = one.drive.live.get(seq)
    if touches(one.comparison, seq) or recorded is None or live is None:
        return True
    a, b = replace(trace, exchanges=(recorded,), snapshots=()), replace(one.live, exchanges=(live,), snapshots=())
    return compare(a, b, pairs=[(seq, seq)], bindings=one.bindings.values()).verdict == DIFFERENT


def differ(session: Session, a: Repetition, b: Repetition, seq: int) -> bool:
    """Whether the answers to one exchange, or the states after it, differ and nothing explains it."""
    whole = session.between(a, b)
    if whole.verdict != DIFFERENT:
        return False
    if touches(whole, seq):
        return True
    x, y = a.drive.live.get(seq), b.drive.live.get(seq)
    if x is None or y is None:
        return x is not y
    alone = [replace(one.live, exchanges=(e,), snapshots=()) for one, e in ((a, x), (b, y))]
    return compare(alone[0], alone[1], pairs=[(seq, seq)]).verdict == DIFFERENT


def values_at(exchange: Exchange | None, where: str, *, anywhere: bool = False) -> list[Any]:
    """The values in an answer's JSON body at a pointer; `anywhere`: at any index of the lists on the way."""
    response = exchange.response if exchange is not None else None
    if response is None or response.body is None:
        return []
    path = tokens(where.removeprefix("body"))
    seen = view(response.fields, response.body)
    if seen.kind != "json":
        return []
    found = []
    for at, leaf in leaves(seen.value):
        same = len(at) == len(path) and all(
            str(one) == other or (anywhere and isinstance(one, int) and other.isdigit())
            for one, other in zip(at, path, strict=True)
        )
        if same:
            found.append(leaf)
    return found


def spelled(value: Any, *bindings: Bindings) -> set[str]:
    """A recorded value as it may stand in a live answer: as it is, or by the name that it was given."""
    if isinstance(value, bool) or value is None:
        return {str(value)}
    texts = {str(value)}
    for one in bindings:
        texts |= one.names().get(str(value), set())
    return texts


def told_exchanges(episode: str, seqs: Sequence[int]) -> str:
    """`a/17`, `a/17 and a/18`, `4 exchanges of a (17, 18, 20, 22)`."""
    names = [f"{episode}/{seq}" for seq in seqs]
    if len(names) <= 2:
        return " and ".join(names) or f"nothing of {episode}"
    shown = ", ".join(map(str, seqs[:8])) + (", .." if len(seqs) > 8 else "")
    return f"{len(seqs)} exchanges of {episode} ({shown})"
