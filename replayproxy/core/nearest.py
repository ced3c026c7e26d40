"""The near miss: which recorded exchanges come nearest to a request that has no answer, and where they first differ.

Rules of this file: `consumed` is said of the very request that was asked, when all its recorded answers have been
given; never of another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice
from typing import Any

from replayproxy.core.script import Entry, Identified, Script
from replayproxy.core.unlike import differences
from replayproxy.core.values import Body

NEAREST = 3
LOOKED_INTO = 12
"""So many candidates have their bodies read, chosen by everything but the body."""


class State(StrEnum):
    CONSUMED = "consumed"  # the same request; every answer recorded for it in that lane has been given
    FREE = "free"  # not yet asked for, in the lane of the request
    OTHER_LANE = "other-lane"  # not yet asked for, in another lane
    ANSWERED = "answered"  # another request, whose answer has been given


@dataclass(frozen=True, slots=True, kw_only=True)
class Near:
    """One recorded exchange near to what was asked. `pointer` None: it is the same request."""

    entry: Entry
    state: State
    pointer: str | None
    recorded: Any
    asked: Any
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """Where a replay stood at the time of a miss: what has been answered (place -> request number), and by order."""

    asked: Identified
    lane: str
    consumers: Mapping[int, int]
    expected: Entry | None = None


def nearest(script: Script, now: Situation, load: Callable[[Body], Body]) -> tuple[Near, ...]:
    """At most `NEAREST`, the nearest first; those already answered (`State.ANSWERED`) only where nothing else is left.

    `load` gives a request body with its bytes.
    """
    candidates = _candidates(script, now)
    rated = sorted(((_distance(entry, now), entry) for entry in candidates), key=lambda pair: (pair[0], pair[1].at))
    near = [_looked_into(script, entry, distance, now, load) for distance, entry in rated[:LOOKED_INTO]]
    near.sort(key=lambda pair: (pair[0], pair[1].entry.at))
    found = [one for _, one in near]
    asked_for = [one for one in found if one.state is not State.ANSWERED]
    chosen = asked_for or found
    return tuple(_with_note(script, one, now) for one in chosen[:NEAREST])


def _candidates(script: Script, now: Situation) -> Iterator[Entry]:
    """The next unanswered exchange of each queue, or the last answered one where none is left."""
    for places in script.queues.values():
        free = next((place for place in places if place not in now.consumers), None)
        yield script.entries[places[-1] if free is None else free]


def _distance(entry: Entry, now: Situation) -> float:
    """How far apart two requests are, their bodies left out."""
    recorded, asked = entry.key, now.asked.key
    path_r, path_a = recorded.path.split(b"/"), asked.path.split(b"/")
    apart = 60.0 * (recorded.env != asked.env) + 25.0 * (recorded.method != asked.method)
    apart += 12.0 * sum(r != a for r, a in zip(path_r, path_a, strict=False)) + 15.0 * abs(len(path_r) - len(path_a))
    apart += 3.0 * len(set(recorded.query or ()) ^ set(asked.query or ()))
    apart += 2.0 * len(set(recorded.fields) ^ set(asked.fields))
    apart += 1.0 * (entry.lane != now.lane) + 0.5 * (entry.at in now.consumers)
    return apart - 0.1 * (entry is now.expected)


def _looked_into(
    script: Script, entry: Entry, distance: float, now: Situation, load: Callable[[Body], Body]
) -> tuple[float, Near]:
    if entry.key == now.asked.key:
        state = State.CONSUMED if entry.at in now.consumers else _where(entry, now)
        return distance, Near(entry=entry, state=state, pointer=None, recorded=None, asked=None)
    recorded = entry.exchange.request
    if recorded.body is not None and recorded.body.inline is None:
        recorded = replace(recorded, body=load(recorded.body))
    found = list(islice(differences(entry.key, recorded, now.asked.key, now.asked.request), 50))
    # What may differ is no reason for the miss, unless nothing else differs: then a binding stands against it.
    found = [one for one in found if one[0] not in may_differ(script, entry)] or found
    inside = sum(1 for pointer, _, _ in found if pointer.startswith("body"))
    pointer, before, after = found[0] if found else ("body", None, None)
    state = State.ANSWERED if entry.at in now.consumers else _where(entry, now)
    return distance + 1.0 * inside, Near(entry=entry, state=state, pointer=pointer, recorded=before, asked=after)


def may_differ(script: Script, entry: Entry) -> frozenset[str]:
    """The places, as differences are named, where an equal request may hold another value: ids of calls, minted
    values, and what a rule takes out."""
    places = {"body" + place for place, _ in entry.ids}
    loose = script.loose.get(entry.at)
    if loose is not None and loose.shape is not None:
        places |= {slot.place for slot in loose.shape.slots if slot.scope}
    if loose is not None and loose.relaxed is not None:
        places |= {place for _, place, _ in loose.relaxed.touched}
    return frozenset(map(_named, places))


def _named(place: str) -> str:
    """`query/a` as a difference calls it, `query.a`; a path's first segment is `path/0`."""
    part, _, rest = place.partition("/")
    if part == "query":
        return f"query.{rest}"
    return place


def _where(entry: Entry, now: Situation) -> State:
    return State.FREE if entry.lane == now.lane else State.OTHER_LANE


def _with_note(script: Script, near: Near, now: Situation) -> Near:
    entry = near.entry
    if near.state is State.CONSUMED:
        places = script.queues[entry.lane, entry.number]
        given = sum(1 for place in places if place in now.consumers)
        lane = "" if entry.lane == now.lane else f", in lane {entry.lane}"
        last = now.consumers[entry.at]
        return replace(
            near, note=f"same request{lane}; {len(places)} recorded, {given} served (the last to request {last})"
        )
    if near.pointer is not None:
        return near
    if near.state is State.OTHER_LANE:
        return replace(near, note=f"same request, in lane {entry.lane}: lane mark missing?")
    return replace(near, note="same request, but it is not the next of its lane (--order strict)")
