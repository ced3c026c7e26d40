"""How each episode's start stands to the reference of its task and seed, and what that says of the reset before it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from replayproxy.core.values import Exchange, RowChange, Snapshot
from replayproxy.detect.cells import Row
from replayproxy.detect.dirty import Dirt, Survivor
from replayproxy.detect.reference import Reference, References, Start, start_of
from replayproxy.detect.residue import Residue
from replayproxy.detect.source import Beside, Source, Summary, at_work, instance_of
from replayproxy.detect.states import Series, States, TooMuchChanged
from replayproxy.detect.sweep import Swept
from replayproxy.detect.timeline import cell
from replayproxy.detect.written import leaver

NO_REFERENCE = "no reference"
AT_WORK = "other episodes were at work on the instance"

SHOWN_ROOTS = 12
SHOWN_EPISODES = 3


class Starts:
    """`why`: episode -> why its start was not judged ("": it was). `clean`: the episodes all of whose starts equal
    their references."""

    def __init__(self, source: Source, states: States, swept: Swept, references: References, near: Beside) -> None:
        self._source = source
        self._states = states
        self._swept = swept
        self._references = references
        self._beside = near
        self._tables: dict[tuple[object, str], list[dict[str, Any]]] = {}
        self._previous = _previous(swept.summaries)
        self._resets = [e for e in source.bucket.exchanges if e.is_reset] if source.bucket is not None else []
        self.why: dict[str, str] = {}
        self.clean: set[str] = set()

    def of(self, summary: Summary) -> list[Dirt]:
        """What is wrong with the start of an episode, for each series of its snapshots."""
        reasons, dirts = [], []
        for series in summary.series:
            why, dirt = self._start(summary, series)
            reasons.append(why)
            if dirt is not None:
                dirts.append(dirt)
        if not reasons:
            reasons = ["no snapshots"]
        self.why[summary.name] = min(reasons, key=lambda why: why != "")
        if not dirts and all(why == "" for why in reasons):
            self.clean.add(summary.name)
        return dirts

    def _start(self, summary: Summary, series: Series) -> tuple[str, Dirt | None]:
        snapshot = summary.usable_start(series.name)
        if snapshot is None:
            return _no_start(summary.starts.get(series.name)), None
        start = start_of(summary.episode, snapshot)
        reference = self._references.of(summary.group, series.name)
        if reference is None:
            return NO_REFERENCE, self._without_reference(summary, series, snapshot, start)
        residue = self._references.residue(reference, start)
        if residue is not None and not residue.changes:
            return "", None
        busy = at_work(summary, snapshot, series, self._beside)
        dirt = self._dirt(summary, series, snapshot, reference, residue, busy)
        if not busy:
            return "", dirt
        # What those at work did belongs to them, and what nobody is known to have done may.
        earlier = {n for n, other in self._swept.summaries.items() if other.span.before(summary.span)}
        left = tuple(s for s in dirt.survivors if s.writer is not None and s.writer.episode in earlier)
        return ("", dirt.among(left)) if left else (AT_WORK, None)

    def _without_reference(self, summary: Summary, series: Series, snapshot: Snapshot, start: Start) -> Dirt | None:
        """Two starts of one task and seed that differ contradict each other, whichever of them is right; told of those
        that are not the most frequent one. What recorded writes explain says nothing where nobody is known to have
        reset: the harness may not mean to."""
        common = self._references.most(summary.group, series.name)
        if common is None or at_work(summary, snapshot, series, self._beside):
            return None
        residue = self._references.residue(common, start)
        if residue is None or not residue.changes or residue.only_counters:
            return None
        dirt = self._dirt(summary, series, snapshot, common, residue, set())
        if dirt.reset is not None:
            return dirt
        strange = tuple(
            s for s in dirt.survivors if s.writer is None and not s.perhaps and not self._put_there(dirt, s)
        )
        return dirt.among(strange) if strange else None

    def _put_there(self, dirt: Dirt, survivor: Survivor) -> bool:
        """Whether it is the other start that holds what a recorded write had left."""
        change = survivor.change
        writers = self._swept.ledger.writers(dirt.series, dirt.instance, survivor.row)
        return leaver(writers, change.after, change.before, dirt.start.done)[0] is not None

    def _dirt(
        self, summary: Summary, series: Series, snapshot: Snapshot, reference: Reference, residue: Residue | None,
        busy: set[str],
    ) -> Dirt:  # fmt: skip
        instance = instance_of(summary.span, series, snapshot)
        changes = residue.changes if residue is not None else ()
        survivors = tuple(self._survivor(series.name, instance, change, snapshot.done) for change in changes)
        return Dirt(
            episode=summary.name, series=series.name, instance=instance, start=snapshot, reference=reference,
            survivors=survivors, too_much=residue is None,
            only_counters=residue is not None and residue.only_counters, at_work=tuple(sorted(busy)),
            unchanged_since=self._unchanged_since(summary, series, snapshot),
            settled=self._settled(summary, series, reference, survivors),
            reset=self._reset(summary, series, snapshot), roots=tuple(self._table(summary, series, reference)),
            group=summary.group, changed_since=frozenset(self._changed_since(summary, series, survivors)),
        )  # fmt: skip

    def _changed_since(self, summary: Summary, series: Series, survivors: Sequence[Survivor]) -> Iterator[Row]:
        """The rows that are neither as the reference has them nor as the episode before had left them: somebody set
        them in between."""
        previous = self._swept.summaries.get(self._previous.get(summary.name, ""))
        last = previous.last.get(series.name) if previous is not None else None
        if last is None:
            return
        for survivor in survivors:
            held, after = self._states.row(last, survivor.row), survivor.change.after
            if any(cell(held, column) != cell(after, column) for column in survivor.differing):
                yield survivor.row

    def _survivor(self, series: str, instance: str, change: RowChange, until: int) -> Survivor:
        ledger, row = self._swept.ledger, Row(change.table, change.key)
        writer, maker = leaver(ledger.writers(series, instance, row), change.before, change.after, until)
        return Survivor(change=change, writer=writer, maker=maker, perhaps=ledger.perhaps(series, instance, row))

    def _unchanged_since(self, summary: Summary, series: Series, snapshot: Snapshot) -> str | None:
        """The episode before on this instance, if it wrote and its last state is this start."""
        earlier = [
            other for other in self._swept.summaries.values()
            if other.span.before(summary.span) and other.writes and other.last.get(series.name) == snapshot.root
            and other.span.shares(summary.span, series.envs)
        ]  # fmt: skip
        last = max(earlier, key=lambda other: other.span.opened_wall, default=None)
        return last.name if last is not None else None

    def _settled(
        self, summary: Summary, series: Series, reference: Reference, survivors: Sequence[Survivor]
    ) -> Snapshot | None:
        """The next snapshot, if all that was wrong with the start is right in it and nobody had put it right: a reset
        that had not ended. One write may mend a row, hardly two that it does not name."""
        second = summary.second.get(series.name)
        if second is None or second.root is None or not survivors:
            return None
        untouched = summary.first_write is None or second.done < summary.first_write
        if not untouched and len(survivors) < 2:
            return None
        try:
            changed = {(c.table, c.key) for c in self._states.changes(reference.root, second.root)}
        except TooMuchChanged:
            return None
        return second if all((s.change.table, s.change.key) not in changed for s in survivors) else None

    def _reset(self, summary: Summary, series: Series, snapshot: Snapshot) -> Exchange | None:
        """The last recorded reset between the episode before and this start."""
        before = self._previous.get(summary.name)
        since = self._swept.summaries[before].span.ended if before is not None else 0
        found = [
            e for e in self._resets
            if e.env in series.envs and since <= e.times.head and (e.times.up_end or e.times.head) <= snapshot.begun
        ]  # fmt: skip
        return found[-1] if found else None

    def _table(self, summary: Summary, series: Series, reference: Reference) -> list[dict[str, Any]]:
        """The start states of a task and seed: each with how often it came, how it stands to the reference, and after
        which episodes it came."""
        key = summary.group, series.name
        if key not in self._tables:
            starts = self._references.starts(*key)
            counts = Counter(start.root for start in starts)
            self._tables[key] = [
                {
                    "root": root.hex()[:16], "count": count,
                    "class": self._class(reference, next(s for s in starts if s.root == root)),
                    "after": list(self._after(starts, root)),
                }
                for root, count in counts.most_common(SHOWN_ROOTS)
            ]  # fmt: skip
        return self._tables[key]

    def _class(self, reference: Reference, start: Start) -> str:
        if start.root == reference.root:
            return "reference" if reference.common else "most frequent"
        residue = self._references.residue(reference, start)
        if residue is None:
            return "too much differs"
        return residue.word + (" (equal up to ties)" if residue.ties and not residue.changes else "")

    def _after(self, starts: Sequence[Start], root: bytes) -> Iterator[str | None]:
        """The first few episodes after which this state came; None: after none on the instance."""
        names = [start.episode for start in starts if start.root == root]
        yield from dict.fromkeys(self._previous.get(name) for name in names[:SHOWN_EPISODES])


def _previous(summaries: Mapping[str, Summary]) -> dict[str, str]:
    """Episode -> the last one that had ended on one of its instances before it was opened."""
    found: dict[str, str] = {}
    on: dict[tuple[str, str], list[Summary]] = {}
    for summary in sorted(summaries.values(), key=lambda s: (s.span.opened_wall, s.span.opened)):
        for place in summary.span.instances.items():
            # Whoever is still open may end before the next one begins, so a few are kept.
            there = on.setdefault(place, [])
            ended = [other for other in there if other.span.before(summary.span)]
            if ended:
                found[summary.name] = max(ended, key=lambda other: other.span.ended).name
            on[place] = [*[other for other in there if other not in ended], *ended[-1:], summary]
    return found


def _no_start(snapshot: Snapshot | None) -> str:
    if snapshot is None:
        return "no start snapshot"
    return f"start snapshot {snapshot.status}" + (f": {snapshot.reason}" if snapshot.reason else "")
