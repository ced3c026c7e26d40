"""From divergences between siblings to findings: which answer is the usual one, and on whom the others fall.

Nobody is right from the outset: at each place the episodes that came to it with an equal past are counted by what they
were told. Where the first episode turns out to be the odd one, what follows there says nothing about the others: they
are compared once more, with one of the majority in its place.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from replayproxy.core import jsonvalue
from replayproxy.detect.finding import Blame, Finding, Grade, Kind, Witness
from replayproxy.detect.nondeterminism import Divergence, Pairwise


@dataclass(slots=True)
class Round:
    """One episode, the representative, compared with the others. `explained`: divergences that another finding
    accounts for."""

    representative: str
    pairs: dict[str, Pairwise] = field(default_factory=dict)
    divergences: dict[str, list[Divergence]] = field(default_factory=dict)
    starts: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def add(self, pair: Pairwise, covered: frozenset[tuple[str, int]]) -> None:
        """`covered`: exchanges that other findings explain."""
        self.pairs[pair.name] = pair
        self.starts[pair.name] = pair.starts
        self.divergences[pair.name] = [
            claim for claim in pair.claims
            if (self.representative, claim.root.a) not in covered and (pair.name, claim.root.b) not in covered
        ]  # fmt: skip

    def places(self) -> Iterator[Place]:
        """Where some of the others were told something else, in the representative's order."""
        found: dict[tuple[int, str], dict[str, Divergence]] = defaultdict(dict)
        for name, divergences in self.divergences.items():
            for divergence in divergences:
                found[divergence.root.a or 0, divergence.root.pointer][name] = divergence
        for (seq, pointer), by_episode in sorted(found.items()):
            yield Place(self, seq, pointer, by_episode)

    def came_with(self, seq: int, lane: str) -> list[str]:
        """The others that were told the same as the representative up to and at an exchange of its lane."""
        return [
            name for name, pair in self.pairs.items() if pair.until >= seq and pair.apart.get(lane, seq + 1) > seq
        ]  # fmt: skip


class Place:
    """One answer of the representative, and the others' by what they were told. `told`: the first of each."""

    def __init__(self, of: Round, seq: int, pointer: str, by_episode: Mapping[str, Divergence]) -> None:
        self._round, self._pointer, self._by_episode = of, pointer, by_episode
        self._some = next(iter(by_episode.values()))
        own = _text(self._some.first.value)
        self.told: dict[str, Witness] = {of.representative: self._some.first}
        self.told |= {name: divergence.second for name, divergence in by_episode.items()}
        self.counts = Counter({own: 1 + len(of.came_with(seq, self._some.first.lane))})
        self.counts.update(_text(divergence.second.value) for divergence in by_episode.values())
        self._common = max(self.counts, key=lambda text: (self.counts[text], text == own))
        self.upset = self._common != own  # the representative is an odd one

    @property
    def sure(self) -> bool:
        """Whether one answer is more frequent than every other."""
        return sum(count == self.counts[self._common] for count in self.counts.values()) == 1

    @property
    def usual(self) -> str:
        """The first episode that was told the usual answer."""
        return next(name for name, seen in self.told.items() if _text(seen.value) == self._common)

    def odd(self) -> list[str]:
        """The episodes that were told another one."""
        return [name for name, seen in self.told.items() if _text(seen.value) != self._common]

    def lane(self, name: str) -> tuple[str, str]:
        return name, self.told[name].lane

    def finding(self, run: str, name: str, env: str) -> Finding:
        """What falls on one of the odd ones."""
        divergence = self._by_episode.get(name, self._some)
        usual, odd, normal = self.told[self.usual], self.told[name], self.usual
        return Finding(
            kind=Kind.NONDETERMINISM, sub=divergence.kind, grade=divergence.grade,
            blame=Blame.ENVIRONMENT, blame_reason="state, requests and earlier answers were equal",
            run=run, episode=name, lane=odd.lane, pointer=self._pointer, values=(usual.value, odd.value),
            exchanges=(usual, _as_read(odd)),
            snapshots=(*self._round.starts.get(normal, ()), *self._round.starts.get(name, ())),
            assumptions=("the snapshots show the whole state that answers depend on",),
            ruled_out=(
                "another start: the start states are equal but for clocks and fresh ids",
                "another request: all requests before it are equal, in every lane",
                "another answer before it: none in its lane",
                "clock, fresh id, validator: not explained by any of these",
                "other episodes on the instance: none wrote meanwhile",
            ),
            reproduce=f"replayproxy redrive {run}/{name} --env {env}=URL --repeat 5",
            title=f"another {_noun(divergence)} than in {normal} after {odd.method} {odd.target}, all before it equal",
            cannot_say=_cannot_say(divergence),
            effect={
                "outcomes": len(self.counts), "of": sum(self.counts.values()), "usual": self.counts[self._common],
                "values": [list(item) for item in self.counts.most_common(5)],
                "further": divergence.root.consequences,
            },
            covers=frozenset(
                {(name, divergence.root.b or 0), (self._round.representative, divergence.root.a or 0)}
            ),
            at=odd.fwd or 0,
        )  # fmt: skip


def _noun(divergence: Divergence) -> str:
    return "state" if divergence.root.kind == "state" else "order" if divergence.kind == "order" else "answer"


def _cannot_say(divergence: Divergence) -> str:
    told = "whether the cause is chance, time, order, or state outside the snapshots (a cache, a session)"
    if divergence.grade is Grade.SUSPECTED and divergence.kind == "order":
        return f"{told}; whether anybody depends on the order"
    if divergence.kind == "counter":
        return f"{told}; only that a number goes on counting where it should begin again"
    return told


def _as_read(odd: Witness) -> Witness:
    return Witness(
        address=odd.address, role="read", method=odd.method, target=odd.target, status=odd.status, lane=odd.lane,
        fwd=odd.fwd, up_end=odd.up_end, wall=odd.wall, pointer=odd.pointer, value=odd.value,
    )  # fmt: skip


def _text(value: Any) -> str:
    return jsonvalue.canonical(value).decode("utf-8", "replace")[:400]


class Claims:
    """The findings of all rounds: one for each lane of an episode. What a round could not decide (as many this way as
    that) waits for the others, and falls on the later one if none of them could."""

    def __init__(self, run: str, envs: Iterable[str]) -> None:
        self._run, self._env = run, next(iter(envs), "NAME")
        self._found: dict[tuple[str, str], Finding] = {}
        self._open: list[Place] = []

    def add(self, one: Round) -> str | None:
        """The episode that should stand in the representative's place; None: nobody."""
        instead: str | None = None
        for place in one.places():
            if not place.sure:
                self._open.append(place)
                continue
            self._fall(place)
            if place.upset and instead is None:
                instead = place.usual
        return instead

    def _fall(self, place: Place) -> None:
        for name in place.odd():
            finding = place.finding(self._run, name, self._env)
            held = self._found.get(place.lane(name))
            if held is None or finding.at < held.at:
                self._found[place.lane(name)] = finding

    def findings(self) -> list[Finding]:
        """All of them; call it once, at the end."""
        decided = set(self._found)
        for place in self._open:
            if not decided.intersection(map(place.lane, place.told)):
                self._fall(place)
        return list(self._found.values())
