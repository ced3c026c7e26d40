"""What a re-drive leaves in the store: the state it found before it overwrote anything, and with --save its answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from replayproxy import __version__
from replayproxy.core.names import NAME_BYTES, why_not_a_name
from replayproxy.core.redact import GIVEN_UP, Redactor
from replayproxy.core.values import EnvWiring, Episode, Exchange, Run, Snapshot, Trace
from replayproxy.errors import WrongUsage
from replayproxy.session import secrecy
from replayproxy.session.redrive_targets import Targets
from replayproxy.state.loader import Loaded
from replayproxy.storage import BodySink, Store, Writer
from replayproxy.storage.redacting_sink import RedactingSink

BEFORE = "before-restore"
"""The run that holds the states found, one episode for each re-drive that overwrote something."""


@dataclass(slots=True)
class Saved:
    """An episode of the saved run."""

    writer: Writer
    run: Run
    episode: Episode

    @property
    def address(self) -> str:
        return f"{self.run.name}/{self.episode.name}"

    def sink(self) -> BodySink | RedactingSink:
        if self.writer.redactor.keeps:
            return self.writer.body_sink()
        return self.writer.redacting_sink(self.episode.key, (), of_answer=True)

    async def finish(self, exchanges: Sequence[Exchange], snapshots: Sequence[Snapshot]) -> None:
        """Everything is on disk and sealed when this returns."""
        for exchange in exchanges:
            self.writer.put_exchange(self.episode.key, _storable(exchange))
        for snapshot in snapshots:
            self.writer.put_snapshot(self.episode.key, snapshot)
        ended = replace(self.episode, ended=time.monotonic_ns(), ended_wall=time.time_ns(), ended_by="end")
        self.episode = await asyncio.wrap_future(self.writer.seal(ended))


class Keeper:
    """The one who writes. The writer is opened at the first need and commits beside a recorder."""

    def __init__(self, store: Store, save: str | None, redactor: Redactor) -> None:
        self._redactor = redactor
        self._store = store
        self._save = save
        self._writer: Writer | None = None
        self._run: Run | None = None
        self._kept: set[object] = set()
        self._keeping = False

    def check(self) -> None:
        """Refuses a name for --save that is none or is taken."""
        if self._save is None:
            return
        if reason := why_not_a_name(self._save, of="run"):
            raise WrongUsage(f"--save {self._save!r}: {reason}")
        if any(run.name == self._save for run in self._store.reader().runs()):
            raise WrongUsage(f"--save {self._save}: there is a run of that name", hint="another name, or rm it first")

    def writer(self) -> Writer:
        if self._writer is None:
            self._writer = self._store.writer(exclusive=False, redactor=self._redactor)
        return self._writer

    def save_nodes(self, nodes: Mapping[bytes, bytes]) -> None:
        """Nodes of states: stored while the state found is kept, and with --save."""
        if self._keeping or self._save is not None:
            self.writer().put_nodes(nodes)

    # -- the state found ---------------------------------------------------------------------------------------------

    def is_new(self, loaded: Loaded) -> bool:
        """Whether the state of a snapshot has not been kept yet: a later restore overwrites only what we wrote."""
        return _place(loaded) not in self._kept

    def keeping(self, on: bool) -> None:
        self._keeping = on

    async def keep_found(self, trace: Trace, targets: Targets, snapshots: Sequence[Snapshot]) -> str:
        """The address of the episode that holds them; they are on disk when this returns."""
        writer = self.writer()
        # Dated before what is re-driven, so that `latest` never means it.
        wall = max(0, trace.run.opened_wall - 1)
        run = writer.open_run(
            Run(key=0, name=BEFORE, opened_wall=wall, closed_wall=wall, origin="redrive", version=__version__,
                snapshots={one.name: one.spec for one in targets.loaded}),
            append=True,
        )  # fmt: skip
        now = time.time_ns()
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now // 10**9)) + f"-{now % 10**9:09d}"
        episode = writer.open_episode(
            Episode(key=0, run_key=run.key, name=_fitted(f"{trace.run.name}.{trace.episode.name}", f".{stamp}"),
                    opened=time.monotonic_ns(), opened_wall=now, meta={"before_redrive_of": trace.address})
        )  # fmt: skip
        saved = Saved(writer, run, episode)
        await saved.finish((), snapshots)
        self._kept |= {_place(one) for one in targets.loaded}
        return saved.address

    # -- the answers -------------------------------------------------------------------------------------------------

    def episode(self, trace: Trace, targets: Targets, repeat: int) -> Saved | None:
        """The episode of the saved run that takes this repetition; None without --save."""
        if self._save is None:
            return None
        writer = self.writer()
        if self._run is None:
            self._run = writer.open_run(_saved_run(self._save, trace, targets, self._redactor))
        taken = {e.name for e in self._store.reader().episodes(self._run)}
        name = trace.episode.name if repeat == 1 else _fitted(trace.episode.name, f"-r{repeat}")
        number = 1
        while name in taken:
            number += 1
            name = _fitted(trace.episode.name, f"-r{repeat}-{number}")
        recorded = trace.episode
        episode = writer.open_episode(
            Episode(
                key=0, run_key=self._run.key, name=name, task=recorded.task, seed=recorded.seed,
                # Only the first has the attempt's number: `diff` pairs runs by it.
                attempt=recorded.attempt if repeat == 1 else None,
                group=recorded.group, meta={**recorded.meta, "redrive_of": trace.address, "repeat": repeat},
                opened=time.monotonic_ns(), opened_wall=time.time_ns(),
            )
        )  # fmt: skip
        return Saved(writer, self._run, episode)

    async def close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is None:
            return
        if self._run is not None:
            writer.update_run(replace(self._run, closed_wall=time.time_ns()))
        await asyncio.to_thread(writer.close)


def _storable(exchange: Exchange) -> Exchange:
    """A body that was withheld for a secret in it is not captured."""
    response = exchange.response
    body = response.body if response else None
    if response is None or body is None or body.inline is not None or body.pieces or not body.size:
        return exchange
    return replace(exchange, response=replace(response, body=None), notes=(*exchange.notes, GIVEN_UP))


def _place(loaded: Loaded) -> object:
    """What tells one state from another: a spec with words in braces has one for each of their values."""
    return loaded.name, loaded.spec, tuple(sorted((word, loaded.context.get(word)) for word in loaded.needs))


def _fitted(name: str, suffix: str) -> str:
    """A name with a suffix, cut so that it stays a name."""
    while len((name + suffix).encode()) > NAME_BYTES:
        name = name[:-1]
    return name + suffix


def _saved_run(name: str, trace: Trace, targets: Targets, redactor: Redactor) -> Run:
    envs = {
        env: EnvWiring(name=env, upstream=target.origin.url + target.origin.path, reads=targets.reads.get(env, ()))
        for env, target in targets.envs.items()
    }
    return Run(
        key=0, name=name, opened_wall=time.time_ns(), envs=envs,
        snapshots={one.name: one.spec for one in targets.loaded},
        snapshot_when=trace.run.snapshot_when, snapshot_mode=trace.run.snapshot_mode, url_style=trace.run.url_style,
        meta={**trace.run.meta, "redrive_of": trace.run.name}, origin="redrive", version=__version__,
        config={"secrets": secrecy.wired(redactor)},
    )  # fmt: skip
