"""A lost update is shown again by sending the two requests together, not one after the other."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from replayproxy.errors import CannotJudge
from replayproxy.storage import Store
from tests.session.redrive_lab import Recording, ask, serving
from tests.session.reproduce_lab import Desk, again, recorded


class Slots(Desk):
    """A name that the first to come gets; the check and the write are apart when `racy`."""

    def app(self) -> web.Application:
        app = super().app()
        app.router.add_post("/claims", self.claim)
        return app

    async def claim(self, request: web.Request) -> web.Response:
        told = await request.json()
        if self.rows("SELECT id FROM notes WHERE deal = 'slot'"):
            return web.json_response({"error": "taken"}, status=409)
        if "racy" in self.faults:
            await asyncio.sleep(0.05)
        self.rows("INSERT INTO notes VALUES (?, 'slot', ?)", told["who"], told["who"])
        return web.json_response({"holder": told["who"]}, status=201)


async def two_claims(recording: Recording) -> None:
    await recording.send(ask("POST", "/claims", {"who": "ada"}))
    await recording.send(ask("POST", "/claims", {"who": "bea"}))


def put(store: Store, *addresses: str) -> None:
    run = store.reader().run("r")
    told = {"id": "race-1", "kind": "race", "sub": "double-claim", "episode": "e", "values": ["ada", "bea"], "run": "r",
            "exchanges": [{"address": address, "role": "claim"} for address in addresses]}  # fmt: skip
    writer = store.writer()
    writer.put_check(run.key, {"run": "r", "findings": [told]})
    writer.close()


@pytest.mark.parametrize("racy", [True, False])
async def test_two_that_claim_together_are_both_let_in_or_not(store: Store, tmp_path: Path, racy: bool) -> None:
    slots = Slots(tmp_path / "app.db", {"racy"} if racy else set())
    async with serving(slots.app()) as url:
        await recorded(store, slots, url, [("e", two_claims)])
        put(store, "r/e#1", "r/e#2")
        told: dict[str, Any] = (await again(store, url)).to_json()
    if racy:
        assert (told["verdict"], told["grade"], told["exit"]) == ("shown again", "confirmed", 1), told
        assert told["k"] > 0
    else:
        assert (told["verdict"], told["k"], told["exit"]) == ("not shown again", 0, 0), told
    assert told["n"] == 20


async def test_one_request_is_no_race(store: Store, tmp_path: Path) -> None:
    slots = Slots(tmp_path / "app.db")
    async with serving(slots.app()) as url:
        await recorded(store, slots, url, [("e", two_claims)])
        put(store, "r/e#1", "r/other#2")
        with pytest.raises(CannotJudge, match="not two of one episode"):
            await again(store, url)
