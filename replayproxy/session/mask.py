"""`mask`: which rollouts the trainer should leave out, and the file of rollouts with that written into it.

Every line keeps its bytes and its place; what is added stands before its last brace. Nothing is written when a line is
no JSON object, when more is masked or unmatched than allowed, or when the process ends in the middle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as member
from enum import StrEnum
from pathlib import Path
from typing import Any

from replayproxy.core.jsonsplice import inserted, renewed, written
from replayproxy.core.shown import count, json_bytes
from replayproxy.core.values import Episode
from replayproxy.detect.verdicts import Word
from replayproxy.errors import Exit, WrongUsage, worst
from replayproxy.session.mask_groups import Groups
from replayproxy.session.mask_reasons import GIVEN, Reason, reasons
from replayproxy.session.mask_verdicts import Verdicts
from replayproxy.session.rollouts import MISSING, Document, Field, field, lines, opened
from replayproxy.session.rollouts_join import Join, Match
from replayproxy.session.rollouts_out import WholeFile
from replayproxy.session.rollouts_shapes import contradict

MASK, REASONS, EPISODE, VERDICT = "mask_sample", "mask_reasons", "replay_episode", "replay_verdict"
ADDED = frozenset({MASK, REASONS, EPISODE, VERDICT})

SHOWN = 1000
"""Lines that a report lists one by one; the rest is counted."""

type Progress = Callable[[int, int], None]


class How(StrEnum):
    ANNOTATE = "annotate"
    DROP = "drop"
    LIST = "list"


@dataclass(frozen=True, slots=True, kw_only=True)
class Demands:
    """What is asked for. `masked`: the verdicts that are masked; the limits are shares of the lines."""

    masked: frozenset[Word] = frozenset({Word.POISONED})
    how: How = How.ANNOTATE
    max_masked: float = 0.2
    max_unmatched: float = 0.0


def words(text: str) -> frozenset[Word]:
    """The verdicts of `--verdicts`. Raises WrongUsage."""
    found = [word.strip() for word in text.split(",") if word.strip()]
    for word in found:
        if word not in set(Word):
            raise WrongUsage(f"--verdicts: {word!r} is no verdict", hint=", ".join(Word))
    if not found:
        raise WrongUsage("--verdicts names no verdict", hint=", ".join(Word))
    return frozenset(map(Word, found))


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What is said of the rollouts of an episode. `episode` "": of a line that is of none, or of one of several."""

    masked: bool
    episode: str = ""
    verdict: str = ""
    reasons: Sequence[Reason] = ()

    def values(self) -> dict[str, Any]:
        """The members that a line gets."""
        return {
            MASK: self.masked, REASONS: list(self.reasons), EPISODE: self.episode or None,
            VERDICT: self.verdict or None,
        }  # fmt: skip

    def members(self) -> dict[str, bytes]:
        return {name: json_bytes(value) for name, value in self.values().items()}


class Marks:
    """The mark of each episode of a run."""

    def __init__(self, judged: Verdicts, masked: Iterable[Word]) -> None:
        self._masked = {word.value for word in masked}
        self._judged = judged
        self._reasons = reasons(judged.document)
        self._made: dict[str, tuple[Mark, bytes]] = {}

    def of(self, episode: Episode) -> Mark:
        return self._of(episode)[0]

    def _of(self, episode: Episode) -> tuple[Mark, bytes]:
        found = self._made.get(episode.name)
        if found is None:
            verdict = self._judged.of(episode)
            masked = verdict in self._masked
            why = self._reasons.get(episode.name, ()) if masked else ()
            mark = Mark(masked=masked, episode=episode.name, verdict=verdict, reasons=why)
            found = self._made[episode.name] = mark, written(mark.members())
        return found

    def matched(self, match: Match) -> tuple[Mark, bytes]:
        """The mark of a line and its members as bytes. One that may be of several episodes is masked where one of
        them is: better to lose a rollout than to train on a poisoned one."""
        if len(match.episodes) == 1:
            return self._of(match.episodes[0])
        several = [self.of(one) for one in match.episodes]
        why = [one for mark in several for one in mark.reasons]
        mark = Mark(masked=any(one.masked for one in several), reasons=why)
        return mark, written(mark.members())


def masked_before(document: Mapping[str, Any]) -> bool:
    """Whether somebody else has masked the rollout: then it stays masked. What an earlier `mask` said is said anew."""
    if EPISODE in document:
        earlier = document.get(REASONS)
        return isinstance(earlier, list) and GIVEN["kind"] in [
            one.get("kind") for one in earlier if isinstance(one, dict)
        ]
    return bool(document.get(MASK))


def also_given(mark: Mark) -> Mark:
    """The mark of a rollout that somebody else had masked."""
    return Mark(masked=True, episode=mark.episode, verdict=mark.verdict, reasons=[dict(GIVEN), *mark.reasons])


