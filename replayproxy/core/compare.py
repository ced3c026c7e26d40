"""Compares two episodes: what differs, what explains it, what follows from what.

A verdict is `same`, `different` or `undecided`, never a bool. Nothing is masked silently: each difference that was
explained is counted under its class, and headers that are never compared are counted when they differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from itertools import pairwise
from urllib.parse import urlsplit

from replayproxy.core import prolly
from replayproxy.core.canonical import field, request_key
from replayproxy.core.clock import Clock, Span, span_of
from replayproxy.core.comparison import (
    DIFFERENT,
    SAME,
    UNDECIDED,
    Comparison,
    Example,
    Fold,
    Root,
    StateDifference,
)
from replayproxy.core.difference import Difference
from replayproxy.core.differences import between
from replayproxy.core.effects import is_write, lane_ambiguities
from replayproxy.core.explain import Classes, Explainer, Where
from replayproxy.core.fold import Folding, Step
from replayproxy.core.pairing import kind_of, pair
from replayproxy.core.renaming import Identifiers
from replayproxy.core.rules import Rule, RuleBook
from replayproxy.core.secrets import Secrets
from replayproxy.core.seeds import Seeds
from replayproxy.core.statediff import Progress, StateEvent, States, match_snapshots
from replayproxy.core.strays import strays
from replayproxy.core.treediff import ABSENT
from replayproxy.core.validators import Validators, uri_of
from replayproxy.core.values import EpisodeState, Exchange, Snapshot, Trace

__all__ = ["ABSENT", "Comparison", "Example", "Fold", "Root", "StateDifference", "compare"]

type Load = Callable[[bytes], bytes]
type SeqPairs = Sequence[tuple[int | None, int | None]]

EXAMPLES = 20
"""So many explained differences of each class are kept to be shown."""


def compare(
    a: Trace,
    b: Trace,
    *,
    pairs: SeqPairs | None = None,
    rules: Sequence[Rule] = (),
    authorities_a: frozenset[str] = frozenset(),
    authorities_b: frozenset[str] = frozenset(),
    bindings: Mapping[str, str] | None = None,
    load: Load | None = None,
    load_b: Load | None = None,
    today: date | None = None,
) -> Comparison:
    """Compares two episodes.

    `pairs` by sequence number, else aligned per lane. `authorities_*`: further addresses (`host:port`) of each side's
    environments; those its run names are known. `bindings`: recorded to live values that a re-drive substituted.
    `load` (`load_b`) reads a node of A's (B's) snapshots; without it states are not compared. `today` decides which
    rules have expired; None: none has.
    """
    addresses = authorities_a | own_addresses(a), authorities_b | own_addresses(b)
    return _Comparing(a, b, pairs, RuleBook(rules, today), addresses, bindings or {}, load, load_b or load).run()


def own_addresses(trace: Trace) -> frozenset[str]:
    """The addresses that the episode's environments may call their own: upstreams, and our listeners before them."""
    urls = {wiring.upstream for wiring in trace.run.envs.values()} | {w.listener for w in trace.run.envs.values()}
    urls |= set(trace.episode.envs.values()) | {exchange.upstream for exchange in trace.exchanges}
    found = set()
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


