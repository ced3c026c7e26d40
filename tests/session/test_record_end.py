"""How `record` ends: commands that fail, signals, idle episodes, faults of its own, stores that cannot seal."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from replayproxy.core.values import EpisodeState, Outcome
from replayproxy.errors import StoreTrouble
from replayproxy.session.record import record
from replayproxy.session.recorder import Recorder
from replayproxy.storage import open_store
from tests.session.record_kit import appeared, options, run


@pytest.mark.parametrize(("command", "code"), [("/nowhere/agent", 127), ("/etc/passwd", 126)])
async def test_a_command_that_cannot_run_leaves_no_run(world: Any, tmp_path: Path, command: str, code: int) -> None:
    _, url = world
    made = options(tmp_path, url, episode="e")
    recorded, _ = await run(made, command=[command])
    assert (recorded.exit, recorded.command_exit) == (code, None)
    assert command in recorded.lines[0]
    with open_store(made.store) as store:
        assert store.reader().runs() == []


@pytest.mark.parametrize("command", [["true"], []])
async def test_a_signal_before_it_has_begun_leaves_no_run(
    world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    begin = Recorder.start

    async def signalled(recorder: Recorder) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await begin(recorder)
        await asyncio.sleep(0.05)  # a turn of the loop, in which it is heard

    monkeypatch.setattr(Recorder, "start", signalled)
    _, url = world
    made = options(tmp_path, url, episode="e")
    recorded, _ = await run(made, command=command)
    assert (recorded.exit, recorded.command_exit) == (3, None)
    with open_store(made.store) as store:
        assert store.reader().runs() == []


async def test_a_command_killed_by_a_signal_is_128_plus_its_number(world: Any, tmp_path: Path) -> None:
    _, url = world
    recorded, _ = await run(options(tmp_path, url, episode="e"), "get(URL); os.kill(os.getpid(), 9)")
    assert recorded.exit == 128 + 9


async def test_a_signal_without_a_command_seals_what_is_open(world: Any, tmp_path: Path) -> None:
    _, url = world
    ready = tmp_path / "ready.json"
    made = options(tmp_path, url, ready_file=ready, undeclared="accept")
    recording = asyncio.create_task(run(made))
    told = await appeared(ready)
    async with aiohttp.ClientSession() as http:
        mark = {"X-Replay-Episode": "x"}
        async with http.get(told["envs"]["app"] + "/events", headers=mark) as stream:
            await stream.content.readline()
            began = time.monotonic()
            os.kill(os.getpid(), signal.SIGTERM)
            recorded, _ = await recording
    assert time.monotonic() - began < 8
    assert recorded.exit == 0, recorded.document
    with open_store(made.store) as store:
        reader = store.reader()
        episode = reader.episode(reader.run("r"), "x")
        assert [e.outcome for e in reader.exchanges(episode)] == [Outcome.OPEN_AT_END]
        assert (episode.state, episode.ended_by) == (EpisodeState.SEALED, "stop")


async def test_a_signal_ends_a_command_that_would_not_end(world: Any, tmp_path: Path) -> None:
    _, url = world
    started = tmp_path / "started"
    code = (
        f"import signal, time; signal.signal(15, signal.SIG_IGN); get(URL)\n"
        f"os.rename(sys.argv[0], sys.argv[0]) if 0 else open({str(started)!r}, 'w').write('{{}}'); time.sleep(60)"
    )
    recording = asyncio.create_task(run(options(tmp_path, url, episode="e"), code))
    await appeared(started)
    began = time.monotonic()
    os.kill(os.getpid(), signal.SIGTERM)
    recorded, _ = await recording
    assert recorded.exit == 128 + 9
    assert recorded.document["whole"] is True
    assert time.monotonic() - began < 8


async def test_an_idle_episode_is_sealed_while_the_recorder_runs(world: Any, tmp_path: Path) -> None:
    _, url = world
    ready = tmp_path / "ready.json"
    made = options(tmp_path, url, ready_file=ready, idle=0.2)
    said: list[str] = []
    recording = asyncio.create_task(record(made, say=said.append))
    told = await appeared(ready)
    async with aiohttp.ClientSession() as http:
        await http.get(told["envs"]["app"] + "/rp/quiet/a")
        async with asyncio.timeout(10):
            while not any("quiet" in line for line in said):
                await asyncio.sleep(0.02)
        answer = await http.get(told["control"] + "/v1/episodes/quiet")
        assert (await answer.json())["ended_by"] == "idle"
        os.kill(os.getpid(), signal.SIGINT)
    assert (await recording).exit == 0


async def test_how_things_stand_is_told_often_on_a_terminal_and_now_and_then_elsewhere(
    world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, url = world
    monkeypatch.setattr("replayproxy.session.recorder.PROGRESS_SECONDS", 0.01)
    for terminal in (True, False):
        said: list[str] = []
        standing: list[str] = []
        progress = standing.append if terminal else None
        made = options(tmp_path, url, run=f"r{terminal}", log_every=0.01)
        recording = asyncio.create_task(record(made, say=said.append, progress=progress))
        async with asyncio.timeout(10):
            while not (standing if terminal else [line for line in said if "unattributed" in line]):
                await asyncio.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)
        assert (await recording).exit == 3
        assert any("exchanges 0" in line for line in (standing if terminal else said))
        assert not (terminal and any("exchanges 0" in line for line in said))


async def test_a_fault_of_the_recorder_lets_traffic_pass_and_ends_as_3(
    world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment, url = world
    from replayproxy.session.recording import Recording

    def planted(*_: Any, **__: Any) -> Any:
        raise RuntimeError("planted")

    monkeypatch.setattr(Recording, "finished", planted)
    recorded, _ = await run(options(tmp_path, url, episode="e"), "assert get(URL + '/a')['path'] == '/a'")
    assert (recorded.exit, recorded.command_exit) == (3, 0)
    assert recorded.document["incomplete"] == ["e"]
    assert ("GET", "/a") in environment.seen


async def test_a_store_that_cannot_seal_ends_as_4(world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, url = world
    from replayproxy.storage import Writer

    def full(*_: Any) -> Any:
        raise StoreTrouble("disk full")

    monkeypatch.setattr(Writer, "seal", full)
    recorded, _ = await run(options(tmp_path, url, episode="e"), "get(URL)")
    assert (recorded.exit, recorded.command_exit) == (4, 0)
    assert recorded.document["store_trouble"] == "disk full"


async def test_a_start_that_fails_in_the_middle_leaves_nothing_running(
    world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, url = world

    async def planted(self: Recorder) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(Recorder, "_start_control", planted)
    with pytest.raises(RuntimeError, match="planted"):
        await run(options(tmp_path, url, episode="e"), "get(URL)")
    monkeypatch.undo()
    assert (await run(options(tmp_path, url, episode="e"), "get(URL)"))[0].exit == 0
