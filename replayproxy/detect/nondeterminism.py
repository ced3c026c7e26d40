"""Nondeterminism: episodes of one task and seed, begun in equal states, asked the same and were answered differently.

Every episode is compared with one of them (`siblings` chooses), so the cost is linear. Only the first differing answer
of a lane is claimed, and only if nothing before it differed: neither requests nor answers nor the order of writes, in
any lane. Clocks, fresh ids and the like are explained by the comparison and never a finding.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Protocol

from replayproxy.core.compare import compare
from replayproxy.core.comparison import Comparison, Root, plain
from replayproxy.core.effects import acts_within, is_write
from replayproxy.core.rules import Rule
from replayproxy.core.values import Episode, Exchange, Outcome, Snapshot, SnapshotStatus, Trace
from replayproxy.detect.declared import may_be_old
from replayproxy.detect.finding import Grade, Witness, snapshot_address, witness
from replayproxy.detect.minted_order import sorted_by_ids, spells_ids
from replayproxy.detect.states import envs_of, starts
from replayproxy.detect.volatility import named

type Load = Callable[[bytes], bytes]

LIMITS = frozenset({429, 470})
"""Answers that tell of limits or of a replay, not of the environment's state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """A first differing answer: `first` of the representative, `second` of the episode compared with it."""

    root: Root
    first: Witness
    second: Witness
    kind: str
    grade: Grade


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairwise:
    """What the comparison of an episode (`name`) with a first one gave, before other findings are asked. `until`: the
    first one's last exchange that still had an equal past; `apart`: lane -> the first one's exchange at which the two
    first differ there, claimed or not; `exchanges`: the pairs of answers that were compared; `aged`: the other's
    exchanges that differ as a cache that declares itself allows."""

    name: str
    until: int
    apart: Mapping[str, int]
    exchanges: int
    starts: tuple[str, ...]
    claims: tuple[Divergence, ...]
    aged: tuple[int, ...] = ()


class Ahead(Protocol):
    """Compares while the rest of a run is still being read."""

    def offer(self, episode: Episode, group: Hashable) -> None:
        """The episode will perhaps be compared with the first one of its group."""

    def pairwise(self, first: Episode, other: Episode) -> Pairwise | None:
        """None: not compared; whoever asks is to do it."""


def pairwise(first: Trace, other: Trace, *, load: Load, rules: Sequence[Rule], today: date | None) -> Pairwise:
    """Compares two episodes that began alike."""
    comparison = compare(first, other, rules=rules, today=today, load=load, load_b=load)
    cut_a, cut_b = _cut(comparison)
    spoke = _answered(first), _answered(other)
    aged: list[int] = []
    return Pairwise(
        name=other.episode.name,
        until=cut_a - 1 if cut_a is not None else len(first.exchanges),
        exchanges=sum(
            1 for a, b in comparison.pairs if a in spoke[0] and b in spoke[1] and (cut_a is None or (a or 0) < cut_a)
        ),
        apart=_apart(first, comparison),
        starts=starts_of(other),
        claims=tuple(_claims(first, other, comparison, cut_a, cut_b, aged)),
        aged=tuple(aged),
    )


def _apart(first: Trace, comparison: Comparison) -> dict[str, int]:
    lanes = {e.seq: e.lane for e in first.exchanges}
    found: dict[str, int] = {}
    for seq, _ in comparison.apart:
        if seq in lanes:
            lane = lanes[seq]
            found[lane] = min(seq, found.get(lane, seq))
    return found


def _answered(trace: Trace) -> set[int | None]:
    """The exchanges in which the environment said something: two refusals are no equal answers."""
    return {e.seq for e in trace.exchanges if e.response is not None and e.outcome is not Outcome.LOCAL}


def starts_of(trace: Trace) -> tuple[str, ...]:
    return tuple(snapshot_address(trace.run.name, trace.episode.name, s) for s in starts(trace.snapshots).values())


def _cut(comparison: Comparison) -> tuple[int | None, int | None]:
    """The first exchanges, by number, at which the requests of the two differ."""
    a: list[int] = [left for left, right in comparison.pairs if left and not right]
    b: list[int] = [right for left, right in comparison.pairs if right and not left]
    for root in comparison.roots:
        marks = [(root.pointer, root.a, root.b), *((fold.pointer, fold.a, fold.b) for fold in root.folded)]
        for pointer, left, right in marks:
            if not pointer or pointer.startswith("request"):
                a += [left] if left else []
                b += [right] if right else []
    return min(a, default=None), min(b, default=None)


