"""The control API while a recording is replayed: a harness opens and ends its episodes as it did when recording."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from replayproxy.core import canaries
from replayproxy.core.identity import SEALED
from replayproxy.core.names import why_not_a_name
from replayproxy.core.values import Episode, EpisodeState
from replayproxy.errors import Problem
from replayproxy.proxy.listeners import Listener
from replayproxy.serve.control import EndRequest, MarkRequest, OpenRequest, Refused
from replayproxy.serve.stage import Stage
from replayproxy.session.addresses import Addresses
from replayproxy.session.online import unjudged
from replayproxy.session.replay_doors import Doors


class ReplayDesk:
    """Opens what was recorded. Marks and snapshots are answered and do nothing: no state is there to be read."""

    def __init__(self, stage: Stage, addresses: Addresses, doors: Doors, *, url_style: str) -> None:
        self._stage, self._addresses, self._doors = stage, addresses, doors
        self._url_style = url_style
        self._opened: dict[str, Episode] = {}
        self._own: dict[str, list[Listener]] = {}
        self._ended: set[str] = set()

    async def open(self, wanted: OpenRequest, reached_by: str) -> dict[str, Any]:
        episode = self._recorded(wanted)
        if episode.name in self._opened:
            raise Refused(409, "name taken", f"episode {episode.name!r} has been opened already in this replay")
        self._opened[episode.name] = episode
        if self._stage.sole is None:
            await self._stage.scene(episode.name)
        own: list[Listener] = []
        if (wanted.url_style or self._url_style) == "port":
            try:
                own = self._own[episode.name] = await self._addresses.listen_for(episode.name, episode.envs)
            except Problem as problem:
                raise Refused(503, problem.title, problem.what) from None
        return {"episode": episode.name, "urls": self._addresses.urls(episode, own, reached_by)}

    def _recorded(self, wanted: OpenRequest) -> Episode:
        """The recorded episode that is meant: by its name, else the next of its task, seed and attempt."""
        sole = self._stage.sole
        if wanted.episode is not None and (why := why_not_a_name(wanted.episode)):
            raise Refused(422, "refused name", why)
        if sole is not None:
            name = wanted.episode or sole.name
            if wanted.episode is None and name in self._opened:
                name = f"{name}-{len(self._opened) + 1}"
            return replace(sole, name=name)
        if wanted.episode is None:
            return self._next_of(wanted)
        if why_not := self._stage.why_not(wanted.episode, "main"):
            raise Refused(404, "not in the recording", why_not, **{"try": self._untouched()})
        return self._stage.episodes[wanted.episode]

    def _next_of(self, wanted: OpenRequest) -> Episode:
        for episode in self._stage.episodes.values():
            if episode.state is not EpisodeState.SEALED or episode.name in self._opened:
                continue
            asked = (wanted.task, wanted.seed, wanted.group)
            if asked == (episode.task, episode.seed, episode.group) and wanted.attempt in (None, episode.attempt):
                return episode
        told = f"task={wanted.task!r} seed={wanted.seed!r} attempt={wanted.attempt!r} group={wanted.group!r}"
        raise Refused(404, "not in the recording", f"run {self._stage.run.name} has no further episode of {told}")

    def _untouched(self) -> str | None:
        return next((name for name in self._stage.episodes if name not in self._opened), None)

    def _open(self, name: str) -> Episode:
        if name not in self._opened:
            raise Refused(404, "no such episode", f"there is no open episode {name!r} in this replay")
        if name in self._ended:
            raise Refused(409, "sealed", f"episode {name!r} has ended")
        return self._opened[name]

    async def mark(self, name: str, mark: MarkRequest) -> dict[str, Any]:
        """A canary is the recorded one: with another in its texts no request would be the one that was recorded."""
        episode = self._open(name)
        wanted = canaries.asked_for(mark.label, mark.data)
        recorded = canaries.by_label(self._stage.reader.events(episode)) if wanted is not None else {}
        return {"canary": recorded[wanted]} if wanted in recorded else {}

    async def snapshot(self, name: str, label: str) -> list[dict[str, Any]]:
        self._open(name)
        return []

    async def end(self, name: str, end: EndRequest) -> dict[str, Any]:
        if name not in self._ended:
            self._open(name)
            self._ended.add(name)
            for listener in self._own.pop(name, ()):
                await self._doors.unlisten(listener)
            if self._stage.sole is None:
                self._stage.close(name, SEALED)
        receipt = self._stage.receipt_of(self._stage.sole.name if self._stage.sole else name)
        return {**self._verdict(name), "receipt": receipt}

    async def verdict(self, name: str) -> dict[str, Any]:
        if name not in self._opened:
            raise Refused(404, "no such episode", f"there is no open episode {name!r} in this replay")
        return self._verdict(name)

    def _verdict(self, name: str) -> dict[str, Any]:
        state = EpisodeState.SEALED if name in self._ended else EpisodeState.OPEN
        return {**unjudged(name, "a replay judges no environment"), "state": str(state)}

    def describe_all(self) -> list[dict[str, Any]]:
        return [self._row(episode) for episode in self._opened.values()]

    def describe(self, name: str) -> dict[str, Any]:
        if name not in self._opened:
            raise Refused(404, "no such episode", f"there is no open episode {name!r} in this replay")
        return self._row(self._opened[name])

    def _row(self, episode: Episode) -> dict[str, Any]:
        state = EpisodeState.SEALED if episode.name in self._ended else EpisodeState.OPEN
        return {
            "episode": episode.name, "task": episode.task, "seed": episode.seed, "attempt": episode.attempt,
            "state": str(state), "urls": self._addresses.urls(episode, self._own.get(episode.name, ())),
        }  # fmt: skip

    def health(self) -> dict[str, Any]:
        sole = self._stage.sole
        return {
            "status": "ok",
            "run": self._stage.run.name,
            "episode": sole.name if sole else None,
            "envs": self._addresses.plain_urls(),
            "episodes": {"open": len(self._opened) - len(self._ended), "ended": len(self._ended)},
        }  # fmt: skip
