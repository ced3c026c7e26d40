"""Verdicts while recording: asks the process that judges, and remembers what it said.

Nobody waits for a verdict longer than `WITHIN` seconds: what is not known by then is `unknown`, and the answer can be
had later. A verdict is never a reason for traffic to wait, or to fail.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from replayproxy.core.values import Episode, EpisodeState

KINDS = ("stale-read", "state-bleed", "dirty-reset", "nondeterminism", "race", "lost-update")
WITHIN = 10.0
REMEMBERED = 10_000
TRIES = 3
"""Times that the process is started anew when it has ended; then there are no verdicts any more."""

LATER = "not judged in time; GET /v1/episodes/E/verdict gives it later, and check judges the whole run"
GONE = "the process that judges has ended; run check"


def unjudged(name: str, why: str) -> dict[str, Any]:
    """The verdict where none could be had."""
    return {
        "episode": name, "verdict": "unknown", "mask": False, "reasons": [],
        "coverage": {"checked": [], "not_checked": dict.fromkeys(KINDS, why)},
        "lost_exchanges": [], "suspected_from": None, "judged_with": 0, "so_far": False, "doubt": None,
    }  # fmt: skip


class Verdicts:
    """One recorder's. `on_told` is called with every verdict that came on a sealed episode, once."""

    def __init__(
        self, *, store: Path, run: str, config: Path | None, on_told: Callable[[Mapping[str, Any]], None] | None = None,
        program: tuple[str, ...] = (sys.executable, "-P", "-m", "replayproxy.session.verdict_worker"),
    ) -> None:  # fmt: skip
        self._first = {"store": str(store), "run": run, "config": str(config) if config else None}
        self._on_told = on_told
        self._program = program
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._started = 0
        self._asked: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._final: dict[int, str] = {}
        self._kept: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._number = 0
        self._closed = False

    @property
    def waiting(self) -> int:
        """Questions that have no answer yet."""
        return len(self._asked)

    async def of_sealed(self, episode: Episode, open_names: Iterable[str] = ()) -> dict[str, Any]:
        """The verdict on an ended episode; asked for once, and kept."""
        if episode.state is not EpisodeState.SEALED:
            return unjudged(episode.name, f"the episode is {episode.state}")
        if episode.name in self._kept:
            return self._kept[episode.name]
        there = await self._there()
        if episode.name in self._kept:
            return self._kept[episode.name]
        # From here on nothing is awaited: of two that ask at once, the second one finds what the first one asked.
        waiting = next((n for n, name in self._final.items() if name == episode.name), None)
        if waiting is None and there:
            waiting = self._ask(episode.name, open_names, None)
            self._final[waiting] = episode.name
        return await self._answer(episode.name, waiting)

    async def so_far(self, name: str, open_names: Iterable[str], as_of: int) -> dict[str, Any]:
        """The verdict on an open episode, on what was over at `as_of` (ns) and is on disk."""
        there = await self._there()
        return await self._answer(name, self._ask(name, open_names, as_of) if there else None)

    def sealed(self, name: str) -> None:
        """Later episodes are judged with this one."""
        if self._process is None:
            # Whoever starts later reads what is on disk by then; the names are for one that runs.
            return
        self._send({"do": "sealed", "episode": name})

    async def close(self) -> None:
        """Nothing is answered any more."""
        self._closed = True
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None
            process.stdin.close()
            try:
                await asyncio.wait_for(process.wait(), 1.0)
            except TimeoutError:
                process.kill()
                await process.wait()
        if self._reading is not None:
            await self._reading

    # -- the process ---------------------------------------------------------------------------------------------

    async def _there(self) -> bool:
        """Whether there is a process to ask; it is started where there is none."""
        async with self._starting:
            return self._process is not None or await self._start()

    def _ask(self, name: str, open_names: Iterable[str], as_of: int | None) -> int:
        """The number of the question."""
        self._number += 1
        self._asked[self._number] = asyncio.get_running_loop().create_future()
        self._send({"do": "judge", "id": self._number, "episode": name, "open": [*open_names], "as_of": as_of})
        return self._number

    async def _answer(self, name: str, number: int | None) -> dict[str, Any]:
        asked = self._asked.get(number) if number is not None else None
        if asked is None:
            return self._kept.get(name) or unjudged(name, GONE)
        try:
            return await asyncio.wait_for(asyncio.shield(asked), WITHIN)
        except TimeoutError:
            return unjudged(name, LATER)

    async def _start(self) -> bool:
        if self._closed or self._started >= TRIES:
            return False
        self._started += 1
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._program, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=1 << 26
            )
        except OSError:
            return False
        self._reading = asyncio.get_running_loop().create_task(self._read(self._process))
        self._send(self._first)
        return True

    def _send(self, line: Mapping[str, Any]) -> None:
        if self._process is not None and self._process.stdin is not None and not self._process.stdin.is_closing():
            self._process.stdin.write(json.dumps(line).encode() + b"\n")

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        try:
            while line := await process.stdout.readline():
                told = json.loads(line)
                self._told(told.get("id"), told)
        except (ValueError, AttributeError):
            # It says what is no answer, or a longer one than is held: there is no going on with it.
            with suppress(ProcessLookupError):
                process.kill()
        if self._process is process:
            self._process = None
        await process.wait()
        for number in list(self._asked):
            self._told(number, {"trouble": GONE})

    def _told(self, number: int | None, told: Mapping[str, Any]) -> None:
        asked = self._asked.pop(number, None) if number is not None else None
        if number is None or asked is None:
            return
        final = self._final.pop(number, None)
        found = told.get("verdict")
        if found is not None and final is not None:
            self._kept[final] = found
            while len(self._kept) > REMEMBERED:
                self._kept.popitem(last=False)
            if self._on_told is not None:
                self._on_told(found)
        if not asked.done():
            asked.set_result(found if found is not None else unjudged(final or "", str(told.get("trouble"))))
