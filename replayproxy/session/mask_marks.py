"""What is said of each rollout: whether it is masked, why, and of which episode it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from replayproxy.core.jsonsplice import written
from replayproxy.core.shown import json_bytes
from replayproxy.core.values import Episode
from replayproxy.detect.verdicts import Word
from replayproxy.errors import WrongUsage
from replayproxy.session.mask_reasons import GIVEN, LOST, Reason, reasons
from replayproxy.session.mask_verdicts import Verdicts
from replayproxy.session.rollouts_join import Match

MASK, REASONS, EPISODE, VERDICT = "mask_sample", "mask_reasons", "replay_episode", "replay_verdict"
ADDED = frozenset({MASK, REASONS, EPISODE, VERDICT})


class How(StrEnum):
    ANNOTATE = "annotate"
    DROP = "drop"
    LIST = "list"


@dataclass(frozen=True, slots=True, kw_only=True)
class Demands:
    """What is asked for. `masked`: the verdicts that are masked; `lost`: also what lost an exchange to a failure. The
    limits are shares of the lines."""

    masked: frozenset[Word] = frozenset({Word.POISONED})
    lost: bool = False
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
    """What is said of the rollouts of an episode. `episode` "": of a line that is of none, or of one of several.
    `lost`: the episode lost an exchange to a failure."""

    masked: bool
    lost: bool = False
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

    def __init__(self, judged: Verdicts, demands: Demands) -> None:
        self._masked = {word.value for word in demands.masked}
        self._lost = frozenset(judged.document.get("lost_exchanges") or ())
        self._mask_lost = demands.lost
        self._judged = judged
        self._reasons = reasons(judged.document)
        self._made: dict[str, tuple[Mark, bytes]] = {}

    def of(self, episode: Episode) -> Mark:
        return self._of(episode)[0]

    def _of(self, episode: Episode) -> tuple[Mark, bytes]:
        found = self._made.get(episode.name)
        if found is None:
            verdict = self._judged.of(episode)
            why = list(self._reasons.get(episode.name, ())) if verdict in self._masked else []
            lost = episode.name in self._lost
            why += [dict(LOST)] if lost and self._mask_lost else []
            masked = verdict in self._masked or (lost and self._mask_lost)
            mark = Mark(masked=masked, lost=lost, episode=episode.name, verdict=verdict, reasons=why)
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
