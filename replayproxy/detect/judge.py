"""Judges a run: every finding, a verdict and the coverage of each episode, the failure rate."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from replayproxy.core.rules import RuleBook
from replayproxy.core.shown import count
from replayproxy.core.values import Episode, EpisodeState
from replayproxy.detect.across import Across
from replayproxy.detect.finding import CONVINCING, Finding, Kind, in_order
from replayproxy.detect.hidden import Hidden
from replayproxy.detect.late import WHY
from replayproxy.detect.reference import Given, Reference, References, Start, start_of
from replayproxy.detect.siblings import Siblings
from replayproxy.detect.source import Beside, Source, Summary, at_work, beside
from replayproxy.detect.states import States
from replayproxy.detect.sweep import Sweep, Swept
from replayproxy.detect.verdicts import Grounds, Rate, Word, rate

CHECKS = tuple(Kind)

MAX_FORMS = 8
"""Different start states of one task and seed whose episodes are compared among themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Which kinds were looked for in an episode, and why the others were not."""

    checked: tuple[str, ...]
    not_checked: Mapping[str, str]

    def to_json(self) -> dict[str, object]:
        return {"checked": list(self.checked), "not_checked": dict(self.not_checked)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What came out. `words` and `coverage` by episode; `caught`: suspicion that spread, and from where;
    `unattributed`: exchanges of no episode that are neither probes nor resets."""

    run: str
    findings: tuple[Finding, ...]
    words: Mapping[str, Word]
    coverage: Mapping[str, Coverage]
    caught: Mapping[str, str]
    rate: Rate
    counted: tuple[str, ...]  # the sealed episodes with an exchange
    incomplete: tuple[str, ...]
    open_yet: tuple[str, ...]
    exchanges: int
    writes: Mapping[str, int]
    lost: Mapping[str, tuple[int, ...]]
    missing: int
    torn: int
    late: int
    references: tuple[Mapping[str, object], ...]
    notes: tuple[str, ...]
    episodes: Mapping[str, Episode]
    unattributed: int
    grounds: Grounds

    def with_findings(self, findings: Iterable[Finding]) -> Judgement:
        """The same with other findings: what they say of episodes and of the rate is said anew. Their order stays."""
        kept = tuple(findings)
        words, caught = self.grounds.say(kept)
        return replace(
            self, findings=kept, words=words, caught=caught, rate=rate(words, self.lost, self.counted)
        )  # fmt: skip


def judge_run(source: Source, *, given: Given | None = None) -> Judgement:
    """Reads each episode once, and those that look odd, or have siblings, a second time."""
    states = States(source.load)
    swept = Sweep(source, states).run()
    near = beside(swept.summaries.values())
    references = References(states, _starts(swept, near), given, RuleBook(source.rules, source.today))
    across = Across(source, states, swept, references, near)
    across.run()
    findings = [*swept.stale_reads(source.run.name), *across.findings]
    covered = frozenset(pair for finding in findings for pair in finding.covers)
    siblings = Siblings(source, swept, references, near)
    findings += siblings.run(covered, _began_dirty(across.findings))
    findings = list(Hidden(source, swept.summaries).retold(findings, siblings.contradicted))
    told = frozenset(pair for finding in findings for pair in finding.covers)
    findings += swept.validators.findings(source.run.name, told)
    findings = [swept.jobs.doubted(finding) for finding in (*findings, *swept.races.findings())]
    amended = [finding for finding in source.amend(findings) if finding.episode in swept.summaries]
    return _judgement(source, swept, across, siblings, amended, references)


def _starts(swept: Swept, near: Beside) -> list[Start]:
    """The starts that say what a start should be: those that were read while nobody else was at work."""
    found = []
    for summary in swept.summaries.values():
        for series in summary.series:
            snapshot = summary.usable_start(series.name)
            if snapshot is not None and not at_work(summary, snapshot, series, near):
                found.append(start_of(summary.episode, snapshot))
    return found


def _began_dirty(findings: Sequence[Finding]) -> frozenset[str]:
    return frozenset(f.episode for f in findings if f.kind is Kind.DIRTY_RESET and f.grade in CONVINCING)


REPRODUCED = frozenset({Kind.STATE_BLEED, Kind.DIRTY_RESET, Kind.STALE_READ, Kind.NONDETERMINISM})
"""Kinds that `reproduce` shows again by sending an episode, or two one after the other."""


