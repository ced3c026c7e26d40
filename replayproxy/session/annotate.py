"""`annotate`: what is known of rollouts after they were recorded (a reward, an outcome) is said of their episodes.

All of it or nothing: a line that cannot be used, two lines that say different things of one episode, or more lines
without an episode than allowed, and the store stays as it is. Saying the same again changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from replayproxy.core.annotation import META, SETTABLE, annotated, fitting, settable
from replayproxy.core.shown import count
from replayproxy.core.values import Episode, EpisodeState
from replayproxy.errors import Exit, UnknownAddress, WrongUsage, worst
from replayproxy.session.look import Found
from replayproxy.session.rollouts import MISSING, Document, refused
from replayproxy.session.rollouts import field as field_of
from replayproxy.session.rollouts_join import Join
from replayproxy.session.rollouts_read import rollouts_of, unit_of
from replayproxy.storage import open_store
from replayproxy.storage.archive import Archive

FIRST = 5
"""Numbers of lines that are named; the rest is counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One `--set`: the member of episodes, and the field of the line that holds its value."""

    member: str
    line: str

    def __str__(self) -> str:
        return f"{self.member}={self.line}"


def settings(texts: Iterable[str], reward: str = "reward") -> tuple[Setting, ...]:
    """The settings of `--set MEMBER=LINE_FIELD`; where only the right side is a member, the other way round, as in
    `--on`. None at all: the reward, from the field `reward`. Raises WrongUsage."""
    found: dict[str, Setting] = {}
    for text in texts:
        left, equals, right = text.partition("=")
        if equals and left and right and not settable(left) and settable(right):
            left, right = right, left
        if not (left and right and settable(left)):
            members = ", ".join([*SETTABLE, f"{META}NAME"])
            raise WrongUsage(f"--set {text!r} sets nothing", hint=f"--set MEMBER=LINE_FIELD; members are {members}")
        if left in found:
            raise WrongUsage(f"--set sets {left} twice", hint="name one field")
        found[left] = Setting(member=left, line=right)
    return tuple(found.values()) or (Setting(member="reward", line=reward),)


@dataclass(slots=True, kw_only=True)
class Gathered:
    """What a file says of episodes, in numbers. `values`: by the episode's number, member -> value."""

    unit: str
    lines: int = 0
    matched: int = 0
    unmatched: int = 0
    ambiguous: int = 0
    not_sealed: int = 0
    without: Counter[str] = field(default_factory=Counter)
    values: dict[int, dict[str, Any]] = field(default_factory=dict)
    said_at: dict[tuple[int, str], int] = field(default_factory=dict)
    lacking: Counter[str] = field(default_factory=Counter)
    first_unmatched: list[int] = field(default_factory=list)
    conflicts: list[dict[str, Any]] = field(default_factory=list)
    conflicting: int = 0

    @property
    def missed(self) -> int:
        """Lines that are not of exactly one sealed episode."""
        return self.unmatched + self.ambiguous + self.not_sealed

    def failures(self, max_unmatched: float) -> list[tuple[Exit, str]]:
        """Why nothing may be written."""
        if not self.lines:
            return [(Exit.UNJUDGED, "the file holds no rollout")]
        found = []
        if (share := self.missed / self.lines) > max_unmatched:
            told = f"{self.missed:,} of {count(self.lines, self.unit)} are not of one sealed episode ({share:.1%})"
            found.append((Exit.UNJUDGED, f"{told}, more than --max-unmatched {max_unmatched:g}"))
        if self.conflicting:
            says = "says" if self.conflicting == 1 else "say"
            told = f"{count(self.conflicting, self.unit)} {says} another thing of an episode than one before"
            found.append((Exit.UNJUDGED, told))
        if not found and not any(self.values.values()):
            named = ", ".join(self.without)
            found.append((Exit.UNJUDGED, f"no {self.unit} has {named}: there is nothing to set"))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotated:
    """What came of it. `changed`: the episodes that are, or with `dry_run` would be, another; `members`: how many say
    each. `written`: it is in the store."""

    run: str
    source: Path
    join: Join
    sets: Sequence[Setting]
    gathered: Gathered
    changed: Sequence[tuple[Episode, Episode]]
    members: Mapping[str, int]
    max_unmatched: float
    dry_run: bool
    written: bool

    @property
    def why(self) -> list[str]:
        return [why for _, why in self.gathered.failures(self.max_unmatched)]

    @property
    def exit(self) -> int:
        return worst(*(code for code, _ in self.gathered.failures(self.max_unmatched)))


