"""Outcomes of two requests together against those in turn: what an order explains is lawful, and nothing else is."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from replayproxy.core.values import RowChange
from replayproxy.detect.racing import Call, Fate, Outcome, Serial, anomaly, fate_of, repeated
from replayproxy.detect.racing_effect import Effect, Names, effect_of, same_effect

NONE = Names(())


def new(table: str, key: str, **row: Any) -> RowChange:
    return RowChange(table=table, key=key, before=None, after=row)


def turned(table: str, key: str, before: dict[str, Any], **after: Any) -> RowChange:
    return RowChange(table=table, key=key, before=before, after={**before, **after})


def eff(*changes: RowChange) -> Effect:
    return effect_of(changes, NONE)


def call(status: int | None, **told: Any) -> Call:
    return Call(status=status, fate=fate_of(status), told={f"/{name}": value for name, value in told.items()})


def out(a: int | None, b: int | None, *changes: RowChange, first: Effect | None = None) -> Outcome:
    return Outcome(a=call(a), b=call(b), effect=eff(*changes), first=first)


FREE: dict[str, Any] = {"id": "S-1", "holder": None}
HELD_A, HELD_B = turned("slots", "S-1", FREE, holder="a"), turned("slots", "S-1", FREE, holder="b")
CLAIMS = Serial(
    ab=[out(201, 409, HELD_A, first=eff(HELD_A))] * 2, ba=[out(409, 201, HELD_B, first=eff(HELD_B))]
)  # fmt: skip
SUM: dict[str, Any] = {"n": 100}
BOTH = turned("accounts", "1", SUM, n=120)
ONCE = turned("accounts", "1", SUM, n=110)
SUMS = Serial(ab=[out(200, 200, BOTH, first=eff(ONCE))] * 2, ba=[out(200, 200, BOTH, first=eff(ONCE))])


@pytest.mark.parametrize(
    "lawful",
    [out(201, 409, HELD_A), out(409, 201, HELD_B), out(409, 409), out(429, 201, HELD_B), out(503, 201, HELD_B),
     out(201, 500, HELD_A), out(None, None), out(None, 409, HELD_A), out(500, 500, HELD_B)],
)  # fmt: skip
def test_an_order_or_a_refusal_that_did_nothing_is_lawful(lawful: Outcome) -> None:
    assert anomaly(CLAIMS, lawful) is None


@pytest.mark.parametrize(
    ("broken", "sub"),
    [
        (out(201, 201, HELD_A), "double-claim"),
        (out(201, 201, HELD_B), "double-claim"),
        (out(201, 409, HELD_B), "neither-order"),
        (out(201, 409), "lost-write"),
        (out(409, 409, HELD_A), "neither-order"),
    ],
)
def test_what_no_order_of_two_claims_gives_is_named(broken: Outcome, sub: str) -> None:
    found = anomaly(CLAIMS, broken)
    assert found is not None
    assert found.sub == sub
    assert found.pointer == "/slots/S-1/holder"


@pytest.mark.parametrize(
    ("broken", "sub"),
    [
        (out(200, 200, ONCE), "lost-update"),
        (out(200, 200), "lost-write"),
        (out(200, 409, BOTH), "refused-yet-done"),
        (out(200, 200, turned("accounts", "1", SUM, n=130)), "neither-order"),
        (out(200, 200, BOTH, new("accounts", "2", n=1)), "duplicate"),
    ],
)
def test_what_no_order_of_two_sums_gives_is_named(broken: Outcome, sub: str) -> None:
    found = anomaly(SUMS, broken)
    assert found is not None
    assert (found.sub, found.pointer) in ((sub, "/accounts/1/n"), (sub, "/accounts"))


@pytest.mark.parametrize("lawful", [out(200, 200, BOTH), out(200, 409, ONCE), out(503, 200, BOTH), out(503, 200, ONCE)])
def test_a_refused_sum_is_not_added_and_an_open_one_may_be(lawful: Outcome) -> None:
    assert anomaly(SUMS, lawful) is None


def test_instants_fresh_ids_and_numbers_of_rows_are_no_difference() -> None:
    one = eff(new("b", "5", id=5, at="2026-01-01T00:00:00Z", code="f81d4fae-7dec-11d0-a765-00a0c91e6bf6", slot="S-1"))
    two = eff(new("b", "9", id=9, at="2026-01-02T00:00:00Z", code="0b96f3c2-8f1c-4c57-9a5d-7f0a4b1f2d11", slot="S-1"))
    assert same_effect(one, two)
    assert not same_effect(one, eff(new("b", "9", id=9, at="2026-01-02T00:00:00Z", code="x", slot="S-2")))
    assert not eff(RowChange(table="sqlite_sequence", key="b", before={"seq": 1}, after={"seq": 3}))
    assert not eff(turned("slots", "S-1", {"updated_at": "2026-01-01T00:00:00Z"}, updated_at="2026-01-01T00:00:09Z"))


def test_a_number_that_was_used_up_is_no_difference_and_one_given_twice_is() -> None:
    numbered = eff(new("t", "a", number=17), new("t", "b", number=18))
    assert same_effect(numbered, eff(new("t", "a", number=17), new("t", "b", number=19)))
    assert not same_effect(numbered, eff(new("t", "a", number=17), new("t", "b", number=17)))


def test_a_row_that_refers_to_what_the_two_made_may_do_so_by_any_number() -> None:
    one = eff(new("bookings", "5", id=5), new("audit", "1", id=1, booking_id=5))
    two = eff(new("bookings", "7", id=7), new("audit", "2", id=2, booking_id=7))
    assert same_effect(one, two)


def test_rows_made_before_have_one_name_each_time() -> None:
    def effect(key: str) -> Effect:
        names = Names([new("deals", key, id=key, name="Acme")])
        return effect_of([turned("deals", key, {"id": key, "n": 1}, n=2)], names)

    a, b = "f81d4fae-7dec-11d0-a765-00a0c91e6bf6", "0b96f3c2-8f1c-4c57-9a5d-7f0a4b1f2d11"
    assert effect(a) == effect(b)
    assert next(iter(effect(a)))[0][2] == "(new deal 1)"


def told(a: Any, b: Any) -> Outcome:
    return Outcome(a=call(201, number=a), b=call(201, number=b))


def test_a_value_given_to_both_that_an_order_gives_to_one_is_shown() -> None:
    serial = Serial(ab=[told(17, 18)] * 2, ba=[told(18, 17)])
    assert repeated(serial, [told(17, 18), told(17, 17)]) == [None, ("/number", "17, 18", "17, 17")]
    # A value that is now this, now that, says nothing: here how long it took.
    assert repeated(serial, [told(17, 19), told(17, 17)]) == [None, None]
    assert repeated(Serial(ab=[told(2, 3), told(2, 4)], ba=[told(3, 2)]), [told(3, 3)]) == [None]
    assert repeated(Serial(ab=[told(1, 1)] * 2, ba=[told(1, 1)]), [told(1, 1)]) == [None]


A, B, C = ("f81d4fae-7dec-11d0-a765-00a0c91e6bf6", "0b96f3c2-8f1c-4c57-9a5d-7f0a4b1f2d11",
           "7d444840-9dc0-11d1-b245-5ffdce74fad2")  # fmt: skip


@pytest.mark.parametrize(
    ("name", "values", "shown"),
    [
        ("id", (A, B, C), True),
        ("booking_id", (A, B, C), True),
        ("updated_at", ("2026-11-30T03:22:30.620Z", "2026-11-30T03:22:30.835Z", "2026-11-30T03:22:32.248Z"), False),
        ("etag", (A, B, C), False),
        ("checksum_id", ("2026-11-30T03:22:30.620Z", "2026-11-30T03:22:30.835Z", "2026-11-30T03:22:32.248Z"), False),
    ],
)
def test_only_an_id_is_enough_by_itself(name: str, values: tuple[str, str, str], shown: bool) -> None:
    """Two that come in one millisecond are lawfully given one instant."""
    one, two, both = values

    def answered(a: str, b: str) -> Outcome:
        return Outcome(a=call(201, **{name: a}), b=call(201, **{name: b}))

    serial = Serial(ab=[answered(one, two), answered(two, one)], ba=[answered(one, two)])
    assert (repeated(serial, [answered(both, both)]) != [None]) is shown


def test_orders_that_are_not_the_same_twice_are_no_yardstick() -> None:
    assert "not deterministic" in Serial(ab=[out(200, 200, BOTH), out(200, 200, ONCE)], ba=[out(200, 200)]).unsteady()
    assert "now 201, 409" in Serial(ab=[out(201, 409), out(201, 201)], ba=[out(409, 201)]).unsteady()
    assert "not known" in Serial(ab=[out(201, 500)], ba=[out(409, 201)]).unsteady()
    assert CLAIMS.unsteady() == SUMS.unsteady() == ""


# -- against every interleaving of a small machine ---------------------------------------------------------------------

type Op = tuple[str, str, int]
"""("get", register, 0), ("set", register, value) or ("add", register, value): what a handler does, step by step."""


def run(order: list[tuple[int, Op]]) -> tuple[int, int, dict[str, int]]:
    """The state after the steps in this order; `add` writes what its handler's own `get` read last, plus a value."""
    state = {"x": 0, "y": 0}
    seen: list[dict[str, int]] = [{}, {}]
    for who, (kind, register, value) in order:
        if kind == "get":
            seen[who][register] = state[register]
        elif kind == "set":
            state[register] = value
        else:
            state[register] = seen[who].get(register, 0) + value
    return 200, 200, state


