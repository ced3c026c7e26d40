"""Compares two recorded episodes, or the episodes of two runs pair by pair."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any

from replayproxy.core.comparison import DIFFERENT, SAME, UNDECIDED, Fold, Root
from replayproxy.core.episodepairs import Paired, pair_episodes
from replayproxy.core.rules import Rule, RuleBook
from replayproxy.core.values import UNATTRIBUTED, Episode
from replayproxy.errors import Exit, WrongUsage, worst
from replayproxy.session.diff_pair import EpisodePair
from replayproxy.session.diff_pairs import Ground, in_order
from replayproxy.session.look import Found, Stores

type Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRoot:
    """One root, and the episodes in which it is one: the same change at the same place of the same kind of request.

    `a`, `b` are the addresses of its first episodes, `differences` counts it and all that is folded under it.
    """

    root: Root
    a: str
    b: str
    differences: int
    episodes: int
    folded: Sequence[Fold] = ()

    def to_json(self) -> dict[str, Any]:
        document = self.root.to_json(self.a, self.b)
        folded = [fold.to_json() for fold in self.folded]
        return {**document, "consequences": self.differences - 1, "episodes": self.episodes, "folded": folded}


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """What came out for A and B. `single`: both are episodes. `only_a`, `only_b`: episodes without a fellow."""

    a: str
    b: str
    single: bool
    pairs: Sequence[EpisodePair]
    only_a: Sequence[Episode] = ()
    only_b: Sequence[Episode] = ()
    by_order: int = 0
    roots: Sequence[RunRoot] = ()
    explained: Mapping[str, int] = field(default_factory=dict)
    rules: Mapping[str, int] = field(default_factory=dict)
    known_rules: Mapping[str, Rule] = field(default_factory=dict)
    expired_rules: Sequence[str] = ()

    @property
    def counts(self) -> Counter[str]:
        return Counter(pair.comparison.verdict for pair in self.pairs)

    @property
    def verdict(self) -> str:
        if self.counts[DIFFERENT]:
            return DIFFERENT
        return UNDECIDED if self.counts[UNDECIDED] or not self.pairs else SAME

    @property
    def exit(self) -> int:
        """A pair that cannot be judged outweighs one that differs, as everywhere."""
        undecided = self.counts[UNDECIDED] or not self.pairs
        different = self.counts[DIFFERENT]
        return worst(Exit.UNJUDGED if undecided else Exit.OK, Exit.DIFFERENT if different else Exit.OK)

    @property
    def differences(self) -> int:
        return sum(pair.comparison.differences for pair in self.pairs)

    @property
    def unused_rules(self) -> tuple[str, ...]:
        return tuple(name for name, uses in self.rules.items() if not uses)

    def to_json(self) -> dict[str, Any]:
        document: dict[str, Any] = {"verdict": self.verdict, "a": self.a, "b": self.b}
        if self.single and self.pairs:
            (pair,) = self.pairs
            return document | pair.comparison.to_json(self.a, self.b)
        return document | {
            "roots": [root.to_json() for root in self.roots],
            "explained": dict(self.explained),
            "unpaired": [*_listed("a", self.a, self.only_a), *_listed("b", self.b, self.only_b)],
            "differences": self.differences,
            "counts": {verdict: self.counts[verdict] for verdict in (SAME, DIFFERENT, UNDECIDED)},
            "paired_by_order": self.by_order,
            "pairs": [pair.to_json() for pair in self.pairs],
            "rules": dict(self.rules),
            "unused_rules": list(self.unused_rules),
            "expired_rules": list(self.expired_rules),
        }


def _listed(side: str, run: str, episodes: Sequence[Episode]) -> list[dict[str, Any]]:
    return [{"side": side, "episode": f"{run}/{e.name}", "task": e.task, "seed": e.seed, "attempt": e.attempt}
            for e in episodes]  # fmt: skip


def diff(
    stores: Stores, a: str, b: str, *, rules: Sequence[Rule] = (), today: date | None = None,
    progress: Progress | None = None,
) -> Diff:  # fmt: skip
    """Compares what two addresses name: two episodes, or two runs. Raises UnknownAddress or WrongUsage."""
    left, right = _meant(stores, a), _meant(stores, b)
    runs = left.resolved.run, right.resolved.run
    if left.resolved.episode is not None and right.resolved.episode is not None:
        pairs = [(left.resolved.episode, right.resolved.episode)]
        paired = Paired(pairs=pairs)
    elif left.resolved.episode is None and right.resolved.episode is None:
        paired = pair_episodes(left.reader.episodes(runs[0]), right.reader.episodes(runs[1]))
    else:
        run, episode = (a, b) if left.resolved.episode is None else (b, a)
        raise WrongUsage(
            f"{run} is a run and {episode} an episode", hint="diff RUN RUN, or diff RUN/EPISODE RUN/EPISODE"
        )
    ground = Ground(readers=(left.reader, right.reader), runs=runs, rules=tuple(rules), today=today)
    compared = []
    with closing(in_order(ground, paired.pairs)) as coming:
        for number in range(1, len(paired.pairs) + 1):
            if progress is not None:
                progress(number, len(paired.pairs))
            one = next(coming)
            compared.append(replace(one, a=left.address(one.a), b=right.address(one.b)))
    if left.resolved.episode is not None:
        return _summed(compared[0].a, compared[0].b, True, compared, paired, rules, today)
    return _summed(left.address(runs[0].name), right.address(runs[1].name), False, compared, paired, rules, today)


def _meant(stores: Stores, text: str) -> Found:
    found = stores.find(text)
    resolved = found.resolved
    if resolved.finding is not None or resolved.seq is not None or resolved.snapshot is not None:
        raise WrongUsage(f"diff takes episodes or runs, {text} is none", hint="RUN or RUN/EPISODE")
    if resolved.episode is not None and resolved.episode.name == UNATTRIBUTED:
        raise WrongUsage(f"{text} is traffic without an episode", hint="name an episode")
    return found


def _summed(
    a: str, b: str, single: bool, pairs: Sequence[EpisodePair], paired: Paired, rules: Sequence[Rule],
    today: date | None,
) -> Diff:  # fmt: skip
    explained: Counter[str] = Counter()
    uses: Counter[str] = Counter(dict.fromkeys(RuleBook(rules, today).uses, 0))
    for pair in pairs:
        explained.update(pair.comparison.explained)
        uses.update(pair.comparison.rules)
    return Diff(
        a=a, b=b, single=single, pairs=pairs, only_a=paired.only_a, only_b=paired.only_b,
        by_order=paired.by_order, roots=tuple(_merged(pairs)), explained=dict(explained.most_common()), rules=uses,
        known_rules={rule.name: rule for rule in rules},
        expired_rules=[rule.name for rule in RuleBook(rules, today).expired],
    )  # fmt: skip


def _merged(pairs: Sequence[EpisodePair]) -> Iterator[RunRoot]:
    """The same root in many episodes is one; the most frequent come first, the rest in the order of time."""
    merged: dict[tuple[str, ...], RunRoot] = {}
    for pair in pairs:
        seen: set[tuple[str, ...]] = set()
        for root in pair.comparison.roots:
            key = _likeness(root)
            known = merged.get(key)
            if known is None:
                known = RunRoot(root=root, a=pair.a, b=pair.b, differences=0, episodes=0)
            count, episodes = known.differences + 1 + root.consequences, known.episodes + (key not in seen)
            folded = _more_folded(known.folded, root.folded)
            merged[key] = replace(known, differences=count, episodes=episodes, folded=folded)
            seen.add(key)
    yield from sorted(merged.values(), key=lambda root: -root.episodes)


def _more_folded(known: Sequence[Fold], more: Sequence[Fold]) -> tuple[Fold, ...]:
    """What is folded in all episodes together; the example is that of the first."""
    out = {(fold.template, fold.pointer, fold.by): fold for fold in known}
    for fold in more:
        key = (fold.template, fold.pointer, fold.by)
        out[key] = replace(out[key], count=out[key].count + fold.count) if key in out else fold
    return tuple(out.values())


def _likeness(root: Root) -> tuple[str, ...]:
    general = re.sub(r"/\d+(?=/|\Z)", "/*", root.pointer)
    values = root.values if root.kind in ("status", "outcome", "reward") else ()
    return root.template or root.request, general, root.kind, root.note, *map(str, values)
