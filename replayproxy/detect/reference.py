"""What the start of a task and seed should look like: the state that more than half of at least three starts have."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from replayproxy.core.rules import RuleBook
from replayproxy.core.values import Episode, Snapshot
from replayproxy.detect.residue import NO_RULES, Residue, residue
from replayproxy.detect.states import States, TooMuchChanged

ENOUGH = 3
MAX_FORMS = 8
"""Start states that are tried as the common one, the most frequent first; keeps the cost linear."""

type Group = tuple[str | None, int | None, str]
"""Task, seed, and the environment's build where the harness tells it."""


type Given = Mapping[tuple[tuple[str | None, int | None] | None, str], Reference]
"""References that the user named, by task and seed, and series; None: for every task and seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The start snapshot of one episode in one series."""

    episode: str
    group: Group
    series: str
    root: bytes
    wall: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """`root` is the state that counts as right; `agree` of `starts` begin with it."""

    root: bytes
    wall: int
    agree: int
    starts: int
    given: bool = False  # by --reference
    common: bool = True  # False: only the most frequent one, which is not that of more than half


def group_of(episode: Episode) -> Group:
    return episode.task, episode.seed, str(episode.meta.get("env_commit", ""))


def start_of(episode: Episode, snapshot: Snapshot) -> Start:
    assert snapshot.root is not None
    return Start(
        episode=episode.name, group=group_of(episode), series=snapshot.name, root=snapshot.root, wall=snapshot.wall
    )


class References:
    """The references of a run, and how each start stands to its own."""

    def __init__(
        self, states: States, starts: Iterable[Start], given: Given | None = None, rules: RuleBook = NO_RULES
    ) -> None:
        self._states = states
        self._rules = rules
        self._by_group: dict[tuple[Group, str], list[Start]] = defaultdict(list)
        for start in starts:
            self._by_group[start.group, start.series].append(start)
        self._compared: dict[tuple[bytes, bytes], Residue | None] = {}
        self._references: dict[tuple[Group, str], Reference | None] = {}
        self._given: Given = dict(given or {})

    def of(self, group: Group, series: str) -> Reference | None:
        """None: there is none, because too few starts, or too few that agree, or neither task nor seed is known."""
        given = self._given.get((group[:2], series)) or self._given.get((None, series))
        if given is not None:
            return given
        if group[0] is None and group[1] is None:
            return None
        if (group, series) not in self._references:
            self._references[group, series] = self.common(self._by_group[group, series])
        return self._references[group, series]

    def starts(self, group: Group, series: str) -> list[Start]:
        return self._by_group[group, series]

    def residue(self, reference: Reference, start: Start) -> Residue | None:
        """What the start has beside the reference; None: they differ too much to say."""
        return self._between(reference.root, reference.wall, start.root, start.wall)

    def equal(self, a: Start, b: Start) -> bool:
        """Whether two starts are one state but for clocks and fresh ids."""
        found = self._between(a.root, a.wall, b.root, b.wall)
        return found is not None and not found.changes

    def _between(self, a: bytes, wall_a: int, b: bytes, wall_b: int) -> Residue | None:
        if a == b:
            return Residue(changes=())
        if (a, b) not in self._compared:
            if len(self._compared) > 4096:
                self._compared.clear()
            try:
                self._compared[a, b] = residue(self._states, a, b, wall_a, wall_b, self._rules)
            except TooMuchChanged:
                self._compared[a, b] = None
        return self._compared[a, b]

    def common(self, starts: list[Start], enough: int = ENOUGH) -> Reference | None:
        """The state that more than half of at least `enough` starts have."""
        found = self._most_frequent(starts) if len(starts) >= enough else None
        return found if found is not None and found.common else None

    def most(self, group: Group, series: str) -> Reference | None:
        """Of a task and seed that has no reference, although enough of its starts are known: the most frequent one, of
        equals the first. Without a seed starts may be meant to differ."""
        starts = self._by_group[group, series]
        return self._most_frequent(starts) if group[1] is not None and len(starts) >= ENOUGH else None

    def _most_frequent(self, starts: list[Start]) -> Reference:
        counts = Counter(start.root for start in starts)
        first = {start.root: start for start in reversed(starts)}
        ranked = sorted(counts, key=lambda root: -counts[root])
        votes: dict[bytes, int] = {}
        for root in ranked:
            like = root if counts[root] * 2 > len(starts) else self._like(first, root, votes)
            votes[like] = votes.get(like, 0) + counts[root]
        best = max(votes, key=lambda root: votes[root])
        return Reference(
            root=best, wall=first[best].wall, agree=votes[best], starts=len(starts),
            common=votes[best] * 2 > len(starts),
        )  # fmt: skip

    def _like(self, first: Mapping[bytes, Start], root: bytes, votes: Mapping[bytes, int]) -> bytes:
        forms = sorted(votes, key=lambda form: -votes[form])[:MAX_FORMS]
        return next((form for form in forms if self.equal(first[form], first[root])), root)
