"""What a recorder says of its episodes' verdicts: it asks beside, with all on disk and nothing under way."""

from __future__ import annotations

import asyncio
from typing import Any

from replayproxy.core.values import Episode, EpisodeState
from replayproxy.session.lives import Live
from replayproxy.session.online import Verdicts, unjudged
from replayproxy.session.recording import Recording

NOT_HERE = "not judged while recording (--judge off); run check"


class Judging:
    """The verdicts of one recording. `verdicts` None: nothing is judged, and every answer says so."""

    def __init__(self, recording: Recording, verdicts: Verdicts | None) -> None:
        self._recording, self._verdicts = recording, verdicts

    def sealed(self, episode: Episode) -> None:
        """Later episodes are judged with this one."""
        if self._verdicts is not None and episode.state is EpisodeState.SEALED:
            self._verdicts.sealed(episode.name)

    async def of_sealed(self, episode: Episode) -> dict[str, Any]:
        """The verdict on an episode that has ended."""
        if self._verdicts is None:
            return unjudged(episode.name, NOT_HERE)
        return await self._verdicts.of_sealed(episode, self._others(episode.name))

    async def so_far(self, live: Live) -> dict[str, Any]:
        """The verdict on an open episode, on what is over in it and in those beside it."""
        name, state = live.episode.name, {"episode": live.episode.name, "state": str(live.episode.state)}
        if self._verdicts is None:
            return {**unjudged(name, NOT_HERE), **state}
        recording = self._recording
        lives = recording.ledger.lives.values()
        under_way = [flight.arrived for one in lives for flight in one.flights.values() if not flight.listens]
        as_of = min([recording.now(), *(at - 1 for at in under_way)])
        try:
            await asyncio.wrap_future(recording.writer.flush())
        except Exception as trouble:
            return {**unjudged(name, f"the store cannot be written: {trouble}"), **state}
        return {**await self._verdicts.so_far(name, self._others(name), as_of), **state}

    def _others(self, name: str) -> list[str]:
        return [other for other in self._recording.ledger.lives if other != name]
