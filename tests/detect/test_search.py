"""The search for an order: exact on small histories of four machines, silent beyond its limit."""

from __future__ import annotations

import random
from collections.abc import Hashable, Sequence
from itertools import permutations

import pytest

from replayproxy.detect.search import (
    MOST,
    Call,
    Machine,
    counter,
    linearizable,
    members,
    places,
    register,
    slot,
    widest,
)


def call(act: str, asked: object = None, answered: object = None, inv: int = 0, end: int = 10, **more: bool) -> Call:
    return Call(inv=inv, end=end, act=act, asked=asked, answered=answered, **more)


@pytest.mark.parametrize(
    ("machine", "start", "good", "bad"),
    [
        (slot, "", [call("claim", "a", True), call("claim", "b", False)],
         [call("claim", "a", True), call("claim", "b", True)]),
        (slot, "", [call("claim", "a", True), call("release"), call("claim", "b", True)],
         [call("claim", "a", True, end=1), call("claim", "b", True, inv=2), call("release", inv=20, end=30)]),
        (slot, "", [call("claim", "a", True), call("claim", "a", True)],
         [call("claim", "a", False), call("read", None, "")]),
        (places(2), 0, [call("claim", 1, True), call("claim", 2, True), call("claim", 3, False)],
         [call("claim", 1, True), call("claim", 2, True), call("claim", 3, True)]),
        (counter, 0, [call("add", 1, 1), call("add", 1, 2)], [call("add", 1, 1), call("add", 1, 1)]),
        (counter, 0, [call("add", 5, open=True), call("read", None, 0), call("read", None, 5)],
         [call("add", 5, open=True), call("read", None, 10)]),
        (members, frozenset(), [call("add", "a", True), call("add", "a", False)],
         [call("add", "a", True), call("add", "a", True)]),
        (register, "0", [call("write", "1"), call("read", None, "0")],
         [call("write", "1", end=1), call("read", None, "0", inv=2)]),
    ],
)  # fmt: skip
def test_each_machine_allows_what_is_in_order_and_forbids_what_is_not(
    machine: Machine, start: Hashable, good: list[Call], bad: list[Call]
) -> None:
    assert linearizable(good, start, machine) is True
    assert linearizable(bad, start, machine) is False


def test_beyond_its_limit_it_says_nothing() -> None:
    crowd = [call("claim", str(n), True) for n in range(MOST + 1)]
    assert widest(crowd) == MOST + 1
    assert linearizable(crowd, "", slot) is None
    apart = [call("claim", "a", True, inv=20 * n, end=20 * n + 5) for n in range(MOST + 9)]
    assert linearizable(apart, "", slot) is True


def by_force(calls: Sequence[Call], start: Hashable, machine: Machine) -> bool:
    """All orders of all calls, with each set of the open ones."""
    closed, free = [c for c in calls if not c.open], [c for c in calls if c.open]
    for mask in range(2 ** len(free)):
        chosen = [*closed, *(c for n, c in enumerate(free) if mask >> n & 1)]
        for order in permutations(chosen):
            if any(not b.open and b.end < a.inv for n, a in enumerate(order) for b in order[n + 1 :]):
                continue
            state: Hashable | None = start
            for one in order:
                state = machine(state, one)
                if state is None:
                    break
            else:
                return True
    return False


def test_it_agrees_with_all_orders_tried_one_by_one() -> None:
    wrong = 0
    for seed in range(2000):
        rng = random.Random(seed)
        calls = []
        for _ in range(rng.randint(2, 5)):
            inv = rng.randint(0, 20)
            given = {"inv": inv, "end": inv + rng.randint(0, 10), "open": rng.random() < 0.15}
            act = rng.choice(["claim", "claim", "release", "read"])
            answered = rng.choice(["", "a", "b"]) if act == "read" else rng.random() < 0.6
            calls.append(Call(act=act, asked=rng.choice("ab"), answered=answered, **given))
        expected = by_force(calls, "", slot)
        assert linearizable(calls, "", slot) is expected, (seed, calls)
        wrong += not expected
    assert wrong > 200
