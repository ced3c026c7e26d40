"""`ls --where --sort --by`: which episodes of a run are listed, in which order, and their sums by a field."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from replayproxy.core.values import Run
from replayproxy.detect.verdicts import wilson
from replayproxy.session.listing import FIELDS, EpisodeLine, Listing, listing
from replayproxy.session.where import Term, Value, check_names, parse, sort_key
from replayproxy.storage import Reader


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The episodes that have one value of a field. `reward` and `clean_reward`: means with the poisoned and without."""

    value: Value
    episodes: int
    exchanges: int
    verdicts: Counter[str]
    reward: float | None
    clean_reward: float | None

    @property
    def poisoned(self) -> float:
        return self.verdicts["poisoned"] / self.episodes

    @property
    def interval(self) -> tuple[float, float]:
        return wilson(self.verdicts["poisoned"], self.episodes)

    def to_json(self) -> dict[str, Any]:
        return {
            "value": self.value, "episodes": self.episodes, "exchanges": self.exchanges,
            "verdicts": dict(self.verdicts), "poisoned": self.poisoned, "interval": list(self.interval),
            "reward": self.reward, "reward_without_poisoned": self.clean_reward,
        }  # fmt: skip


def chosen(reader: Reader, run: Run, *, where: str | None, sort: str | None, by: str | None) -> Listing:
    """The run with the episodes that were asked for. Raises WrongUsage for a filter or a field that cannot be meant."""
    terms = parse(where) if where is not None else ()
    descending = (sort or "").startswith("-")
    order = (sort or "").removeprefix("-")
    needs = {*(term.field for term in terms), order, by or ""}
    found = listing(reader, run, count_writes="writes" in needs)
    rows = [(line, line.fields()) for line in found.episodes]
    known = {*FIELDS, *(name for _, fields in rows for name in fields)}
    check_names((term.field for term in terms), known, "--where")
    check_names([order] if sort else [], known, "--sort")
    check_names([by] if by else [], known, "--by")
    kept = [(line, fields) for line, fields in rows if _all(terms, fields)]
    if order:
        keyed = [(sort_key(fields.get(order)), line) for line, fields in kept]
        last = [line for key, line in keyed if key[0] == 2]
        rest = sorted((one for one in keyed if one[0][0] != 2), key=lambda one: one[0], reverse=descending)
        return replace(found, shown=(*(line for _, line in rest), *last))
    return replace(found, shown=tuple(line for line, _ in kept)) if terms else found


def _all(terms: Sequence[Term], fields: Any) -> bool:
    return all(term.holds(fields) for term in terms)


def grouped(lines: Iterable[EpisodeLine], by: str) -> list[Group]:
    """By the values of a field, in their order. An episode with several values (instances) counts for each."""
    members: dict[Value, list[EpisodeLine]] = {}
    for line in lines:
        value = line.fields().get(by)
        for one in (value or (None,)) if isinstance(value, tuple) else (value,):
            members.setdefault(one, []).append(line)
    return [_group(value, members[value]) for value in sorted(members, key=sort_key)]


def _group(value: Value, lines: Sequence[EpisodeLine]) -> Group:
    rewards = [line.episode.reward for line in lines if line.episode.reward is not None]
    clean = [line.episode.reward for line in lines if line.episode.reward is not None and line.verdict != "poisoned"]
    return Group(
        value=value, episodes=len(lines), exchanges=sum(line.exchanges for line in lines),
        verdicts=Counter(line.verdict for line in lines), reward=fmean(rewards) if rewards else None,
        clean_reward=fmean(clean) if clean else None,
    )  # fmt: skip
