"""One side of a comparison: an episode, and what is asked of it besides its exchanges."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from urllib.parse import urlsplit

from replayproxy.core import prolly
from replayproxy.core.canonical import field, request_key
from replayproxy.core.effects import is_write, lane_ambiguities
from replayproxy.core.renaming import Identifiers
from replayproxy.core.shown import count
from replayproxy.core.values import Exchange, Outcome, Snapshot, Trace

type Load = Callable[[bytes], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """`load` reads a node of the episode's snapshots; `authorities` are further addresses of its environments."""

    trace: Trace
    load: Load | None
    authorities: frozenset[str]

    def own_addresses(self) -> frozenset[str]:
        """What the episode's environments may call themselves: their upstreams, and our listeners before them."""
        urls = {url for wiring in self.trace.run.envs.values() for url in (wiring.upstream, wiring.listener)}
        urls |= set(self.trace.episode.envs.values()) | {exchange.upstream for exchange in self.trace.exchanges}
        found = set(self.authorities)
        for url in urls:
            parts = urlsplit(url) if "://" in url else None
            if parts is None or not parts.hostname:
                continue
            host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
            default = {"http": 80, "https": 443}.get(parts.scheme)
            found.add(f"{host}:{parts.port or default}")
            if parts.port in (None, default):
                found.add(host)
        return frozenset(found)

    def is_write(self, exchange: Exchange) -> bool:
        wiring = self.trace.run.envs.get(exchange.env)
        return is_write(exchange.request, wiring.reads if wiring else ())

    def starts(self) -> list[tuple[Snapshot, Load]]:
        """The start snapshots, each with what reads it."""
        load = self.load
        return [] if load is None else [(s, load) for s in self.trace.snapshots if s.when == "start"]

    def identifiers(self) -> Identifiers:
        """What serves as an identifier here: path segments, Location, keys of rows that changed."""
        identifiers = Identifiers(self._rows_written)
        for exchange in self.trace.exchanges:
            identifiers.add_path(exchange.request.target.decode("latin-1").partition("?")[0])
            location = field(exchange.response.fields, b"location") if exchange.response else None
            if location is not None:
                identifiers.add_path(urlsplit(location.decode("latin-1")).path)
        return identifiers

    def _rows_written(self) -> Iterator[tuple[str, str]]:
        load = self.load
        if load is None:
            return
        chains: dict[str, list[bytes]] = {}
        for snapshot in self.trace.snapshots:
            chain = chains.setdefault(snapshot.name, [])
            if snapshot.root is not None and chain[-1:] != [snapshot.root]:
                chain.append(snapshot.root)
        for chain in chains.values():
            for before, after in pairwise(chain):
                for change in prolly.diff(before, after, load):
                    yield change.table, change.key


def untold(pairs: Sequence[tuple[Exchange, Exchange]], snapshots: int) -> Iterator[str]:
    """Why equal pairs say nothing: the environment answered in none, or a body passed that neither side has."""
    if not snapshots and not any(_answered(x) or _answered(y) for x, y in pairs):
        yield "nothing to compare: the environment answered none of the exchanges"
    if lost := sum(_uncaptured(x) and _uncaptured(y) for x, y in pairs):
        yield f"of {count(lost, 'exchange')} neither side has the body: it was not captured"


def _answered(exchange: Exchange) -> bool:
    return exchange.response is not None and exchange.outcome is not Outcome.LOCAL


def _uncaptured(exchange: Exchange) -> bool:
    return exchange.response is not None and exchange.response.body is None


def overlapping(exchanges: Sequence[Exchange]) -> int:
    """How many exchanges share lane and key with one that they overlap. Keys are made only where lanes overlap."""
    busy: dict[str, int] = {}
    overlapping: set[str] = set()
    for exchange in exchanges:
        times = exchange.times
        if times.head < busy.get(exchange.lane, -1 << 63):
            overlapping.add(exchange.lane)
        busy[exchange.lane] = max(busy.get(exchange.lane, 0), times.c_out or times.up_end or times.head)
    chosen = [exchange for exchange in exchanges if exchange.lane in overlapping]
    return lane_ambiguities(chosen, lambda e: request_key(e.env, e.request)) if chosen else 0
