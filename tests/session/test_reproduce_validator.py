"""A violated validator, and a 304 that is wrong: found in a real recording, and shown again."""

from __future__ import annotations

from pathlib import Path

import pytest

from replayproxy.storage import Store
from tests.session.redrive_lab import Recording, ask, serving
from tests.session.reproduce_lab import Desk, again, findings, recorded, write_and_read


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "app.db")


async def write_and_ask_whether_it_changed(recording: Recording) -> None:
    await recording.send(ask("GET", "/deals/D-1"))
    await recording.send(ask("PATCH", "/deals/D-1", {"stage": "won"}))
    await recording.send(ask("GET", "/deals/D-1", headers=[("If-None-Match", '"lead"')]))


async def test_one_etag_for_two_bodies_is_shown_again_until_it_is_mended(store: Store, desk: Desk) -> None:
    desk.faults.add("one tag")
    async with serving(desk.app()) as url:
        await recorded(store, desk, url, [("e", write_and_read)])
        (found,) = findings(store)
        assert (found["kind"], found["sub"], found["grade"]) == ("nondeterminism", "validator", "proven")
        assert (found["pointer"], found["values"]) == ("body/stage", ["lead", "won"])
        told = (await again(store, url)).to_json()
        assert (told["verdict"], told["grade"], told["k"], told["n"]) == ("shown again", "confirmed", 3, 3)
        desk.faults = {"another"}
        mended = (await again(store, url)).to_json()
    assert (mended["verdict"], mended["k"], mended["n"], mended["exit"]) == ("not shown again", 0, 3, 0)
    (found,) = findings(store)
    assert found["effect"]["last"] == "one validator, two bodies again 0/3"


async def test_answers_that_bear_no_validator_any_more_decide_nothing(store: Store, desk: Desk) -> None:
    desk.faults.add("one tag")
    async with serving(desk.app()) as url:
        await recorded(store, desk, url, [("e", write_and_read)])
        findings(store)
        desk.faults.clear()
        told = (await again(store, url)).to_json()
    assert (told["verdict"], told["n"]) == ("undecided", 0)
    assert "validator did not come" in told["reasons"][0]


async def test_a_304_after_an_own_write_is_shown_again(store: Store, desk: Desk) -> None:
    desk.faults.add("unchanged")
    async with serving(desk.app()) as url:
        await recorded(store, desk, url, [("e", write_and_ask_whether_it_changed)])
        (found,) = findings(store)
        assert (found["kind"], found["sub"], found["values"]) == ("stale-read", "RYW", ["won", "lead"])
        assert [w["status"] for w in found["exchanges"]] == [200, 200, 304]
        told = (await again(store, url)).to_json()
        assert (told["verdict"], told["told"]) == ("shown again", "old value again 3/3")
        desk.faults = {"another"}
        mended = (await again(store, url)).to_json()
    assert (mended["verdict"], mended["told"]) == ("not shown again", "old value again 0/3")


async def test_a_304_when_nothing_has_changed_is_no_finding(store: Store, desk: Desk) -> None:
    async def only_asks(recording: Recording) -> None:
        await recording.send(ask("GET", "/deals/D-1"))
        await recording.send(ask("PATCH", "/deals/D-2", {"stage": "won"}))
        await recording.send(ask("GET", "/deals/D-1", headers=[("If-None-Match", '"lead"')]))

    desk.faults.add("unchanged")
    async with serving(desk.app()) as url:
        await recorded(store, desk, url, [("e", only_asks)])
        assert findings(store) == []
