"""Stale reads, nondeterminism and dirty resets are shown again k of n times; what cannot be sent is refused before."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from replayproxy.errors import CannotJudge, UnknownAddress, WorldTrouble, WrongUsage
from replayproxy.storage import Store
from tests.session.redrive_lab import Recording, ask, serving
from tests.session.reproduce_lab import Desk, again, findings, look, recorded, scores, work, write_and_read


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "app.db")


async def test_a_stale_read_is_seen_again_every_time(store: Store, desk: Desk) -> None:
    desk.faults.add("stale")
    async with serving(desk.app()) as url:
        await recorded(store, desk, url, [("e", write_and_read)])
        (found,) = findings(store)
        assert (found["kind"], found["values"]) == ("stale-read", ["won", "lead"])
        one = await again(store, url)
        told = one.to_json()
        assert (told["verdict"], told["told"], told["exit"]) == ("shown again", "old value again 3/3", 1)
        assert told["evidence"]["values"] == ["lead", "lead", "lead"]
        desk.faults.clear()
        mended = (await again(store, url)).to_json()
    assert (mended["verdict"], mended["told"], mended["exit"]) == ("not shown again", "old value again 0/3", 0)
    assert "at most 63 %" in mended["reasons"][0]
    (found,) = findings(store)
    assert found["effect"]["last"] == "old value again 0/3"


async def test_answers_without_a_seed_come_in_several_ways_and_are_confirmed(store: Store, desk: Desk) -> None:
    desk.faults.add("random")
    desk.rng = random.Random(4)
    async with serving(desk.app()) as url:
        await recorded(store, desk, url, [(f"e{n}", scores) for n in range(4)])
        found = findings(store)
        assert {f["kind"] for f in found} == {"nondeterminism"}
        one = await again(store, url, repeat=8)
        told = one.to_json()
        assert (told["verdict"], told["grade"], told["n"]) == ("shown again", "confirmed", 8)
        assert 0 < told["k"] < 8
        assert sum(outcome["times"] for outcome in told["evidence"]["outcomes"]) == 8
        assert {value for outcome in told["evidence"]["outcomes"] for value in outcome["values"]} == {60, 61}
        desk.faults.clear()
        mended = (await again(store, url, repeat=8)).to_json()
    assert (mended["verdict"], mended["k"], mended["exit"]) == ("not shown again", 0, 0)
    assert any("at most 31 %" in reason for reason in mended["reasons"])


async def test_a_dirty_start_is_shown_again_through_the_reset(store: Store, desk: Desk) -> None:
    """The victim never looks at what was left: what is compared is its start."""

    async def elsewhere(recording: Recording) -> None:
        await recording.send(ask("GET", "/deals"))

    desk.faults.add("leaky")
    episodes: list[tuple[str, Any]] = [("v1", elsewhere), ("v2", elsewhere), ("v3", elsewhere)]
    async with serving(desk.app()) as url:
        await recorded(store, desk, url, [*episodes, ("p", work), ("v4", elsewhere)])
        (found,) = findings(store)
        assert (found["kind"], found["episode"]) == ("dirty-reset", "v4")
        told = (await again(store, url)).to_json()
        assert told["verdict"] == "shown again", told
        assert told["told"] == "alone 0/3, after p/3 3/3"
        desk.faults.clear()
        assert (await again(store, url)).to_json()["verdict"] == "not shown again"


async def test_a_reset_that_gives_other_starts_is_tried_by_itself(store: Store, desk: Desk) -> None:
    made = [0]

    class Careless(Desk):
        def seed(self) -> None:
            super().seed()
            made[0] += 1
            if made[0] % 3 == 0:
                self.rows("UPDATE deals SET stage = 'lost' WHERE id = 'D-2'")

    careless = Careless(desk.path)
    made[0] = 0
    async with serving(careless.app()) as url:
        await recorded(store, careless, url, [(f"v{n}", look) for n in range(1, 6)])
        kinds = {f["id"]: f for f in findings(store)}
        (dirty,) = [f for f in kinds.values() if f["kind"] == "dirty-reset"]
        told = (await again(store, url, dirty["id"], repeat=6)).to_json()
    assert (told["verdict"], told["grade"]) == ("shown again", "confirmed"), told
    assert told["told"] == "after the reset 2/6 starts unlike the reference"


async def test_what_ran_side_by_side_is_left_to_race(store: Store, desk: Desk) -> None:
    async with serving(desk.app()) as url:
        await recorded(store, desk, url, [("e", write_and_read)])
        run = store.reader().run("r")
        writer = store.writer()
        lost = {"id": "lost-update-1", "kind": "lost-update", "episode": "e", "values": [1, 2], "run": "r",
                "exchanges": [{"address": "r/e#2", "role": "write"}]}  # fmt: skip
        writer.put_check(run.key, {"run": "r", "findings": [lost]})
        writer.close()
        with pytest.raises(CannotJudge, match="one after the other") as refused:
            await again(store, url)
    assert refused.value.hint == "replayproxy race r/e"


async def test_what_cannot_be_sent_is_refused_before_anything_is(store: Store, desk: Desk) -> None:
    desk.faults.add("stale")
    async with serving(desk.app()) as url:
        await recorded(store, desk, url, [("e", write_and_read)])
        findings(store)
        desk.seen.clear()
        with pytest.raises(UnknownAddress):
            await again(store, url, "F9")
        with pytest.raises(WrongUsage, match="no finding"):
            await again(store, url, "r/e")
        with pytest.raises(WrongUsage, match="not on this machine"):
            await again(store, "http://192.0.2.1:80")
        assert desk.seen == []
    with pytest.raises(WorldTrouble, match="cannot be reached"):
        await again(store, url)
    assert store.reader().trials(store.reader().run("r")) == []


async def test_each_thing_is_said_once_however_often_it_is_done(store: Store, desk: Desk) -> None:
    desk.faults.add("stale")
    told: list[str] = []
    async with serving(desk.app()) as url:
        await recorded(store, desk, url, [("e", write_and_read)])
        findings(store)
        await again(store, url, told=told)
    assert len(told) == len(set(told))
    assert sum("overwriting the state of app" in line for line in told) == 1
    assert any("the state found is kept as before-restore/" in line for line in told)
