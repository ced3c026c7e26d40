"""The episodes of one recording: which are open, and what is put into the store for each.

Rules of this file: everything runs on the event-loop thread. What the store does not take is a fault of the episode
that lacks it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from replayproxy.core.effects import Overlaps
from replayproxy.core.identity import EpisodeBook
from replayproxy.core.values import UNATTRIBUTED, Episode, Event, Run, Snapshot
from replayproxy.session.lives import Live
from replayproxy.session.origins import Origins
from replayproxy.session.tally import FAULTS_KEPT, Tally
from replayproxy.storage import Writer

ENDED_KEPT = 1_000


class Ledger:
    """`lives`: the open ones by name; `ended`: the last that were sealed."""

    def __init__(
        self,
        writer: Writer,
        run: Run,
        book: EpisodeBook,
        tally: Tally,
        *,
        now: Callable[[], int],
        wall: Callable[[], int],
    ) -> None:
        self.writer, self.book, self.tally = writer, book, tally
        self.origins = Origins.of(run.envs.values())
        self.lives: dict[str, Live] = {}
        self.ended: deque[Live] = deque(maxlen=ENDED_KEPT)
        self._run_key = run.key
        self._now, self._wall = now, wall
        self._bucket: Episode | None = None
        self._open_keys: set[int] = set()

    def open_and_lately(self) -> Iterable[Live]:
        return (*self.lives.values(), *self.ended)

    def open(self, episode: Episode, *, by_api: bool = False) -> Live:
        """Puts a declared episode into the book and the store. The caller has checked its name."""
        stored = self.writer.open_episode(replace(episode, run_key=self._run_key))
        for name, url in episode.envs.items():
            self.origins.add(name, url)
        self.book.open(stored, by_api=by_api)
        self.tally.declared += 1
        return self._living(stored)

    def first_seen(self, episode: Episode) -> Live:
        """An episode that a request named first: it is in the book already."""
        try:
            stored = self.writer.open_episode(replace(episode, run_key=self._run_key))
        except BaseException:
            # It will never be in the store: the next request may try again.
            self.book.forget(episode.name)
            raise
        self.book.update(stored)
        return self._living(stored)

    def _living(self, episode: Episode) -> Live:
        live = Live(episode=episode, last_active=self._now())
        self.lives[episode.name] = live
        self._open_keys.add(episode.key)
        return live

    def update(self, live: Live, **changes: Any) -> None:
        """A newer value of an open episode, in the book and in the store."""
        live.episode = replace(live.episode, **changes)
        self.book.update(live.episode)
        self.writer.update_episode(live.episode)

    def retire(self, live: Live) -> None:
        """Its seal is on its way: nothing more belongs to it."""
        live.ended_at = self._now()
        self.lives.pop(live.episode.name, None)
        self._open_keys.discard(live.episode.key)
        self.ended.append(live)
        # Only for as long as a reading may ask who was open; what an episode held in memory goes now.
        live.overlaps = Overlaps()

    def bucket(self) -> Episode:
        """Where unattributed traffic goes; made with the first of it, or the one that the run has already."""
        if self._bucket is None:
            opened = Episode(
                key=0, run_key=self._run_key, name=UNATTRIBUTED, declared=False,
                opened=self._now(), opened_wall=self._wall(),
            )  # fmt: skip
            self._bucket = self.writer.open_episode(opened)
        return self._bucket

    def seal_bucket(self) -> Future[Episode] | None:
        """Nothing more is unattributed. None: nothing was."""
        if self._bucket is None:
            return None
        return self.writer.seal(replace(self._bucket, ended=self._now(), ended_wall=self._wall(), ended_by="stop"))

    def put_event(self, key: int, event: Event) -> None:
        """Lets it go when the episode is sealed, or the queue full: an event is never worth an exchange."""
        if (key in self._open_keys or (self._bucket is not None and self._bucket.key == key)) and self.writer.room():
            self.writer.put_event(key, event)

    def mark_fault(self, live: Live, text: str) -> None:
        """The episode is incomplete from now on, also when the recorder is killed."""
        if text not in live.episode.faults and len(live.episode.faults) < FAULTS_KEPT:
            live.episode = replace(live.episode, faults=(*live.episode.faults, text))
            self.book.update(live.episode)
            if self.writer.room():
                self.writer.update_episode(live.episode)

    def keep_snapshot(self, live: Live, snapshot: Snapshot) -> None:
        """Stores a snapshot, or marks the episode that it lacks one."""
        try:
            if not self.writer.room():
                raise RuntimeError("queue full: a snapshot was not stored")
            self.writer.put_snapshot(live.episode.key, snapshot)
            self.tally.snapshot(snapshot)
        except Exception as error:
            self.mark_fault(live, f"snapshot: {error}")
