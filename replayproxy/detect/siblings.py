"""Episodes of one task and seed that began alike, and which of them are compared with which."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

from replayproxy.core.values import Episode
from replayproxy.detect import nondeterminism
from replayproxy.detect.finding import Finding, snapshot_address
from replayproxy.detect.nondeterminism_findings import Claims, Round
from replayproxy.detect.reference import MAX_FORMS, References, start_of
from replayproxy.detect.source import Beside, Source, Summary
from replayproxy.detect.sweep import Swept

BEGAN_DIRTY = "its start was not as it should be"

MOST_ROUNDS = 8
"""So often another episode is taken as the one that the rest is compared with: the cost stays linear."""


class Siblings:
    """Episodes of one task and seed that began alike, compared with one of them. `why` as in `Across`. `contradicted`:
    answers that another finding explains and that a sibling with an equal past was not given. `aged`: answers that
    differ from a sibling's as the cache that they declare allows."""

    def __init__(self, source: Source, swept: Swept, references: References, near: Beside) -> None:
        self._source = source
        self._beside = near
        self._swept = swept
        self._references = references
        self.why: dict[str, str] = {}
        self.contradicted: set[tuple[str, int]] = set()
        self.aged: set[tuple[str, int]] = set()

    def run(self, covered: frozenset[tuple[str, int]], dirty: Collection[str]) -> list[Finding]:
        """`dirty`: episodes that are left out, because what their reset left undone may still be under way."""
        groups: dict[tuple[object, ...], list[Summary]] = defaultdict(list)
        for summary in self._swept.summaries.values():
            self.why[summary.name] = BEGAN_DIRTY if summary.name in dirty else _unfit(summary, self._beside)
            if not self.why[summary.name]:
                groups[(*summary.group, tuple(sorted(summary.starts)))].append(summary)
        found: list[Finding] = []
        for members in groups.values():
            for alike in self._alike(members):
                if len(alike) == 1:
                    alone = "no other episode of this task and seed"
                    self.why[alike[0].name] = alone if len(members) == 1 else "no other start of its kind is equal"
                else:
                    found += self._compare(alike, covered)
        return found

    def _alike(self, members: Sequence[Summary]) -> Iterator[list[Summary]]:
        """The members by equal start; each is compared with the first of at most `MAX_FORMS` kinds."""
        kinds: list[list[Summary]] = []
        for summary in members:
            like = next((kind for kind in kinds if self._equal(kind[0], summary)), None)
            if like is not None:
                like.append(summary)
            elif len(kinds) < MAX_FORMS:
                kinds.append([summary])
            else:
                self.why[summary.name] = "no other start of its kind is equal"
        yield from kinds

    def _equal(self, a: Summary, b: Summary) -> bool:
        return all(
            self._references.equal(start_of(a.episode, a.starts[name]), start_of(b.episode, b.starts[name]))
            for name in a.starts
        )  # fmt: skip

    def _compare(self, alike: Sequence[Summary], covered: frozenset[tuple[str, int]]) -> list[Finding]:
        envs = [env for series in alike[0].series for env in sorted(series.envs)]
        claims = Claims(self._source.run.name, envs)
        members = {summary.name: summary for summary in alike}
        tried: list[str] = []
        first: str | None = alike[0].name
        while first is not None and first not in tried and len(tried) < MOST_ROUNDS:
            tried.append(first)
            one = self._round(members, first, {first, *claims.odd_ones}, covered)
            if len(tried) == 1:
                self._cover(one)
            first = claims.add(one)
        return claims.findings()

    def _round(
        self, members: Mapping[str, Summary], first: str, without: Collection[str], covered: frozenset[tuple[str, int]]
    ) -> Round:
        """Everybody compared with `first`, but for those that stood in its place before and were odd ones."""
        one = Round(representative=first, starts={first: self._starts(members[first])})
        others = [summary.episode for name, summary in members.items() if name not in without]
        for pair in self._pairs(members[first].episode, others):
            one.add(pair, covered)
            self.aged.update((pair.name, seq) for seq in pair.aged)
            for claim in pair.claims:
                sides = (first, claim.root.a or 0), (pair.name, claim.root.b or 0)
                told = [side in covered for side in sides]
                if told[0] != told[1]:
                    self.contradicted.add(sides[told.index(True)])
        return one

    def _cover(self, one: Round) -> None:
        """An episode of which nothing could be compared was not looked at."""
        for name, pair in one.pairs.items():
            if not pair.exchanges:
                self.why[name] = "no exchange with an equal past"
        if not any(pair.exchanges for pair in one.pairs.values()):
            self.why[one.representative] = "no exchange with an equal past"

    def _pairs(self, first: Episode, others: Sequence[Episode]) -> Iterator[nondeterminism.Pairwise]:
        source, trace = self._source, None
        for other in others:
            pair = source.ahead.pairwise(first, other) if source.ahead is not None else None
            if pair is None:
                trace = trace or source.trace(first)
                pair = nondeterminism.pairwise(
                    trace, source.trace(other), load=source.load, rules=source.rules, today=source.today
                )
            yield pair

    def _starts(self, summary: Summary) -> tuple[str, ...]:
        return tuple(
            snapshot_address(self._source.run.name, summary.name, snapshot) for snapshot in summary.starts.values()
        )


def _unfit(summary: Summary, near: Beside) -> str:
    """Why the answers of an episode cannot be compared with those of another; "" when they can."""
    if not summary.sealed:
        return f"the episode is {summary.episode.state}"
    if summary.group[0] is None and summary.group[1] is None:
        return "neither task nor seed is known"
    if not summary.starts or any(summary.usable_start(name) is None for name in summary.starts):
        return "no start snapshot: the states before may have differed"
    if not summary.exchanges:
        return "no exchanges"
    shared = any(snapshot.scope == "instance" for snapshot in summary.starts.values())
    if shared and any(other.writes for other in near[summary.name]):
        return "other episodes wrote to the instance meanwhile"
    return ""
