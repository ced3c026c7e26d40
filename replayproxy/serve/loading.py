"""From a store to a script: an episode's recording, read so that a replay can answer from it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from replayproxy.core.canonical import VIEW_LIMIT
from replayproxy.core.prolly import node_addresses
from replayproxy.core.redact import Redactor
from replayproxy.core.relax import Relaxation
from replayproxy.core.script import Script
from replayproxy.core.scriptbuild import build
from replayproxy.core.shown import count
from replayproxy.core.values import Body, Episode, Run
from replayproxy.errors import DamagedRecord
from replayproxy.serve.discretion import is_foreign
from replayproxy.storage import Reader

STATE_LIMIT = 64 * 1024 * 1024
"""Of the environment's state at the start, so many bytes are searched for values that an agent may have had from it."""


def load_script(
    reader: Reader, run: Run, episode: Episode, rules: Relaxation | None = None, redactor: Redactor | None = None
) -> Script:
    """Reads an episode's index. Bodies stay in the store. Raises StoreTrouble where the episode is damaged.

    `redactor`: that of the live requests; where the run's was another, credentials bind.
    """

    def load(body: Body) -> Body:
        return body if body.size > VIEW_LIMIT else replace(body, inline=reader.body(body))

    script = build(
        reader.exchanges(episode),
        run=run.name,
        episode=episode.name,
        load=load,
        reads={name: wiring.reads for name, wiring in run.envs.items()},
        events=reader.events(episode),
        rules=rules,
        elsewhere=lambda: _told_elsewhere(reader, run, episode),
        foreign_secrets=redactor is not None and is_foreign(redactor, run),
    )
    if episode.seal is not None and episode.seal.exchanges != len(script.entries):
        raise DamagedRecord(
            f"{script.address} holds {count(len(script.entries), 'exchange')},"
            f" and was sealed with {episode.seal.exchanges}",
            hint="replayproxy fsck",
        )
    return script


def _told_elsewhere(reader: Reader, run: Run, episode: Episode) -> Iterator[bytes]:
    """Where a value may stand that no answer told and no agent minted: the words of the run and the episode, and the
    environment's state at the start (its first `STATE_LIMIT` bytes)."""
    yield repr((run.name, run.meta, episode.name, episode.task, episode.group, episode.meta, episode.envs)).encode()
    left = STATE_LIMIT
    for snapshot in reader.snapshots(episode):
        if snapshot.when == "start" and snapshot.root is not None:
            for address in node_addresses(snapshot.root, reader.node):
                node = reader.node(address)
                left -= len(node)
                if left < 0:
                    return
                yield node