def interleavings(a: list[Op], b: list[Op]) -> Iterator[list[tuple[int, Op]]]:
    n = len(a) + len(b)
    for places in combinations(range(n), len(a)):
        left, right = iter(a), iter(b)
        yield [(0, next(left)) if at in places else (1, next(right)) for at in range(n)]


def outcome(order: list[tuple[int, Op]], first: list[tuple[int, Op]] | None = None) -> Outcome:
    def effect(steps: list[tuple[int, Op]]) -> Effect:
        _, _, state = run(steps)
        return eff(*(turned("r", key, {"v": 0}, v=value) for key, value in state.items() if value))

    return Outcome(a=call(200), b=call(200), effect=effect(order), first=None if first is None else effect(first))


STEPS = some.lists(
    some.tuples(some.sampled_from(["get", "set", "add"]), some.sampled_from("xy"), some.integers(1, 3)), max_size=4
)


@given(STEPS, STEPS)
def test_exactly_what_no_order_leaves_is_shown(a: list[Op], b: list[Op]) -> None:
    ours, theirs = [(0, op) for op in a], [(1, op) for op in b]
    ab, ba = outcome([*ours, *theirs], ours), outcome([*theirs, *ours], theirs)
    serial = Serial(ab=[ab, ab], ba=[ba])
    assert serial.unsteady() == ""
    for order in interleavings(a, b):
        together = outcome(order)
        assert (anomaly(serial, together) is None) == (together.effect in (ab.effect, ba.effect))


@given(some.sampled_from(list(Fate)), some.sampled_from(list(Fate)))
def test_answers_and_effects_of_an_order_are_lawful_whatever_is_left_open(a: Fate, b: Fate) -> None:
    """A request whose outcome is open may have acted or not: neither is ever held against it."""
    status = {Fate.GRANTED: 200, Fate.REFUSED: 409, Fate.OPEN: 500}
    left = {(False, False): (), (True, False): (ONCE,), (False, True): (ONCE,), (True, True): (BOTH,)}
    for done_a in (False, True) if a is Fate.OPEN else (a is Fate.GRANTED,):
        for done_b in (False, True) if b is Fate.OPEN else (b is Fate.GRANTED,):
            assert anomaly(SUMS, out(status[a], status[b], *left[done_a, done_b])) is None
