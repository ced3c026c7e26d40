"""Takes the snapshots of a run: which there are for an environment, and one of them as a value."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from replayproxy.core.redact import Redactor
from replayproxy.core.values import Snapshot, SnapshotStatus
from replayproxy.state.discreet import discreet
from replayproxy.state.loader import Loaded
from replayproxy.state.provider import Context
from replayproxy.state.reading import Clock, Save, Source

type Overlapping = Callable[[int, int], tuple[tuple[int, int], ...]]
"""Arrival keys of the episode's exchanges that were in flight at some instant of [begun, done]."""

LIMIT = 30.0


class Capture:
    """One per run, on one event loop; the reading itself is done in threads, one for each provider.

    `save` takes new nodes and is called in such a thread, always before the snapshot that needs them is given.
    `envs` are the environments' names: a snapshot whose name begins with none of them belongs to all. `redactor`
    takes the secrets out of what is read.
    """

    def __init__(
        self,
        loaded: Sequence[Loaded],
        *,
        save: Save,
        now: Clock,
        wall: Clock,
        envs: Collection[str] | None = None,
        limit: float = LIMIT,
        redactor: Redactor | None = None,
    ) -> None:
        self._loaded = {one.name: one for one in loaded}
        self._save, self._now, self._wall = save, now, wall
        self._envs = envs
        self._limit = limit
        self._redactor = redactor or Redactor(None)
        self._sources: dict[tuple[Loaded, tuple[tuple[str, str], ...]], Source] = {}

    def names(self) -> list[str]:
        """All snapshots of the run, as configured."""
        return list(self._loaded)

    def for_env(self, env: str) -> list[str]:
        """The snapshots of an environment, those that belong to all included."""
        return [name for name in self._loaded if self.env_of(name) in (env, None)]

    def env_of(self, name: str) -> str | None:
        """The environment that a snapshot belongs to; None: to all."""
        head = name.partition(".")[0]
        return head if self._envs is None or head in self._envs else None

    async def take(
        self,
        name: str,
        *,
        when: str,
        n: int,
        mode: str,
        label: str = "",
        after: tuple[int, int] | None = None,
        overlapping: Overlapping | None = None,
        shared_with: Sequence[str] = (),
        context: Context | None = None,
        loaded: Loaded | None = None,
    ) -> Snapshot:
        """A snapshot read entirely after this call; MISSING with its reason where there is none, never an exception.

        `loaded`: an episode's own snapshot (from the control API), in place of the run's of that name. TORN when
        `overlapping` names exchanges. Whether it came late is the caller's to say.
        """
        source = self._source(loaded or self._loaded[name], context or {})
        shot = await source.read(self._limit)
        status = SnapshotStatus.MISSING
        in_flight: tuple[tuple[int, int], ...] = ()
        if shot.root is not None:
            in_flight = overlapping(shot.begun, shot.done) if overlapping is not None else ()
            status = SnapshotStatus.TORN if in_flight else SnapshotStatus.TAKEN
        return Snapshot(
            n=n,
            name=name,
            env=self.env_of(name),
            when=when,
            label=label,
            status=status,
            reason=shot.reason,
            mode=mode,
            atomic=shot.atomic,
            can_restore=shot.can_restore,
            scope=shot.scope,
            root=shot.root,
            aside=shot.aside,
            rows=shot.rows,
            begun=shot.begun,
            done=shot.done,
            wall=shot.wall,
            after=after,
            in_flight=in_flight,
            shared_with=tuple(shared_with),
        )

    def forget(self, context: Context, own: Collection[Loaded] = ()) -> None:
        """An episode has ended: what was opened for it alone is closed, `own` being the snapshots it came with."""
        for key in list(self._sources):
            loaded, bound = key[0], dict(key[1])
            if loaded in own or ("episode" in bound and bound.items() <= context.items()):
                self._sources.pop(key).close()

    def close(self) -> None:
        """The run has ended. Does not wait for a provider that does not answer."""
        while self._sources:
            self._sources.popitem()[1].close()

    def _source(self, loaded: Loaded, context: Context) -> Source:
        known = {**loaded.context, **context}
        bound = tuple(sorted((word, known[word]) for word in loaded.needs if word in known))
        key = (loaded, bound)
        if key not in self._sources:
            kept = discreet(loaded, self._redactor)
            self._sources[key] = Source(
                kept.bind(dict(bound)) if loaded.needs else kept, save=self._save, now=self._now, wall=self._wall
            )
        return self._sources[key]
