"""Whether operations side by side can be put in one order that a simple machine allows: exact, and so only for a few.

Wing and Gong's search with Lowe's memory of what was tried: an operation may come next if none that is left had ended
before it began. One thing at a time is searched (histories of independent things are independent). An operation whose
answer never came may be put anywhere after its beginning, or nowhere. More than `MOST` at once is not tried: the answer
is then `None`, and nobody may make a finding of that.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

MOST = 12
"""Operations under way at the same time, beyond which nothing is said."""

MOST_STATES = 200_000
"""States that are tried; a search that needs more says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """`act` and what it was answered, as the machine understands them. `open`: its answer never came."""

    inv: int
    end: int
    act: str
    asked: Any = None
    answered: Any = None
    open: bool = False


type Machine = Callable[[Hashable, Call], Hashable | None]
"""The state after the call; None: it cannot have been answered so. For an open call `answered` says nothing."""


def linearizable(calls: Sequence[Call], start: Hashable, machine: Machine) -> bool | None:
    """Whether some order explains all answers; None: too many were under way at once to say."""
    if widest(calls) > MOST:
        return None
    ordered = sorted(calls, key=lambda call: call.inv)
    everything = frozenset(index for index, call in enumerate(ordered) if not call.open)
    seen: set[tuple[frozenset[int], Hashable]] = set()
    stack: list[tuple[frozenset[int], Hashable]] = [(frozenset(), start)]
    while stack:
        done, state = stack.pop()
        if everything <= done:
            return True
        if (done, state) in seen:
            continue
        seen.add((done, state))
        if len(seen) > MOST_STATES:
            return None
        left = [(index, call) for index, call in enumerate(ordered) if index not in done]
        until = min(call.end for _, call in left if not call.open)
        for index, call in left:
            if call.inv > until:
                break
            after = machine(state, call)
            if after is not None:
                stack.append((done | {index}, after))
    return False


def widest(calls: Sequence[Call]) -> int:
    """The most calls that were under way at one time; what never ended counts for ever."""
    marks = sorted([(call.inv, 1) for call in calls] + [(call.end, 2) for call in calls if not call.open])
    now = most = 0
    for _, what in marks:
        now += 1 if what == 1 else -1
        most = max(most, now)
    return most


# Machines


def register(state: Hashable, call: Call) -> Hashable | None:
    """`write` sets what was asked; `read` is answered with what is there."""
    if call.act == "write":
        return call.asked  # type: ignore[no-any-return]
    return state if call.open or call.answered == state else None


def slot(state: Hashable, call: Call) -> Hashable | None:
    """State: the holder, "" nobody. `claim` by `asked` is answered whether it was granted: it is where nobody holds it,
    or the same one. `release` sets it free. `read` is answered with the holder."""
    if call.act == "release":
        return ""
    if call.act == "read":
        return state if call.open or call.answered == state else None
    free = state in ("", call.asked)
    if call.open:
        return call.asked if free else state
    if bool(call.answered) != free:
        return None
    return call.asked if free else state


def places(room: int) -> Machine:
    """State: how many of `room` places are taken. A `claim` is answered whether it was granted."""

    def machine(state: Hashable, call: Call) -> Hashable | None:
        assert isinstance(state, int)
        if call.act == "release":
            return max(0, state - 1)
        if call.act == "read":
            return state if call.open or call.answered == state else None
        free = state < room
        if not call.open and bool(call.answered) != free:
            return None
        return state + 1 if free else state

    return machine


def counter(state: Hashable, call: Call) -> Hashable | None:
    """`add` adds what was asked, and is answered with the sum (None: with nothing); `read` with the number."""
    assert isinstance(state, int)
    after = state + call.asked if call.act == "add" else state
    return after if call.open or call.answered in (None, after) else None


def members(state: Hashable, call: Call) -> Hashable | None:
    """State: a frozenset. `add` and `remove` are answered whether they changed it; `read` with the set."""
    assert isinstance(state, frozenset)
    if call.act == "read":
        return state if call.open or call.answered == state else None
    after = state | {call.asked} if call.act == "add" else state - {call.asked}
    return after if call.open or call.answered in (None, after != state) else None
