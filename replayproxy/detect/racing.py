"""Two requests sent one after the other and together: whether what came of them together is the outcome of an order.

An outcome is how the environment answered each and what the state was afterwards, but for what differs lawfully from
one time to the next: instants, fresh ids, the numbering of what was made. What is one of the serial outcomes, or less
than one (a request refused under load that did nothing), is lawful; anything else no order of the two explains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import product
from typing import Any

from replayproxy.core import jsonvalue
from replayproxy.core.renaming import is_digest, owners
from replayproxy.core.times import parse_text
from replayproxy.core.tokens import FRESH_BITS, bits
from replayproxy.detect.normal import normal
from replayproxy.detect.racing_effect import Effect, Item, same_effect


class Fate(StrEnum):
    GRANTED = "granted"
    REFUSED = "refused"  # the contract says: no effect
    OPEN = "open"  # it may or may not have acted: 5xx, no whole answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request's answer. `told`: the scalars of its document, by pointer."""

    status: int | None
    fate: Fate
    told: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of A and B. `effect` None: no snapshot shows it. `first`: of a serial order, what the first one alone
    had done."""

    a: Call
    b: Call
    effect: Effect | None = None
    first: Effect | None = None

    @property
    def fates(self) -> tuple[Fate, Fate]:
        return self.a.fate, self.b.fate

    @property
    def statuses(self) -> str:
        return ", ".join("no answer" if c.status is None else str(c.status) for c in (self.a, self.b))


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomaly:
    """Why no order gives an outcome. `expected` and `found` are the two values a reader is shown, at `pointer`."""

    sub: str
    pointer: str
    expected: str
    found: str

    @property
    def loses(self) -> bool:
        return self.sub in ("lost-update", "lost-write")


def fate_of(status: int | None) -> Fate:
    """By the status of a whole answer; None: there was none."""
    if status is None or status >= 500 or status in (202, 408, 425):
        return Fate.OPEN
    return Fate.GRANTED if status < 400 else Fate.REFUSED


# -- judging -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Serial:
    """What the two orders give. `ab` and `ba` may hold several outcomes: the same order, sent again as a control."""

    ab: Sequence[Outcome]
    ba: Sequence[Outcome]

    @property
    def all(self) -> list[Outcome]:
        return [*self.ab, *self.ba]

    def unsteady(self) -> str:
        """Why nothing can be said against it; "" where each order came out the same each time and was answered."""
        for name, outcomes in (("A then B", self.ab), ("B then A", self.ba)):
            if any(Fate.OPEN in one.fates for one in outcomes):
                return f"{name} was answered {outcomes[0].statuses}: whether it acted is not known"
            if len({one.statuses for one in outcomes}) > 1:
                return f"{name} is answered now {outcomes[0].statuses}, now {outcomes[-1].statuses}"
            first = outcomes[0].effect
            if first is not None and not all(o.effect is not None and same_effect(first, o.effect) for o in outcomes):
                return f"{name} leaves another state each time: the environment is not deterministic here"
        return ""

    def alone(self) -> dict[str, Effect | None]:
        """What each of the two does by itself, and what neither does."""
        return {"a": self.ab[0].first, "b": self.ba[0].first, "": frozenset()}

    def lawful(self, fates: tuple[Fate, Fate]) -> list[Effect | None] | None:
        """The effects that may go with such answers; None: no order answers so.

        One granted and the other refused under load, which then did nothing, is lawful too, and so is neither.
        """
        found: list[Effect | None] = []
        possible = False
        alone = self.alone()
        for pattern in product(*((Fate.GRANTED, Fate.REFUSED) if one is Fate.OPEN else (one,) for one in fates)):
            effects = [outcome.effect for outcome in self.all if outcome.fates == pattern]
            granted = [name for name, fate in zip("ab", pattern, strict=True) if fate is Fate.GRANTED]
            if not granted:
                effects.append(alone[""])
            elif len(granted) == 1 and self._grants_first(granted[0]):
                effects.append(alone[granted[0]])
            possible = possible or bool(effects)
            found += effects
        return found if possible else None

    def _grants_first(self, which: str) -> bool:
        return (self.ab[0].a if which == "a" else self.ba[0].b).fate is Fate.GRANTED


def anomaly(serial: Serial, one: Outcome) -> Anomaly | None:
    """Why no order of the two explains an outcome of both together; None: one does."""
    lawful = serial.lawful(one.fates)
    orders = " or ".join(dict.fromkeys(outcome.statuses for outcome in serial.all))
    if lawful is None:
        twice = one.fates == (Fate.GRANTED, Fate.GRANTED)
        return Anomaly(sub="double-claim" if twice else "neither-order", pointer=_claimed(serial), expected=orders,
                       found=one.statuses)  # fmt: skip
    known = [effect for effect in lawful if effect is not None]
    left = one.effect
    if left is None or any(same_effect(effect, left) for effect in known):
        return None
    nearest = min(known, key=lambda effect: len(effect ^ left)) if known else frozenset()
    pointer, expected, found = _first_difference(nearest, left)
    return Anomaly(sub=_sub(serial, one.fates, left, nearest), pointer=pointer, expected=expected, found=found)


def _sub(serial: Serial, fates: tuple[Fate, Fate], left: Effect, nearest: Effect) -> str:
    alone = [effect for which, effect in serial.alone().items() if which and effect is not None]
    both = [one.effect for one in serial.all if one.fates == (Fate.GRANTED, Fate.GRANTED) and one.effect is not None]
    if fates == (Fate.GRANTED, Fate.GRANTED) and any(same_effect(effect, left) for effect in alone):
        return "lost-update"
    if Fate.GRANTED in fates and not left:
        return "lost-write"
    if Fate.REFUSED in fates and any(same_effect(effect, left) for effect in both):
        return "refused-yet-done"
    if _made(left) > _made(nearest):
        return "refused-yet-done" if Fate.REFUSED in fates else "duplicate"
    return "neither-order"


def _made(effect: Effect) -> int:
    return sum(count for item, count in effect if item[0] == "+")


def _claimed(serial: Serial) -> str:
    """The cell that the first of the two took, as a pointer into the state."""
    first = serial.ab[0].first or serial.ba[0].first or frozenset()
    cells = sorted(item for item, _ in first if item[0] == "=") or sorted(item for item, _ in first)
    return _pointer(cells[0]) if cells else ""


def _pointer(item: Item) -> str:
    if item[0] == "+":
        return jsonvalue.pointer(item[1])
    return jsonvalue.pointer(*(part for part in item[1:4] if part))


def _first_difference(expected: Effect, found: Effect) -> tuple[str, str, str]:
    """(pointer, what an order would have left, what is there) of the first item on which they disagree."""
    apart = sorted(
        {item[:4] if item[0] == "=" else item for item, _ in expected ^ found}, key=lambda i: (i[0] != "=", i)
    )
    first = apart[0]
    return _pointer(first), _at(expected, first), _at(found, first)


def _at(effect: Effect, item: Item) -> str:
    for known, count in effect:
        if known[: len(item)] == item:
            if item[0] == "=":
                return known[4]
            return f"{count} x {item[2]}" if item[0] == "+" else "deleted"
    return {"=": "(not changed)", "+": "0 of it", "-": "(still there)"}[item[0]]


def repeated(serial: Serial, together: Sequence[Outcome]) -> list[tuple[str, str, str] | None]:
    """For each outcome of both together: a value that both answers give and that no order gives to both, as (pointer,
    what an order gives, what both were given); None: there is none.

    An id that the environment mints is enough by itself. Another value counts only where every answer ever seen, alone
    and together, had one of the values of the serial orders: else it changes for reasons of its own.
    """
    pointers = [
        at for at in sorted(set.intersection(*({*o.a.told} & {*o.b.told} for o in serial.all)))
        if all(o.fates == (Fate.GRANTED, Fate.GRANTED) and normal(o.a.told[at]) != normal(o.b.told[at])
               for o in serial.all)
        and (_is_id(serial, at) or _is_steady(serial, together, at))
    ]  # fmt: skip
    found: list[tuple[str, str, str] | None] = []
    for one in together:
        both = one.fates == (Fate.GRANTED, Fate.GRANTED)
        at = next((at for at in pointers if both and at in one.a.told and at in one.b.told
                   and normal(one.a.told[at]) == normal(one.b.told[at])), None)  # fmt: skip
        if at is None:
            found.append(None)
        else:
            first = serial.ab[0]
            found.append((at, f"{first.a.told[at]}, {first.b.told[at]}", f"{one.a.told[at]}, {one.b.told[at]}"))
    return found


def _is_id(serial: Serial, at: str) -> bool:
    """Whether the place is one of an id by its name, and its values by their form: no instant, no digest, nothing that
    two may lawfully be given in one millisecond."""
    place = jsonvalue.tokens(at)
    nouns, defines = owners(place, "/")
    if not (nouns or defines) or is_digest(place[-1]):
        return False
    values = [call.told[at] for one in serial.all for call in (one.a, one.b)]
    return all(isinstance(v, str) and bits(v) >= FRESH_BITS and parse_text(v) is None for v in values)


def _is_steady(serial: Serial, together: Sequence[Outcome], at: str) -> bool:
    lawful = {normal(call.told[at]) for o in serial.all for call in (o.a, o.b)}
    if len({(normal(o.a.told[at]), normal(o.b.told[at])) for o in serial.ab}) != 1 or len(serial.ab) < 2:
        return False
    seen = [call.told[at] for o in together for call in (o.a, o.b) if call.fate is Fate.GRANTED and at in call.told]
    return all(normal(value) in lawful for value in seen)
