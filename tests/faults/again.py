"""A recording judged again, in memory, after something was taken from it or changed in it."""

from __future__ import annotations

import calendar
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from replayproxy.core import prolly
from replayproxy.core.canonical import body_of
from replayproxy.core.values import MAIN_LANE, Exchange, Snapshot, Times, Trace
from replayproxy.detect.judge import Judgement, judge_run
from replayproxy.detect.reference import Given, Reference
from replayproxy.detect.source import Source
from replayproxy.detect.states import starts, whole
from tests.faults.rig import Recorded

type Change = Callable[[Recorded], Recorded]

TOKENS = ("updated_at", "version", "etag")
"""Members and headers that say which of two readings is the newer."""


def judged_again(recorded: Recorded) -> Judgement:
    """What the detectors say of the traces as they are now, with the reference that the plan names."""
    by_name = {trace.episode.name: trace for trace in recorded.traces}
    source = Source(
        run=recorded.run, episodes=[trace.episode for trace in recorded.traces],
        trace=lambda episode: by_name[episode.name], load=lambda address: recorded.nodes[address],
    )  # fmt: skip
    return judge_run(source, given=_given(recorded) if recorded.plan.named else None)


def _given(recorded: Recorded) -> Given | None:
    first = recorded.traces[0]
    group = first.episode.task, first.episode.seed
    return {
        (None if group == (None, None) else group, name): Reference(
            root=s.root, wall=s.wall, agree=1, starts=1, given=True
        )
        for name, s in starts(first.snapshots).items() if whole(s) and s.root is not None
    } or None  # fmt: skip


def each_trace(change: Callable[[Trace], Trace]) -> Change:
    return lambda recorded: replace(recorded, traces=[change(trace) for trace in recorded.traces])


def each_exchange(change: Callable[[Exchange], Exchange]) -> Change:
    return each_trace(lambda trace: replace(trace, exchanges=[change(e) for e in trace.exchanges]))


# What a user may not have wired


def without_snapshots(recorded: Recorded) -> Recorded:
    return each_trace(lambda trace: replace(trace, snapshots=[]))(recorded)


def without_lanes(recorded: Recorded) -> Recorded:
    return each_exchange(lambda exchange: replace(exchange, lane=MAIN_LANE))(recorded)


def without_configuration(recorded: Recorded) -> Recorded:
    """Neither task, seed nor instance told, and no reference named."""
    bare = each_trace(
        lambda trace: replace(
            trace, episode=replace(trace.episode, task=None, seed=None, attempt=None, group=None, instance={})
        )
    )(recorded)
    return replace(bare, plan=replace(recorded.plan, named=False))


def without_tokens(recorded: Recorded) -> Recorded:
    """No ETag, no version, no time of change: neither in answers nor in the state."""
    fewer = each_exchange(_untold)(recorded)
    states = {
        root: prolly.build(_dropped(prolly.exact(root, recorded.nodes.__getitem__)))
        for root in {s.root for trace in recorded.traces for s in trace.snapshots if s.root is not None}
    }
    nodes = {address: node for tree in states.values() for address, node in tree.nodes.items()}

    def reread(snapshot: Snapshot) -> Snapshot:
        return snapshot if snapshot.root is None else replace(snapshot, root=states[snapshot.root].root)

    traces = [replace(trace, snapshots=[reread(s) for s in trace.snapshots]) for trace in fewer.traces]
    return replace(fewer, traces=traces, nodes=nodes)


def _untold(exchange: Exchange) -> Exchange:
    response = exchange.response
    if response is None or response.body is None or response.body.inline is None:
        return exchange
    fields = tuple((name, value) for name, value in response.fields if name.lower().decode() not in TOKENS)
    try:
        document = json.loads(response.body.inline)
    except ValueError:
        return replace(exchange, response=replace(response, fields=fields))
    body = body_of(json.dumps(_dropped(document)).encode())
    return replace(exchange, response=replace(response, fields=fields, body=body))


def _dropped(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _dropped(item) for name, item in value.items() if name not in TOKENS}
    return [_dropped(item) for item in value] if isinstance(value, list) else value


ABLATIONS: Mapping[str, Change] = {
    "everything": lambda recorded: recorded,
    "no snapshots": without_snapshots,
    "no lanes": without_lanes,
    "no version tokens": without_tokens,
    "no task, seed, instance, reference": without_configuration,
}


# What must not change a verdict


