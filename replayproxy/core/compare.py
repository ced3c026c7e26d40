"""Compares two episodes: what differs, what explains it, what follows from what.

A verdict is `same`, `different` or `undecided`, never a bool. Nothing is masked silently: each difference that was
explained is counted under its class, and headers that are never compared are counted when they differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date

from replayproxy.core import jsonvalue
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
from replayproxy.core.explain import Explainer
from replayproxy.core.fold import Folding, Step
from replayproxy.core.learned import Learned
from replayproxy.core.pairing import kind_of, pair
from replayproxy.core.rules import Rule, RuleBook
from replayproxy.core.secrets import Secrets
from replayproxy.core.seeds import Seeds
from replayproxy.core.shots import Progress, match_snapshots
from replayproxy.core.shown import count
from replayproxy.core.sides import Side, overlapping, untold
from replayproxy.core.statediff import StateEvent, States
from replayproxy.core.strays import strays
from replayproxy.core.templates import template_of
from replayproxy.core.treediff import ABSENT
from replayproxy.core.validators import Validators, uri_of
from replayproxy.core.values import EpisodeState, Exchange, Snapshot, Trace
from replayproxy.core.where import Classes, Where

__all__ = ["ABSENT", "Comparison", "Example", "Fold", "Root", "StateDifference", "compare"]

LEARN_FROM = 3
"""Exchanges that differ before templates are learned: fewer are no list."""

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
    sides = (
        Side(trace=a, load=load, authorities=authorities_a),
        Side(trace=b, load=load_b or load, authorities=authorities_b),
    )
    return _Comparing(sides, pairs, RuleBook(rules, today), bindings or {}).run()


class _Comparing:
    """One comparison on its way: pairs first, then states, then what follows from what."""

    def __init__(
        self, sides: tuple[Side, Side], pairs: SeqPairs | None, book: RuleBook, bindings: Mapping[str, str]
    ) -> None:
        a, b = sides
        self._sides = sides
        self._aligned = pairs is None
        self._seqs = tuple(pair(a.trace.exchanges, b.trace.exchanges) if pairs is None else pairs)
        self._book = book
        by_a, by_b = ({e.seq: e for e in side.trace.exchanges} for side in sides)
        self._rows = [(by_a.get(x) if x else None, by_b.get(y) if y else None) for x, y in self._seqs]
        self._both = [(x, y) for x, y in self._rows if x is not None and y is not None]
        self._explained: Counter[str] = Counter()
        self._examples: dict[str, list[tuple[int | None, int | None, Difference]]] = {}
        self._beside: Counter[str] = Counter()
        self._found: dict[int, list[Difference]] = {}
        self._learned: Learned | None = None
        self._quiet: dict[str, list[tuple[int, int]]] = {}  # snapshot name -> (pair it followed, rows that differ)
        self._explainer = Explainer(
            clock=Clock([(span_of(x), span_of(y)) for x, y in self._both]),
            rules=book,
            validators=Validators(self._both),
            identifiers=(a.identifiers(), b.identifiers()),
            authorities=(a.own_addresses(), b.own_addresses()),
            bindings=bindings,
            seeds=Seeds(a.starts(), b.starts()),
        )

    def run(self) -> Comparison:
        self._exchanges()
        events, reasons, notes, compared = self._states()
        secrets = Secrets(exchange for side in self._sides for exchange in side.trace.exchanges)
        folding = Folding()
        apart = []
        for step in self._steps(events, secrets):
            folding.add(step)
            apart.append((step.a, step.b))
        roots = folding.roots(secrets.hide)
        reasons = [*self._reasons(compared), *reasons]
        incomplete = any(side.trace.episode.state is not EpisodeState.SEALED for side in self._sides)
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
            apart=tuple(apart),
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
        if a.load is None or b.load is None:
            return [], [], [], 0
        index_a = {x: index for index, (x, y) in enumerate(self._seqs) if x is not None and y is not None}
        index_b = {y: index for index, (x, y) in enumerate(self._seqs) if x is not None and y is not None}
        matched = match_snapshots(a.trace.snapshots, b.trace.snapshots, index_a, index_b)
        progress = [
            Progress([(x.lane, (x, y)[n]) for x, y in self._both if side.is_write((x, y)[n])])
            for n, side in enumerate(self._sides if matched.pairs else ())
        ]
        events: list[StateEvent] = []
        walks: dict[str, States] = {}
        apart: dict[str, int] = {}
        for x, y, after in matched.pairs:
            if x.root != y.root and (progress[0].at(x) is None or progress[0].at(x) != progress[1].at(y)):
                apart[x.name] = apart.get(x.name, 0) + 1
                continue
            if x.name in apart:
                matched.notes.append(
                    f"{apart.pop(x.name)} snapshot pairs of {x.name} not compared: lanes had come to different points; "
                    "a later pair was"
                )
            walk = walks.setdefault(x.name, States(self._explainer, self._report, a.load, b.load))
            differences, rows = walk.step(x, y, (_reading(x), _reading(y)))
            self._quiet.setdefault(x.name, []).append((after, rows))
            if differences:
                events.append(StateEvent(a=x, b=y, after=after, differences=tuple(differences), rows=rows))
        for name, left in apart.items():
            # Lanes may lawfully interleave in another way; but then nothing tells how the state came out.
            matched.undecided.append(f"the last {left} snapshot pairs of {name} were read at different points")
        events.sort(key=lambda event: event.after)
        return events, matched.undecided, matched.notes, sum(map(len, self._quiet.values()))

    def _report(self, difference: Difference, classes: Classes) -> None:
        self._counted(None, None, difference, classes)

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
        template = kind_of(first.request)
        return Step(
            a=x.seq if x else None,
            b=y.seq if y else None,
            lane=first.lane,
            template=template,
            request=secrets.request(f"{first.request.method.decode('ascii', 'backslashreplace')} {target}"),
            differences=tuple(differences),
            paths=tuple(dict.fromkeys(e.request.target.decode("latin-1").partition("?")[0] for _, e in sides)),
            writes=any(self._sides[side].is_write(e) for side, e in sides),
            state=self._state_around(index),
            grouped=self._grouped(first, template),
        )

    def _grouped(self, exchange: Exchange, own: str) -> str:
        """The kind of request by a template learned from both sides, where several kinds differ; else ""."""
        if self._learned is None and len(self._found) >= LEARN_FROM:
            self._learned = Learned(e for side in self._sides for e in side.trace.exchanges)
        if self._learned is None:
            return ""
        learned = self._learned.template(exchange.request.target)
        return own.replace(template_of(exchange.request.target), learned, 1)

    def _state_around(self, index: int) -> str:
        """Whether the states read last before and first after a pair agree in both runs; "" when that is not known."""
        before, behind = True, True
        for readings in self._quiet.values():
            last = [rows for after, rows in readings if after < index][-1:]
            first = [rows for after, rows in readings if after >= index][:1]
            if not last or not first:
                return ""
            before, behind = before and last == [0], behind and first == [0]
        if not self._quiet:
            return ""
        return "differs before" if not before else "equal" if behind else "differs after"

    def _state_step(self, event: StateEvent) -> Step:
        paths: tuple[str, ...] = ()
        if event.after >= 0 and event.after in self._found:
            exchange = self._rows[event.after][0]
            assert exchange is not None
            paths = (exchange.request.target.decode("latin-1").partition("?")[0],)
        return Step(a=event.a.after_seq, b=event.b.after_seq, lane="", template=f"state {event.a.name}",
                    request=f"state of {event.a.name} at {event.a.label or event.a.when}",
                    differences=event.differences, paths=paths, snapshots=(event.a.n, event.b.n))  # fmt: skip

    # -- verdict

    def _reasons(self, snapshots: int) -> Iterator[str]:
        for name, side in zip("AB", self._sides, strict=True):
            trace = side.trace
            if trace.episode.state is not EpisodeState.SEALED:
                why = f": {trace.episode.faults[0]}" if trace.episode.faults else ""
                yield f"{name} ({trace.address}) is {trace.episode.state}{why}"
            # Whoever gives the pairs knows which is which.
            if self._aligned and (ambiguous := overlapping(trace.exchanges)):
                told = f"{count(ambiguous, 'exchange')} of {name} {'overlaps' if ambiguous == 1 else 'overlap'}"
                yield f"{told} an equal request of the lane: the order is unknown"
        if not self._rows and not snapshots:
            yield "nothing to compare: neither episode holds an exchange"
        if self._rows:
            yield from untold(self._both, snapshots)


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
    return StateDifference(
        name=event.a.name, when=event.a.when, a=event.a.n, b=event.b.n, after=(event.a.after_seq, event.b.after_seq),
        table=str(table), key=str(key), pointer=jsonvalue.pointer(*rest),
        values=(secrets.hide(first, first.a), secrets.hide(first, first.b)), rows=event.rows,
    )  # fmt: skip
