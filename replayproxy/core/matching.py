"""The order in which a replay looks for the answer to a request, and what it binds on the way.

Rules of this file: what is equal comes first, then what is equal after known bindings, then what can be bound, then
what a rule allows, then what a rule lets repeat; never anything of another lane. A binding is injective for the whole
episode: what would break it is no match, and the miss says so.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from enum import StrEnum
from itertools import chain
from typing import NamedTuple

from replayproxy.core.callids import differing, replay_key
from replayproxy.core.canonical import field
from replayproxy.core.mint import Renames, json_text
from replayproxy.core.nonces import CREDENTIALS, VALUES, Binding, Clash, Renaming, Slot
from replayproxy.core.script import NOT_LOOSE, Entry, Identified, Queue, Script


class Grade(StrEnum):
    """How near a request was to the recorded one that answered it."""

    EXACT = "exact"
    CANONICAL = "canonical"
    RELAXED = "relaxed"  # by a rule
    REPEAT = "repeat"  # by a rule


class Order(StrEnum):
    """`LANE`: the next of its key in its lane. `STRICT`: the next of its lane, whatever it is."""

    LANE = "lane"
    STRICT = "strict"


# An attribute of an enumeration costs more than a name of the module.
_EXACT, _CANONICAL, _BY_LANE = Grade.EXACT, Grade.CANONICAL, Order.LANE


class Found(NamedTuple):
    """An entry that may answer, and what serving it means: bindings that are new, rules that were needed."""

    entry: Entry
    grade: Grade
    new: dict[Slot, str]
    rules: tuple[str, ...] = ()


class Unmatched(NamedTuple):
    """`expected`: what `--order strict` would have taken. `clash`: which binding stood against a request of this
    form."""

    expected: Entry | None
    clash: str


class Matcher:
    """The search of one replay. `consumer`: by place in the script, the number of the request it was given to."""

    def __init__(self, script: Script, order: Order) -> None:
        self._script = script
        self._order = order
        self.consumer: dict[int, int] = {}
        self.renaming = Renaming()
        self.uses: dict[str, int] = {rule.name: 0 for rule in script.rules.rules}
        self.named: dict[tuple[str, str], str] = {}
        self._next: dict[object, int] = {}
        self._kept = array("q")

    def set_aside(self, emptied: Script) -> None:
        """Nothing is asked until `go_on`: what was claimed is kept in sixteen bytes each, and of the script what
        `emptied` is."""
        self._kept = array("q", chain.from_iterable(self.consumer.items()))
        self.consumer.clear()
        self._next.clear()  # positions in queues that will be others; they are found again
        self._script = emptied

    def go_on(self, script: Script) -> None:
        """With the same script, read again: what was claimed stays claimed."""
        self._script = script
        self.consumer.update(zip(self._kept[::2], self._kept[1::2], strict=True))
        self._kept = array("q")

    def find(self, asked: Identified, lane: str) -> Found | Unmatched:
        """What answers the request; nothing is claimed yet."""
        entry, expected = self.head(asked, lane)
        found: Found | Clash | None = None if entry is None else self._equal(entry, asked)
        if not isinstance(found, Found):
            loosened = asked if asked.loose is not None else self._script.loosened(asked)
            found = self._loosely(loosened, lane, expected) or found
        if isinstance(found, Found):
            return found
        return Unmatched(expected, "" if found is None else found.text)

    def equal(self, asked: Identified, lane: str, number: int) -> Entry | None:
        """The next of its key, claimed, where nothing has to be bound or told apart: nearly always, and at little cost.
        None: ask `find`."""
        entry = self.next_equal(asked, lane)
        if entry is not None:
            self.take(entry, asked, lane, number)
        return entry

    def next_equal(self, asked: Identified, lane: str) -> Entry | None:
        """The entry that `equal` would claim."""
        if self._order is not _BY_LANE:
            return None
        slot = (lane, asked.number)
        queue = self._script.queues.get(slot)
        position = self._next.get(slot, 0)
        if queue is None or position >= len(queue):
            return None
        place = queue[position]
        entry = self._script.entries[place]
        if place in self.consumer or place in self._script.loose or (entry.ids and entry.exact != asked.exact):
            return None
        return entry

    def take(self, entry: Entry, asked: Identified, lane: str, number: int) -> None:
        """Claims what `next_equal` gave."""
        self.consumer[entry.at] = number
        slot = (lane, asked.number)
        self._next[slot] = self._next.get(slot, 0) + 1

    def claim(self, found: Found, number: int) -> None:
        """The entry is given to the request of that number."""
        if found.grade is not Grade.REPEAT:
            self.consumer[found.entry.at] = number
        for rule in found.rules:
            self.uses[rule] += 1
        if found.new:
            self.renaming.bind(found.new, found.entry.seq)
            for slot, live in found.new.items():
                self.named.update(_small_names(slot, live))

    def head(self, asked: Identified, lane: str) -> tuple[Entry | None, Entry | None]:
        """The next of its key that has not been given; and, in strict order, what stands before it."""
        script = self._script
        by_key = self._order is _BY_LANE
        slot: Queue | str = (lane, asked.number) if by_key else lane
        queue = script.queues.get((lane, asked.number), ()) if by_key else script.lanes.get(lane, ())
        position = self._first(slot, queue)
        if position >= len(queue):
            return None, None
        entry = script.entries[queue[position]]
        if entry.number != asked.number:
            return None, entry
        if entry.ids and by_key and entry.exact != asked.exact:
            return self._same_ids(queue[position:], asked), None
        return entry, None

    def _first(self, slot: object, queue: Sequence[int]) -> int:
        """The first position in a queue that has not been given."""
        position = self._next.get(slot, 0)
        while position < len(queue) and queue[position] in self.consumer:
            position += 1
        self._next[slot] = position
        return position

    def _same_ids(self, queue: Sequence[int], asked: Identified) -> Entry:
        """Of equal calls that were made at once, the one with the very ids; else the first."""
        first = self._script.entries[queue[0]]
        times = first.exchange.times
        ended = times.c_out or times.up_end
        for place in queue[1:]:
            other = self._script.entries[place]
            if ended is not None and other.exchange.times.head >= ended:
                break
            if other.exact == asked.exact and place not in self.consumer:
                return other
        return first

    def _equal(self, entry: Entry, asked: Identified) -> Found | Clash:
        """The entry for an equal request: every minted value in it stands for itself, if it does not stand for
        another already."""
        grade = _EXACT if entry.exact == asked.exact else _CANONICAL
        loose = self._script.loose.get(entry.at)
        if loose is None or loose.shape is None:
            return Found(entry, grade, {})
        new = self.renaming.unify(loose.shape.slots, loose.shape.slots)
        return new if isinstance(new, Clash) else Found(entry, grade, new)

    def _loosely(self, asked: Identified, lane: str, expected: Entry | None) -> Found | Clash | None:
        """What is left after known bindings, after new ones, by rules, and at last by repetition."""
        script, loose = self._script, asked.loose or NOT_LOOSE
        clash: Clash | None = None
        if loose.shape is not None:
            found = self._unified(script.shapes.get((lane, loose.shape.key), ()), loose.shape.slots, expected, lane)
            if isinstance(found, Found):
                return found
            clash = found
        if loose.relaxed is not None:
            shape = loose.relaxed.shape
            found = self._unified(script.relaxed.get((lane, shape.key), ()), shape.slots, expected, lane, ruled=True)
            if isinstance(found, Found):
                recorded = script.loose[found.entry.at].relaxed
                rules = tuple(recorded.used(loose.relaxed)) if recorded is not None else ()
                return found._replace(grade=Grade.RELAXED if rules else _CANONICAL, rules=rules)
            clash = clash or found
        return self._repeated(asked, lane) or clash

    def _unified(
        self, queue: Sequence[int], live: Sequence[Slot], expected: Entry | None, lane: str, *, ruled: bool = False
    ) -> Found | Clash | None:
        """The first of a queue that needs no new binding; else the first that can be bound."""
        clash: Clash | None = None
        bindable: Found | None = None
        known = self.renaming.knows(live)
        strict = self._order is not _BY_LANE
        slot = ("ruled" if ruled else "shape", id(queue))
        for place in queue[self._first(slot, queue) :]:
            if place in self.consumer or (strict and (expected is None or place != expected.at)):
                continue
            loose = self._script.loose[place]
            shape = loose.relaxed.shape if ruled and loose.relaxed else loose.shape
            assert shape is not None
            new = self.renaming.unify(shape.slots, live)
            if isinstance(new, Clash):
                clash = clash if clash and clash.text else new
            elif not new or not known:
                return Found(self._script.entries[place], _CANONICAL, new)
            else:
                bindable = bindable or Found(self._script.entries[place], _CANONICAL, new)
        return bindable or clash

    def _repeated(self, asked: Identified, lane: str) -> Found | None:
        """The last answer once more, where a rule says so and every answer has been given."""
        script, relaxed = self._script, (asked.loose or NOT_LOOSE).relaxed
        queue = script.queues.get((lane, asked.number)) or (
            script.relaxed.get((lane, relaxed.shape.key)) if relaxed is not None else None
        )
        if not queue or not script.rules or any(place not in self.consumer for place in queue):
            return None
        rule = script.rules.repeats(asked.request)
        return None if rule is None else Found(script.entries[queue[-1]], Grade.REPEAT, {}, (rule.name,))

    def renames(self, entry: Entry, asked: Identified) -> tuple[Renames | None, tuple[Binding, ...]]:
        """The live values for this answer; and the bindings that are to be listed if it holds them."""
        ids: dict[str, str] = {}
        if entry.ids and entry.exact != asked.exact:
            live = asked.ids if asked.ids is not None else replay_key(asked.env, asked.request)[1]
            for place, was, now in differing(entry.ids, live):
                ids[was] = now
                self.renaming.note(_binding(entry, was, now, "body" + place, "json-rpc"))
        echoes = []
        for name, was in entry.echoes:
            now = (field(asked.heard.fields, name) or b"").decode("latin-1")
            if now and now != was:
                echoes.append(_binding(entry, was, now, "header/" + name.decode("latin-1"), "echo"))
        tokens = self.renaming.tokens
        if echoes:
            tokens = tokens | {one.recorded: one.live for one in echoes}
        return Renames(tokens=tokens, ids=ids, named=self.named) or None, tuple(echoes)


def _binding(entry: Entry, recorded: str, live: str, place: str, scope: str) -> Binding:
    return Binding(recorded=recorded, live=live, exchange=entry.seq, place=place, scope=scope)


_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?\Z")


def _small_names(slot: Slot, live: str) -> dict[tuple[str, str], str]:
    """How a value that a rule binds may stand in an answer: as a JSON scalar under the same name."""
    names = [part for part in slot.place.split("/")[1:] if part and not part.isdigit()]
    if not names or slot.value == live or slot.scope in (VALUES, CREDENTIALS):
        return {}
    found = {(names[-1], json_text(slot.value)): json_text(live)}
    if _NUMBER.match(slot.value) and _NUMBER.match(live):
        found[names[-1], slot.value] = live
    return found
