"""Judges one episode of a run that is still being recorded: with those beside it, before it, and of its task and seed.

The detectors are those of `check`, and so are the grades; what differs is how much they see. A whole run is judged
by `check` alone. Here an episode is judged together with every episode that was open on its instances at the same
time, the last few before it there, and a few of its task and seed, so that a verdict costs the same in the tenth
episode of a run and in the ten thousandth.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from replayproxy.core.chaos import unblamed
from replayproxy.core.rules import Rule
from replayproxy.core.values import UNATTRIBUTED, Episode, EpisodeState, Exchange, Run, Trace
from replayproxy.detect.finding import CONVINCING, Finding, Grade, Kind
from replayproxy.detect.judge import Coverage, Judgement, judge_run
from replayproxy.detect.silence import Silence
from replayproxy.detect.source import Source
from replayproxy.detect.spans import Span, span_of
from replayproxy.detect.verdicts import Word, verdict
from replayproxy.errors import UnknownAddress
from replayproxy.session.check_known import acquainted
from replayproxy.storage import Reader

BESIDE, BEFORE, SIBLINGS = 64, 4, 8
"""Episodes that are looked at with one: beside it on its instances, before it there, of its task and seed."""

TRACES = 160
"""Sealed episodes kept in memory: what one verdict needs, and some of the next one's."""

BUCKET = 2_000
"""Exchanges of no episode that are taken into account; with more of them their writers are as good as unknown."""

BY_ORDER = frozenset({Kind.STALE_READ, Kind.RACE, Kind.LOST_UPDATE})
"""What a write that nobody has seen the end of yet could explain."""

