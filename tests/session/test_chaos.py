"""`record --chaos` whole: the same faults in a second run, marked as injected, blamed on nobody, and replayed."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from replayproxy.core.chaos import parse_chaos
from replayproxy.core.values import Exchange, Outcome
from replayproxy.errors import WrongUsage
from replayproxy.session.check import check
from replayproxy.session.check_document import Demands
from replayproxy.session.look import looking
from replayproxy.session.record import Recorded, record
from replayproxy.session.record_options import RecordOptions
from replayproxy.session.wiring import EnvSpec
from replayproxy.state.loader import load
from replayproxy.storage import open_store
from tests.session.test_record_options import options as parsed
from tests.session.test_replay import replayed

AGENT = """
import http.client, json, os, sys, urllib.parse

def walk(base):
    url, saw = urllib.parse.urlsplit(base), []
    for n in range(24):
        method, body = ('POST', b'n=%d' % n) if n % 3 == 0 else ('GET', None)
        there = http.client.HTTPConnection(url.hostname, url.port, timeout=10)
        try:
            there.request(method, url.path + '/deals/%d' % n, body)
            answer = there.getresponse()
            saw.append([answer.status, answer.read().decode()])
        except http.client.IncompleteRead as cut:
            saw.append(['cut', cut.partial.decode()])
        except (ConnectionError, http.client.HTTPException):
            saw.append(['ended'])
        there.close()
    open(sys.argv[1], 'w').write(json.dumps(saw))
"""
ONCE = "walk(os.environ['REPLAYPROXY_URL_APP'])"
SIBLINGS = """
import replayproxy
for _ in range(4):
    episode = replayproxy.open_episode(task='t', seed=1)
    walk(episode.url('app'))
    episode.end(reward=1.0)