class _Comparing:
    """One comparison on its way: pairs first, then states, then what follows from what."""

    def __init__(
        self,
        a: Trace,
        b: Trace,
        pairs: SeqPairs | None,
        book: RuleBook,
        authorities: tuple[frozenset[str], frozenset[str]],
        bindings: Mapping[str, str],
        load: Load | None,
        load_b: Load | None,
    ) -> None:
        self._sides = (a, b)
        self._aligned = pairs is None
        self._seqs = tuple(pair(a.exchanges, b.exchanges) if pairs is None else pairs)
        self._book = book
        self._loads = (load, load_b)
        by_a, by_b = ({e.seq: e for e in trace.exchanges} for trace in (a, b))
        self._rows = [(by_a.get(x) if x else None, by_b.get(y) if y else None) for x, y in self._seqs]
        self._both = [(x, y) for x, y in self._rows if x is not None and y is not None]
        self._explained: Counter[str] = Counter()
        self._examples: dict[str, list[tuple[int | None, int | None, Difference]]] = {}
        self._beside: Counter[str] = Counter()
        self._found: dict[int, list[Difference]] = {}
        self._quiet: dict[str, list[tuple[int, int]]] = {}  # snapshot name -> (pair it followed, rows that differ)
        self._explainer = Explainer(
            clock=Clock([(span_of(x), span_of(y)) for x, y in self._both]),
            rules=book,
            validators=Validators(self._both),
            identifiers=(self._identifiers(0), self._identifiers(1)),
            authorities=authorities,
            bindings=bindings,
            seeded=Seeds(self._starts(0), self._starts(1)).seeded,
        )

    def run(self) -> Comparison:
        self._exchanges()
        events, reasons, notes, compared = self._states()
        secrets = Secrets(exchange for trace in self._sides for exchange in trace.exchanges)
        folding = Folding()
        for step in self._steps(events, secrets):
            folding.add(step)
        roots = folding.roots(secrets.hide)
        reasons = [*self._reasons(compared), *reasons]
        incomplete = any(trace.episode.state is not EpisodeState.SEALED for trace in self._sides)
        verdict = UNDECIDED if incomplete else DIFFERENT if roots else UNDECIDED if reasons else SAME
        return Comparison(
            verdict=verdict,
            roots=roots,
            explained=dict(self._explained.most_common()),
            explained_detail=self._shown_examples(secrets),
            pairs=self._seqs,
            state=_first_state(events, secrets),
            undecided=tuple(reasons),
            notes=tuple(notes),
            rules=dict(self._book.uses),
            expired_rules=tuple(rule.name for rule in self._book.expired),
            not_compared=dict(self._beside.most_common()),
            exchanges_compared=len(self._both),
            exchanges_different=len(self._found),
            snapshots_compared=compared,
        )  # fmt: skip

    def _shown_examples(self, secrets: Secrets) -> dict[str, tuple[Example, ...]]:
        return {
            name: tuple(
                Example(a=a, b=b, pointer=d.pointer, values=(secrets.hide(d, d.a), secrets.hide(d, d.b)))
                for a, b, d in found
            )
            for name, found in self._examples.items()
        }

    # -- exchanges

    def _exchanges(self) -> None:
        numbers = [index for index, (x, y) in enumerate(self._rows) if x is not None and y is not None]
        for index, (x, y) in zip(numbers, self._both, strict=True):
            differences = between(x, y, self._explainer.soften, self._beside)
            if differences:
                where = _where(x, y)
                left = [d for d in differences if not self._counted(x.seq, y.seq, d, self._explainer.explain(d, where))]
                if left:
                    self._found[index] = left
        by_pair = {at: self._found.get(index, []) for at, index in enumerate(numbers)}
        for at, difference in strays(self._both, self._explainer.names, by_pair):
            x, y = self._both[at]
            if not self._counted(x.seq, y.seq, difference, self._explainer.explain(difference, _where(x, y))):
                self._found.setdefault(numbers[at], []).append(difference)

    def _counted(self, a: int | None, b: int | None, difference: Difference, classes: Classes | None) -> bool:
        """Counts an explained difference; False when it is not explained."""
        for name in classes or ():
            self._explained[name] += 1
            examples = self._examples.setdefault(name, [])
            if len(examples) < EXAMPLES:
                examples.append((a, b, difference))
        return classes is not None

    # -- states

    def _states(self) -> tuple[list[StateEvent], list[str], list[str], int]:
        a, b = self._sides
        if self._loads[0] is None or self._loads[1] is None:
            return [], [], [], 0
        index_a = {x: index for index, (x, y) in enumerate(self._seqs) if x is not None and y is not None}
        index_b = {y: index for index, (x, y) in enumerate(self._seqs) if x is not None and y is not None}
        matched = match_snapshots(a.snapshots, b.snapshots, index_a, index_b)
        progress = Progress(self._writes(0)), Progress(self._writes(1))
        events: list[StateEvent] = []
        walks: dict[str, States] = {}
        apart = 0
        for x, y, after in matched.pairs:
            if x.root != y.root and (progress[0].at(x) is None or progress[0].at(x) != progress[1].at(y)):
                apart += 1
                continue
            walk = walks.setdefault(x.name, self._walk(self._loads[0], self._loads[1], x, y))
            differences, rows = walk.step(x, y, (_reading(x), _reading(y)))
            self._quiet.setdefault(x.name, []).append((after, rows))
            if differences:
                events.append(StateEvent(a=x, b=y, after=after, differences=tuple(differences), rows=rows))
        if apart:
            matched.undecided.append(f"{apart} of {len(matched.pairs)} snapshot pairs were read at different moments")
        events.sort(key=lambda event: event.after)
        return events, matched.undecided, matched.notes, len(matched.pairs) - apart

    def _walk(self, load: Load, load_b: Load, a: Snapshot, b: Snapshot) -> States:
        def report(difference: Difference, classes: Classes) -> None:
            self._counted(None, None, difference, classes)

        return States(self._explainer, report, load, load_b)

    def _writes(self, side: int) -> list[tuple[str, Exchange]]:
        """The paired writes of a side in the order of time, each with A's name of its lane."""
        found = [(x.lane, (x, y)[side]) for x, y in self._both if self._is_write((x, y)[side], side)]
        return sorted(found, key=lambda item: item[1].times.head)

    def _is_write(self, exchange: Exchange, side: int) -> bool:
        wiring = self._sides[side].run.envs.get(exchange.env)
        return is_write(exchange.request, wiring.reads if wiring else ())

    def _starts(self, side: int) -> list[tuple[Snapshot, Load]]:
        load = self._loads[side]
        if load is None:
            return []
        return [(snapshot, load) for snapshot in self._sides[side].snapshots if snapshot.when == "start"]

    def _identifiers(self, side: int) -> Identifiers:
        identifiers = Identifiers(lambda: self._rows_written(side))
        for exchange in self._sides[side].exchanges:
            identifiers.add_path(exchange.request.target.decode("latin-1").partition("?")[0])
            location = field(exchange.response.fields, b"location") if exchange.response else None
            if location is not None:
                identifiers.add_path(urlsplit(location.decode("latin-1")).path)
        return identifiers

    def _rows_written(self, side: int) -> Iterator[tuple[str, str]]:
        load = self._loads[side]
        last: dict[str, bytes] = {}
        if load is None:
            return
        roots: dict[str, list[bytes]] = {}
        for snapshot in self._sides[side].snapshots:
            if snapshot.root is not None and last.get(snapshot.name) != snapshot.root:
                last[snapshot.name] = snapshot.root
                roots.setdefault(snapshot.name, []).append(snapshot.root)
        for chain in roots.values():
            for before, after in pairwise(chain):
                for change in prolly.diff(before, after, load):
                    yield change.table, change.key

    # -- roots

    def _steps(self, events: Iterable[StateEvent], secrets: Secrets) -> Iterator[Step]:
        waiting = list(events)
        for index, (x, y) in enumerate(self._rows):
            while waiting and waiting[0].after < index:
                yield self._state_step(waiting.pop(0))
            differences = self._found.get(index, [])
            if differences or x is None or y is None:
                yield self._exchange_step(index, x, y, differences, secrets)
        while waiting:
            yield self._state_step(waiting.pop(0))

    def _exchange_step(
        self, index: int, x: Exchange | None, y: Exchange | None, differences: Sequence[Difference], secrets: Secrets
    ) -> Step:
        sides = [(side, e) for side, e in enumerate((x, y)) if e is not None]
        first = sides[0][1]
        target = first.request.target.decode("utf-8", "backslashreplace")
        return Step(
            a=x.seq if x else None,
            b=y.seq if y else None,
            lane=first.lane,
            template=kind_of(first.request),
            request=secrets.request(f"{first.request.method.decode('ascii', 'backslashreplace')} {target}"),
            differences=tuple(differences),
            paths=tuple(dict.fromkeys(e.request.target.decode("latin-1").partition("?")[0] for _, e in sides)),
            writes=any(self._is_write(e, side) for side, e in sides),
            state=self._state_around(index),
        )

    def _state_around(self, index: int) -> str:
        """`equal` when every state read last before and first after a pair agrees in both runs; "" when unknown."""
        words = set()
        for readings in self._quiet.values():
            before = [rows for after, rows in readings if after < index][-1:]
            behind = [rows for after, rows in readings if after >= index][:1]
            if not before or not behind:
                return ""
            words.add("equal" if before == behind == [0] else "differs")
        return "differs" if "differs" in words else "equal" if words else ""

    def _state_step(self, event: StateEvent) -> Step:
        paths: tuple[str, ...] = ()
        if event.after >= 0 and event.after in self._found:
            exchange = self._rows[event.after][0]
            assert exchange is not None
            paths = (exchange.request.target.decode("latin-1").partition("?")[0],)
        return Step(a=event.a.after_seq, b=event.b.after_seq, lane="", template=f"state {event.a.name}",
                    request=f"state of {event.a.name} at {event.a.label or event.a.when}",
                    differences=event.differences, paths=paths)  # fmt: skip

    # -- verdict

    def _reasons(self, snapshots: int) -> Iterator[str]:
        for side, trace in zip("AB", self._sides, strict=True):
            if trace.episode.state is not EpisodeState.SEALED:
                why = f": {trace.episode.faults[0]}" if trace.episode.faults else ""
                yield f"{side} ({trace.address}) is {trace.episode.state}{why}"
            # Whoever gives the pairs knows which is which.
            if self._aligned and (ambiguous := _ambiguous(trace.exchanges)):
                yield f"{ambiguous} exchanges of {side} overlap an equal request of their lane: their order is unknown"
        if not self._rows and not snapshots:
            yield "nothing to compare: neither episode holds an exchange"


def _where(x: Exchange, y: Exchange) -> Where:
    path = x.request.target.decode("latin-1").partition("?")[0]
    return Where(template=kind_of(x.request), path=path, uri=uri_of(x), a=span_of(x), b=span_of(y))


def _reading(snapshot: Snapshot) -> Span:
    return snapshot.wall, snapshot.wall + snapshot.done - snapshot.begun


def _first_state(events: Sequence[StateEvent], secrets: Secrets) -> StateDifference | None:
    if not events:
        return None
    event = events[0]
    first = event.differences[0]
    _, table, key, *rest = first.tokens
    pointer = "".join("/" + str(token).replace("~", "~0").replace("/", "~1") for token in rest)
    return StateDifference(
        name=event.a.name, when=event.a.when, a=event.a.n, b=event.b.n, after=(event.a.after_seq, event.b.after_seq),
        table=str(table), key=str(key), pointer=pointer,
        values=(secrets.hide(first, first.a), secrets.hide(first, first.b)), rows=event.rows,
    )  # fmt: skip


def _ambiguous(exchanges: Sequence[Exchange]) -> int:
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


