"""The episodes that are being replayed: which one a request belongs to, loaded when first asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from replayproxy.core.belonging import Alias
from replayproxy.core.identity import CARRIERS, Claims, why_not_a_lane
from replayproxy.core.misses import Document
from replayproxy.core.receipt import Stray, run_receipt
from replayproxy.core.redact import Redactor
from replayproxy.core.relax import Relaxation
from replayproxy.core.replayer import Order
from replayproxy.core.script import Entry, Heard, Script
from replayproxy.core.values import MAIN_LANE, Episode, EpisodeState, Message, Run
from replayproxy.serve.discretion import cleaned
from replayproxy.serve.identity import Known
from replayproxy.serve.loading import load_script
from replayproxy.serve.ready import Ready
from replayproxy.serve.resets import Resets
from replayproxy.serve.scene import Scene
from replayproxy.serve.shelf import Shelf
from replayproxy.storage import Reader

STRAYS_KEPT = 1000
LANES_KEPT = 10_000


class Stage:
    """Which episode a request is answered from.

    `sole`: the one episode that answers everything, however it is marked. Without it each request is answered from
    its own; an unmarked one from `unmarked`, where the run has such an episode. `prepare` puts answers together when
    an episode is loaded. `redactor`: what is asked is matched, and shown, as it makes it.
    """

    def __init__(
        self,
        reader: Reader,
        run: Run,
        episodes: Sequence[Episode],
        *,
        sole: bool,
        order: Order,
        now: Callable[[], int],
        unmarked: str | None = None,
        prepare: Callable[[Entry], Ready | None] | None = None,
        rules: Relaxation | None = None,
        redactor: Redactor | None = None,
        shelf: Shelf | None = None,
    ) -> None:
        self.rules = Relaxation(()) if rules is None else rules
        self.run = run
        self.sole = episodes[0] if sole else None
        self.unmarked = unmarked
        self.order = order
        self.redactor = redactor or Redactor(None)
        self._prepare = prepare
        self._good_lanes: set[str] = {MAIN_LANE}
        self._reader = reader
        self._now = now
        self._episodes = {episode.name: episode for episode in episodes}
        self._scenes: dict[str, Scene] = {}
        self._shelf = shelf or Shelf()
        self._loading: dict[str, asyncio.Task[None]] = {}
        self._strays: dict[tuple[str, str], Stray] = {}
        self._closed: dict[str, str] = {}
        self.resets: Resets | None = None
        self.known: Known | None = None
        self.probes: Resets | None = None
        self.asked_incomplete = False
        self.faults: list[str] = []
        self.on_loaded: Callable[[], None] = lambda: None
        """Called whenever an episode has been read: when it is first asked for, and after it was set aside."""

    @property
    def episodes(self) -> Mapping[str, Episode]:
        return self._episodes

    @property
    def reader(self) -> Reader:
        return self._reader

    def scene_now(self, name: str) -> Scene | None:
        """The scene of an episode if it is loaded."""
        scene = self._scenes.get(name)
        if scene is None or not scene.is_here:
            return None
        self._shelf.used(name)
        return scene

    def receipt_of(self, name: str) -> Document | None:
        """Of one episode; None where nobody has asked for it."""
        scene = self._scenes.get(name)
        return scene.receipt() if scene else None

    def whose(self, claims: Claims) -> str | None:
        """The name of the episode that a request belongs to; None: no carrier, and nothing for unmarked traffic."""
        if self.sole is not None:
            return self.sole.name
        for slot, _ in CARRIERS:
            name: str | None = getattr(claims, slot)
            if name is not None:
                return name
        return self.unmarked

    async def whose_by_rules(
        self, claims: Claims, env: str, heard: Heard, whole: Callable[[], Awaitable[Heard]]
    ) -> tuple[Claims, str | None]:
        """`whose`, where the run was recorded with rules: the claims with what they found, and the name. `heard` may
        lack its body, which `whole` reads when a rule or an adoption needs it."""
        assert self.known is not None
        claims, found = await self.known.whose(claims, env, heard, whole)
        if self.sole is not None or any(getattr(claims, slot) is not None for slot, _ in CARRIERS):
            return claims, self.whose(claims)
        return claims, await self.known.adopt(env, cleaned(self.redactor, env, await whole()), found) or self.unmarked

    def awaits_frame(self, env: str, target: bytes) -> bool:
        """Whether only the first message can tell whose a connection is that carries no mark."""
        return self.sole is None and self.known is not None and self.known.awaits_frame(env, target)

    async def whose_frame(self, env: str, target: bytes, text: bytes) -> str | None:
        """The episode of a WebSocket connection without any mark, by its agent's first message: that of the id in it,
        else the next that was recorded with this target and message. None: no rule and no recording says."""
        if self.sole is not None:
            return self.sole.name
        if self.known is None:
            return self.unmarked
        kept = self.redactor.message(Message(from_agent=True, text=True, payload=text, at=0)).payload
        line = cleaned(self.redactor, env, Heard(b"GET", target, (), None)).target
        return await self.known.whose_frame(env, target, text, as_kept=(line, kept)) or self.unmarked

    def touched(self, name: str) -> bool:
        """Whether somebody has asked for this episode."""
        scene = self._scenes.get(name)
        return scene is not None and scene.replayer.touched

    def why_not(self, name: str | None, lane: str) -> str | None:
        """Why a request of that episode and lane is not replayed; None when it is."""
        if lane not in self._good_lanes:
            if why := why_not_a_lane(lane):
                return f"the lane mark cannot be used: {why}"
            if len(self._good_lanes) < LANES_KEPT:
                self._good_lanes.add(lane)
        if name is None:
            return f"the request carries no episode, and run {self.run.name} has several"
        episode = self._episodes.get(name)
        if episode is None:
            return f"run {self.run.name} has no episode {name!r}"
        if episode.state is not EpisodeState.SEALED:
            self.asked_incomplete = True
            return f"{self.run.name}/{name} is {episode.state}: it cannot be replayed"
        if name in self._closed:
            return f"{self.run.name}/{name}: {self._closed[name]}"
        return None

    def close(self, name: str, reason: str) -> None:
        """From now on requests of this episode are not replayed, for this reason."""
        self._closed[name] = reason

    async def scene(self, name: str) -> Scene:
        """The scene of an episode for which `why_not` is None. Loaded in another thread, again when it was set aside
        meanwhile. Whoever goes on without waiting may count itself among its `users`."""
        while (found := self.scene_now(name)) is None:
            task = self._loading.get(name)
            if task is None:
                task = self._loading[name] = asyncio.ensure_future(self._load(self._episodes[name]))
            # Shielded: one agent that leaves must not take the script from the others that wait for it.
            await asyncio.shield(task)
        return found

    async def _load(self, episode: Episode) -> None:
        try:
            script, ready, aliases = await asyncio.to_thread(self._read, episode)
        finally:
            del self._loading[episode.name]  # whoever waited for a failed one may have it read again
        scene = self._scenes.get(episode.name)
        if scene is None:
            scene = self._scenes[episode.name] = self._first(script, episode.name, aliases)
        scene.go_on(script, ready)
        self._shelf.put(episode.name, len(script.entries))
        for name in self._shelf.spare(idle=self._is_idle, over=self._is_over):
            self._scenes[name].set_aside()
        self.on_loaded()

    def _is_idle(self, name: str) -> bool:
        return not self._scenes[name].users

    def _is_over(self, name: str) -> bool:
        return name in self._closed or self._scenes[name].is_over

    def _first(self, script: Script, name: str, aliases: set[Alias]) -> Scene:
        scene = Scene(script, self._reader, order=self.order, now=self._now)
        if (known := self.known) is not None:
            known.learn(name, aliases)
            scene.by_order = lambda: name in known.by_order
        return scene

    def _read(self, episode: Episode) -> tuple[Script, list[Ready | None], set[Alias]]:
        script, prepare = load_script(self._reader, self.run, episode, self.rules, self.redactor), self._prepare
        known = self.known
        aliases = known.aliases_of(entry.exchange for entry in script.entries) if known else set()
        waits = script.causes.of
        return (
            script,
            [prepare(entry) if prepare and waits(entry.exchange) is None else None for entry in script.entries],
            aliases,
        )

    def stray(self, request: str, reason: str) -> None:
        """A request that no episode could be asked for. With one episode only it is that one's miss."""
        if self.sole is not None:
            self._scenes[self.sole.name].replayer.unreadable(f"{request}: {reason}", self._now())
            return
        known = self._strays.get((request, reason))
        if known is not None:
            self._strays[request, reason] = replace(known, count=known.count + 1)
        elif len(self._strays) < STRAYS_KEPT:
            self._strays[request, reason] = Stray(request=request, reason=reason, at=self._now())

    def receipt(self, contacts: int = 0) -> Document:
        """Of the sole episode, or of the run."""
        return {
            **self._receipt(contacts),
            "resets": self.resets.answered if self.resets else 0,
            "probes": self.probes.answered if self.probes else 0,
            "adopted": list(self.known.adopted) if self.known else [],
        }

    def _receipt(self, contacts: int) -> Document:
        if self.sole is not None:
            scene = self._scenes[self.sole.name]
            for fault in self.faults:
                scene.replayer.fault(fault, self._now())
            self.faults.clear()
            return scene.receipt(contacts)
        touched = {name: scene for name, scene in self._scenes.items() if scene.replayer.touched}
        sealed = [name for name, episode in self._episodes.items() if episode.state is EpisodeState.SEALED]
        return run_receipt(
            self.run.name,
            [scene.receipt() for scene in touched.values()],
            not_replayed=[name for name in sealed if name not in touched],
            incomplete=[name for name in self._episodes if name not in sealed],
            strays=list(self._strays.values()),
            faults=self.faults,
            contacts=contacts,
            rules=self.rules,
        )


def lane_of(claims: Claims) -> str:
    return claims.lane or MAIN_LANE
