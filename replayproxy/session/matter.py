"""One exchange while the rules find out whose it is: what is kept of it meanwhile, and what it says in the end."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from replayproxy.core.extract import BODY_LIMIT, NOTHING, Asks, Extracted
from replayproxy.core.identity import LATE, PENDING, Attribution, Claims
from replayproxy.core.values import MAIN_LANE, Body, Episode, Exchange, Log, Message
from replayproxy.proxy.scribe import BodySink, TalkSink

UNNAMED = Attribution(episode=None, reason=PENDING, carrier="", lane=MAIN_LANE)


class Peek:
    """A sink that also holds what the rules are to look at: the bytes as they are, up to the limit."""

    def __init__(self, sink: BodySink) -> None:
        self._sink = sink
        self.size = 0
        self.seen = bytearray()

    def write(self, data: bytes, at: int | None = None) -> None:
        if len(self.seen) <= BODY_LIMIT:
            self.seen += data[: BODY_LIMIT + 1 - len(self.seen)]
        self._sink.write(data, at)
        self.size = self._sink.size

    def close(self) -> Body | None:
        return self._sink.close()


class Overheard:
    """The sink of a conversation, whose messages are looked at as they pass."""

    def __init__(self, sink: TalkSink, heard: Callable[[Message], None]) -> None:
        self._sink, self._heard = sink, heard

    def add(self, message: Message) -> None:
        self._sink.add(message)
        self._heard(message)

    def close(self) -> tuple[tuple[Message, ...], Log | None]:
        return self._sink.close()


@dataclass(slots=True, eq=False)
class Matter:
    """One exchange while it is not known, or not wholly known, whose it is."""

    claims: Claims
    env: str
    method: bytes
    target: bytes
    at: int
    wall: int
    asks: Asks
    found: Extracted = NOTHING
    attribution: Attribution | None = None
    by: str = ""
    """The rule that gave the attribution; "" where no rule did."""
    late: bool = False
    begun: bool = False
    request: Peek | None = None
    answer: Peek | None = None
    request_read: bool = False
    answer_read: bool = False
    notes: dict[str, None] = field(default_factory=dict)


def settled(matter: Matter, exchange: Exchange) -> Exchange:
    """The exchange with what became known of it on its way."""
    assert matter.attribution is not None
    attribution, notes = matter.attribution, [*exchange.notes, *matter.notes]
    if matter.late and attribution.episode is not None and attribution.carrier == "rule":
        notes.append(LATE)
    return replace(
        exchange,
        lane=attribution.lane,
        carrier=attribution.carrier if attribution.episode else attribution.reason,
        notes=tuple(notes),
        is_probe=exchange.is_probe or matter.found.says("probe"),
    )


def fills(matter: Matter, episode: Episode) -> tuple[dict[str, Any], list[str]]:
    """What the exchange says of its episode: the members that change, and what was refused."""
    changes: dict[str, Any] = {}
    refused: list[str] = []
    for one in matter.found.found:
        member = one.rule.fills
        if member not in _READ:
            continue
        value = None if one.redacted else _READ[member](one.value)
        if value is None:
            refused.append(f"rule {one.rule.name}: {one.value[:40]!r} is no {member}")
        elif member == "reward" or changes.get(member, getattr(episode, member)) is None:
            changes[member] = value
        elif changes.get(member, getattr(episode, member)) != value:
            refused.append(f"rule {one.rule.name}: {member} is {value!r} here, and was known already")
    return changes, refused


def _number(text: str) -> int | None:
    bare = text.removeprefix("-")
    return int(text) if bare.isascii() and bare.isdigit() and len(bare) <= 18 else None


def _reward(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


_READ: dict[str, Callable[[str], Any]] = {
    "task": str, "group": str, "seed": _number, "attempt": _number, "reward": _reward,
}  # fmt: skip
