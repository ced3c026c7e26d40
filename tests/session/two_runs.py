"""Puts episodes into a store as the recorder would."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from replayproxy.core import prolly
from replayproxy.core.values import EpisodeState, Exchange, Rows, Run, Snapshot
from replayproxy.storage import Writer
from replayproxy.testing import episode


def keep(
    writer: Writer, run: Run, name: str, exchanges: Sequence[Exchange], *, snapshots: Sequence[Snapshot] = (),
    seal: bool = True, **more: Any,
) -> None:  # fmt: skip
    """One episode of an open run; `more` are members of `Episode`."""
    opened = writer.open_episode(episode(name, run_key=run.key, state=EpisodeState.OPEN, **more))
    for one in exchanges:
        writer.put_exchange(opened.key, one)
    for shot in snapshots:
        writer.put_snapshot(opened.key, shot)
    if seal:
        writer.seal(opened).result(5)


def state(writer: Writer, rows: Rows) -> bytes:
    """The root of a state whose nodes are in the store."""
    tree = prolly.build(rows)
    writer.put_nodes(tree.nodes)
    return tree.root