def annotate(
    found: Found, join: Join, sets: Sequence[Setting], source: Path, *, max_unmatched: float, dry_run: bool, now: int
) -> Annotated:
    """Says it of the run's episodes, in one transaction, or says why not. Raises WrongUsage for an archive."""
    if isinstance(found.reader.env, Archive):
        raise WrongUsage(
            f"{found.archive} is an archive, which is only read", hint=f"replayproxy import {found.archive}"
        )
    run = found.resolved.run
    gathered = gather(join, sets, source)
    by_key = {one.key: one for one in found.reader.episodes(run)}
    changed = []
    for key, values in gathered.values.items():
        made = annotated(by_key[key], values, source=source.name, wall=now)
        if made is not by_key[key]:
            changed.append((by_key[key], made))
    writes = bool(changed) and not dry_run and not gathered.failures(max_unmatched)
    if writes:
        _write(found, gathered, source.name, now)
    members = Counter(member for values in gathered.values.values() for member in values)
    return Annotated(
        run=run.name, source=source, join=join, sets=sets, gathered=gathered, changed=changed, members=members,
        max_unmatched=max_unmatched, dry_run=dry_run, written=writes,
    )  # fmt: skip


def gather(join: Join, sets: Sequence[Setting], source: Path) -> Gathered:
    """Reads the whole file. Raises WrongUsage, with its number, for a line that cannot be used."""
    gathered = Gathered(unit=unit_of(source))
    readers = [(one, field_of(one.line)) for one in sets]
    fields = [*(pair.line for pair in join.on), *(one.line for one in sets)]
    for number, document in rollouts_of(source, fields):
        gathered.lines += 1
        match = join.match(document)
        if len(match.episodes) != 1:
            gathered.ambiguous += bool(match.episodes)
            gathered.unmatched += not match.episodes
            gathered.lacking.update([match.lacks] if match.lacks else ())
            if len(gathered.first_unmatched) < FIRST:
                gathered.first_unmatched.append(number)
            continue
        (episode,) = match.episodes
        gathered.matched += 1
        if episode.state is not EpisodeState.SEALED:
            gathered.not_sealed += 1
            continue
        for setting, value_in in readers:
            _say(gathered, episode, setting, _value(value_in(document), setting, source, number, document), number)
    return gathered


def _value(value: Any, setting: Setting, source: Path, number: int, document: Document) -> Any:
    if value is MISSING or value is None:
        return MISSING
    try:
        return fitting(setting.member, value)
    except ValueError as wrong:
        raise refused(str(source), number, f"{wrong} ({setting.line})") from None


def _say(gathered: Gathered, episode: Episode, setting: Setting, value: Any, number: int) -> None:
    if value is MISSING:
        gathered.without[setting.line] += 1
        return
    values = gathered.values.setdefault(episode.key, {})
    first = gathered.said_at.setdefault((episode.key, setting.member), number)
    if setting.member not in values:
        values[setting.member] = value
    elif type(values[setting.member]) is not type(value) or values[setting.member] != value:
        gathered.conflicting += 1
        if len(gathered.conflicts) < FIRST:
            gathered.conflicts.append({
                "episode": episode.name, "member": setting.member, "lines": [first, number],
                "values": [values[setting.member], value],
            })  # fmt: skip


def _write(found: Found, gathered: Gathered, source: str, wall: int) -> None:
    by_key = gathered.values
    run = found.resolved.run

    def change(stored: Episode) -> Episode:
        return annotated(stored, by_key[stored.key], source=source, wall=wall)

    with open_store(found.reader.env.path) as store:
        writer = store.writer(exclusive=False)
        try:
            writer.annotate(run.key, by_key, change).result()
        except LookupError as gone:
            raise UnknownAddress(
                f"{run.name} was changed meanwhile ({gone}): nothing is written", hint="again"
            ) from gone
        finally:
            writer.close()