UNFINISHED = "other episodes on the instance were still open"
CROWDED = f"more than {BESIDE} episodes were open on the instance"


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A sealed episode, as far as others are chosen by it."""

    episode: Episode
    span: Span

    @property
    def group(self) -> tuple[str | None, int | None]:
        return self.episode.task, self.episode.seed


class Nearby:
    """The episodes of one run by place and time. Reads the store; writes nothing."""

    def __init__(
        self, reader: Reader, run: str, *, rules: Sequence[Rule] = (), today: date | None = None,
        silences: Sequence[Silence] = (),
    ) -> None:  # fmt: skip
        self._reader, self._name, self._rules, self._today = reader, run, rules, today
        self._silences = silences
        self._known: dict[str, Known] = {}
        self._traces: OrderedDict[str, Trace] = OrderedDict()
        run_now = reader.run(run)
        for episode in reader.episodes(run_now):
            if episode.state is EpisodeState.SEALED:
                self._add(run_now, episode)

    def sealed(self, name: str) -> None:
        """From now on the episode is one of those that others are judged with."""
        run = self._reader.run(self._name)
        episode = self._reader.episode(run, name)
        if episode.state is EpisodeState.SEALED:
            self._add(run, episode)

    def _add(self, run: Run, episode: Episode) -> None:
        self._known[episode.name] = Known(episode=episode, span=span_of(run, episode))

    def judge(self, name: str, *, open_names: Iterable[str] = (), as_of: int | None = None) -> dict[str, Any]:
        """The verdict on an episode. `open_names`: the others that are open now; `as_of`: for an episode that is open
        itself, an instant (ns) up to which nothing of it or of the others is under way any more.

        Raises UnknownAddress.
        """
        run = self._reader.run(self._name)
        episode = self._reader.episode(run, name)
        target = _so_far(self._read(run, episode), as_of) if as_of is not None else self._trace(run, episode)
        open_now = [self._reader.episode(run, other) for other in open_names if other != name]
        beside, crowded = self._beside(run, target.episode, open_now)
        chosen = {one.name: one for one in (*beside, *self._earlier(run, target.episode))}
        bucket, strays_hidden = self._bucket(run)
        source = Source(
            run=run, episodes=[*chosen.values(), target.episode], load=self._reader.node, bucket=bucket,
            trace=lambda one: target if one.name == name else self._trace(run, one),
            rules=self._rules, today=self._today,
        )  # fmt: skip
        unfinished = any(one.state is EpisodeState.OPEN for one in beside)
        doubt = CROWDED if crowded else UNFINISHED if unfinished else "much traffic of no episode" * strays_hidden
        judgement, _ = acquainted(judge_run(source), self._silences, {}, self._today)
        return document(judgement, name, doubt, with_others=len(chosen), open_yet=as_of is not None)

    # -- which others ------------------------------------------------------------------------------------------------

    def _beside(self, run: Run, target: Episode, open_now: Sequence[Episode]) -> tuple[list[Episode], bool]:
        mine = span_of(run, target)
        found = [
            one.episode for one in self._known.values()
            if one.episode.name != target.name and one.span.overlaps(mine) and one.span.shares(mine, mine.instances)
        ]  # fmt: skip
        found += [one for one in open_now if span_of(run, one).shares(mine, mine.instances)]
        return found[-BESIDE:], len(found) > BESIDE

    def _earlier(self, run: Run, target: Episode) -> list[Episode]:
        mine = span_of(run, target)
        here = [one for one in self._known.values() if one.span.before(mine) and one.span.shares(mine, mine.instances)]
        group = (target.task, target.seed)
        alike = [one for one in self._known.values() if one.group == group and one.episode.name != target.name]
        here.sort(key=lambda one: (one.span.opened_wall, one.span.ended))
        alike.sort(key=lambda one: one.span.opened_wall)
        return [one.episode for one in (*here[-BEFORE:], *(alike[-SIBLINGS:] if group != (None, None) else ()))]

    # -- reading -----------------------------------------------------------------------------------------------------

    def _read(self, run: Run, episode: Episode) -> Trace:
        return unblamed(self._reader.trace(run, episode))

    def _trace(self, run: Run, episode: Episode) -> Trace:
        if episode.state is not EpisodeState.SEALED:
            return self._read(run, episode)
        trace = self._traces.pop(episode.name, None) or self._read(run, episode)
        self._traces[episode.name] = trace
        while len(self._traces) > TRACES:
            self._traces.popitem(last=False)
        return trace

    def _bucket(self, run: Run) -> tuple[Trace | None, bool]:
        try:
            bucket = self._read(run, self._reader.episode(run, UNATTRIBUTED))
        except UnknownAddress:
            return None, False
        hidden = len(bucket.exchanges) > BUCKET
        return replace(bucket, exchanges=bucket.exchanges[-BUCKET:]), hidden


def _so_far(trace: Trace, as_of: int) -> Trace:
    """The episode as if it had ended at `as_of`: what was over by then, and the snapshots that were read by then."""
    return replace(
        trace,
        episode=replace(trace.episode, state=EpisodeState.SEALED, ended=as_of),
        exchanges=tuple(e for e in trace.exchanges if _over(e) <= as_of),
        snapshots=tuple(s for s in trace.snapshots if s.done <= as_of),
    )


def _over(exchange: Exchange) -> int:
    times = exchange.times
    return max(at for at in (times.c_in, times.up_end, times.c_out, exchange.order[0]) if at is not None)


# The document


def document(
    judgement: Judgement, name: str, doubt: str = "", *, with_others: int = 0, open_yet: bool = False
) -> dict[str, Any]:
    """What a harness is told of an episode. `doubt`: why nothing that depends on the order of writes is convincing."""
    fallen = [_doubted(finding, doubt) for finding in judgement.findings if finding.episode == name]
    coverage: Coverage = judgement.coverage[name]
    word = judgement.words[name]
    if word is not Word.UNKNOWN:
        word = verdict(fallen, spread=name in judgement.caught, checked=coverage.checked)
    return {
        "episode": name, "verdict": word.value, "mask": word is Word.POISONED,
        "reasons": [reason(finding) for finding in fallen],
        "coverage": coverage.to_json(),
        "lost_exchanges": list(judgement.lost.get(name, ())),
        "suspected_from": judgement.caught.get(name),
        "judged_with": with_others, "so_far": open_yet, "doubt": doubt or None,
    }  # fmt: skip


def _doubted(finding: Finding, doubt: str) -> Finding:
    if doubt and finding.kind in BY_ORDER and finding.grade in CONVINCING:
        return replace(finding, grade=Grade.SUSPECTED)
    return finding


def reason(finding: Finding) -> dict[str, Any]:
    """A finding in short: enough to mask a sample by, and to find the rest."""
    return {
        "kind": finding.kind.value, "grade": finding.grade.value, "finding": finding.id, "sub": finding.sub,
        "blame": finding.blame.value, "title": finding.title,
        "exchanges": [{"address": w.address, "role": w.role} for w in finding.exchanges],
    }  # fmt: skip
