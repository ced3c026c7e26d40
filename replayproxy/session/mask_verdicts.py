"""The verdicts that masking rests on: those of the last check, if it speaks of what the run holds now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from replayproxy.core.rules import Rule
from replayproxy.core.shown import count
from replayproxy.core.values import Episode, EpisodeState, Run
from replayproxy.detect.silence import Silence
from replayproxy.session.check import Progress, check
from replayproxy.session.check_document import DETECTORS, Demands
from replayproxy.session.look import Found, Stores


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What the config says that bears on a check. `silences` None: there is no config, and whatever the last check was
    made with holds; else a check that was made with others is made again."""

    rules: Sequence[Rule] = ()
    silences: Sequence[Silence] | None = None
    eventual: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    claims: Mapping[str, Sequence[str]] = field(default_factory=dict)
    today: date | None = None


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
    stores: Stores, found: Found, terms: Terms, *, now: int, progress: Progress | None = None
) -> Verdicts:  # fmt: skip
    """The verdicts of a run; one that was not checked as it is now is judged first, and that is saved."""
    reader, run, only = found.reader, found.resolved.run, found.resolved.episode
    episodes = reader.episodes(run)
    asked = [one for one in episodes if only is None or one.name == only.name]
    saved = reader.check(run)
    why = why_again(saved, episodes, reader.trials(run), terms)
    if saved is not None and not why:
        return Verdicts(run=run, episodes=asked, document=saved, judged="")
    (made,) = check(
        stores, [found.address(run.name)], Demands(), rules=terms.rules, today=terms.today, now=now,
        progress=progress, silences=terms.silences or (), eventual=terms.eventual, claims=terms.claims,
    )  # fmt: skip
    return Verdicts(run=run, episodes=asked, document=made.to_json(), judged=why, unsaved=made.saved)


def why_again(
    document: Mapping[str, Any] | None, episodes: Sequence[Episode], trials: Sequence[Mapping[str, Any]], terms: Terms
) -> str:
    """Why a saved check does not speak of these episodes as they are now; "" when it does."""
    if document is None:
        return "it was never checked"
    if document.get("detectors") != DETECTORS:
        return "the last check was made by other detectors"
    judged = set(document.get("verdicts") or ())
    if came := [one.name for one in episodes if one.name not in judged]:
        return f"{len(came):,} of its episodes came after the last check"
    if (gone := len(judged) - len(episodes)) > 0:
        return f"{count(gone, 'episode')} {'was' if gone == 1 else 'were'} removed after the last check"
    wall = document.get("checked_wall") or 0
    unended = {*document.get("open", ())}
    if changed := [one for one in episodes if (one.ended_wall or 0) > wall or _ended(one, unended)]:
        return f"{len(changed):,} of its episodes ended after the last check"
    if said := [one for one in episodes if int(one.annotated.get("wall", 0)) > wall]:
        return f"{len(said):,} of its episodes were annotated after the last check"
    if any(int(one.get("wall", 0)) > wall for one in trials):
        return "a finding was tried again after the last check"
    if terms.silences is not None and _other_silences(document, terms.silences, terms.today):
        return "the config silences other findings than at the last check"
    return ""


def _ended(episode: Episode, unended: set[str]) -> bool:
    return episode.name in unended and episode.state is not EpisodeState.OPEN


def _other_silences(document: Mapping[str, Any], silences: Sequence[Silence], today: date | None) -> bool:
    then = document.get("silences") or {}
    met = {finding["silence"]["what"] for finding in document.get("silenced", ())}
    living = met | {*then.get("unused", ())}
    return living != {one.what for one in silences if one.applies(today)}
