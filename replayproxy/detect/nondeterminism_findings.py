"""From divergences between siblings to findings: which answer is the usual one, and on whom the others fall.

Nobody is right from the outset: at each place the episodes that came to it with an equal past are counted by what they
were told. Where the first episode turns out to be the odd one, what follows there says nothing about the others: they
are compared once more, with one of the majority in its place. A pair that had differed before in the same way is not
claimed again: it is known that it differs there, and not what it was told. Where those are as many as agree, nothing
is proven of anybody.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from replayproxy.core import jsonvalue
from replayproxy.detect.finding import Blame, Finding, Grade, Kind, Witness
from replayproxy.detect.nondeterminism import Divergence, Pairwise

MOST_DOUBTED = 3
"""So often the rest is compared with another episode only because what most were told is not known."""


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

    def unclaimed(self, seq: int, lane: str, told: Collection[str]) -> list[str]:
        """The others that were first told something else there in that lane, of whom it is not known what."""
        return [
            name for name, pair in self.pairs.items()
            if pair.until >= seq and pair.apart.get(lane) == seq and name not in told
        ]  # fmt: skip


class Place:
    """One answer of the representative, and the others' by what they were told. `told`: the first of each;
    `unclaimed`: those that were told something else, nobody knows what."""

    def __init__(self, of: Round, seq: int, pointer: str, by_episode: Mapping[str, Divergence]) -> None:
        self._round, self._pointer, self._by_episode = of, pointer, by_episode
        self._some = next(iter(by_episode.values()))
        own = _text(self._some.first.value)
        self.told: dict[str, Witness] = {of.representative: self._some.first}
        self.told |= {name: divergence.second for name, divergence in by_episode.items()}
        self.counts = Counter({own: 1 + len(of.came_with(seq, self._some.first.lane))})
        self.counts.update(_text(divergence.second.value) for divergence in by_episode.values())
        self._own = own
        self._common = self._most(self.counts)
        self.upset = self._common != own  # the representative is an odd one
        self.unclaimed = of.unclaimed(seq, self._some.first.lane, by_episode)

    def _most(self, texts: Iterable[str]) -> str:
        return max(texts, key=lambda text: (self.counts[text], text == self._own))

    @property
    def doubtful(self) -> bool:
        """Whether the unclaimed ones, had all been told the same, would be as many as the most frequent answer."""
        return len(self.unclaimed) >= self.counts[self._common]

    def learn(self, odd: Collection[str]) -> None:
        """These were found to be odd here by comparing with others: what they were told is not the usual answer."""
        bad = {_text(self.told[name].value) for name in odd}
        self._common = self._most([text for text in self.counts if text not in bad] or self.counts)

    @property
    def sure(self) -> bool:
        """Whether one answer is more frequent than every other."""
        return sum(count == self.counts[self._common] for count in self.counts.values()) == 1 and not self.doubtful

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
        doubtful = self.doubtful and name != self._round.representative  # who agrees with that one is known
        usual, odd, normal = self.told[self.usual], self.told[name], self.usual
        return Finding(
            kind=Kind.NONDETERMINISM, sub=divergence.kind, grade=Grade.SUSPECTED if doubtful else divergence.grade,
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
            cannot_say=_cannot_say(divergence) + ("; which of the two is the usual one" if doubtful else ""),
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
        self._doubted = 0
        self.odd_ones: set[str] = set()  # representatives that were: they need no other comparison

    def add(self, one: Round) -> str | None:
        """The episode that should stand in the representative's place; None: nobody."""
        upset: list[str] = []
        doubtful: list[tuple[str, str]] = []
        for place in one.places():
            if place.upset:
                upset.append(place.usual)
                self.odd_ones.add(one.representative)
                self._fall(place, [one.representative])
            elif place.doubtful:
                doubtful += [place.lane(name) for name in place.odd()]
            if place.sure:
                self._fall(place, place.odd())
            else:
                self._open.append(place)
        if not upset and doubtful and self._doubted < MOST_DOUBTED:
            self._doubted += 1
            upset += [name for name, lane in doubtful if (name, lane) not in self._found]
        return next(iter(upset), None)

    def _fall(self, place: Place, odd: Iterable[str]) -> None:
        for name in odd:
            finding = place.finding(self._run, name, self._env)
            held = self._found.get(place.lane(name))
            if held is None or finding.at < held.at:
                self._found[place.lane(name)] = finding

    def findings(self) -> list[Finding]:
        """All of them; call it once, at the end."""
        for place in self._open:
            decided = {name: f for name in place.told if (f := self._found.get(place.lane(name))) is not None}
            place.learn([name for name, f in decided.items() if f.exchanges[1].address == place.told[name].address])
            self._fall(place, [name for name in place.odd() if name not in decided])
        return list(self._found.values())
