"""Whose a live request is, by the rules that the run was recorded with.

An agent comes with the ids that the recorded answers give it: as they are, or as the tokens that stand for secrets in
them. Both lead to the episode that has them. A request whose episode was not known before its answer, when it was
recorded, says nothing of it now either: it is adopted by the next recorded episode, in order of recording, that begins
with this very request and has not been taken.

Rules of this file: everything runs on the event loop but `_index`, which reads; an id of two episodes leads to the
one that a mark named beside it last, and else to none.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from replayproxy.core import jsonvalue
from replayproxy.core.belonging import Alias, alias_of, decide
from replayproxy.core.callids import replay_key
from replayproxy.core.canonical import VIEW_LIMIT, RequestKey, request_key
from replayproxy.core.extract import Extracted, Extractors, compile_extractors
from replayproxy.core.identity import CONTRADICTION, LATE, Claims
from replayproxy.core.misses import Document
from replayproxy.core.nonces import shape_of
from replayproxy.core.relax import Relaxation
from replayproxy.core.script import Heard
from replayproxy.core.values import Body, Episode, EpisodeState, Exchange, Request, Run
from replayproxy.storage import Reader

ADOPTED_LISTED = 1000


type Tier = tuple[str, RequestKey]
"""How near a request is, as in a replay: equal, equal but for what agents mint, equal by the rules; and the key."""

type Door = tuple[str, bytes, Any]
"""Environment, path and query of a handshake."""


@dataclass(slots=True, eq=False)
class Beginning:
    """An exchange at the beginning of an episode by which an unmarked agent can be adopted. `first`: the episode's
    first; `late`: recorded, its episode became known by the answer only. `frame`: the agent's first message."""

    order: tuple[int, int]
    episode: str
    door: Door
    tiers: tuple[Tier, ...]
    first: bool
    late: bool
    frame: bytes | None = None
    taken: bool = False


