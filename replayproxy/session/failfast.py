"""`--fail-fast`: an episode that is poisoned already gets no further; its agent's time goes to the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from replayproxy.core.values import Event
from replayproxy.session.episodes import Episodes
from replayproxy.session.lives import Live

PAUSE = 0.1
"""Seconds between two looks for an episode in which something has happened."""

FAILURES = 3
"""Requests that the environment failed (5xx, reset, refusal, timeout) and that never came through afterwards."""


class FailFast:
    """Judges the open episodes one after another, the one first that was not judged for longest."""

    def __init__(self, episodes: Episodes, say: Callable[[str], None]) -> None:
        self._episodes, self._say = episodes, say
        self._seen: dict[str, tuple[int, int]] = {}

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            lives = [live for live in self._episodes.recording.ledger.lives.values() if self._is_due(live)]
            if not lives:
                await asyncio.sleep(PAUSE)
                continue
            live = min(lives, key=lambda one: one.last_active)
            self._seen[live.episode.name] = live.exchanges, live.snapshots
            told = await self._episodes.judging.so_far(live)
            if (why := why_stopped(told)) and live.ending is None:
                self._stop(live, why, told)
            self._forget()

    def _is_due(self, live: Live) -> bool:
        known = self._seen.get(live.episode.name)
        return live.ending is None and not live.stopped and known != (live.exchanges, live.snapshots)

    def _stop(self, live: Live, why: str, told: dict[str, Any]) -> None:
        recording = self._episodes.recording
        live.stopped = f"episode {live.episode.name} was stopped by --fail-fast: {why}"
        recording.tally.stopped.append(live.episode.name)
        detail = {"why": why, "findings": [reason["finding"] for reason in told["reasons"]]}
        event = Event(at=recording.now(), wall=recording.wall(), kind="fail-fast", detail=detail)
        recording.ledger.put_event(live.episode.key, event)
        self._say(live.stopped)

    def _forget(self) -> None:
        lives = self._episodes.recording.ledger.lives
        for name in [name for name in self._seen if name not in lives]:
            del self._seen[name]


def why_stopped(told: dict[str, Any]) -> str:
    """Why an episode with this verdict is not worth going on with; "" it is."""
    if told["mask"]:
        worst = next(reason for reason in told["reasons"] if reason["blame"] == "environment")
        return f"{worst['grade']} {worst['kind']}, {worst['title']}"
    lost = told["lost_exchanges"]
    if len(lost) >= FAILURES:
        return f"the environment failed {len(lost)} requests (#{', #'.join(map(str, lost[:5]))})"
    return ""
