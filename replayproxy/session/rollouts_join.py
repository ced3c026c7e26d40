"""Which episode a rollout is of: `--on LINE_FIELD=EPISODE_FIELD`, looked up in an index of the run's episodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from replayproxy.core.values import Episode
from replayproxy.errors import WrongUsage
from replayproxy.session.rollouts import MISSING, Document, Field, as_key, field

EPISODE_FIELDS: dict[str, Callable[[Episode], Any]] = {
    "episode": lambda e: e.name,
    "task": lambda e: e.task,
    "seed": lambda e: e.seed,
    "attempt": lambda e: e.attempt,
    "group": lambda e: e.group,
    "outcome": lambda e: e.outcome,
}
WORDS = ", ".join([*EPISODE_FIELDS, "alias", "meta.NAME"])
SHAPE = "--on LINE_FIELD=EPISODE_FIELD"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One `--on`: a field of the line, and the field of episodes that it must equal."""

    line: str
    episode: str

    def __str__(self) -> str:
        return f"{self.line}={self.episode}"


def pairs(texts: Iterable[str]) -> tuple[Pair, ...]:
    """The pairs of `--on`. The first `=` divides. Raises WrongUsage."""
    found = []
    for text in texts:
        line, equals, episode = text.partition("=")
        if not (line and equals and episode):
            raise WrongUsage(
                f"--on {text!r} is no pair", hint="--on LINE_FIELD=EPISODE_FIELD, such as rollout_id=episode"
            )
        values_of(episode)  # refuses a word that is no field
        found.append(Pair(line=line, episode=episode))
    return tuple(found)


def values_of(word: str) -> Callable[[Episode], list[Any]]:
    """What a field of episodes holds: one value, or each alias. Raises WrongUsage for a word that is none."""
    if word in EPISODE_FIELDS:
        one = EPISODE_FIELDS[word]
        return lambda e: [one(e)]
    if word == "alias":
        return lambda e: [value for _, value in e.aliases]
    kind, dot, name = word.partition(".")
    if kind == "alias" and name:
        return lambda e: [value for space, value in e.aliases if space == name]
    if kind == "meta" and dot and name:
        inside = field(name)
        return lambda e: [found] if (found := inside(dict(e.meta))) is not MISSING else []
    if word.startswith("meta/"):
        pointer = field(word.removeprefix("meta"))
        return lambda e: [found] if (found := pointer(dict(e.meta))) is not MISSING else []
    raise WrongUsage(f"{word!r} is no field of episodes", hint=f"there are {WORDS}; {SHAPE}")


@dataclass(frozen=True, slots=True)
class Match:
    """The episodes that a line may be of. `lacks`: the field that the line does not have, or not as a key."""

    episodes: Sequence[Episode]
    lacks: str = ""


class Join:
    """The episodes of a run by the values that `pairs` compare. Memory is that of the episodes."""

    def __init__(self, on: Sequence[Pair], episodes: Iterable[Episode]) -> None:
        self.on = tuple(on)
        self._fields: list[tuple[str, Field]] = [(pair.line, field(pair.line)) for pair in on]
        self._index: dict[tuple[str, ...], list[Episode]] = {}
        sides = [values_of(pair.episode) for pair in on]
        for episode in episodes:
            found = [[key for value in side(episode) if (key := as_key(value)) is not None] for side in sides]
            for together in {*product(*found)}:
                self._index.setdefault(together, []).append(episode)

    def __str__(self) -> str:
        return " ".join(f"--on {pair}" for pair in self.on)

    def match(self, document: Document) -> Match:
        """None, one, or several where the fields do not tell episodes apart."""
        key = []
        for name, value_in in self._fields:
            value = as_key(value_in(document))
            if value is None:
                return Match((), name)
            key.append(value)
        return Match(self._index.get(tuple(key), ()))
