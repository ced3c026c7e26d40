"""The order across lanes."""

from __future__ import annotations

import random
import time

from replayproxy.core.effects import may_conflict
from replayproxy.core.gates import Gates, Move, Progress, gates


def move(
    at: int, lane: str, target: str, *, write: bool = False, begun: int, ended: int | None, env: str = "app"
) -> Move:
    return Move(at=at, lane=lane, env=env, target=target.encode(), write=write, begun=begun, ended=ended)


def waits(found: Gates, at: int) -> set[int]:
    """Everything that must be done before `at`."""
    return {x for cell, count in found.needs.get(at, ()) for x in found.cells[cell][:count]}


def test_a_read_waits_for_the_write_of_another_lane_that_had_ended_before() -> None:
    found = gates([
        move(0, "a", "/deals", write=True, begun=0, ended=5),
        move(1, "b", "/deals/7", begun=6, ended=9),
    ])  # fmt: skip
    assert waits(found, 1) == {0}
    assert waits(found, 0) == set()


def test_a_write_waits_for_the_read_of_another_lane() -> None:
    found = gates([move(0, "a", "/deals/7", begun=0, ended=5), move(1, "b", "/deals", write=True, begun=6, ended=9)])
    assert waits(found, 1) == {0}


def test_these_do_not_wait() -> None:
    for name, second in {
        "the same lane": move(1, "a", "/deals", begun=6, ended=9),
        "side by side": move(1, "b", "/deals", begun=4, ended=9),
        "another path": move(1, "b", "/dealsx", begun=6, ended=9),
        "another environment": move(1, "b", "/deals", begun=6, ended=9, env="cal"),
    }.items():
        found = gates([
            move(0, "a", "/deals", write=True, begun=0, ended=5),
            second,
            move(2, "c", "/elsewhere", begun=6, ended=9),
        ])  # fmt: skip
        assert waits(found, 1) == set(), name
    two_reads = [move(0, "a", "/deals", begun=0, ended=5), move(1, "b", "/deals", begun=6, ended=9)]
    assert waits(gates(two_reads), 1) == set()


def test_an_exchange_whose_end_is_not_known_holds_nobody_back() -> None:
    found = gates([
        move(0, "a", "/deals", write=True, begun=0, ended=None),
        move(1, "b", "/deals", begun=6, ended=9),
    ])  # fmt: skip
    assert waits(found, 1) == set()


def test_the_gates_are_exactly_the_pairs_of_the_rule() -> None:
    choice = random.Random(7)
    paths = ["/", "/a", "/a/1", "/a/1/x", "/a/2", "/b", "/ab"]
    for _ in range(50):
        moves = []
        for at in range(40):
            begun = choice.randrange(100)
            moves.append(
                move(at, choice.choice("abc"), choice.choice(paths), write=choice.random() < 0.5,
                     begun=begun, ended=begun + choice.randrange(1, 30), env=choice.choice(["app", "cal"]))
            )  # fmt: skip
        found = gates(moves)
        for e in moves:
            expected = {
                x.at for x in moves if x.lane != e.lane and x.ended is not None and x.ended < e.begun and conflict(x, e)
            }
            assert waits(found, e.at) == expected


def conflict(a: Move, b: Move) -> bool:
    from replayproxy.testing import exchange

    return may_conflict(exchange("GET", a.target, env=a.env), exchange("GET", b.target, env=b.env), a.write, b.write)


def test_progress_opens_a_gate_when_the_last_one_before_it_is_done() -> None:
    found = gates([
        move(0, "a", "/deals", write=True, begun=0, ended=5),
        move(1, "a", "/deals", write=True, begun=5, ended=8),
        move(2, "b", "/deals", begun=9, ended=12),
    ])  # fmt: skip
    progress = Progress(found)
    assert (progress.is_open(2), progress.waits_for(2)) == (False, 0)
    assert not progress.done(1)
    assert progress.waits_for(2) == 0
    assert progress.done(0)
    assert (progress.is_open(2), progress.waits_for(2)) == (True, None)


def test_a_long_episode_is_indexed_in_time() -> None:
    moves = [
        move(
            at,
            f"l{at % 8}",
            f"/deals/{at % 50}" if at % 3 else "/deals",
            write=at % 2 == 0,
            begun=at * 10,
            ended=at * 10 + 5,
        )
        for at in range(20_000)
    ]
    before = time.process_time()
    found = gates(moves)
    assert time.process_time() - before < 5
    assert len(waits(found, 19_999)) > 1000
