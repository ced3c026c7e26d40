"""Environment 1 as the rig drives it."""

from __future__ import annotations

import asyncio
import random

import aiohttp
from aiohttp import web

from replayproxy.state.loader import Loaded
from tests.faults import agents
from tests.faults.agents import Api
from tests.faults.ledger import Ledger
from tests.faults.matrix import Plan
from tests.faults.suite import Marked, serve
from tests.faults.suite_resets import FAULTS


class CrmWorld:
    """`workers` instances of the suite in this process, with one injector for all."""

    state = "/admin/state"
    snapshots: tuple[Loaded, ...] = ()

    def __init__(self) -> None:
        self.ledgers: list[Ledger] = []
        self.urls: list[str] = []
        self._suites: list[Marked] = []
        self._runners: list[web.AppRunner] = []
        self._http: aiohttp.ClientSession | None = None

    async def start(self, plan: Plan, seed: int) -> CrmWorld:
        injector = FAULTS[plan.fault](
            fault=plan.fault, p=plan.p, seconds=plan.seconds, every=plan.every, seed=seed
        )  # fmt: skip
        for _ in range(plan.workers):
            suite = Marked(injector, Ledger())
            runner, url = await serve(suite)
            self.ledgers.append(suite.ledger)
            self.urls.append(url)
            self._suites.append(suite)
            self._runners.append(runner)
        self._http = aiohttp.ClientSession()
        return self

    async def reset(self, worker: int, task: str, seed: int, mark: str) -> None:
        assert self._http is not None
        asked = {"task": task, "seed": seed}
        url = self.urls[worker] + "/admin/reset"
        async with self._http.post(url, json=asked, headers={"X-Call": mark}) as answer:
            assert answer.status == 200, await answer.text()

    async def before(self, api: Api, rng: random.Random, script: str) -> None:
        await agents.before(api, rng, script)

    async def lane(self, api: Api, rng: random.Random, script: str) -> None:
        await agents.SCRIPTS[script](api, rng)

    async def settle(self) -> None:
        """What was still to be done in the background is not waited for: the run is over."""
        left = [task for suite in self._suites for task in suite.background]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def close(self) -> None:
        for runner in self._runners:
            await runner.cleanup()
        for suite in self._suites:
            suite.database.close()
        if self._http is not None:
            await self._http.close()
