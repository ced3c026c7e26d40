"""Resets while a recording is replayed: they belong to no episode, and a harness sends them all the same.

A request that equals the run's reset gets the answer that a recorded one got: the n-th the n-th, and from then on the
last. They count for no receipt: what they did to the environment shows in what was recorded after them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from replayproxy.core.script import Entry, Heard, Script
from replayproxy.core.scriptbuild import build
from replayproxy.core.values import UNATTRIBUTED, Body, Exchange, Run
from replayproxy.errors import UnknownAddress
from replayproxy.storage import Reader


class Resets:
    """The recorded resets of a run. `answered` counts."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._heads = {(e.exchange.env, e.exchange.request.method, e.exchange.request.target) for e in script.entries}
        self._queues: dict[int, list[Entry]] = {}
        for entry in script.entries:
            if not entry.skip:
                self._queues.setdefault(entry.number, []).append(entry)
        self._next: dict[int, int] = {}
        self.answered = 0

    def may_be(self, env: str, method: bytes, target: bytes) -> bool:
        """Whether it is worth while to look at the whole request."""
        return (env, method, target) in self._heads

    def answer(self, env: str, heard: Heard) -> Entry | None:
        """The recorded exchange that answers it; None: it is no reset."""
        number = self._script.identify(env, heard).number
        queue = self._queues.get(number)
        if not queue:
            return None
        place = self._next.get(number, 0)
        self._next[number] = place + 1
        self.answered += 1
        return queue[min(place, len(queue) - 1)]


def load_resets(reader: Reader, run: Run) -> Resets | None:
    """None where the run has no reset, or none was ever sent through the recorder."""
    if not any(wiring.reset for wiring in run.envs.values()):
        return None
    return _aside(reader, run, lambda one: one.is_reset)


def load_probes(reader: Reader, run: Run) -> Resets | None:
    """The recorded probes that belong to no episode, to be answered in the same way."""
    return _aside(reader, run, lambda one: one.is_probe)


def _aside(reader: Reader, run: Run, wanted: Callable[[Exchange], bool]) -> Resets | None:
    try:
        bucket = reader.episode(run, UNATTRIBUTED)
    except UnknownAddress:
        return None

    def load(body: Body) -> Body:
        return replace(body, inline=reader.body(body))

    # Each is what it is by what the recorder saw, so here it is nothing special any more.
    found = (replace(one, is_reset=False, is_probe=False) for one in reader.exchanges(bucket) if wanted(one))
    script = build(found, run=run.name, episode=UNATTRIBUTED, load=load)
    return Resets(script) if script.entries else None