def _claims(
    first: Trace, other: Trace, comparison: Comparison, cut_a: int | None, cut_b: int | None, aged: list[int]
) -> Iterator[Divergence]:
    """`aged` takes what is explained by a declared cache."""
    by_a, by_b = ({e.seq: e for e in trace.exchanges} for trace in (first, other))
    lanes: set[str] = set()
    pairs = [(a, b) for a, b in comparison.pairs if a and b]
    for root in sorted(comparison.roots, key=lambda root: (root.a or 0, root.b or 0)):
        if root.a is None or root.b is None or (cut_a and root.a >= cut_a) or (cut_b and root.b >= cut_b):
            continue
        x, y = by_a.get(root.a), by_b.get(root.b)
        if x is None or y is None or x.lane in lanes:
            continue
        lanes.add(x.lane)  # what comes later in this lane has another past
        if root.kind == "state":
            after = [_snapshot_after(trace, seq) for trace, seq in ((first, root.a), (other, root.b))]
            if _same_order(first, other, after[0], after[1], pairs):
                kind, grade = named(root, first, other, pairs, "state", _state_grade(after))
                yield _divergence(first, other, root, x, y, kind, grade)
        elif _of_the_environment(x, y) and _same_order(first, other, _Moment.of(x), _Moment.of(y), pairs):
            if sorted_by_ids(root, x, y) or spells_ids(root, x, y):
                continue
            if may_be_old(first, x) or may_be_old(other, y):
                aged.append(y.seq)
                continue
            kind, grade = named(root, first, other, pairs, "answer", Grade.PROVEN)
            yield _divergence(first, other, root, x, y, kind, grade)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moment:
    """When something was read, of which environments, and by which exchange (0: by a snapshot)."""

    begun: int
    ended: int
    envs: frozenset[str]
    seq: int = 0
    snapshot: Snapshot | None = None

    @staticmethod
    def of(exchange: Exchange) -> _Moment:
        begun, ended = exchange.times.fwd or 0, exchange.times.up_end or 0
        return _Moment(begun=begun, ended=ended, envs=frozenset({exchange.env}), seq=exchange.seq)


def _snapshot_after(trace: Trace, seq: int) -> _Moment | None:
    found = next((s for s in trace.snapshots if s.after_seq == seq and s.root is not None), None)
    if found is None:
        return None
    return _Moment(begun=found.begun, ended=found.done, envs=envs_of(trace.run, found.name), snapshot=found)


def _divergence(
    first: Trace, other: Trace, root: Root, x: Exchange, y: Exchange, kind: str, grade: Grade
) -> Divergence:
    a, b = (
        witness(trace.run.name, trace.episode.name, exchange, "witness", pointer=root.pointer, value=plain(value))
        for trace, exchange, value in ((first, x, root.values[0]), (other, y, root.values[1]))
    )
    return Divergence(root=root, first=a, second=b, kind=kind, grade=grade)


def _of_the_environment(*pair: Exchange) -> bool:
    """Whether both are whole answers, and neither a failure (the failure rate counts those) nor a limit."""
    return all(
        e.outcome is Outcome.ANSWERED and e.response is not None
        and e.response.status < 500 and e.response.status not in LIMITS
        for e in pair
    )  # fmt: skip


def _same_order(
    first: Trace, other: Trace, x: _Moment | None, y: _Moment | None, pairs: Sequence[tuple[int, int]]
) -> bool:
    """Whether the writes before the moment came in one order in both, with none beside another or beside it."""
    if x is None or y is None:
        return False
    ours, theirs = _writes_before(first, x), _writes_before(other, y)
    named = dict(pairs)
    return ours is not None and theirs is not None and [named.get(seq) for seq in ours] == theirs


def _writes_before(trace: Trace, moment: _Moment) -> list[int] | None:
    """The writes that had ended by then, in order; None if their order cannot be told."""
    found: list[int] = []
    busy_until = 0
    for e in sorted(trace.exchanges, key=lambda e: e.times.fwd or 0):
        wiring = trace.run.envs.get(e.env)
        reads = wiring.reads if wiring else ()
        if e.seq == moment.seq or e.env not in moment.envs or e.times.fwd is None or not is_write(e.request, reads):
            continue
        if e.times.fwd > moment.ended:
            break
        ended = _acted_by(e, acts_within(e.request, wiring.eventual) if wiring else None)
        if ended is None or ended >= moment.begun or e.times.fwd <= busy_until:
            return None
        busy_until = ended
        found.append(e.seq)
    return found


def _acted_by(write: Exchange, within: float | None) -> int | None:
    """When it had surely acted; None: nobody knows, as of one that was accepted (202) to be done later."""
    end = write.times.up_end
    if end is not None and within is not None:
        return end + round(within * 1e9)
    return None if write.response is not None and write.response.status == 202 else end


def _state_grade(moments: Iterable[_Moment | None]) -> Grade:
    """Proven only if both snapshots are of one instant, or were read while nothing was under way."""
    shots = [moment.snapshot for moment in moments if moment is not None and moment.snapshot is not None]
    clean = all(s.status is SnapshotStatus.TAKEN and not s.late and not s.in_flight for s in shots)
    return Grade.PROVEN if clean else Grade.SUSPECTED
