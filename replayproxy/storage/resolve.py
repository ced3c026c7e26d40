"""From the address that a user typed to what it names in a store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from replayproxy.core.names import Address, is_finding_number, parse_address
from replayproxy.core.values import Episode, Run, Snapshot
from replayproxy.errors import UnknownAddress


class Lookup(Protocol):
    """The part of a reader that names are looked up in."""

    def runs(self) -> list[Run]: ...
    def run(self, name: str) -> Run: ...
    def episode(self, run: Run, name: str) -> Episode: ...
    def count(self, episode: Episode) -> int: ...
    def snapshots(self, episode: Episode) -> list[Snapshot]: ...
    def check(self, run: Run) -> dict[str, Any] | None: ...
    def last_check(self) -> tuple[Run, dict[str, Any]] | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """A run, and what of it is meant: an episode, one exchange or snapshot of it, or a finding of its check."""

    text: str
    run: Run
    episode: Episode | None = None
    seq: int | None = None
    snapshot: int | None = None
    finding: dict[str, Any] | None = None


def resolve(reader: Lookup, text: str) -> Resolved:
    """Raises UnknownAddress. That an exchange or snapshot of that number exists is checked too."""
    try:
        address = parse_address(text)
    except ValueError as error:
        raise UnknownAddress(str(error)) from error
    if address.archive is not None:
        raise UnknownAddress(
            f"{text} is an archive: this needs what lies in a store", hint=f"replayproxy import {text}"
        )
    if address.finding is not None:
        return _finding(reader, text, address.finding)
    return _recorded(reader, address)


def _recorded(reader: Lookup, address: Address) -> Resolved:
    run = reader.run(address.run or "")
    if address.episode is None:
        return Resolved(text=address.text, run=run)
    episode = reader.episode(run, address.episode)
    count = reader.count(episode)
    if address.seq is not None and address.seq > count:
        raise UnknownAddress(
            f"no exchange {address.seq} in {run.name}/{episode.name}: it has {count}",
            hint=f"name one from #1 to #{count}" if count else "name another episode",
        )
    if address.snapshot is not None:
        there = [snapshot.n for snapshot in reader.snapshots(episode)]
        if address.snapshot not in there:
            raise UnknownAddress(
                f"no snapshot s{address.snapshot} in {run.name}/{episode.name}: it has {len(there)}",
                hint=f"name one from s{min(there)} to s{max(there)}" if there else "name another episode",
            )
    return Resolved(text=address.text, run=run, episode=episode, seq=address.seq, snapshot=address.snapshot)


def _finding(reader: Lookup, text: str, wanted: str) -> Resolved:
    """A number is the last check's, of whatever run that was; a stable id may be of any run."""
    last = reader.last_check()
    if last is None:
        raise UnknownAddress(f"no finding {text}: nothing was checked in this store", hint="replayproxy check RUN")
    numbered = is_finding_number(wanted)
    for run, document in [last] if numbered else _checks(reader, last):
        for number, finding in _numbered(document):
            if wanted in ({number} if numbered else {finding.get("id"), finding.get("stable_id")}):
                return Resolved(text=text, run=run, finding=finding)
    if numbered:
        hint = _elsewhere(reader, last, wanted)
    else:
        hint = f"replayproxy check {last[0].name}"
        hint += " (an id told while recording is another where the whole run showed more)"
    raise UnknownAddress(
        f"no finding {text}: the last check, of run {last[0].name}, has {len(last[1].get('findings', ()))}", hint=hint
    )


def _elsewhere(reader: Lookup, last: tuple[Run, dict[str, Any]], wanted: str) -> str:
    """How to name what has that number in the check of another run: by its stable id."""
    for run, document in _checks(reader, last):
        for number, finding in _numbered(document):
            if number == wanted and run != last[0]:
                return f"{wanted} of run {run.name} is {finding.get('id')}, or replayproxy check {run.name} first"
    return f"replayproxy check {last[0].name}; another run's finding is named by its stable id"


def _numbered(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each finding with its number in the whole run, which is not its place where only some episodes were checked."""
    for place, finding in enumerate([*document.get("findings", ()), *document.get("silenced", ())], 1):
        yield str(finding.get("number", f"F{place}")), finding


def _checks(reader: Lookup, last: tuple[Run, dict[str, Any]]) -> Iterator[tuple[Run, dict[str, Any]]]:
    """The last check, then those of the other runs (a stable id may be of any of them)."""
    yield last
    for run in reader.runs():
        document = reader.check(run) if run != last[0] else None
        if document is not None:
            yield run, document
