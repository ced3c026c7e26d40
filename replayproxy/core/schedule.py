"""When each recorded request may be sent again: what must have ended before it, and when a stream is closed.

The order is that of the recording and no more: exchanges that overlapped in a lane overlap again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from replayproxy.core.effects import is_write, segments
from replayproxy.core.values import Event, Exchange, Outcome, Snapshot, SnapshotStatus

NEVER = 1 << 62
"""The end of an exchange that had none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One exchange of the plan. It is sent when all of `after` have ended.

    `close_after`: the agent closed this answer; it is closed again when these have ended (None: read to its end).
    `hold_after`: the recording read a state after this write, with nothing in flight; it is read again when these,
    which had ended before the write, have ended, and what was sent after that reading waits for it. `draws`:
    (exchange, bytes) of streams that were still open when this was sent and had by then given a name that it says: it
    is sent when so many bytes have come again. `gap`: nanoseconds between what the agent last waited for (else the
    episode's start) and this request, for `--pace recorded`. `skip`: why it is not sent; what waits for it then waits
    for what it would have waited for. `undecided`: whether leaving it out leaves the verdict open.
    """

    seq: int
    after: frozenset[int] = frozenset()
    close_after: frozenset[int] | None = None
    hold_after: frozenset[int] = frozenset()
    draws: tuple[tuple[int, int], ...] = ()
    gap: int = 0
    skip: str = ""
    undecided: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Every exchange of an episode, in recorded order."""

    steps: tuple[Step, ...]
    skipped: tuple[Step, ...] = field(default=())


AGENT_CLOSED = "agent-closed"
"""The event of the recorder that tells when the agent closed a connection."""


def settled(exchanges: Sequence[Exchange], events: Sequence[Event]) -> list[Exchange]:
    """The exchanges with an end for those that the agent left: when its connection was closed, else its last chunk.

    The recording keeps no end for them, because the environment may act on for any time; but what the agent did
    next, it did after it had left.
    """
    closed: dict[object, list[int]] = {}
    for event in sorted(events, key=lambda event: event.at):
        if event.kind == AGENT_CLOSED:
            closed.setdefault(event.detail.get("connection"), []).append(event.at)
    return [_settled(exchange, closed.get(exchange.agent_connection, ())) for exchange in exchanges]


def _settled(exchange: Exchange, closed: Sequence[int]) -> Exchange:
    times = exchange.times
    if times.up_end is not None or times.c_out is not None or exchange.outcome is Outcome.OPEN_AT_END:
        return exchange
    body = exchange.response.body if exchange.response else None
    last = max([times.head, *(chunk.at for chunk in (body.chunks if body else ()))])
    end = next((at for at in closed if at >= last), None)
    if end is None and body is not None and body.chunks:
        end = last
    return exchange if end is None else replace(exchange, times=replace(times, up_end=end))


def why_not_sent(exchange: Exchange) -> tuple[str, bool] | None:
    """(reason, whether the verdict stays open) for an exchange that is never sent again; None for one that is."""
    if exchange.is_reset:
        return "reset", False
    if exchange.is_probe:
        return "probe", False
    if exchange.websocket is not None or (exchange.response is not None and exchange.response.status == 101):
        return "websocket", True
    if exchange.outcome is Outcome.HALF_SENT:
        return "half-sent", True
    if exchange.outcome is Outcome.LOST:
        return "lost: whether it reached the environment is not known", True
    if exchange.outcome is Outcome.LOCAL:
        return "answered by the proxy: it never reached the environment", False
    if exchange.outcome is Outcome.REFUSED:
        return "refused: it never reached the environment", True
    return ("its body was not captured", True) if exchange.request.body is None else None


def sent_at(exchange: Exchange) -> int:
    """Not later than the first byte to the environment."""
    times = exchange.times
    return times.fwd if times.fwd is not None else times.head


def ended_at(exchange: Exchange) -> int:
    """When the environment's part had ended; `NEVER` when it had not."""
    times = exchange.times
    if exchange.outcome is Outcome.OPEN_AT_END:
        return NEVER
    ends = [at for at in (times.up_end, times.c_out) if at is not None]
    return max(min(ends), sent_at(exchange)) if ends else NEVER


def seen_at(exchange: Exchange) -> int:
    """When the agent knew the outcome."""
    times = exchange.times
    return max(times.c_out or 0, ended_at(exchange))


def was_left(exchange: Exchange) -> bool:
    """Whether the agent ended it, or it was still open: it has to be closed from our side again."""
    return exchange.outcome in (Outcome.CLIENT_GONE, Outcome.OPEN_AT_END)


def plan(
    exchanges: Sequence[Exchange],
    *,
    reads: Mapping[str, Sequence[str]] | None = None,
    flows: Mapping[int, set[int]] | None = None,
    snapshots: Sequence[Snapshot] = (),
) -> Plan:
    """The order in which to send. `reads`: per environment, requests declared to be reads; `flows`: which answers a
    request took a name from (`core.bindings.flows`); `snapshots`: the recorded ones that will be taken again."""
    declared = reads or {}
    ordered = sorted(exchanges, key=lambda e: (e.times.head, e.seq))
    by_seq = {e.seq: e for e in ordered}
    drawn = {e.seq: [by_seq[seq] for seq in (flows or {}).get(e.seq, ())] for e in ordered}
    after: dict[int, set[int]] = {
        e.seq: {source.seq for source in drawn[e.seq] if ended_at(source) < sent_at(e)} for e in ordered
    }
    by_lane: dict[str, list[Exchange]] = {}
    for exchange in ordered:
        by_lane.setdefault(exchange.lane, []).append(exchange)
    for lane in by_lane.values():
        for exchange, before in zip(lane, _lane_order(lane), strict=True):
            after[exchange.seq] |= before
    lines = [_Line() for _ in by_lane]
    for line, lane in zip(lines, by_lane.values(), strict=True):
        for exchange in lane:
            line.add(exchange)
    if len(by_lane) > 1:
        paths = _Paths(ordered, declared)
        for exchange in ordered:
            after[exchange.seq] |= paths.before(exchange)
    readings = _clean(snapshots, by_seq)
    holds = _holds(readings, lines)
    for exchange in ordered:
        after[exchange.seq] |= _read_before(exchange, readings)
    ends = {e.seq: seen_at(e) for e in ordered}
    start = ordered[0].times.head if ordered else 0
    steps = tuple(
        replace(
            _step(e, frozenset(after[e.seq]), lines, ends, start),
            draws=_draws(e, drawn[e.seq]), hold_after=frozenset(holds.get(e.seq, ())),
        )
        for e in ordered
    )  # fmt: skip
    return Plan(steps=steps, skipped=tuple(step for step in steps if step.skip))


type _Reading = tuple[int, Exchange]
"""(when it was done, the write that it followed) of a state that was read with nothing in flight."""


def _clean(snapshots: Sequence[Snapshot], by_seq: Mapping[int, Exchange]) -> list[_Reading]:
    found = []
    for shot in snapshots:
        write = by_seq.get(shot.after_seq or 0)
        if write is not None and shot.status is SnapshotStatus.TAKEN and not shot.in_flight_seq:
            found.append((shot.done, write))
    return sorted(found, key=lambda reading: reading[0])


def _read_before(exchange: Exchange, readings: Sequence[_Reading]) -> set[int]:
    """The write whose state was read last before this was sent. Those read earlier are implied: nothing was in flight
    while they were."""
    at = bisect_left(readings, sent_at(exchange), key=lambda reading: reading[0]) - 1
    if at < 0:
        return set()
    write = readings[at][1]
    return {write.seq} if write.seq != exchange.seq and ended_at(write) < sent_at(exchange) else set()


def _holds(readings: Sequence[_Reading], lines: Sequence[_Line]) -> dict[int, set[int]]:
    """What had ended before a write whose state was read. What ended later is left out: it may wait for the write."""
    return {
        write.seq: set().union(*(line.last(ended_at, ended_at(write)) for line in lines)) - {write.seq}
        for _, write in readings
    }


def _draws(e: Exchange, sources: Sequence[Exchange]) -> tuple[tuple[int, int], ...]:
    return tuple(
        (source.seq, given_by(source, sent_at(e)))
        for source in sorted(sources, key=lambda source: source.seq)
        if ended_at(source) >= sent_at(e) and why_not_sent(source) is None and source.times.head < e.times.head
    )


def given_by(exchange: Exchange, at: int) -> int:
    """How many bytes of the answer's body had come by then."""
    body = exchange.response.body if exchange.response else None
    return sum(chunk.size for chunk in body.chunks if chunk.at <= at) if body else 0


def _step(e: Exchange, after: frozenset[int], lines: Sequence[_Line], ends: Mapping[int, int], start: int) -> Step:
    reason = why_not_sent(e)
    waited = max((ends[seq] for seq in after if ends[seq] <= e.times.head), default=start)
    return Step(
        seq=e.seq,
        after=after,
        close_after=_before_close(e, lines) if was_left(e) and not reason else None,
        gap=max(0, e.times.head - waited),
        skip=reason[0] if reason else "",
        undecided=bool(reason and reason[1]),
    )


def _lane_order(lane: Sequence[Exchange]) -> list[set[int]]:
    """For each exchange of one lane those that had ended before it began, without what these already imply."""
    out: list[set[int]] = []
    running: list[Exchange] = []
    ended: list[Exchange] = []
    for exchange in lane:
        ended += [e for e in running if seen_at(e) < exchange.times.head]
        running = [e for e in running if seen_at(e) >= exchange.times.head]
        # Whoever ended before another ended one began is implied by it, now and for all that follow.
        last = max((e.times.head for e in ended), default=0)
        ended = [e for e in ended if seen_at(e) >= last]
        out.append({e.seq for e in ended})
        running.append(exchange)
    return out


class _Line:
    """Exchanges of one lane by their beginning: all of them, or those that concern one path."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []
        self.heads: list[int] = []
        self.latest: list[int] = []  # the latest end among those up to here that ended at all

    def add(self, exchange: Exchange) -> None:
        seen = seen_at(exchange)
        self.exchanges.append(exchange)
        self.heads.append(exchange.times.head)
        self.latest.append(max(self.latest[-1] if self.latest else 0, seen if seen < NEVER else 0))

    def last(self, end: Callable[[Exchange], int], before: int) -> set[int]:
        """Those that had ended before an instant, but for those that had ended before another of them began: the
        lane's own order implies these."""
        found: set[int] = set()
        horizon = 0
        for at in range(bisect_left(self.heads, before) - 1, -1, -1):
            other = self.exchanges[at]
            if self.latest[at] < horizon:
                break
            if seen_at(other) >= horizon and end(other) < before:
                found.add(other.seq)
                horizon = max(horizon, other.times.head)
        return found


class _Paths:
    """Which exchanges of other lanes may conflict with one: same environment, one a write, one path a segment prefix
    of the other (`core.effects.may_conflict`), looked up by path instead of compared one by one."""

    def __init__(self, ordered: Sequence[Exchange], reads: Mapping[str, Sequence[str]]) -> None:
        self._lanes = tuple(dict.fromkeys(e.lane for e in ordered))
        self._writes = {e.seq: is_write(e.request, reads.get(e.env, ())) for e in ordered}
        self._lines: dict[tuple[object, ...], _Line] = {}
        for exchange in ordered:
            path = segments(exchange.request.target)
            kinds = ("any", "write") if self._writes[exchange.seq] else ("any",)
            for kind in kinds:
                self._add((kind, exchange.env, exchange.lane, "at", path), exchange)
                for size in range(len(path) + 1):
                    self._add((kind, exchange.env, exchange.lane, "under", path[:size]), exchange)

    def _add(self, key: tuple[object, ...], exchange: Exchange) -> None:
        self._lines.setdefault(key, _Line()).add(exchange)

    def before(self, exchange: Exchange) -> set[int]:
        """The latest exchanges of other lanes that could have changed what this one meets, or the other way round."""
        path = segments(exchange.request.target)
        kind = "any" if self._writes[exchange.seq] else "write"
        places = [("under", path), *(("at", path[:size]) for size in range(len(path)))]
        found: set[int] = set()
        for lane in self._lanes:
            if lane == exchange.lane:
                continue
            for place in places:
                line = self._lines.get((kind, exchange.env, lane, *place))
                if line is not None:
                    found |= line.last(ended_at, sent_at(exchange))
        return found


def _before_close(exchange: Exchange, lines: Sequence[_Line]) -> frozenset[int]:
    """What had ended before the agent closed this answer; all that ended at all when it was open to the last."""
    closed = ended_at(exchange)
    return frozenset().union(*(line.last(seen_at, closed) for line in lines)) - {exchange.seq}