def stretched(recorded: Recorded, factor: int = 10) -> Recorded:
    """Everything takes `factor` times as long, and the clock that answers and states tell goes along."""
    origin = min(trace.episode.opened for trace in recorded.traces)
    began = min(trace.episode.opened_wall for trace in recorded.traces)

    def at(instant: int) -> int:
        return origin + (instant - origin) * factor

    def wall(instant: int) -> int:
        return began + (instant - began) * factor

    def times(old: Times) -> Times:
        moved = {name: getattr(old, name) for name in ("c_in", "fwd", "first", "up_end", "c_out")}
        told = {name: None if instant is None else at(instant) for name, instant in moved.items()}
        return replace(old, head=at(old.head), wall=wall(old.wall), **told)

    def trace(old: Trace) -> Trace:
        episode = old.episode
        ended = None if episode.ended is None else at(episode.ended)
        ended_wall = None if episode.ended_wall is None else wall(episode.ended_wall)
        return replace(
            old,
            episode=replace(
                episode, opened=at(episode.opened), opened_wall=wall(episode.opened_wall), ended=ended,
                ended_wall=ended_wall,
            ),
            exchanges=[replace(e, times=times(e.times), order=(at(e.order[0]), e.order[1])) for e in old.exchanges],
            snapshots=[
                replace(
                    s, begun=at(s.begun), done=at(s.done), wall=wall(s.wall),
                    after=None if s.after is None else (at(s.after[0]), s.after[1]),
                    in_flight=tuple((at(ns), worker) for ns, worker in s.in_flight),
                )
                for s in old.snapshots
            ],
        )  # fmt: skip

    def clock(met: re.Match[bytes]) -> bytes:
        whole, fraction = met[0].removesuffix(b"Z").split(b".")
        seconds = calendar.timegm(time.strptime(whole.decode(), "%Y-%m-%dT%H:%M:%S"))
        instant = wall(seconds * 10**9 + int(fraction.ljust(9, b"0")))
        told = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(instant // 10**9))
        return f"{told}.{instant % 10**9:09d}"[: len(met[0]) - 1].encode() + b"Z"

    # What was told with a fraction was read off the clock; the times that were seeded are whole seconds.
    return rewritten(
        each_trace(trace)(recorded), lambda raw: re.sub(rb"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3,9}Z", clock, raw)
    )


def renamed(recorded: Recorded, pattern: bytes = rb"\b([A-Z])-([0-9a-f]{16})\b") -> Recorded:
    """All minted ids are called something else of the same form, everywhere: paths, bodies, states."""
    swap = bytes.maketrans(b"0123456789abcdef", b"5a31f7c2e80b9d64")
    return rewritten(recorded, lambda raw: re.sub(pattern, lambda m: m[1] + b"-" + m[2].translate(swap), raw))


def rewritten(recorded: Recorded, words: Callable[[bytes], bytes]) -> Recorded:
    """With all targets, header values, bodies and states rewritten."""

    def exchange(old: Exchange) -> Exchange:
        request, response = old.request, old.response
        request = replace(request, target=words(request.target), body=_body(request.body, words))
        if response is not None:
            fields = tuple((name, words(value)) for name, value in response.fields)
            response = replace(response, fields=fields, body=_body(response.body, words))
        return replace(old, request=request, response=response)

    roots = {s.root for trace in recorded.traces for s in trace.snapshots if s.root is not None}
    rows = {root: prolly.exact(root, recorded.nodes.__getitem__) for root in roots}
    trees = {root: prolly.build(json.loads(words(json.dumps(_plain(held)).encode()))) for root, held in rows.items()}
    changed = each_exchange(exchange)(recorded)
    traces = [
        replace(t, snapshots=[s if s.root is None else replace(s, root=trees[s.root].root) for s in t.snapshots])
        for t in changed.traces
    ]
    return replace(changed, traces=traces, nodes={a: n for tree in trees.values() for a, n in tree.nodes.items()})


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else float(str(value))


def _body(body: Any, words: Callable[[bytes], bytes]) -> Any:
    return body if body is None or body.inline is None else body_of(words(body.inline))


def permuted(recorded: Recorded) -> Recorded:
    """The lanes of each episode change names in a circle."""

    def trace(old: Trace) -> Trace:
        lanes = sorted({e.lane for e in old.exchanges})
        turned = dict(zip(lanes, [*lanes[1:], *lanes[:1]], strict=True))
        return replace(old, exchanges=[replace(e, lane=turned[e.lane]) for e in old.exchanges])

    return each_trace(trace)(recorded)


def leaving_out(recorded: Recorded, places: Sequence[tuple[str, int]]) -> Recorded:
    """Without these exchanges."""
    gone = set(places)
    return each_trace(lambda t: replace(t, exchanges=[e for e in t.exchanges if (t.episode.name, e.seq) not in gone]))(
        recorded
    )
