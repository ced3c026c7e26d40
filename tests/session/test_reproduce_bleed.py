"""A bleed is shown again: the victim alone, after the polluter, after the part of it that is enough; or it is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from replayproxy.storage import Store
from tests.session.redrive_lab import serving
from tests.session.reproduce_lab import Desk, again, findings, look, recorded, work

ROLLOUTS = [("v1", look), ("v2", look), ("v3", look), ("p", work), ("v4", look)]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "app.db")


async def test_what_the_reset_left_is_shown_alone_and_after_the_one_exchange_that_is_enough(
    store: Store, desk: Desk
) -> None:
    desk.faults.add("leaky")
    async with serving(desk.app()) as url:
        await recorded(store, desk, url, ROLLOUTS)
        found = findings(store)
        assert [(f["kind"], f["episode"]) for f in found] == [("state-bleed", "v4")]
        one = await again(store, url)
    told = one.to_json()
    assert told["verdict"] == "shown again", told
    assert told["told"] == "alone 0/3, after p/3 3/3"
    assert (told["grade"], told["exit"]) == ("confirmed", 1)
    assert told["evidence"]["minimal"] == ["r/p#3"]
    assert told["evidence"]["between"] == "reset"
    assert told["evidence"]["outside_snapshots"] is False
    assert [row.partition("/")[0] for row in told["evidence"]["rows"]] == ["notes"]
    assert told["before"]
    (again_found,) = findings(store)
    assert again_found["effect"]["last"] == "alone 0/3, after p/3 3/3"


async def test_where_no_reset_is_known_what_is_left_is_shown_and_confirms_nothing(store: Store, desk: Desk) -> None:
    """A harness resets past the recorder: the reset that was never tried may be a good one."""
    async with serving(desk.app()) as url:
        await recorded(store, desk, url, ROLLOUTS, reset=False)
        findings(store)
        one = await again(store, url)
        with_reset = await again(store, url, reset=(f"app=POST {url}/reset",))
    told = one.to_json()
    assert (told["verdict"], told["exit"], told["grade"]) == ("shown again", 1, None)
    assert told["told"] == "alone 0/3, after p/2 3/3 (no reset between)"
    assert any("--reset" in reason for reason in told["reasons"])
    assert with_reset.to_json()["verdict"] == "not shown again"


async def test_a_reset_that_was_mended_does_not_show_it_again(store: Store, desk: Desk) -> None:
    desk.faults.add("leaky")
    async with serving(desk.app()) as url:
        await recorded(store, desk, url, ROLLOUTS)
        findings(store)
        desk.faults.clear()
        one = await again(store, url)
    told = one.to_json()
    assert (told["verdict"], told["exit"], told["grade"]) == ("not shown again", 0, None)
    assert told["told"].startswith("alone 0/3, after 6 exchanges of p")
    assert told["told"].endswith("0/3")
    (found,) = findings(store)
    assert found["grade"] == "proven"  # what was recorded is as it was
    assert found["effect"]["last"] == told["told"]


async def test_what_no_snapshot_shows_is_said_to_be_outside_their_scope(store: Store, desk: Desk) -> None:
    """The note is in memory too: the start states are equal, and the next episode is answered otherwise."""
    desk.faults.add("hidden")
    async with serving(desk.app()) as url:
        await recorded(store, desk, url, ROLLOUTS)
        found = findings(store)
        assert [(f["kind"], f["episode"]) for f in found] == [("state-bleed", "v4")]
        desk.kept = None  # the environment was started anew
        one = await again(store, url)
    told = one.to_json()
    assert (told["verdict"], told["grade"]) == ("shown again", "confirmed"), told
    assert told["told"] == "alone 0/3, after 6 exchanges of p (1, 2, 3, 4, 5, 6) 3/3 (bleed outside snapshot scope)"
    assert told["evidence"]["outside_snapshots"] is True
    assert any("do not undo it" in reason for reason in told["reasons"])


async def test_what_comes_now_and_then_is_stated_as_it_is(store: Store, desk: Desk) -> None:
    desk.faults |= {"hidden", "ages", "moody"}
    async with serving(desk.app()) as url:
        await recorded(store, desk, url, ROLLOUTS)
        assert [(f["kind"], f["episode"]) for f in findings(store)] == [("state-bleed", "v4")]
        desk.kept = None
        one = await again(store, url, repeat=8)
    told = one.to_json()
    assert (told["verdict"], told["grade"]) == ("shown again", "confirmed"), told
    assert (told["evidence"]["alone"], told["evidence"]["after"]) == ([0, 8], [4, 8])
    assert "alone 0/8, after 6 exchanges of p (1, 2, 3, 4, 5, 6) 4/8" in told["told"]


async def test_too_few_of_too_few_are_not_confirmed(store: Store, desk: Desk) -> None:
    desk.faults |= {"hidden", "ages", "moody"}
    async with serving(desk.app()) as url:
        await recorded(store, desk, url, ROLLOUTS)
        findings(store)
        desk.kept = None
        one = await again(store, url, repeat=4)
    assert one.to_json()["grade"] is None


async def test_an_exchange_is_kept_with_the_one_that_named_what_it_needs(store: Store, desk: Desk) -> None:
    desk.faults |= {"hidden edit", "ages"}
    async with serving(desk.app()) as url:
        await recorded(store, desk, url, ROLLOUTS)
        assert [(f["kind"], f["episode"]) for f in findings(store)] == [("state-bleed", "v4")]
        desk.kept = None
        one = await again(store, url)
    told = one.to_json()
    assert told["evidence"]["minimal"] == ["r/p#3", "r/p#5"], told
    assert told["told"] == "alone 0/3, after p/3 and p/5 3/3 (bleed outside snapshot scope)"


async def test_a_victim_that_shows_it_alone_is_not_judged(store: Store, desk: Desk) -> None:
    desk.faults.add("hidden")
    async with serving(desk.app()) as url:
        await recorded(store, desk, url, ROLLOUTS)
        findings(store)
        one = await again(store, url)  # the same process: what p left is still in its memory
    told = one.to_json()
    assert (told["verdict"], told["exit"]) == ("undecided", 3)
    assert told["told"] == "alone 3/3: nothing of p is needed"
    assert "start the environment anew" in told["reasons"][0]


async def test_an_answer_that_its_episode_alone_does_not_show_is_tried_after_the_ones_before_it(
    store: Store, desk: Desk
) -> None:
    """What went over says nothing by itself (a number): the check cannot know whose it is, and trying can."""
    desk.faults |= {"hidden", "counted", "ages"}
    async with serving(desk.app()) as url:
        await recorded(store, desk, url, ROLLOUTS)
        assert [(f["kind"], f["episode"]) for f in findings(store)] == [("nondeterminism", "v4")]
        still = (await again(store, url)).to_json()
        assert (still["verdict"], still["told"]) == ("undecided", "3/3 alike, as recorded")
        desk.kept = None
        told = (await again(store, url)).to_json()
    assert told["told"] == "alone 0/3, after p/3 3/3 (bleed outside snapshot scope)", told
