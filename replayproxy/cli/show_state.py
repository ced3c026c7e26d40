"""`show RUN/EPISODE/sN`: the rows of a snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from replayproxy.cli.common import count, safe
from replayproxy.cli.moments import clock, duration
from replayproxy.cli.show_episode import shot_text, value
from replayproxy.core import prolly
from replayproxy.core.values import Episode, Rows, Run, Snapshot
from replayproxy.errors import StoreTrouble
from replayproxy.session.portrait import snapshot_json
from replayproxy.storage import Reader


def _shot(reader: Reader, episode: Episode, n: int) -> Snapshot:
    return next(shot for shot in reader.snapshots(episode) if shot.n == n)


def _rows(reader: Reader, shot: Snapshot) -> Rows | None:
    if shot.root is None:
        return None
    try:
        return prolly.rows(shot.root, reader.node)
    except ValueError as error:
        raise StoreTrouble(f"the state of s{shot.n} cannot be read: {error}") from error


def state_text(reader: Reader, run: Run, episode: Episode, n: int) -> Iterator[str]:
    """How it was read, then every row, a line each."""
    shot = _shot(reader, episode, n)
    yield f"{safe(run.name)}/{safe(episode.name)}/s{n}   {shot.when}   {shot_text(shot)}"
    read = f"read {clock(shot.wall)}, in {duration(shot.done - shot.begun)}"
    follows = f"   after #{shot.after_seq}" if shot.after_seq else ""
    yield (
        f"  {read}{follows}   {'atomic' if shot.atomic else 'not atomic'}   scope {safe(shot.scope)}"
        f"   mode {safe(shot.mode)}   {'can' if shot.can_restore else 'cannot'} restore"
    )
    rows = _rows(reader, shot)
    for table, content in (rows or {}).items():
        yield f"{safe(table)}   {count(len(content), 'row')}"
        for key, row in content.items():
            yield f"  {safe(key)}  {value(row, width=None)}"


def state_json(reader: Reader, run: Run, episode: Episode, n: int) -> dict[str, Any]:
    """The snapshot and its rows; `state` null: it is missing."""
    shot = _shot(reader, episode, n)
    return {"run": run.name, "episode": episode.name, **snapshot_json(run, episode, shot), "state": _rows(reader, shot)}
