"""Episodes that are set aside and read again are replayed as if they had stayed: same answers, same receipt."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import pytest

from replayproxy.serve.scene import Scene
from replayproxy.serve.shelf import Shelf
from replayproxy.storage import Store
from replayproxy.testing import exchange
from tests.properties.test_interleavings import EPISODES, episode
from tests.serve.staged import record, staged
from tests.serve.test_interleaved import drive, lanes
from tests.serve.test_renaming import KIND, A, X, act, post


def names(count: int) -> list[str]:
    return [f"e{number}" for number in range(count)]


def filled(*, enough: int, most: int, sizes: int = 10, count: int = 5) -> Shelf:
    shelf = Shelf(enough=enough, most=most)
    for name in names(count):
        shelf.put(name, sizes)
    return shelf


def test_what_was_played_to_its_end_goes_first_and_only_as_much_as_needed() -> None:
    shelf = filled(enough=25, most=1000)
    assert list(shelf.spare(idle=lambda name: True, over=lambda name: name in ("e1", "e3"))) == ["e1", "e3"]
    assert shelf.size == 30  # the others are being played


def test_beyond_the_most_those_go_that_nobody_asked_for_the_longest() -> None:
    shelf = filled(enough=0, most=30)
    shelf.used("e0")
    assert list(shelf.spare(idle=lambda name: name != "e1", over=lambda name: False)) == ["e2", "e3"]


def test_the_episode_that_was_just_read_stays_however_long_it_is() -> None:
    shelf = filled(enough=0, most=0)
    assert list(shelf.spare(idle=lambda name: True, over=lambda name: True)) == names(4)
    assert shelf.size == 10


@pytest.fixture
def set_aside(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of those that were."""
    told: list[str] = []
    real = Scene.set_aside

    def seen(self: Scene) -> None:
        assert not self.users
        told.append(self.name)
        real(self)

    monkeypatch.setattr(Scene, "set_aside", seen)
    return told


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_sixteen_episodes_of_which_one_fits_get_their_answers_in_their_order(
    store: Store, seed: int, set_aside: list[str]
) -> None:
    run = record(store, {f"e{number}": episode(number) for number in range(EPISODES)})
    choose = random.Random(seed)
    async with staged(store, run, sole=None, shelf=Shelf(enough=0, most=0)) as on:
        await asyncio.gather(*(drive(on, *lane, random.Random(choose.random())) for lane in lanes()))
        receipt = on.receipt()
    assert receipt["reproduced"] is True
    assert receipt["served"]["exact"] == 20 * EPISODES
    assert receipt["order_divergences"] == receipt["lane_ambiguous"] == 0
    assert len(set_aside) > 2 * EPISODES, "most were read more than once"


def timeless(value: Any) -> Any:
    """Without the instants at which something happened."""
    if isinstance(value, dict):
        return {key: timeless(one) for key, one in value.items() if key != "at"}
    return [timeless(one) for one in value] if isinstance(value, list | tuple) else value


async def test_a_receipt_tells_of_misses_and_of_what_was_not_asked_for_before_and_after(
    store: Store, set_aside: list[str]
) -> None:
    two = [exchange("GET", "/a", body={"n": 1}), exchange("GET", "/a", at_ms=10, body={"n": 2}),
           exchange("PUT", "/b", at_ms=20, sent={"x": 1})]  # fmt: skip
    run = record(store, {"one": two, "two": two})

    async def played(shelf: Shelf | None) -> Any:
        async with staged(store, run, sole=None, shelf=shelf) as on:
            got = [await on.get(f"/rp/{name}/{path}") for path in ("a", "none", "a", "a") for name in ("one", "two")]
            both = on.stage.receipt_of("one"), on.stage.receipt_of("two")
            return [answer.partition(b"\r\n\r\n")[2] for answer in got], both, on.receipt()

    answers, both, receipt = await played(Shelf(enough=0, most=0))
    assert len(set_aside) == 7
    assert timeless([answers, both, receipt]) == timeless(list(await played(None)))
    assert [json.loads(answer)["n"] for answer in (answers[0], answers[4])] == [1, 2]
    assert (receipt["missed"], receipt["unused_writes"], receipt["reproduced"]) == (4, 2, False)


async def test_what_an_agent_minted_stays_bound_while_its_episode_is_aside(store: Store, set_aside: list[str]) -> None:
    made = [
        exchange("POST", "/act", sent=act(A), request_headers=KIND, body={"done": A}, headers=KIND),
        exchange("GET", "/history", at_ms=10, body={"calls": [A]}, headers=KIND),
    ]
    run = record(store, {"e": made, "other": [exchange("GET", "/x")]})
    async with staged(store, run, sole=None, shelf=Shelf(enough=0, most=0)) as on:
        _, body = await post(on, "/rp/e/act", act(X))
        assert json.loads(body) == {"done": X}
        await on.get("/rp/other/x")
        assert set_aside == ["e"]
        assert json.loads((await on.get("/rp/e/history")).partition(b"\r\n\r\n")[2]) == {"calls": [X]}
        receipt = on.stage.receipt_of("e")
    assert receipt is not None
    assert receipt["reproduced"], receipt


async def test_many_at_once_ask_for_episodes_that_push_each_other_out(store: Store, set_aside: list[str]) -> None:
    made = [exchange("GET", f"/{n}", at_ms=n * 10, body={"n": n}) for n in range(20)]
    run = record(store, dict.fromkeys(names(6), made))
    async with staged(store, run, sole=None, shelf=Shelf(enough=0, most=0)) as on:

        async def ask(name: str, n: int) -> None:
            assert json.loads((await on.get(f"/rp/{name}/{n}")).partition(b"\r\n\r\n")[2]) == {"n": n}

        await asyncio.gather(*(ask(name, n) for n in range(20) for name in names(6)))
        assert on.receipt()["reproduced"]
        assert on.faults == []
    assert set_aside


async def test_an_unreadable_request_to_an_episode_s_own_port_counts_for_it_while_it_is_aside(
    store: Store, set_aside: list[str]
) -> None:
    run = record(store, {"e": [exchange("GET", "/x")], "other": [exchange("GET", "/x")]})
    async with staged(store, run, sole=None, port_episode="e", shelf=Shelf(enough=0, most=0)) as on:
        await on.get("/x")
        await on.stage.scene("other")
        assert set_aside == ["e"]
        assert b" 400 " in (await on.call(b"\x16\x03\x01 none\r\n\r\n"))[:13]
        await on.origin.stop(grace=0.2)
        receipt = on.stage.receipt_of("e")
        assert receipt is not None
        assert (receipt["missed"], receipt["reproduced"]) == (1, False)
        assert on.receipt()["unattributed"] == []
