"""Episodes that are set aside and read again are replayed as if they had stayed: same answers, same receipt."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from typing import Any

import pytest

from replayproxy.serve.scene import Scene
from replayproxy.serve.shelf import LOOKS, Shelf
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


def test_a_bounded_number_is_looked_at_and_all_are_in_the_end() -> None:
    shelf, over, looked = Shelf(enough=0, most=10**6), set(names(3000)[1000:]), 0

    def is_over(name: str) -> bool:
        nonlocal looked
        looked += 1
        return name in over

    gone: list[str] = []
    for number in range(3050):
        before = looked
        shelf.put(f"e{number}", 2)
        gone += shelf.spare(idle=lambda name: True, over=is_over)
        assert looked - before <= LOOKS + 2, "however many there are"
    assert sorted(gone) == sorted(over)
    assert shelf.size == 2 * 1050


def test_beyond_the_most_a_bounded_number_of_those_in_use_is_passed_over() -> None:
    shelf, looked = Shelf(enough=10**6, most=0), 0

    def is_idle(name: str) -> bool:
        nonlocal looked
        looked += 1
        return name == "e1500"

    gone: list[str] = []
    for number in range(2000):
        before = looked
        shelf.put(f"e{number}", 2)
        gone += shelf.spare(idle=is_idle, over=lambda name: False)
        assert looked - before <= LOOKS + 2, "however many there are"
    assert gone == ["e1500"]


def test_an_episode_that_is_put_again_counts_once() -> None:
    shelf = filled(enough=0, most=0, count=2)
    shelf.put("e0", 7)
    assert shelf.size == 17
    assert list(shelf.spare(idle=lambda name: True, over=lambda name: True)) == ["e1"]
    assert shelf.size == 7


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


async def test_an_episode_that_the_harness_ended_is_set_aside_though_it_was_not_played_to_its_end(
    store: Store, set_aside: list[str]
) -> None:
    two = [exchange("GET", f"/{n}", at_ms=n * 10) for n in range(2)]
    run = record(store, dict.fromkeys(names(4), two))
    async with staged(store, run, sole=None, shelf=Shelf(enough=0, most=1000)) as on:
        for name in names(3):
            await on.get(f"/rp/{name}/0")
        on.stage.close("e1", "sealed")
        await on.get("/rp/e3/0")
        assert set_aside == ["e1"]
        receipt = on.stage.receipt_of("e1")
        assert receipt is not None
        assert (receipt["unused"], receipt["reproduced"]) == (1, False)


async def test_an_episode_whose_reading_failed_is_read_again_once_for_all_that_ask(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = record(store, {"e": [exchange("GET", "/x")], "other": [exchange("GET", "/x")]})
    async with staged(store, run, sole=None) as on:
        reads, goes_on, real = [], threading.Event(), on.stage._read

        def read(episode: Any) -> Any:
            reads.append(episode.name)
            if len(reads) == 1:
                raise OSError("once")
            goes_on.wait(5)
            return real(episode)

        monkeypatch.setattr(on.stage, "_read", read)

        async def persistent() -> Scene:
            try:
                return await on.stage.scene("e")
            except OSError:
                return await on.stage.scene("e")

        asking = [asyncio.ensure_future(persistent()) for _ in range(3)]
        while len(reads) < 2:
            await asyncio.sleep(0.001)
        last = asyncio.ensure_future(on.stage.scene("e"))
        await asyncio.sleep(0.05)
        goes_on.set()
        assert len({await one for one in (*asking, last)}) == 1
        assert reads == ["e", "e"]
