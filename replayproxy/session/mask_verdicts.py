"""The verdicts that masking rests on: those of the last check, if it speaks of what the run holds now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from replayproxy.core.rules import Rule
from replayproxy.core.values import Episode, EpisodeState, Run
from replayproxy.session.check import Progress, check
from replayproxy.session.check_document import DETECTORS, Demands
from replayproxy.session.look import Found, Stores


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """`document`: of the check. `judged`: why the run was judged just now ("" it was not); `unsaved`: why that could
    not be kept. `episodes`: those that the address names, of all states."""

    run: Run
    episodes: Sequence[Episode]
    document: Mapping[str, Any]
    judged: str
    unsaved: str = ""

    def of(self, episode: Episode) -> str:
        return str(self.document["verdicts"].get(episode.name, "unknown"))


def verdicts(
    stores: Stores, found: Found, *, rules: Sequence[Rule] = (), today: date | None = None, now: int,
    progress: Progress | None = None,
) -> Verdicts:  # fmt: skip
    """The verdicts of a run; one that was not checked as it is now is judged first, and that is saved."""
    reader, run, only = found.reader, found.resolved.run, found.resolved.episode
    episodes = reader.episodes(run)
    asked = [one for one in episodes if only is None or one.name == only.name]
    saved = reader.check(run)
    why = why_again(saved, episodes)
    if saved is not None and not why:
        return Verdicts(run=run, episodes=asked, document=saved, judged="")
    address = found.address(run.name)
    (made,) = check(stores, [address], Demands(), rules=rules, today=today, now=now, progress=progress)
    return Verdicts(run=run, episodes=asked, document=made.to_json(), judged=why, unsaved=made.saved)


def why_again(document: Mapping[str, Any] | None, episodes: Sequence[Episode]) -> str:
    """Why a saved check does not speak of these episodes; "" when it does."""
    if document is None:
        return "it was never checked"
    if document.get("detectors") != DETECTORS:
        return "the last check was made by other detectors"
    judged = set(document.get("verdicts") or ())
    if came := [one.name for one in episodes if one.name not in judged]:
        return f"{len(came):,} of its episodes came after the last check"
    if len(judged) > len(episodes):
        return f"{len(judged) - len(episodes):,} episodes were removed after the last check"
    wall = document.get("checked_wall") or 0
    unended = {*document.get("open", ())}
    changed = [one for one in episodes if (one.ended_wall or 0) > wall or _ended(one, unended)]
    return f"{len(changed):,} of its episodes ended after the last check" if changed else ""


def _ended(episode: Episode, unended: set[str]) -> bool:
    return episode.name in unended and episode.state is not EpisodeState.OPEN
