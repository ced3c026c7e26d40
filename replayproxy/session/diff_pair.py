"""Compares one episode with another: what was exchanged, the states, and what the harness said of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from replayproxy.core.compare import compare
from replayproxy.core.comparison import DIFFERENT, SAME, Comparison, Root
from replayproxy.core.rules import Rule, RuleBook
from replayproxy.core.values import Episode, Run
from replayproxy.storage import Reader

type Side = tuple[Reader, Run, Episode]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodePair:
    """Two episodes that were compared, by address."""

    a: str
    b: str
    comparison: Comparison

    def to_json(self) -> dict[str, Any]:
        return {"a": self.a, "b": self.b, **self.comparison.to_json(self.a, self.b)}


def compared(a: Side, b: Side, rules: Sequence[Rule], today: date | None) -> EpisodePair:
    traces = [reader.trace(run, episode) for reader, run, episode in (a, b)]
    comparison = compare(traces[0], traces[1], rules=rules, load=a[0].node, load_b=b[0].node, today=today)
    rewarded = _with_reward(comparison, a[2], b[2], RuleBook(rules, today))
    return EpisodePair(a=traces[0].address, b=traces[1].address, comparison=rewarded)


def _with_reward(comparison: Comparison, a: Episode, b: Episode, rules: RuleBook) -> Comparison:
    """Reward and outcome, which the harness gave, are part of an episode: where both have one, they are compared."""
    roots = list(comparison.roots)
    explained, uses = Counter(comparison.explained), dict(comparison.rules)
    for name, x, y in (("reward", a.reward, b.reward), ("outcome", a.outcome, b.outcome)):
        if x is None or y is None or x == y or (isinstance(x, float) and isinstance(y, float) and _near(x, y)):
            continue
        rule = rules.find("", f"episode/{name}", frozenset({"ignore", "mask"}))
        if rule is not None:
            explained[f"rule:{rule.name}"] += 1
            uses[rule.name] = uses.get(rule.name, 0) + 1
        else:
            pointer = f"episode/{name}"
            roots.append(Root(a=None, b=None, pointer=pointer, values=(x, y), kind=name, request="the episode"))
    verdict = DIFFERENT if roots and comparison.verdict == SAME else comparison.verdict
    return replace(comparison, roots=tuple(roots), explained=dict(explained), rules=uses, verdict=verdict)


def _near(x: float, y: float) -> bool:
    return abs(x - y) <= 1e-9 * max(abs(x), abs(y))
