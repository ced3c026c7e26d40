"""Caches that declare themselves: how old an answer says that it may be, and whether that explains what it shows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from replayproxy.core.canonical import by_name
from replayproxy.core.effects import is_write
from replayproxy.core.values import Exchange, Trace

_AGE = re.compile(rb"(?:^|[,\s])(?:s-maxage|max-age)\s*=\s*\"?(\d+)")


def fresh_for(fields: Mapping[bytes, Sequence[bytes]]) -> float:
    """The seconds for which an answer says that a cache may keep it; 0.0: it says nothing, infinite: it came out of a
    cache."""
    if any(value.strip() not in (b"", b"0") for value in fields.get(b"age", ())):
        return float("inf")
    if any(re.search(rb";\s*hit|\bHIT\b", value) for name in (b"cache-status", b"x-cache")
           for value in fields.get(name, ())):  # fmt: skip
        return float("inf")
    control = b",".join(fields.get(b"cache-control", ())).lower()
    if b"no-cache" in control or b"no-store" in control:
        return 0.0
    ages = [int(age) for age in _AGE.findall(control)]
    return float(max(ages)) if ages else 0.0


def may_be_old(trace: Trace, exchange: Exchange) -> bool:
    """Whether the answer may lawfully be of an earlier moment than another one that was asked for alike: it says that
    it came out of a cache, or a write ended no longer ago than it may be kept. Not where the last write before it was
    its own lane's and to its own path: a cache must drop what its client has just written to."""
    if exchange.response is None or (fresh := fresh_for(by_name(exchange.response.fields))) == 0.0:
        return False
    last = _last_write(trace, exchange)
    if last is None:
        return fresh == float("inf")
    if (last.lane, _path(last)) == (exchange.lane, _path(exchange)):
        return False
    return (exchange.times.fwd or 0) - (last.times.up_end or 0) <= fresh * 1e9


def _last_write(trace: Trace, exchange: Exchange) -> Exchange | None:
    """The last answered write to the environment that had ended before the exchange began."""
    wiring = trace.run.envs.get(exchange.env)
    reads, begun = wiring.reads if wiring else (), exchange.times.fwd or 0
    before = [
        e for e in trace.exchanges
        if e.env == exchange.env and e.times.up_end is not None and e.times.up_end < begun and not e.is_reset
        and e.response is not None and e.response.status < 400 and is_write(e.request, reads)
    ]  # fmt: skip
    return max(before, key=lambda e: e.times.up_end or 0, default=None)


def _path(exchange: Exchange) -> bytes:
    return exchange.request.target.partition(b"?")[0].rstrip(b"/")