class Known:
    """The rules of a run, and the ids of its episodes. `shown` gives the token of a secret value; `touched` whether an
    episode has been asked for; `load` the bytes of a body."""

    def __init__(
        self,
        extractors: Extractors,
        reader: Reader,
        episodes: Mapping[str, Episode],
        *,
        shown: Callable[[str], str],
        touched: Callable[[str], bool],
        load: Callable[[Body], Body],
        rules: Relaxation,
    ) -> None:
        self.extractors = extractors
        self.adopted: list[Document] = []
        self.by_order: set[str] = set()
        """The episodes that were adopted, all of them."""
        self._shown, self._touched, self._load, self._reader = shown, touched, load, reader
        self._episodes, self._rules = episodes, rules
        self._owners: dict[Alias, str] = {}
        self._theirs: set[Alias] = set()  # of two episodes, so of none until a mark says which
        self._passed: dict[Alias, str] = {}
        for name, episode in episodes.items():
            for alias in episode.aliases:
                self._own(alias, name)
        self._beginnings: dict[Tier, list[Beginning]] = defaultdict(list)
        self._by_frame: dict[tuple[Door, bytes], list[Beginning]] = defaultdict(list)
        self._indexing: asyncio.Task[None] | None = None

    # -- ids -----------------------------------------------------------------------------------------------------

    def _own(self, alias: Alias, name: str) -> None:
        if self._owners.setdefault(alias, name) != name:
            self._theirs.add(alias)

    def _owner(self, alias: Alias) -> str | None:
        return self._passed.get(alias) if alias in self._theirs else self._owners.get(alias)

    def _owner_live(self, alias: Alias) -> str | None:
        """Of an id as an agent sends it: it may have been kept as it is, or by its token."""
        return self._owner(alias) or self._owner((alias[0], self._shown(alias[1])))

    def aliases_of(self, exchanges: Iterable[Exchange]) -> set[Alias]:
        """The ids that recorded exchanges show: what their agent had, and will have again. Reads nothing."""
        found: set[Alias] = set()
        for exchange in exchanges:
            if any(note.startswith(CONTRADICTION) for note in exchange.notes):
                continue
            request, response = exchange.request, exchange.response
            line = (exchange.env, request.method, request.target)
            seen = self.extractors.of_request(*line, request.fields, self._bytes(request.body))
            if response is not None:
                seen += self.extractors.of_answer(*line, response.fields, self._bytes(response.body))
            found |= {alias_of(one, self._shown) for one in seen.aliases}
        return found

    def _bytes(self, body: Body | None) -> bytes | None:
        return None if body is None else body.inline

    def learn(self, name: str, aliases: Iterable[Alias]) -> None:
        for alias in aliases:
            if alias not in self._owners:
                self._owners[alias] = name

    # -- requests ------------------------------------------------------------------------------------------------

    async def whose(
        self, claims: Claims, env: str, heard: Heard, whole: Callable[[], Awaitable[Heard]]
    ) -> tuple[Claims, Extracted]:
        """The claims with what rules find in the request. `heard` may lack its body; `whole` reads it."""
        asks = self.extractors.asks(env, heard.method, heard.target)
        if asks.body:
            heard = await whole()
        body = None if heard.body is None else heard.body.inline
        found = self.extractors.of_request(env, heard.method, heard.target, heard.fields, body)
        decision = decide(claims, found, self._owner_live, self._shown)
        if self._theirs and decision.name is not None and not decision.carrier.startswith("rule "):
            for alias in (alias_of(one, self._shown) for one in found.aliases):
                if alias in self._theirs:
                    self._passed[alias] = decision.name
        changes: dict[str, Any] = {}
        if claims.lane is None and found.lane is not None:
            changes["lane"] = found.lane
        if decision.name is not None and decision.carrier.startswith("rule "):
            changes["rule"] = decision.name
        return (replace(claims, **changes) if changes else claims), found

    def is_probe(self, env: str, heard: Heard) -> bool:
        """Told by the head alone: a probe has no business in a body."""
        asks = self.extractors.asks(env, heard.method, heard.target)
        if not any(rule.fills == "probe" for rule in asks.head):
            return False
        return self.extractors.of_request(env, heard.method, heard.target, heard.fields, None).says("probe")

    async def adopt(self, env: str, heard: Heard, found: Extracted) -> str | None:
        """The episode of a request that names none that is known; None: none begins with it. An id that nobody has is
        the episode's from then on: agents make up new ones."""
        await self._indexed()
        strangers = [alias_of(one, self._shown) for one in found.aliases]
        for tier in self._tiers(env, heard.request()):
            for one in self._beginnings.get(tier, ()):
                if one.taken or not (one.late or (strangers and one.first)) or not self._may_take(one):
                    continue
                line = f"{heard.method.decode('latin-1')} {heard.target.decode('latin-1')}"
                return self._take(one, f"request {line}", strangers)
        return None

    def _tiers(self, env: str, request: Request) -> Iterator[Tier]:
        """The nearest first; a shape costs a second look at the body, and is made only when it is asked for."""
        yield "equal", replay_key(env, request)[0]
        if (shape := shape_of(env, request)) is not None:
            yield "minted", shape.key
        if (relaxed := self._rules.relaxed(env, request) if self._rules else None) is not None:
            yield "rules", relaxed.shape.key

    def _may_take(self, one: Beginning) -> bool:
        """The first exchange begins an episode that nobody plays; a later one belongs to one that was begun so."""
        if not one.first:
            return self._touched(one.episode)
        return not self._touched(one.episode)

    def _take(self, one: Beginning, by: str, strangers: Sequence[Alias]) -> str:
        one.taken = True
        self.learn(one.episode, strangers)
        self.by_order.add(one.episode)
        if len(self.adopted) < ADOPTED_LISTED:
            self.adopted.append({"episode": one.episode, "by": by})
        return one.episode

    # -- WebSocket -----------------------------------------------------------------------------------------------

    def awaits_frame(self, env: str, target: bytes) -> bool:
        return bool(self.extractors.asks(env, b"GET", target).frames)

    async def whose_frame(self, env: str, target: bytes, text: bytes, *, as_kept: tuple[bytes, bytes]) -> str | None:
        """Of a connection without any mark, by the agent's first message: the episode of the id in it, else the next
        one that was recorded with the same target and first message. `as_kept`: both as a recording holds them."""
        found = self.extractors.of_frame(env, target, text, True)
        for one in found.found:
            if one.rule.fills == "episode":
                return one.value
        for alias in (alias_of(one, self._shown) for one in found.aliases):
            if (name := self._owner_live(alias)) is not None:
                return name
        await self._indexed()
        key = request_key(env, Heard(b"GET", as_kept[0], (), None).request())
        strangers = [alias_of(one, self._shown) for one in found.aliases]
        for each in self._by_frame.get((_door(key), _canonical(as_kept[1])), ()):
            if not each.taken and self._may_take(each):
                return self._take(each, "first message", strangers)
        return None

    # -- the beginnings ------------------------------------------------------------------------------------------

    async def _indexed(self) -> None:
        if self._indexing is None:
            self._indexing = asyncio.ensure_future(asyncio.to_thread(self._index))
        await asyncio.shield(self._indexing)

    def _index(self) -> None:
        found: list[Beginning] = []
        for name, episode in self._episodes.items():
            if episode.state is EpisodeState.SEALED:
                found += self._beginnings_of(name, episode)
        for one in sorted(found, key=lambda each: each.order):
            if one.frame is None:
                for tier in one.tiers:
                    self._beginnings[tier].append(one)
            else:
                self._by_frame[one.door, one.frame].append(one)

    def _beginnings_of(self, name: str, episode: Episode) -> list[Beginning]:
        """The leading exchanges whose episode was not known by their request; the first one in any case."""
        found: list[Beginning] = []
        for exchange in self._reader.exchanges(episode):
            late = LATE in exchange.notes
            if exchange.carrier != "rule" or (found and not late):
                break
            request = exchange.request
            whole = request if request.body is None else replace(request, body=self._load(request.body))
            frame = None
            if exchange.websocket is not None:
                said = (m.payload for m in self._reader.messages(exchange.websocket) if m.from_agent)
                frame = _canonical(next(said, b""))
            found.append(
                Beginning(
                    order=exchange.order, episode=name, door=_door(request_key(exchange.env, whole)),
                    tiers=() if frame is not None else tuple(self._tiers(exchange.env, whole)),
                    first=not found, late=late, frame=frame,
                )
            )  # fmt: skip
        return found


def _door(key: RequestKey) -> Door:
    return (key.env, key.path, key.query)


def _canonical(text: bytes) -> bytes:
    try:
        return jsonvalue.canonical(jsonvalue.parse(text))
    except jsonvalue.NotJson:
        return text


def load_known(
    reader: Reader,
    run: Run,
    episodes: Mapping[str, Episode],
    *,
    shown: Callable[[str], str],
    touched: Callable[[str], bool],
    rules: Relaxation | None = None,
) -> Known | None:
    """None where the run was recorded without extracting rules."""
    extractors = compile_extractors(run.config.get("rule", ()))
    if not extractors:
        return None

    def load(body: Body) -> Body:
        return body if body.size > VIEW_LIMIT else replace(body, inline=reader.body(body))

    return Known(extractors, reader, episodes, shown=shown, touched=touched, load=load, rules=rules or Relaxation(()))
