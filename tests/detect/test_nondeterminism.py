"""Episodes of one task and seed compared: what is claimed, on whom it falls, what is left alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from replayproxy.core.values import Outcome
from replayproxy.detect.finding import Grade
from replayproxy.testing import exchange, shifted
from tests.detect.hand import Hand

STATE = {"deals": {"D-1": {"id": "D-1", "stage": "lead"}}, "x": {"1": {"v": 1}, "2": {"v": 2}}}
UUIDS = ["6f1c2a52-8a0f-4d0f-9a55-1d4d5cf0a1b2", "0b7cfa7e-9d55-4c54-b1c5-57b1f7a1c9d3"]


def score(value: Any, at: float = 10, **more: Any):
    return exchange("GET", more.pop("target", "/score"), body={"score": value}, at_ms=at, **more)


def hand(*episodes: Sequence[Any], states: Sequence[Any] | None = None, every: float = 1000, **more: Any) -> Hand:
    """Episodes e0, e1, .. of one task and seed, one after the other, from one start state."""
    made = Hand()
    for number, exchanges in enumerate(episodes):
        later = [moved(e, every * number) for e in exchanges]
        start = states[number] if states else STATE
        made.episode(
            f"e{number}", later, [(every * number + 1, start)], opened_ms=every * number, task="t", seed=1, **more
        )
    return made


def moved(one: Any, by: float) -> Any:
    return shifted(one, by)


def told(made: Hand) -> list[tuple[str, Any, Any]]:
    return [(f.episode, *f.values) for f in made.findings() if f.kind == "nondeterminism"]


def test_of_two_that_differ_the_later_one_is_told() -> None:
    made = hand([score(1)], [score(2)])
    (finding,) = made.findings()
    assert (finding.kind, finding.grade) == ("nondeterminism", Grade.PROVEN)
    assert (finding.episode, finding.values) == ("e1", (1, 2))
    assert [(w.role, w.address) for w in finding.exchanges] == [("witness", "r/e0#1"), ("read", "r/e1#1")]
    assert finding.snapshots == ("r/e0/s0", "r/e1/s0")


def test_of_several_the_one_that_differs_from_most_is_told_wherever_it_stands() -> None:
    assert told(hand([score(1)], [score(1)], [score(2)], [score(1)])) == [("e2", 1, 2)]
    assert told(hand([score(2)], [score(1)], [score(1)], [score(1)])) == [("e0", 1, 2)]


def test_equal_answers_fresh_ids_and_clocks_are_none() -> None:
    def made(number: int) -> list[Any]:
        stamp = f"2023-11-14T22:13:2{number}.010Z"
        return [
            exchange("POST", "/deals", sent={"n": 1}, status=201, body={"id": UUIDS[number], "at": stamp}, at_ms=10),
            exchange("GET", f"/deals/{UUIDS[number]}", body={"id": UUIDS[number], "at": stamp}, at_ms=20),
        ]

    assert hand(made(0), made(1)).findings() == ()


def test_a_list_sorted_by_fresh_ids_has_no_order_of_its_own() -> None:
    def deals(*keys: str) -> Any:
        return exchange("GET", "/deals", body=[{"id": key, "n": len(key)} for key in keys], at_ms=20)

    low, high = "D-1111aaaa2222bbbb", "D-9999cccc3333dddd"

    def made(key: str) -> list[Any]:
        post = exchange("POST", "/deals", sent={"n": 1}, status=201, body={"id": key}, at_ms=10)
        return [post, deals(*sorted(["D-5", key]))]

    assert hand(made(low), made(high)).findings() == ()


def cached(stage: str, path: str = "/deals", *, write: bool = True, **fields: str) -> list[Any]:
    """A list that a cache may have kept, 20 ms after a change of a row in it."""
    patch = exchange("PATCH", "/deals/D-1", sent={"stage": "won"}, body={"id": "D-1"}, at_ms=10)
    headers = {"Content-Type": "application/json", **{n.replace("_", "-"): value for n, value in fields.items()}}
    read = exchange("GET", path, body={"id": "D-1", "stage": stage}, headers=headers, at_ms=30)
    return [patch, read] if write else [read]


@pytest.mark.parametrize(
    "fields",
    [
        {"Age": "1", "Cache_Control": "max-age=1"}, {"Cache_Control": "public, max-age=1"}, {"X_Cache": "HIT"},
        {"Cache_Status": "edge; hit"},
    ],
)  # fmt: skip
def test_a_cache_that_declares_itself_explains_that_it_was_filled_at_another_time(fields: dict[str, str]) -> None:
    judgement = hand(cached("won", **fields), cached("won", **fields), cached("lead", **fields)).judge()
    assert judgement.findings == ()
    assert judgement.notes == ("1 answer differs from a sibling's as the cache that they declare allows",)


@pytest.mark.parametrize(
    ("path", "write", "fields"),
    [
        ("/deals", True, {}),
        ("/deals", True, {"Cache_Control": "no-cache, max-age=9"}),
        ("/deals", True, {"Age": "0", "X_Cache": "MISS"}),
        ("/deals", False, {"Cache_Control": "max-age=60"}),
        ("/deals/D-1", True, {"Age": "1", "Cache_Control": "max-age=1"}),
    ],
    ids=[
        "undeclared",
        "not to be kept",
        "missed",
        "nothing changed that it could be behind",
        "its own write, same path",
    ],
)
def test_a_cache_does_not_explain_what_it_does_not_declare(path: str, write: bool, fields: dict[str, str]) -> None:
    made = hand(*(cached(stage, path, write=write, **fields) for stage in ("won", "won", "lead")))
    assert [(episode, *values) for episode, *values in told(made)] == [("e2", "won", "lead")]


def test_an_answer_older_than_a_cache_may_keep_it_is_not_explained() -> None:
    def late(stage: str) -> list[Any]:
        patch, read = cached(stage, Cache_Control="max-age=1")
        return [patch, shifted(read, 1200.0)]

    assert told(hand(late("won"), late("won"), late("lead"), every=2000)) == [("e2", "won", "lead")]


def test_a_different_order_of_the_same_rows_counts() -> None:
    a = exchange("GET", "/deals", body=[{"id": 1}, {"id": 2}], at_ms=10)
    b = exchange("GET", "/deals", body=[{"id": 2}, {"id": 1}], at_ms=10)
    (finding,) = hand([a], [b]).findings()
    assert (finding.kind, finding.sub, finding.grade) == ("nondeterminism", "order", Grade.SUSPECTED)


def counts(*numbers: int) -> list[Any]:
    return [score(number, 10.0 * (at + 1)) for at, number in enumerate(numbers)]


def test_a_number_that_only_goes_on_counting_is_told_with_a_low_grade() -> None:
    (finding,) = hand(counts(1, 2, 3), counts(4, 5, 6)).findings()
    assert (finding.sub, finding.grade, finding.values) == ("counter", Grade.SUSPECTED, (1, 4))


def test_numbers_that_stay_or_jump_or_are_seen_once_are_no_counter() -> None:
    for a, b in (((5, 5, 5), (6, 6, 6)), ((1, 2, 3), (4, 6, 7)), ((3, 2, 1), (6, 5, 4)), ((1,), (4,))):
        (finding,) = hand(counts(*a), counts(*b)).findings()
        assert (finding.sub, finding.grade) == ("answer", Grade.PROVEN)


def test_a_first_episode_that_is_odd_later_on_does_not_make_the_others_odd() -> None:
    """e1, which had come apart from e0 before, must not be counted as agreeing with it there."""
    assert told(hand(counts(1, 9), counts(5, 1), counts(1, 1), counts(1, 1))) == [("e0", 1, 9), ("e1", 1, 5)]


def test_what_comes_after_an_odd_answer_of_the_first_episode_is_still_found() -> None:
    assert told(hand(counts(9, 1), counts(1, 1), counts(1, 1), counts(1, 7))) == [("e0", 1, 9), ("e3", 1, 7)]


def test_who_differs_where_it_follows_from_a_difference_in_another_lane_is_not_counted_as_agreeing() -> None:
    """e0 is odd in lane c, e1 and e2 are in lanes a and b: that they differ from e0 in c too is folded into that."""

    def lanes(*numbers: int) -> list[Any]:
        return [
            score(number, 10.0 * at, lane=lane) for at, (lane, number) in enumerate(zip("abc", numbers, strict=True))
        ]

    usual = lanes(1, 1, 1)
    found = told(hand(lanes(1, 1, 7), lanes(9, 8, 1), lanes(6, 5, 1), usual, usual))
    assert ("e0", 1, 7) in found
    assert not {"e3", "e4"} & {episode for episode, *_ in found}


def lanes(*numbers: int) -> list[Any]:
    return [score(number, 10.0 * at, lane=lane) for at, (lane, number) in enumerate(zip("ab", numbers, strict=True), 1)]


def test_where_others_differ_too_and_nobody_knows_how_the_first_episode_is_not_taken_for_right() -> None:
    """In lane b the first one is odd. Of the others all but one had differed from it in lane a, in the same way, so
    that what follows is not claimed: one against one was left, and the one that was right was proven odd."""
    found = hand(lanes(1, 9), lanes(1, 7), lanes(2, 7), lanes(3, 7), lanes(4, 7)).findings()
    assert {(f.episode, f.lane, f.values[1], f.grade) for f in found} == {
        ("e0", "b", 9, Grade.PROVEN), *((f"e{n}", "a", n, Grade.PROVEN) for n in (2, 3, 4)),
    }  # fmt: skip


def test_an_answer_that_nobody_can_be_counted_for_is_suspected_at_most() -> None:
    """Both are odd in lane b, and with whomever they are compared something differed before."""
    found = hand(lanes(1, 9), lanes(1, 8), lanes(2, 7), lanes(3, 7), lanes(4, 7)).findings()
    in_b = [f for f in found if f.lane == "b"]
    assert [(f.episode, f.values, f.grade) for f in in_b] == [("e1", (9, 8), Grade.SUSPECTED)]
    assert "which of the two is the usual one" in in_b[0].cannot_say


def test_every_one_of_several_odd_episodes_is_told_once_and_no_other() -> None:
    """Each number is odd in one episode only; whoever stands for the usual one is odd somewhere else."""
    episodes = [counts(*(9 if at == odd else 1 for at in range(6))) for odd in range(6)]
    made = hand(*episodes, counts(*[1] * 6), counts(*[1] * 6))
    assert sorted(told(made)) == [(f"e{n}", 1, 9) for n in range(6)]


def test_only_the_first_differing_answer_of_a_lane_is_claimed() -> None:
    made = hand([score(1), score(5, 20, target="/other")], [score(2), score(6, 20, target="/other")])
    assert told(made) == [("e1", 1, 2)]


def test_after_a_different_request_nothing_is_claimed() -> None:
    made = hand([score(0, 5, target="/a"), score(1)], [score(0, 5, target="/b"), score(2)])
    assert told(made) == []
    assert "equal past" in made.judge().coverage["e0"].not_checked["nondeterminism"]


def test_failures_and_limits_are_counted_elsewhere() -> None:
    for other in (
        score("busy", status=503),
        score("slow down", status=429),
        exchange("GET", "/score", status=None, outcome=Outcome.CUT, at_ms=10),
    ):
        assert told(hand([score(1)], [other])) == []
    assert told(hand([score(1)], [score("no", status=404)])) != []


def test_unequal_starts_are_not_compared() -> None:
    dirty = {**STATE, "x": {"1": {"v": 1}, "2": {"v": 7}}}
    made = hand([score(1)], [score(2)], states=[STATE, dirty])
    assert told(made) == []
    assert "start" in made.judge().coverage["e1"].not_checked["nondeterminism"]


def test_without_task_and_seed_nothing_is_compared() -> None:
    made = Hand()
    for number in range(2):
        made.episode(f"e{number}", [moved(score(number), 1000.0 * number)], [(1000 * number + 1, STATE)],
                     opened_ms=1000 * number)  # fmt: skip
    assert told(made) == []
    assert made.judge().coverage["e0"].not_checked["nondeterminism"] == "neither task nor seed is known"


def test_another_episode_that_wrote_meanwhile_keeps_one_from_claiming() -> None:
    made = hand([score(1)], [score(2)])
    write = exchange("POST", "/other", sent={"a": 1}, status=201, body={}, at_ms=1005)
    made.episode("beside", [write], [(1001, STATE)], opened_ms=1000, ended_ms=1100, task="u", seed=2)
    assert told(made) == []
    made.episode("apart", [], [], opened_ms=1000, ended_ms=1100, instance={"app": "other"})
    assert "meanwhile" in made.judge().coverage["e1"].not_checked["nondeterminism"]


def test_a_stale_read_is_not_told_a_second_time_as_nondeterminism() -> None:
    def deal(at: float, stage: str) -> Any:
        return exchange("GET", "/deals/D-1", body={"id": "D-1", "stage": stage}, at_ms=at)

    patch = exchange("PATCH", "/deals/D-1", sent={"stage": "won"}, body={"id": "D-1", "stage": "won"}, at_ms=20)
    won = {**STATE, "deals": {"D-1": {"id": "D-1", "stage": "won"}}}
    made = Hand()
    for number, seen in enumerate(("won", "lead")):
        exchanges = [moved(e, 1000.0 * number) for e in (deal(10, "lead"), patch, deal(30, seen))]
        states = [(1000 * number + 1, STATE), (1000 * number + 22, won)]
        made.episode(f"e{number}", exchanges, states, opened_ms=1000 * number, task="t", seed=1)
    assert [(f.kind, f.episode) for f in made.findings()] == [("stale-read", "e1")]


def test_another_state_after_the_same_write_counts() -> None:
    patch = exchange("PATCH", "/deals/D-1", sent={"stage": "won"}, status=204, at_ms=20)
    made = Hand()
    for number, stage in enumerate(("won", "lost")):
        after = {**STATE, "deals": {"D-1": {"id": "D-1", "stage": stage}}}
        write = moved(patch, 1000.0 * number)
        made.episode(f"e{number}", [write], [(1000 * number + 1, STATE), (1000 * number + 22, after)],
                     opened_ms=1000 * number, task="t", seed=1)  # fmt: skip
    (found,) = (f for f in made.findings() if f.kind == "nondeterminism")
    assert (found.sub, found.grade, found.episode, found.values) == ("state", Grade.PROVEN, "e1", ("won", "lost"))
    assert found.pointer == "state/deals/D-1/stage"


def test_rows_that_differ_for_a_while_and_go_again_are_compared_to_the_end() -> None:
    made = Hand()
    for number, key in enumerate(UUIDS):
        post = exchange("POST", "/deals", sent={"n": 1}, status=201, body={"id": key}, at_ms=10)
        delete = exchange("DELETE", f"/deals/{key}", status=204, at_ms=20)
        again = exchange("POST", "/deals", sent={"n": 2}, status=201, body={"id": key[::-1]}, at_ms=30)
        with_row = {**STATE, "deals": {**STATE["deals"], key: {"id": key, "n": 1}}}
        with_other = {**STATE, "deals": {**STATE["deals"], key[::-1]: {"id": key[::-1], "n": 2}}}
        states = [(1, STATE), (12, with_row), (22, STATE), (32, with_other)]
        made.episode(
            f"e{number}", [moved(e, 1000.0 * number) for e in (post, delete, again)],
            [(1000 * number + at, state) for at, state in states], opened_ms=1000 * number, task="t", seed=1,
        )  # fmt: skip
    assert made.findings() == ()
