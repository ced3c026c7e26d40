"""What `show RUN/EPISODE` says of the states that the episode began and ended with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from replayproxy.core import prolly
from replayproxy.core.values import Episode, RowChange, Run, Snapshot
from replayproxy.errors import DamagedRecord
from replayproxy.storage import Reader

MOST = 1000
NAMED = 3


def state_notes(
    reader: Reader, run: Run, episode: Episode, shots: Sequence[Snapshot], check: Mapping[str, Any]
) -> dict[int, str]:
    """Snapshot number -> what is to be said of it: how its siblings start, what the episode changed until its end."""
    notes: dict[int, str] = {}
    first: dict[str, Snapshot] = {}
    for shot in shots:
        if shot.root is None:
            continue
        if shot.when == "start" and shot.name not in first:
            first[shot.name] = shot
            notes[shot.n] = _start(reader, episode, shot, check)
        elif shot.when == "end" and shot.name in first:
            changes, more = _changes(reader, first[shot.name].root or b"", shot.root)
            number = f"{len(changes):,}{' or more' if more else ''}"
            notes[shot.n] = f"{number} row{'' if number == '1' else 's'} changed since the start"
    return {n: note for n, note in notes.items() if note}


def _start(reader: Reader, episode: Episode, shot: Snapshot, check: Mapping[str, Any]) -> str:
    """As its siblings start, or not: by the reference of the check; rows that only one of the two has are named."""
    found = _reference(episode, shot, check)
    if found is None:
        return ""
    agree, of, root = found.get("agree"), found.get("starts"), bytes.fromhex(str(found["root"]))
    which = "the start that was named" if found.get("given") else f"{agree} of {of} siblings start"
    if root == shot.root:
        return f"{which} so" if not found.get("given") else f"as {which}"
    changes, _ = _changes(reader, root, shot.root or b"")
    also = [f"{c.table}/{c.key}" for c in changes if c.before is None]
    lacks = [f"{c.table}/{c.key}" for c in changes if c.after is None]
    told = [f"here also {_some(also)}"] * bool(also) + [f"here without {_some(lacks)}"] * bool(lacks)
    if not told:
        # Clocks and fresh ids differ in any two starts; what is left of it is the check's to say.
        return f"{which} at {root.hex()[:4]}" + ("; the same rows here" if changes else "")
    return f"{which} at {root.hex()[:4]}; {', '.join(told)}"


def _reference(episode: Episode, shot: Snapshot, check: Mapping[str, Any]) -> Mapping[str, Any] | None:
    for one in check.get("references") or ():
        key = one.get("task"), one.get("seed"), one.get("snapshot")
        if key == (episode.task, episode.seed, shot.name) and one.get("root"):
            return dict(one)
    return None


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")


def _changes(reader: Reader, a: bytes, b: bytes) -> tuple[list[RowChange], bool]:
    """At most `MOST`, and whether there are more; none where a state is no longer there."""
    try:
        found = list(islice(_diff(reader, a, b), MOST + 1))
    except (ValueError, DamagedRecord):
        return [], False
    return found[:MOST], len(found) > MOST


def _diff(reader: Reader, a: bytes, b: bytes) -> Iterator[RowChange]:
    if a != b:
        yield from prolly.diff(a, b, reader.node)
