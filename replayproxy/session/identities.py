"""What the extracting rules tell the recorder: each exchange's ids as they come, and what follows from them.

Rules of this file: an exchange is decided as early as its ids allow, and once; what is found later joins it, or
contradicts and is reported. Ids are looked for in the bytes of the wire, before anything is redacted; a secret one is
kept by its token.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from replayproxy.core.belonging import Alias, Decision, alias_of, decide
from replayproxy.core.extract import Extracted, Extractors, Found
from replayproxy.core.identity import (
    CONTRADICTION,
    PROBE,
    Attribution,
    Claims,
    EpisodeBook,
    why_not_a_lane,
)
from replayproxy.core.names import suggestion
from replayproxy.core.values import MAIN_LANE, Episode, Exchange, Fields, Message
from replayproxy.proxy.scribe import BodySink
from replayproxy.session.matter import Matter, Peek

ALIASES_KEPT = 1000
"""Ids kept with one episode; more are known while recording, and not in replay."""


class Identities:
    """The rules of one recording. `shown` gives the token of a secret value."""

    def __init__(self, extractors: Extractors, book: EpisodeBook, shown: Callable[[str], str]) -> None:
        self.extractors, self._book, self._shown = extractors, book, shown
        self.uses: Counter[str] = Counter()
        self.too_large = 0
        self._connections: set[Alias] = set()
        self._minted = 0

    # -- what an exchange shows ----------------------------------------------------------------------------------

    def arrived(
        self, claims: Claims, *, env: str, method: bytes, target: bytes, fields: Fields, at: int, wall: int
    ) -> Matter:
        """The head of a request is here."""
        matter = Matter(
            claims=claims, env=env, method=method, target=target, at=at, wall=wall,
            asks=self.extractors.asks(env, method, target),
        )  # fmt: skip
        self._add(matter, self.extractors.of_request(env, method, target, fields, None))
        waits = matter.asks.body_names
        if not waits or _is_strong(claims):
            self._decide(matter, last=not matter.asks.later)
        return matter

    def peek(self, matter: Matter, sink: BodySink, *, answer: bool) -> BodySink:
        """The sink of a body, watched where a rule asks for it."""
        if not (matter.asks.answer_body if answer else matter.asks.body):
            return sink
        peek = Peek(sink)
        if answer:
            matter.answer = peek
        else:
            matter.request = peek
        return peek

    def request_whole(self, matter: Matter, fields: Fields) -> None:
        """The request has ended."""
        if not matter.request_read:
            matter.request_read = True
            body = bytes(matter.request.seen) if matter.request else b""
            self._add(matter, self.extractors.of_request(matter.env, matter.method, matter.target, fields, body))
        self._decide(matter, last=not matter.asks.later)

    def answer_whole(self, matter: Matter, exchange: Exchange) -> None:
        """The answer has ended, if there is one, and whatever followed it."""
        if not matter.request_read:
            self.request_whole(matter, exchange.request.fields)
        if not matter.answer_read:
            matter.answer_read = True
            matter.late = matter.late or matter.attribution is None
            self._read_answer(matter, exchange)
        self._decide(matter, last=True, connected=exchange.websocket is not None)

    def _read_answer(self, matter: Matter, exchange: Exchange) -> None:
        if exchange.response is not None and matter.asks.answer:
            body = bytes(matter.answer.seen) if matter.answer else b""
            fields = exchange.response.fields
            found = self.extractors.of_answer(matter.env, matter.method, matter.target, fields, body)
            self._add(matter, found)

    def overheard(self, matter: Matter, message: Message) -> None:
        """One message of a conversation has passed: the first that names it decides whose it is."""
        said = self.extractors.of_frame(matter.env, matter.target, message.payload, message.from_agent)
        if not said:
            return
        matter.late = matter.late or matter.attribution is None
        before = matter.found.aliases
        self._add(matter, self._one_name(matter, said))
        for one in matter.found.aliases[len(before) :]:
            alias = alias_of(one, self._shown)
            if alias in self._connections:
                matter.notes[f"{CONTRADICTION}: rule {one.rule.name}: two connections say {alias[1]}"] = None
            self._connections.add(alias)
        self._decide(matter, last=False)

    def _add(self, matter: Matter, found: Extracted) -> None:
        before = len(matter.found.found)
        matter.found += found
        self.uses.update(one.rule.name for one in matter.found.found[before:])
        if found.too_large and "body-too-large-for-rules" not in matter.notes:
            matter.notes["body-too-large-for-rules"] = None
            self.too_large += 1

    def _one_name(self, matter: Matter, said: Extracted) -> Extracted:
        """A connection is named by the first message that names it; another name is told, and joins nothing."""
        kept = []
        for one in said.found:
            names = one.rule.fills in ("alias", "episode")
            first = next((each for each in matter.found.found if each.rule is one.rule), one) if names else one
            if first.value != one.value:
                matter.notes[f"{CONTRADICTION}: rule {one.rule.name}: one connection says two names"] = None
            else:
                kept.append(one)
        return replace(said, found=tuple(kept))

    # -- whose it is ---------------------------------------------------------------------------------------------

    def _decide(self, matter: Matter, *, last: bool, connected: bool = False) -> None:
        self._lane(matter)
        owner = self._owner_open if _is_strong(matter.claims) else self._owner
        decision = decide(matter.claims, matter.found, owner, self._shown)
        if matter.attribution is not None:
            self._follow(matter, decision)
            return
        name = decision.name
        if name is None:
            if matter.found.says("probe"):
                lane = matter.claims.lane or MAIN_LANE
                matter.attribution = Attribution(episode=None, reason=PROBE, carrier="", lane=lane)
                return
            if decision.unknown:
                name = self._fresh(decision.unknown[0])
                matter.by = decision.unknown[0][1].rule.name
            elif not last:
                return
            elif connected and (rule := next((r for r in matter.asks.frames), None)) is not None:
                name = self._mint(rule.name)
                matter.by = rule.name
        elif decision.carrier.startswith("rule "):
            matter.by = decision.carrier.removeprefix("rule ")
        claims = matter.claims if name is None else replace(matter.claims, rule=name)
        matter.attribution = self._book.attribute(claims, at=matter.at, wall=matter.wall)
        self._follow(matter, decision)

    def _lane(self, matter: Matter) -> None:
        """A rule's lane, where no mark gave one; the body of a request may tell it after its episode is known."""
        lane = matter.found.lane
        if matter.claims.lane is not None or lane is None:
            return
        matter.claims = replace(matter.claims, lane=lane)
        if matter.attribution is not None and (why := why_not_a_lane(lane)) is None:
            matter.attribution = replace(matter.attribution, lane=lane)
        elif matter.attribution is not None:
            matter.notes[f"refused lane: {why}"] = None

    def _follow(self, matter: Matter, decision: Decision) -> None:
        """New ids join the episode; other episodes that were named are told."""
        assert matter.attribution is not None
        episode = matter.attribution.episode
        if episode is None:
            return
        for alias, _ in decision.unknown:
            self._book.aliases[alias] = episode.name
        others = [(who, name) for who, name in (*decision.rivals, (decision.carrier, decision.name))
                  if name is not None and name != episode.name]  # fmt: skip
        carrier = matter.attribution.carrier
        winner = f"rule {matter.by}" if carrier == "rule" and matter.by else carrier
        for who, name in others:
            matter.notes[f"{CONTRADICTION}: {winner} says {episode.name}, {who} says {name}"] = None

    def _owner(self, alias: Alias) -> str | None:
        owner = self._book.aliases.get(alias)
        if owner is None and (declared := self._book.get(alias[1])) is not None and declared.declared:
            return alias[1]  # a harness that opened its episode under the id that the agent then sends
        return owner

    def _owner_open(self, alias: Alias) -> str | None:
        """Beside a mark, an id whose episode has ended passes on to the one marked: a key outlives its rollouts."""
        owner = self._owner(alias)
        return None if owner is None or self._book.is_sealed(owner) else owner

    def _fresh(self, unknown: tuple[Alias, Found]) -> str:
        """A name for an episode of which only this id is known."""
        alias, one = unknown
        name = f"{one.rule.name}-{alias[1][-12:]}" if one.rule.secret else alias[1]
        name = suggestion(name)
        return self._book.free_name(name) if self._book.is_taken(name) else name

    def _mint(self, rule: str) -> str:
        while True:
            self._minted += 1
            name = suggestion(f"{rule}-{self._minted}")
            if not self._book.is_taken(name):
                return name

    def new_aliases(self, matter: Matter, episode: Episode) -> tuple[Alias, ...]:
        """The episode's ids, with those of this exchange, where they differ from what it has."""
        mine = [
            alias
            for alias, _ in decide(Claims(), matter.found, lambda _: None, self._shown).unknown
            if self._book.aliases.get(alias) == episode.name
        ]
        return tuple(dict.fromkeys((*episode.aliases, *mine)))[:ALIASES_KEPT]


def _is_strong(claims: Claims) -> bool:
    return any((claims.port_episode, claims.prefix, claims.header, claims.baggage, claims.proxy_user))
