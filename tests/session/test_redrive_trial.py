"""Repetitions that differ among themselves are nondeterminism, kept for the next check; others are not."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from replayproxy.session.redrive import Ask, redrive
from replayproxy.session.redrive_report import document
from replayproxy.session.redrive_targets import Words
from replayproxy.session.redrive_trial import carried
from replayproxy.storage import Store
from tests.session.redrive_lab import Recording, ask, serving
from tests.session.reproduce_lab import Desk, findings, look, recorded, scores


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "app.db", rng=random.Random(3))


async def repeated(store: Store, url: str, episode: str = "e", repeat: int = 6) -> dict[str, Any]:
    asked = Ask(addresses=(f"r/{episode}",), words=Words(env=(f"app={url}",)), repeat=repeat)
    return document(await redrive(store, asked, lambda _: None))


async def test_several_answers_from_one_start_are_a_confirmed_finding_of_the_next_check(
    store: Store, desk: Desk
) -> None:
    desk.faults.add("random")
    async with serving(desk.app()) as url:
        await recorded(store, desk, url, [("e", scores)])
        assert findings(store) == []
        told = await repeated(store, url)
        assert sum(told["outcomes"]["counts"]) == 6
        assert "from one start" in told["outcomes"]["told"]
        assert told["finding"]["grade"] == "confirmed"
        await repeated(store, url)  # once more: one fault is told once
    (found,) = findings(store)
    assert (found["kind"], found["sub"], found["grade"], found["episode"]) == (
        "nondeterminism", "repeat", "confirmed", "e",
    )  # fmt: skip
    assert found["values"][1] == "several values"
    assert found["effect"]["last"].endswith("from one start")
    assert found["reproduce"].startswith("replayproxy re")


async def test_the_fault_that_the_check_knows_is_told_once(store: Store, desk: Desk) -> None:
    desk.faults.add("random")
    async with serving(desk.app()) as url:
        await recorded(store, desk, url, [(f"e{n}", scores) for n in range(4)])
        known = findings(store)
        odd = next(f for f in known if f["kind"] == "nondeterminism")
        await repeated(store, url, odd["episode"], 8)
    again = findings(store)
    places = [(f["episode"], f["exchanges"][-1]["address"], f["pointer"]) for f in again]
    assert len(places) == len(set(places))


async def test_repetitions_that_agree_are_no_finding_though_the_recording_differs(store: Store, desk: Desk) -> None:
    async with serving(desk.app()) as url:
        await recorded(store, desk, url, [("e", scores)])
        desk.faults.add("seeded")
        desk.rng = random.Random(0)

        class Fixed(random.Random):
            def randrange(self, *_: Any) -> int:  # type: ignore[override]
                return 1

        desk.rng = Fixed()
        told = await repeated(store, url)
    assert told["verdict"] == "different"
    assert told["outcomes"] == {
        "counts": [6], "repeats": [[1, 2, 3, 4, 5, 6]],
        "told": "6 runs without one only bound its rate: at most 39 % (95 %)",
    }  # fmt: skip
    assert told["finding"] is None
    assert findings(store) == []


async def test_what_goes_from_one_repetition_to_the_next_is_suspected_and_no_ones_fault(
    store: Store, desk: Desk
) -> None:
    """A number in memory that every look raises: no restore puts it back."""

    class Counting(Desk):
        async def last_note(self, request: web.Request) -> web.Response:
            self.added += 1
            return web.json_response({"last": self.added})

    counting = Counting(desk.path)
    async with serving(counting.app()) as url:
        await recorded(store, counting, url, [("e", look)])
        told = await repeated(store, url)
    assert (told["finding"]["sub"], told["finding"]["grade"], told["finding"]["blame"]) == (
        "carried", "suspected", "undecided",
    )  # fmt: skip
    (found,) = findings(store)
    assert found["grade"] == "suspected"


async def test_where_requests_overlap_a_write_both_answers_may_be_right(store: Store, desk: Desk) -> None:
    """Two lanes, of which one writes while the other reads: chance decides who is first."""

    class Either(Desk):
        async def deal(self, request: web.Request) -> web.Response:
            found = self.rows("SELECT stage FROM deals WHERE id = ?", request.match_info["id"])
            return web.json_response({"stage": self.rng.choice(["lead", found[0][0]])})

    async def together(recording: Recording) -> None:
        await asyncio.gather(
            recording.send(ask("PATCH", "/deals/D-1", {"stage": "won"}), lane="a"),
            recording.send(ask("GET", "/deals/D-1"), lane="b"),
        )

    either = Either(desk.path, rng=random.Random(5))
    async with serving(either.app()) as url:
        await recorded(store, either, url, [("e", together)])
        told = await repeated(store, url, repeat=10)
    finding = told["finding"]
    assert finding is None or (finding["sub"], finding["grade"], finding["blame"]) == (
        "scheduling", "suspected", "undecided",
    ) or finding["sub"] == "carried"  # fmt: skip


def test_what_is_drawn_is_told_from_what_is_carried_on() -> None:
    apart = [[1], [2], [3], [4], [5]]
    assert carried(apart, [1, 2, 3, 4, 5])
    assert carried(apart, [5, 4, 3, 2, 1])
    assert not carried(apart, [3, 1, 5, 2, 4])
    assert carried(apart, ["a", "ab", "abc", "abcd", "abcde"])
    assert carried([[2, 3, 4, 5], [1]], [0, 7, 7, 7, 7])
    assert not carried([[1, 3, 4], [2, 5]], [0, 7, 0, 0, 7])