"""
RULES = ("status 503 25%", "reset 25%", "truncate 7 30%", "latency 20ms 30%")


class World:
    def __init__(self) -> None:
        self.asked = 0
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        if request.path == "/state":
            return web.json_response({"counter": {"1": {"asked": 0}}})
        self.asked += 1
        return web.json_response({"path": request.path, "method": request.method})


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    runner = web.ServerRunner(web.Server(made.answer), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"  # type: ignore[union-attr]
    yield made
    await runner.cleanup()


def agent(path: Path, then: str = ONCE) -> list[str]:
    return [sys.executable, "-c", AGENT + then, str(path)]


async def recorded(world: World, tmp_path: Path, run: str, **more: Any) -> tuple[Recorded, list[Any], list[str]]:
    """How it ended, what the agent saw, and what was said."""
    then = more.pop("then", ONCE)
    given = {
        "episode": "e",
        "chaos": parse_chaos(RULES, 3),
        "snapshots": (load("app", f"http:{world.url}/state"),),
        **more,
    }
    options = RecordOptions(
        store=tmp_path / "store", run=run, envs=(EnvSpec(name="app", upstream=world.url),), log_every=0.0,
        **given,
    )  # fmt: skip
    said: list[str] = []
    done = await record(options, agent(tmp_path / run, then), say=said.append)
    return done, json.loads((tmp_path / run).read_text()), said


def stored(tmp_path: Path, run: str) -> list[Exchange]:
    with open_store(tmp_path / "store") as store:
        reader = store.reader()
        return list(reader.exchanges(reader.episode(reader.run(run), "e")))


async def test_a_second_run_has_the_same_faults_at_the_same_places(world: World, tmp_path: Path) -> None:
    first, saw, said = await recorded(world, tmp_path, "one")
    asked = world.asked
    _, again, _ = await recorded(world, tmp_path, "two")
    assert saw == again
    assert world.asked == 2 * asked
    kinds = {one[0] for one in saw}
    assert kinds == {200, 503, "cut", "ended"}
    notes = [[one.injected for one in stored(tmp_path, run)] for run in ("one", "two")]
    assert notes[0] == notes[1]
    assert {note.split()[0] for note in notes[0] if note} == {"status", "reset", "truncate", "latency"}
    assert first.document["injected"] == {
        kind: sum(note.startswith(kind) for note in notes[0]) for kind in first.document["injected"]
    }
    assert any("FAULTS ARE INJECTED" in line for line in said)
    assert any("injected by --chaos" in line for line in first.lines)


async def test_another_seed_has_other_faults_and_without_the_option_there_are_none(
    world: World, tmp_path: Path
) -> None:
    _, saw, _ = await recorded(world, tmp_path, "one")
    _, other, _ = await recorded(world, tmp_path, "two", chaos=parse_chaos(RULES, 4))
    done, none, _ = await recorded(world, tmp_path, "three", chaos=None)
    assert saw != other
    assert {one[0] for one in none} == {200}
    assert done.document["injected"] == {}


async def test_what_was_injected_is_recorded_as_such_and_blamed_on_nobody(world: World, tmp_path: Path) -> None:
    done, _, _ = await recorded(world, tmp_path, "one")
    assert (done.exit, done.document["whole"]) == (0, True)
    for one in stored(tmp_path, "one"):
        kind = one.injected.split()[0] if one.injected else ""
        assert (one.outcome is Outcome.LOCAL) == (kind in ("status", "reset"))
        if one.outcome is Outcome.ANSWERED:
            assert one.response is not None
            assert one.response.status == 200
            assert json.loads(one.response.body.inline or b"")["path"]  # type: ignore[union-attr]
    assert (judged(tmp_path, "one")["findings"], judged(tmp_path, "one")["failure_rate"]) == ([], 0)


def judged(tmp_path: Path, run: str) -> dict[str, Any]:
    with looking([tmp_path / "store"]) as stores:
        (one,) = check(stores, [run], Demands(), now=5)
    return dict(one.to_json())


async def test_siblings_that_had_other_faults_are_no_sign_of_an_environment_that_is_not_the_same_twice(
    world: World, tmp_path: Path
) -> None:
    await recorded(world, tmp_path, "one", then=SIBLINGS, episode=None)
    with open_store(tmp_path / "store") as store:
        reader = store.reader()
        episodes = list(reader.episodes(reader.run("one")))
        notes = {tuple(one.injected for one in reader.exchanges(episode)) for episode in episodes}
    assert len(notes) == len(episodes) == 4
    told = judged(tmp_path, "one")
    assert (told["findings"], told["failure_rate"]) == ([], 0)
    assert all("nondeterminism" in one["checked"] for one in told["coverage"].values()), told["coverage"]
    assert set(told["verdicts"].values()) == {"clean"}


async def test_the_run_keeps_the_rules_and_the_seed(world: World, tmp_path: Path) -> None:
    await recorded(world, tmp_path, "one")
    with open_store(tmp_path / "store") as store:
        assert store.reader().run("one").config["chaos"] == {"rules": list(RULES), "seed": 3}


async def test_workers_put_in_the_same_faults(world: World, tmp_path: Path) -> None:
    _, saw, _ = await recorded(world, tmp_path, "one")
    _, again, _ = await recorded(world, tmp_path, "two", workers=2)
    assert saw == again


async def test_a_replay_gives_the_agent_what_it_got_faults_and_all(world: World, tmp_path: Path) -> None:
    _, saw, _ = await recorded(world, tmp_path, "one")
    asked = world.asked
    with open_store(tmp_path / "store") as store:
        done = await replayed(store, "one/e", agent(tmp_path / "replayed"))
    assert json.loads((tmp_path / "replayed").read_text()) == saw
    assert world.asked == asked
    assert done.exit == 0


def test_the_options_are_read_from_flags_and_file_and_a_seed_alone_is_refused() -> None:
    made = parsed(chaos=("reset 5%",), chaos_seed=9).chaos
    assert made is not None
    assert ([rule.fault.kind for rule in made.rules], made.seed) == (["reset"], 9)
    assert parsed().chaos is None
    with pytest.raises(WrongUsage, match="--chaos-seed 9 is for --chaos"):
        parsed(chaos_seed=9)