def _judgement(
    source: Source, swept: Swept, across: Across, siblings: Siblings, findings: Sequence[Finding],
    references: References,
) -> Judgement:  # fmt: skip
    summaries = swept.summaries
    coverage = {name: _coverage(name, swept, across, siblings) for name in summaries}
    grounds = Grounds(
        spans=tuple(s.span for s in summaries.values()), envs=tuple(source.run.envs),
        clean_starts=frozenset(across.clean_starts), sealed=frozenset(n for n, s in summaries.items() if s.sealed),
        checked={name: seen.checked for name, seen in coverage.items()},
    )  # fmt: skip
    words, caught = grounds.say(findings)
    counted = [name for name, s in summaries.items() if s.sealed and s.exchanges]
    lost = {name: s.lost for name, s in summaries.items() if s.lost}
    opened = {name: s.span.opened_wall for name, s in swept.summaries.items()}
    return Judgement(
        run=source.run.name,
        findings=tuple(_with_envs(finding, summaries) for finding in in_order(findings, opened)),
        words=words, coverage=coverage, caught=caught,
        rate=rate(words, lost, counted), counted=tuple(counted),
        incomplete=tuple(n for n, s in summaries.items() if s.episode.state is EpisodeState.INCOMPLETE),
        open_yet=tuple(n for n, s in summaries.items() if s.episode.state is EpisodeState.OPEN),
        exchanges=sum(s.exchanges for s in summaries.values()), lost=lost,
        writes={name: s.written for name, s in summaries.items()},
        missing=sum(s.missing for s in summaries.values()), torn=sum(s.torn for s in summaries.values()),
        late=sum(s.late for s in summaries.values()),
        references=tuple(_told(references, summaries)),
        notes=tuple(_notes(swept, siblings)),
        episodes={name: s.episode for name, s in summaries.items()},
        unattributed=sum(not (e.is_reset or e.is_probe) for e in source.bucket.exchanges) if source.bucket else 0,
        grounds=grounds,
    )  # fmt: skip


def _notes(swept: Swept, siblings: Siblings) -> Iterator[str]:
    if swept.provenance.full:
        yield "the index of values was full: flows of later values were not looked for"
    if aged := len(siblings.aged):
        told = f"{count(aged, 'answer')} {'differs' if aged == 1 else 'differ'}"
        yield f"{told} from a sibling's as the cache that they declare allows"


def _with_envs(finding: Finding, summaries: Mapping[str, Summary]) -> Finding:
    """The printed command is `reproduce` where that shows the finding again, and names every environment that the
    episodes in it used."""
    apart = {w.address.rpartition("#")[0] for w in finding.exchanges if w.role != "witness"}
    if finding.kind in REPRODUCED and (finding.kind is not Kind.STALE_READ or len(apart) == 1):
        told = sorted({w.address.rpartition("#")[0].rpartition("/")[2] for w in finding.exchanges} | {finding.episode})
        envs = sorted({env for name in told if name in summaries for env in summaries[name].envs})
        flags = " ".join(f"--env {env}=URL" for env in envs)
        return replace(finding, reproduce=f"replayproxy reproduce {finding.id} {flags}".rstrip())
    episodes = {word.rpartition("/")[2] for word in finding.reproduce.split() if "/" in word}
    envs = sorted({env for name in episodes if name in summaries for env in summaries[name].envs})
    flags = " ".join(f"--env {env}=URL" for env in envs)
    return replace(finding, reproduce=re.sub(r"--env \S+=URL", flags, finding.reproduce)) if flags else finding


def _coverage(name: str, swept: Swept, across: Across, siblings: Siblings) -> Coverage:
    """An episode in which nothing was recorded is never clean: its agent may have gone past the proxy."""
    why: dict[Kind, str] = {
        Kind.STALE_READ: swept.stale_coverage.get(name, "no exchanges"),
        Kind.STATE_BLEED: across.why.get(name, "no snapshots"),
        Kind.DIRTY_RESET: across.why.get(name, "no snapshots"),
        Kind.NONDETERMINISM: siblings.why.get(name, ""),
    }
    why |= {
        kind: by_name.get(name, swept.stale_coverage.get(name, "no exchanges"))
        for kind, by_name in swept.races.why.items()
    }
    blind = [(one.name, n) for one in swept.summaries[name].series if (n := swept.races.unseen(one.name))]
    if blind:
        told = f"snapshots {blind[0][0]} never change, and show none of {blind[0][1]} acknowledged writes"
        why = {kind: reason or f"{told}: do they read this state?" for kind, reason in why.items()}
    if name in swept.late:
        why = {kind: reason or WHY for kind, reason in why.items()}
    if not swept.summaries[name].exchanges:
        why |= dict.fromkeys(CHECKS, "no exchanges")
    return Coverage(
        checked=tuple(kind.value for kind, reason in why.items() if not reason),
        not_checked={kind.value: reason for kind, reason in why.items() if reason},
    )


def _told(references: References, summaries: Mapping[str, Summary]) -> Iterator[Mapping[str, object]]:
    """The references that were used, for the report."""
    counts: Counter[tuple[object, str]] = Counter()
    for summary in summaries.values():
        for series in summary.starts:
            counts[summary.group, series] += 1
    for (group, series), episodes in sorted(counts.items(), key=str):
        assert isinstance(group, tuple)
        found: Reference | None = references.of(group, series)
        yield {
            "task": group[0], "seed": group[1], "snapshot": series, "episodes": episodes,
            "root": found.root.hex() if found else None, "agree": found.agree if found else 0,
            "starts": found.starts if found else len(references.starts(group, series)),
            "given": found.given if found else False,
        }  # fmt: skip
