"""Verdicts while recording: the real recorder and the real judging process, over the demo's suite with its faults."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from replayproxy.core.values import Episode, EpisodeState, Outcome
from replayproxy.demo import data
from replayproxy.demo.environment import Suite
from replayproxy.session import online
from replayproxy.session.config import Config
from replayproxy.session.online import Verdicts, unjudged
from replayproxy.session.record_options import RecordOptions
from replayproxy.session.recorder import Recorder
from replayproxy.session.wiring import EnvSpec
from replayproxy.state.loader import load
from replayproxy.storage import open_store


class Lab:
    """A recorder over the demo's suite, and an agent's hands."""

    def __init__(self, recorder: Recorder, http: aiohttp.ClientSession, said: list[str], direct: str) -> None:
        self.recorder, self.http, self.said, self.direct = recorder, http, said, direct

    async def reset(self) -> None:
        async with self.http.post(self.direct + "/admin/reset", json={"task": "t", "seed": 1}) as answer:
            assert answer.status == 200

    async def api(self, method: str, path: str, **body: Any) -> dict[str, Any]:
        url = f"{self.recorder.control}/v1/episodes{path}"
        async with self.http.request(method, url, json=body if method == "POST" else None) as answer:
            told: dict[str, Any] = await answer.json()
            assert answer.status < 300, told
            return told

    async def open(self, name: str) -> str:
        told = await self.api("POST", "", episode=name, task="t", seed=1)
        return str(told["urls"]["app"])

    async def ask(self, url: str, method: str = "GET", **body: Any) -> tuple[int, Any]:
        async with self.http.request(method, url, json=body or None) as answer:
            told = await answer.json(content_type=None) if "json" in answer.content_type else None
            return answer.status, told


@asynccontextmanager
async def lab(tmp_path: Path, *, faults: tuple[str, ...] = (), **given: Any) -> AsyncIterator[Lab]:
    database = data.connect(str(tmp_path / "suite.db"))
    runner = web.AppRunner(Suite(database, faults).app(), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
    url, said = f"http://127.0.0.1:{port}", []
    options = RecordOptions(
        store=tmp_path / "store", run="r", envs=(EnvSpec(name="app", upstream=url),), log_every=0.0,
        snapshots=(load("app", f"http:{url}/admin/state"),), **given,
    )  # fmt: skip
    with open_store(options.store, create=True) as store:
        writer = store.writer()
        recorder = Recorder(options, store, writer, said.append)
        try:
            await recorder.start()
            async with aiohttp.ClientSession() as http:
                yield Lab(recorder, http, said, url)
            await recorder.stop(None)
        finally:
            await recorder.abandon()
            writer.close()
    await runner.cleanup()
    database.close()


async def test_the_end_of_an_episode_says_whether_to_mask_it(tmp_path: Path) -> None:
    async with lab(tmp_path, faults=("leaky-reset",)) as bench:
        told = []
        for number in range(5):
            await bench.reset()
            url = await bench.open(f"e{number}")
            await bench.ask(url + "/deals")
            if number == 3:
                status, _ = await bench.ask(url + "/deals", "POST", name="Left behind", owner="ada", amount=77001)
                assert status == 201
            told.append(await bench.api("POST", f"/e{number}/end", reward=1.0))
        assert [one["verdict"] for one in told] == ["clean"] * 4 + ["poisoned"]
        assert [one["mask"] for one in told] == [False] * 4 + [True]
        (reason,) = [one for one in told[4]["reasons"] if one["kind"] == "state-bleed"]
        assert (reason["grade"], reason["blame"]) == ("proven", "environment")
        assert {"address": "r/e3#2", "role": "write"} in reason["exchanges"]
        assert told[3]["coverage"]["checked"] != []
        assert await bench.api("POST", "/e4/end", reward=1.0) == told[4]
        assert await bench.api("GET", "/e4/verdict") == told[4]
        tally = bench.recorder.recording.tally
        assert tally.verdicts == {"clean": 4, "poisoned": 1}
        document = tally.document()
    assert document["verdicts"] == {"clean": 4, "poisoned": 1}


async def test_what_is_known_against_an_open_episode_is_told_at_once(tmp_path: Path) -> None:
    async with lab(tmp_path, faults=("leaky-reset",)) as bench:
        await _three_clean_then_a_deal(bench)
        await bench.reset()
        url = await bench.open("victim")
        before = await bench.api("GET", "/victim/verdict")
        assert (before["state"], before["so_far"]) == ("open", True)
        assert [one["kind"] for one in before["reasons"]] == ["dirty-reset"]
        await bench.ask(url + "/deals")
        after = await bench.api("GET", "/victim/verdict")
        assert (after["verdict"], after["mask"]) == ("poisoned", True)
        async with bench.http.get(f"{bench.recorder.control}/v1/episodes/nobody/verdict") as answer:
            assert answer.status == 404


async def _three_clean_then_a_deal(bench: Lab) -> None:
    for number in range(4):
        await bench.reset()
        url = await bench.open(f"e{number}")
        await bench.ask(url + "/deals")
        if number == 3:
            await bench.ask(url + "/deals", "POST", name="Left behind", owner="ada", amount=77001)
        await bench.api("POST", f"/e{number}/end")


async def test_fail_fast_lets_a_poisoned_episode_get_no_further(tmp_path: Path) -> None:
    async with lab(tmp_path, faults=("leaky-reset",), fail_fast=True) as bench:
        await _three_clean_then_a_deal(bench)
        await bench.reset()
        url = await bench.open("victim")
        await bench.ask(url + "/deals")
        status: int = 200
        for _ in range(300):
            status, told = await bench.ask(url + "/deals")
            if status != 200:
                break
            await asyncio.sleep(0.05)
        assert status == 471
        assert told["answered_by"] == "replayproxy"
        assert "stopped by --fail-fast: proven" in told["detail"]
        ended = await bench.api("POST", "/victim/end")
        assert (ended["verdict"], ended["mask"]) == ("poisoned", True)
        assert bench.recorder.recording.tally.stopped == ["victim"]
        assert any("stopped by --fail-fast" in line for line in bench.said)
        # The next one on a clean environment is not held responsible.
        async with bench.http.put(bench.direct + "/admin/state", json=await _clean(bench)) as answer:
            assert answer.status == 204
        url = await bench.open("next")
        assert (await bench.ask(url + "/deals"))[0] == 200
    with open_store(tmp_path / "store") as store:
        reader = store.reader()
        run = reader.run("r")
        trace = reader.trace(run, reader.episode(run, "victim"))
    assert trace.exchanges[-1].outcome is Outcome.LOCAL
    assert next(event.detail["why"] for event in trace.events if event.kind == "fail-fast").startswith("proven")


async def _clean(bench: Lab) -> Any:
    """The state that the first three episodes began in."""
    _, told = await bench.ask(bench.direct + "/admin/state")
    return {**told, "deals": {key: row for key, row in told["deals"].items() if row["amount"] != 77001}}


async def test_an_environment_that_only_fails_stops_an_episode_too(tmp_path: Path) -> None:
    async with lab(tmp_path, fail_fast=True) as bench:
        url = await bench.open("e")
        for number in range(400):
            status, _ = await bench.ask(f"{url}/slots?day=x{number}")  # int("x..") raises in the suite: a 500
            if status == 471:
                break
            assert status == 500
            await asyncio.sleep(0.05)
        assert status == 471
        assert "the environment failed" in bench.said[-1]


async def test_without_verdicts_the_end_says_that_nothing_was_judged(tmp_path: Path) -> None:
    async with lab(tmp_path, verdicts=False) as bench:
        await bench.open("e")
        for told in (await bench.api("GET", "/e/verdict"), await bench.api("POST", "/e/end")):
            assert (told["verdict"], told["mask"]) == ("unknown", False)
            assert all("--judge off" in why for why in told["coverage"]["not_checked"].values())


# The process that judges, when it does not do its work


SEALED = Episode(key=1, run_key=1, name="e", opened=1, opened_wall=1, state=EpisodeState.SEALED)


def process(tmp_path: Path, code: str) -> Verdicts:
    return Verdicts(store=tmp_path, run="r", config=None, program=(sys.executable, "-c", code))


@pytest.mark.parametrize("code", ["", "import sys; sys.stdin.readline(); sys.stdin.readline()"])
async def test_a_process_that_ends_costs_verdicts_and_nothing_else(tmp_path: Path, code: str) -> None:
    verdicts = process(tmp_path, code)
    for _ in range(online.TRIES + 1):
        assert (await verdicts.of_sealed(SEALED))["coverage"] == unjudged("e", online.GONE)["coverage"]
    await verdicts.close()


async def test_nobody_waits_long_and_the_verdict_can_be_had_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(online, "WITHIN", 0.05)
    go = tmp_path / "go"
    code = (
        "import json, pathlib, sys, time\n"
        "sys.stdin.readline()\n"
        "asked = json.loads(sys.stdin.readline())\n"
        f"while not pathlib.Path({str(go)!r}).exists(): time.sleep(0.01)\n"
        "print(json.dumps({'id': asked['id'], 'verdict': {'verdict': 'clean', 'episode': 'e'}}), flush=True)\n"
        "sys.stdin.read()\n"
    )
    verdicts = process(tmp_path, code)
    assert (await verdicts.of_sealed(SEALED))["coverage"]["not_checked"]["race"] == online.LATER
    go.touch()
    for _ in range(1000):
        told = await verdicts.of_sealed(SEALED)
        if told["verdict"] == "clean":
            break
    assert told == {"verdict": "clean", "episode": "e"}
    await verdicts.close()


async def test_an_incomplete_episode_has_no_verdict(tmp_path: Path) -> None:
    verdicts = process(tmp_path, "raise SystemExit('nobody is to start this')")
    broken = Episode(key=1, run_key=1, name="e", opened=1, opened_wall=1, state=EpisodeState.INCOMPLETE)
    told = await verdicts.of_sealed(broken)
    assert told["coverage"]["not_checked"]["stale-read"] == "the episode is incomplete"
    await verdicts.close()


async def test_what_the_config_silences_poisons_nothing_while_recording_either(tmp_path: Path) -> None:
    told = []
    for silenced in (False, True):
        where = tmp_path / str(silenced)
        where.mkdir()
        config = where / "replayproxy.toml"
        entries = ('"dirty-reset POST /deals"', '"state-bleed POST /deals"')
        lines = [f'{what} = {{reason = "known, and looked at"}}' for what in entries]
        config.write_text("[silence]\n" + "\n".join(lines * silenced))
        async with lab(where, faults=("leaky-reset",), config=Config(path=config)) as bench:
            await _three_clean_then_a_deal(bench)
            await bench.reset()
            url = await bench.open("victim")
            await bench.ask(url + "/deals")
            told.append((await bench.api("POST", "/victim/end"))["verdict"])
    assert told == ["poisoned", "clean"]


async def test_two_that_ask_at_once_ask_once(tmp_path: Path) -> None:
    code = (
        "import json, sys\n"
        "sys.stdin.readline()\n"
        "for line in sys.stdin:\n"
        "    told = {'verdict': 'clean', 'episode': 'e'}\n"
        "    print(json.dumps({'id': json.loads(line)['id'], 'verdict': told}), flush=True)\n"
    )
    counted: list[Any] = []
    verdicts = Verdicts(
        store=tmp_path, run="r", config=None, program=(sys.executable, "-c", code), on_told=counted.append
    )
    told = await asyncio.gather(*(verdicts.of_sealed(SEALED) for _ in range(5)))
    assert [one["verdict"] for one in told] == ["clean"] * 5
    assert len(counted) == 1
    await verdicts.close()


@pytest.mark.parametrize("said", ["no JSON", "[1]", "{}\nx"])
async def test_a_process_that_says_nonsense_is_ended(tmp_path: Path, said: str) -> None:
    code = f"import sys, time; sys.stdin.readline(); print({said!r}, flush=True); time.sleep(600)"
    verdicts = process(tmp_path, code)
    told = await verdicts.of_sealed(SEALED)
    assert told["coverage"]["not_checked"]["race"] == online.GONE
    await verdicts.close()
