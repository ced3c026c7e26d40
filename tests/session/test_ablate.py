"""One thing held fast at a time: which of them takes the difference away, and what cannot be said."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from replayproxy.errors import WrongUsage
from replayproxy.session.ablation import Ablation, Knob, Tally, judged, parse_knobs
from replayproxy.session.config import Config
from replayproxy.session.redrive import Ask, redrive
from replayproxy.session.redrive_report import document
from replayproxy.session.redrive_targets import Words
from replayproxy.storage import Store
from tests.session.redrive_lab import Recording, ask, serving
from tests.session.reproduce_lab import Desk, recorded, scores, slow_scores

ALL = ("clock", "seed", "lanes", "pacing")


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "app.db")


async def ablated(store: Store, url: str, *, repeat: int = 5, env: dict[str, str] | None = None) -> dict[str, Any]:
    config = Config(env={"app": env or {}})
    asked = Ask(addresses=("r/e",), words=Words(env=(f"app={url}",), config=config), repeat=repeat, ablate=ALL)
    told: dict[str, Any] = document(await redrive(store, asked, lambda _: None))["ablate"]
    return told


def knobs(told: dict[str, Any]) -> dict[str, bool | str | None]:
    return {knob["knob"]: knob["removes"] if knob["available"] else "not available" for knob in told["knobs"]}


async def test_a_seed_that_can_be_set_names_random_numbers_as_the_source(store: Store, desk: Desk) -> None:
    desk.faults.add("seeded")
    async with serving(desk.app()) as url:
        await recorded(store, desk, url, [("e", scores)])
        told = await ablated(store, url, env={"seed": f"PUT {url}/seed?value={{seed}}"})
    assert knobs(told) == {"clock": "not available", "seed": True, "lanes": "not available", "pacing": False}
    assert (told["source"], told["told"]) == ("rng", "source: rng")
    assert ("PUT", "/seed?value=1") in desk.seen
    seed = next(knob for knob in told["knobs"] if knob["knob"] == "seed")
    assert seed["outcomes"] == [5]
    assert seed["chance"] < 0.05


async def test_without_a_way_to_set_it_nothing_is_guessed(store: Store, desk: Desk) -> None:
    desk.faults.add("random")
    async with serving(desk.app()) as url:
        await recorded(store, desk, url, [("e", scores)])
        told = await ablated(store, url)
    assert knobs(told) == {
        "clock": "not available", "seed": "not available", "lanes": "not available", "pacing": False,
    }  # fmt: skip
    assert told["source"] is None
    assert told["told"] == "source not known; not tried: clock, seed, lanes"
    assert next(k for k in told["knobs"] if k["knob"] == "seed")["why"].startswith("no environment offers it")


async def test_a_clock_that_can_be_set_names_the_time(store: Store, desk: Desk) -> None:
    desk.faults.add("clock")
    async with serving(desk.app()) as url:
        await recorded(store, desk, url, [("e", scores)])
        told = await ablated(store, url, env={"clock": f"PUT {url}/clock?value={{unix}}"})
    assert knobs(told)["clock"] is True
    assert told["source"] == "time"


async def test_what_hangs_on_others_at_the_same_time_goes_one_after_the_other(store: Store, desk: Desk) -> None:
    async def crowd(recording: Recording) -> None:
        for _ in range(2):
            await asyncio.gather(*(recording.send(ask("GET", "/score"), lane=f"l{n}") for n in range(3)))

    desk.faults.add("crowded")
    async with serving(desk.app()) as url:
        await recorded(store, desk, url, [("e", crowd)])
        told = await ablated(store, url)
    assert knobs(told)["lanes"] is True, told
    assert "scheduling" in told["source"]


async def test_what_hangs_on_the_pauses_goes_with_the_recorded_ones(store: Store, desk: Desk) -> None:
    desk.faults.add("hurried")
    async with serving(desk.app()) as url:
        await recorded(store, desk, url, [("e", slow_scores)])
        told = await ablated(store, url)
    assert knobs(told)["pacing"] is True, told
    assert told["source"] == "pacing"


async def test_where_all_are_alike_nothing_is_taken_away(store: Store, desk: Desk) -> None:
    async with serving(desk.app()) as url:
        await recorded(store, desk, url, [("e", scores)])
        desk.seen.clear()
        told = await ablated(store, url)
    assert told["source"] is None
    assert told["told"] == "nothing to take away: 5 runs without one only bound its rate: at most 45 % (95 %)"
    assert len(desk.seen) == 5 * 4


async def test_a_hook_that_is_refused_is_not_available(store: Store, desk: Desk) -> None:
    desk.faults.add("random")
    async with serving(desk.app()) as url:
        await recorded(store, desk, url, [("e", scores)])
        told = await ablated(store, url, env={"seed": f"PUT {url}/no-such-thing"})
    seed = next(knob for knob in told["knobs"] if knob["knob"] == "seed")
    assert (seed["available"], seed["why"]) == (False, "app: PUT /no-such-thing answered 404")


def test_as_many_equal_ones_by_chance_are_not_a_removal() -> None:
    unsure = judged("seed", Tally(outcomes=(4, 1), different=1), Tally(outcomes=(5,), different=0))
    assert (unsure.removes, unsure.chance) == (None, 0.328)
    sure = judged("seed", Tally(outcomes=(2, 2, 1), different=3), Tally(outcomes=(5,), different=0))
    assert sure.removes is True
    assert "more --repeat" in Ablation(bare=Tally(outcomes=(4, 1), different=1), knobs=(unsure,)).told()


def test_repetitions_that_all_differ_from_the_recording_are_judged_by_that() -> None:
    bare = Tally(outcomes=(5,), different=5)
    assert judged("pacing", bare, Tally(outcomes=(5,), different=0)).removes is True
    assert judged("pacing", bare, Tally(outcomes=(5,), different=5)).removes is False


def test_what_no_knob_removes_is_external() -> None:
    bare = Tally(outcomes=(3, 2), different=2)
    all_tried = tuple(Knob(name=name, tally=bare, removes=False) for name in ALL)
    assert Ablation(bare=bare, knobs=all_tried).source == "external"
    assert Ablation(bare=bare, knobs=all_tried[:3]).source is None


def test_knobs_are_checked() -> None:
    assert parse_knobs("clock, lanes,clock") == ("clock", "lanes")
    assert parse_knobs(None) == ()
    with pytest.raises(WrongUsage, match="'wind' is no knob"):
        parse_knobs("wind")


async def test_what_was_set_and_stays_set_is_not_held_against_the_next_knob(store: Store, desk: Desk) -> None:
    """The score hangs on the clock; here `seed` sets it, and the environment goes on with it."""
    desk.faults.add("clock")
    async with serving(desk.app()) as url:
        await recorded(store, desk, url, [("e", scores)])
        told = await ablated(
            store, url, env={"seed": f"PUT {url}/clock?value=5", "clock": f"PUT {url}/clock?value={{unix}}"}
        )
    assert knobs(told) == {"clock": "not available", "seed": True, "lanes": "not available", "pacing": False}
    assert next(k for k in told["knobs"] if k["knob"] == "clock")["why"].startswith("what sets the seed stays set")
