"""Which episode a request belongs to: the claims a request makes, and the book of episodes that answers them.

Rules of this file: the first carrier that is present decides, in the order of `CARRIERS`; it is never "the last
episode started". A claim that cannot be honoured (a refused name, a sealed episode, an undeclared one where only
declared are taken) makes the request unattributed with that reason; it never falls through to a weaker carrier,
because a request that named one episode must not land in another.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, replace

from replayproxy.core.names import NAME_BYTES, suggestion, why_not_a_name
from replayproxy.core.values import MAIN_LANE, Episode

CARRIERS = (
    # (field of Claims, name of the carrier as it is stored), strongest first
    ("port_episode", "port"),
    ("prefix", "prefix"),
    ("header", "header"),
    ("baggage", "baggage"),
    ("proxy_user", "proxy-user"),
    ("rule", "rule"),
)

NO_CARRIER = "no carrier"
SEALED = "episode sealed"
UNDECLARED = "undeclared"
REFUSED_NAME = "refused name"
REFUSED_LANE = "refused lane"
PENDING = "not known yet"
PROBE = "probe"

CONTRADICTION = "contradiction"
"""The kind of an event, and how the note of an exchange about one begins."""

LATE = "attributed-late"
"""The note of an exchange whose episode only its answer, or a message, told. A replay cannot know it by its request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """What the carriers of one request hold, each name percent-decoded; None: that carrier is absent.

    A name that could not be decoded, or may not be one, arrives as it is and is refused by the book.
    """

    port_episode: str | None = None
    prefix: str | None = None
    header: str | None = None
    baggage: str | None = None
    proxy_user: str | None = None
    rule: str | None = None
    lane: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """The book's answer. `episode` None: unattributed, and `reason` says why (else it is "").

    `carrier` is what gave the episode (`port`, .., `option`). `opened`: this very request opened the episode, which
    then has no key yet. `lane` is valid in both cases.
    """

    episode: Episode | None
    reason: str
    carrier: str
    lane: str
    opened: bool = False


def why_not_a_lane(lane: str) -> str | None:
    """Why `lane` cannot name a lane; None when it can. Lanes stand in no address, so `/` and `#` are allowed."""
    if any("\ud800" <= char <= "\udfff" for char in lane):
        return "it is not valid UTF-8"
    if len(lane.encode()) > NAME_BYTES:
        return f"it is longer than {NAME_BYTES} bytes"
    if any(unicodedata.category(char).startswith("C") for char in lane):
        return "it contains a control character"
    return None


class EpisodeBook:
    """The episodes of one run: the open ones by name, and the names that are used up.

    `undeclared`: "accept", "refuse", or None for the default: accept until the control API has opened one.
    `option`: the episode of `--episode`; it takes what no carrier claimed, and must be opened like any other.
    """

    def __init__(self, *, undeclared: str | None = None, option: str | None = None) -> None:
        self._open: dict[str, Episode] = {}
        self._sealed: set[str] = set()
        self._policy = undeclared
        self._api_used = False
        self.option = option
        self.aliases: dict[tuple[str, str], str] = {}
        """Ids that rules found, by space and shown value, and the episode that each belongs to for good."""

    def __iter__(self) -> Iterator[Episode]:
        return iter(tuple(self._open.values()))

    def get(self, name: str) -> Episode | None:
        """The open episode of that name."""
        return self._open.get(name)

    def is_sealed(self, name: str) -> bool:
        return name in self._sealed

    def is_taken(self, name: str) -> bool:
        return name in self._open or name in self._sealed

    @property
    def undeclared(self) -> str:
        """What happens to an id first seen in a carrier, now: "accept" or "refuse"."""
        return self._policy or ("refuse" if self._api_used else "accept")

    def reserve(self, names: Iterator[str] | list[str]) -> None:
        """Names that an earlier recording of this run has used: they are taken, and sealed."""
        self._sealed.update(names)

    def open(self, episode: Episode, *, by_api: bool = False) -> None:
        """The caller has asked `is_taken` and `why_not_a_name` before."""
        if self.is_taken(episode.name):
            raise ValueError(f"episode {episode.name!r} is already there")
        self._api_used |= by_api
        self._open[episode.name] = episode

    def update(self, episode: Episode) -> None:
        """Puts a newer value of an open episode in place; one that has ended meanwhile stays ended."""
        if episode.name in self._open:
            self._open[episode.name] = episode

    def end(self, name: str) -> Episode:
        """From now on traffic for it is unattributed. KeyError when it is not open."""
        episode = self._open.pop(name)
        self._sealed.add(name)
        return episode

    def forget(self, name: str) -> None:
        """Takes back an episode that a request opened and the store refused."""
        self._open.pop(name, None)

    def free_name(self, name: str) -> str:
        """The name to try when `name` is taken: NAME-a2, -a3 .."""
        return self._numbered(name, 2)

    def mint(self, task: str | None, attempt: int | None) -> str:
        """A name for an episode that was given none: after its task where it has one."""
        if task is None:
            number = 1
            while self.is_taken(f"e{number}"):
                number += 1
            return f"e{number}"
        return self._numbered(suggestion(task), 1 if attempt is None else max(attempt, 0))

    def _numbered(self, base: str, number: int) -> str:
        while True:
            tail = f"-a{number}"
            while len(base.encode()) + len(tail) > NAME_BYTES:
                base = base[:-1]
            if not self.is_taken(base + tail):
                return base + tail
            number += 1

    def attribute(self, claims: Claims, *, at: int = 0, wall: int = 0) -> Attribution:
        """Answers one request's claims. An episode that it opens is in the book when this returns."""
        lane = claims.lane or MAIN_LANE
        if why := why_not_a_lane(lane):
            return Attribution(episode=None, reason=f"{REFUSED_LANE}: {why}", carrier="", lane=MAIN_LANE)
        for slot, carrier in CARRIERS:
            name: str | None = getattr(claims, slot)
            if name is not None:
                return self._claimed(name, carrier, lane, at, wall)
        if self.option is not None:
            return self._claimed(self.option, "option", lane, at, wall)
        return Attribution(episode=None, reason=NO_CARRIER, carrier="", lane=lane)

    def _claimed(self, name: str, carrier: str, lane: str, at: int, wall: int) -> Attribution:
        found = self._open.get(name)
        if found is not None:
            return Attribution(episode=found, reason="", carrier=carrier, lane=lane)
        if reason := self._why_unattributed(name):
            return Attribution(episode=None, reason=reason, carrier=carrier, lane=lane)
        episode = Episode(key=0, run_key=0, name=name, declared=False, opened=at, opened_wall=wall)
        self.open(episode)
        return Attribution(episode=episode, reason="", carrier=carrier, lane=lane, opened=True)

    def _why_unattributed(self, name: str) -> str:
        if name in self._sealed:
            return SEALED
        if why := why_not_a_name(name):
            return f"{REFUSED_NAME}: {why}"
        # A listener of an episode's own exists only for a declared one, so a port never opens an episode.
        return f"{UNDECLARED}: {name}" if self.undeclared == "refuse" else ""


def with_key(attribution: Attribution, episode: Episode) -> Attribution:
    """The same answer, for the episode as the store knows it."""
    return replace(attribution, episode=episode)