@dataclass(slots=True, kw_only=True)
class Report:
    """What was found in a file of rollouts, in numbers. `lines` are those that hold a rollout."""

    unit: str = "line"  # "row" of a table
    lines: int = 0
    blank: int = 0
    masked: int = 0  # by these verdicts
    given: int = 0  # by somebody else before, whatever the verdict
    matched: int = 0
    ambiguous: int = 0
    unmatched: int = 0
    other_reward: int = 0  # the rollout's reward is not the one that its episode has
    verdicts: Counter[str] = member(default_factory=Counter)
    kinds: Counter[str] = member(default_factory=Counter)
    lacking: Counter[str] = member(default_factory=Counter)
    episodes: set[str] = member(default_factory=set)
    first_unmatched: list[int] = member(default_factory=list)
    first_ambiguous: list[tuple[int, list[str]]] = member(default_factory=list)
    shown: list[tuple[int, Mark]] = member(default_factory=list)
    groups: Groups = member(default_factory=Groups)

    def see(self, number: int, match: Match, mark: Mark, reward: Any, *, given: bool) -> None:
        """Counts one rollout. One that was masked already has left its group before."""
        self.lines += 1
        self.given += given
        if len(match.episodes) == 1:
            (episode,) = match.episodes
            self.matched += 1
            self.verdicts[mark.verdict] += 1
            self.episodes.add(episode.name)
            self.other_reward += contradict(reward, episode.reward)
            if not given:
                self.groups.see(episode, episode.reward if reward is MISSING else reward, masked=mark.masked)
        elif match.episodes:
            self.ambiguous += 1
            if len(self.first_ambiguous) < 5:
                self.first_ambiguous.append((number, [one.name for one in match.episodes[:5]]))
        else:
            self.unmatched += 1
            self.lacking.update([match.lacks] if match.lacks else ())
            if len(self.first_unmatched) < 5:
                self.first_unmatched.append(number)
        if mark.masked:
            self.masked += 1
            self.kinds.update({one["kind"] for one in mark.reasons})
            if len(self.shown) < SHOWN:
                self.shown.append((number, mark))

    @property
    def share_masked(self) -> float:
        return self.masked / self.lines if self.lines else 0.0

    @property
    def share_unmatched(self) -> float:
        """Lines that are not of exactly one episode, of all."""
        return (self.unmatched + self.ambiguous) / self.lines if self.lines else 0.0

    def failures(self, demands: Demands) -> list[tuple[Exit, str]]:
        """Why nothing may be written; empty when it may."""
        if not self.lines:
            return [(Exit.UNJUDGED, "it holds no rollout")]
        found = []
        if self.share_masked > demands.max_masked:
            told = f"{self.masked:,} of {count(self.lines, self.unit)} would be masked ({self.share_masked:.1%})"
            found.append((Exit.DIFFERENT, f"{told}, more than --max-masked {demands.max_masked:g}"))
        if self.share_unmatched > demands.max_unmatched:
            told = f"{self.unmatched + self.ambiguous:,} of {count(self.lines, self.unit)} are not of one episode"
            limit = f"({self.share_unmatched:.1%}), more than --max-unmatched {demands.max_unmatched:g}"
            found.append((Exit.UNJUDGED, f"{told} {limit}"))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Masked:
    """What `mask` did with a file. `out` None: nothing was written."""

    judged: Verdicts
    join: Join
    source: Path
    out: Path | None
    demands: Demands
    report: Report

    @property
    def why(self) -> list[str]:
        return [why for _, why in self.report.failures(self.demands)]

    @property
    def exit(self) -> int:
        return worst(*(code for code, _ in self.report.failures(self.demands)))


def mask_lines(
    judged: Verdicts, join: Join, demands: Demands, source: Path, out: Path | None, *,
    reward: str, progress: Progress | None = None,
) -> Masked:  # fmt: skip
    """Masks a file of JSON lines. `out` None, or `--how list`: nothing is written. `reward`: the field of a rollout by
    which its group is compared; where it has none, its episode's is."""
    report, marks, reward_of = Report(), Marks(judged, demands.masked), field(reward)
    if out is None or demands.how is How.LIST:
        _each(source, join, marks, report, reward_of, None, demands.how, progress)
        return Masked(judged=judged, join=join, source=source, out=None, demands=demands, report=report)
    with WholeFile(out, like=source) as file:
        _each(source, join, marks, report, reward_of, file.write, demands.how, progress)
        kept = not report.failures(demands)
        if kept:
            file.keep()
    return Masked(judged=judged, join=join, source=source, out=out if kept else None, demands=demands, report=report)


def _each(
    source: Path, join: Join, marks: Marks, report: Report, reward: Field,
    write: Callable[[bytes], None] | None, how: How, progress: Progress | None,
) -> None:  # fmt: skip
    size, seen = source.stat().st_size, 0
    with opened(source) as file:
        for line in lines(file, str(source)):
            document, raw = line.document, line.raw
            if document is None:
                report.blank += 1
            else:
                match = join.match(document)
                mark, added = marks.matched(match)
                given = masked_before(document)
                report.see(line.number, match, mark, reward(document), given=given)
                if how is How.ANNOTATE and write is not None:
                    raw = annotated(raw, document, also_given(mark) if given else mark, added)
                elif mark.masked and how is How.DROP:
                    raw = b""
            if write is not None:
                write(raw)
            seen += len(line.raw)
            if progress is not None and line.number % 1000 == 0:
                progress(seen, size)


def annotated(raw: bytes, document: Document, mark: Mark, added: bytes) -> bytes:
    """The line with its mark. Members of these names that it has already get the new values where they stand."""
    if ADDED.isdisjoint(document):
        return inserted(raw, added, empty=not document)
    return renewed(raw, mark.members())
