"""`record` whole, in this process: the real proxy and control API, a small environment in the same loop."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import stat
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families

from replayproxy.core.values import EpisodeState, Outcome, SnapshotStatus
from replayproxy.errors import StoreTrouble, WorldTrouble, WrongUsage
from replayproxy.session.files import write_whole
from replayproxy.session.record import Recorded, record
from replayproxy.session.record_options import RecordOptions
from replayproxy.session.recorder import Recorder
from replayproxy.session.wiring import EnvSpec
from replayproxy.state.loader import load
from replayproxy.storage import open_store


class Environment:
    """Counts, and says what it saw; `/slow` waits until it is let go, `/events` streams until the agent leaves."""

    def __init__(self) -> None:
        self.counter = 0
        self.seen: list[tuple[str, str]] = []
        self.go_on = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.seen.append((request.method, request.raw_path))
        if request.path == "/slow":
            await self.go_on.wait()
        if request.path == "/events":
            stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await stream.prepare(request)
            await stream.write(b"data: 1\n\n")
            await self.go_on.wait()
            return stream
        if request.path == "/state":
            return web.json_response({"counter": {"1": {"value": self.counter}}})
        self.counter += request.method == "POST"
        return web.json_response({"counter": self.counter, "path": request.raw_path})


@pytest.fixture
async def world() -> AsyncIterator[tuple[Environment, str]]:
    environment = Environment()
    runner = web.ServerRunner(web.Server(environment.answer), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
    yield environment, f"http://127.0.0.1:{port}"
    environment.go_on.set()
    await runner.cleanup()


def options(tmp_path: Path, url: str, **given: Any) -> RecordOptions:
    wired = {"store": tmp_path / "store", "run": "r", "envs": (EnvSpec(name="app", upstream=url),), "log_every": 0.0}
    return RecordOptions(**{**wired, **given})


def python(code: str) -> list[str]:
    lead = "import json, os, sys, urllib.request\nURL = os.environ['REPLAYPROXY_URL_APP']\n"
    lead += "def get(url): return json.load(urllib.request.urlopen(url))\n"
    return [sys.executable, "-c", lead + code]


async def run(made: RecordOptions, code: str | None = None, **given: Any) -> tuple[Recorded, list[str]]:
    said: list[str] = []
    command = given.pop("command", python(code) if code is not None else ())
    return await record(made, command, say=said.append, **given), said


async def test_a_command_is_recorded_and_its_exit_code_passed_on(world: Any, tmp_path: Path) -> None:
    _, url = world
    made = options(tmp_path, url, episode="e")
    recorded, said = await run(made, "get(URL + '/a'); sys.exit(7)")
    assert (recorded.exit, recorded.command_exit) == (7, 7)
    assert recorded.document["whole"] is True
    assert any("credentials" in line for line in said)
    with open_store(made.store) as store:
        reader = store.reader()
        episode = reader.episode(reader.run("r"), "e")
        assert (episode.state, episode.ended_by) == (EpisodeState.SEALED, "stop")
        assert [e.request.target for e in reader.exchanges(episode)] == [b"/a"]
        wired = reader.run("r").envs["app"]
        assert (wired.upstream, wired.listener[:17]) == (url, "http://127.0.0.1:")


async def test_a_command_that_succeeds_over_a_recording_that_is_not_whole_is_3(world: Any, tmp_path: Path) -> None:
    _, url = world
    recorded, said = await run(options(tmp_path, url), "get(URL + '/a?token=s3cr3tValue99')")
    assert (recorded.exit, recorded.command_exit) == (3, 0)
    assert recorded.document["unattributed"] == 1
    text = f"{said} {recorded}"
    assert "first GET /a?token=rp-secret-" in text
    assert "s3cr3tValue99" not in text


async def test_a_command_whose_client_went_past_the_proxy_is_3_and_told_of_the_doctor(
    world: Any, tmp_path: Path
) -> None:
    environment, url = world
    recorded, _ = await run(options(tmp_path, url, episode="e"), f"get('{url}/a')")
    assert environment.seen == [("GET", "/a")]
    assert (recorded.exit, recorded.command_exit) == (3, 0)
    assert recorded.document["whole"] is False
    assert recorded.document["why_not_whole"] == ["no exchange was recorded in an episode"]
    assert recorded.document["empty"] == ["e"]
    assert recorded.lines[0].startswith("recorded r: NOT WHOLE")
    assert any(line.startswith("nothing was recorded") for line in recorded.lines)
    assert recorded.lines[-1].endswith(f"next: replayproxy doctor --env app={url}")


async def test_a_command_that_fails_keeps_its_code_over_a_recording_that_is_not_whole(
    world: Any, tmp_path: Path
) -> None:
    _, url = world
    recorded, _ = await run(options(tmp_path, url), "sys.exit(9)")
    assert recorded.exit == 9


async def test_the_command_finds_its_variables_and_placeholders(world: Any, tmp_path: Path) -> None:
    _, url = world
    env = EnvSpec(name="app", upstream=url + "/base", variable="APP_URL")
    code = (
        "assert os.environ['APP_URL'] == URL == sys.argv[1] and URL.endswith('/base')\n"
        "assert sys.argv[2] == URL.split('/')[2] and os.environ['REPLAYPROXY_RUN'] == 'r'\n"
        "assert 'REPLAYPROXY_TOKEN' not in os.environ\n"
        "get(URL + '/a')"
    )
    command = [*python(code), "{app}", "{app.host}:{app.port}"]
    recorded, _ = await run(options(tmp_path, url, envs=(env,), episode="e"), command=command)
    assert recorded.exit == 0
    assert world[0].seen[-1] == ("GET", "/base/a")


async def test_episodes_of_the_client_are_told_apart_by_prefix_and_by_port(world: Any, tmp_path: Path) -> None:
    _, url = world
    code = (
        "import replayproxy\n"
        "for style in ('path', 'port'):\n"
        "    with replayproxy.episode(episode=style, url_style=style) as ep:\n"
        "        assert get(ep.url('app') + '/a')['path'] == '/a'\n"
        "        ep.reward = 1.0\n"
        "    assert (ep.state, ep.verdict) == ('sealed', 'unknown')\n"
    )
    made = options(tmp_path, url)
    recorded, _ = await run(made, code)
    assert recorded.exit == 0, recorded.document
    with open_store(made.store) as store:
        reader = store.reader()
        episodes = reader.episodes(reader.run("r"))
        carriers = [[e.carrier for e in reader.exchanges(episode)] for episode in episodes]
    assert carriers == [["prefix"], ["port"]]
    assert [(e.reward, e.ended_by) for e in episodes] == [(1.0, "end"), (1.0, "end")]


async def test_snapshots_show_the_state_before_and_after_and_their_traffic_is_not_recorded(
    world: Any, tmp_path: Path
) -> None:
    _, url = world
    snapshots = (load("app", f"http:{url}/state"),)
    made = options(tmp_path, url, episode="e", snapshots=snapshots)
    code = "urllib.request.urlopen(URL + '/x', data=b'1'); get(URL + '/y')"
    recorded, _ = await run(made, code)
    assert recorded.exit == 0, recorded.document
    with open_store(made.store) as store:
        reader = store.reader()
        episode = reader.episode(reader.run("r"), "e")
        taken = reader.snapshots(episode)
        exchanges = list(reader.exchanges(episode))
    assert [(s.when, s.status, s.after_seq) for s in taken] == [
        ("start", SnapshotStatus.TAKEN, None), ("write", SnapshotStatus.TAKEN, 1), ("end", SnapshotStatus.TAKEN, None),
    ]  # fmt: skip
    assert taken[0].root != taken[1].root == taken[2].root
    assert [e.request.target for e in exchanges] == [b"/x", b"/y"]
    assert exchanges[0].held_ns > 0


async def test_the_ready_file_is_whole_private_and_names_everything(world: Any, tmp_path: Path) -> None:
    _, url = world
    ready = tmp_path / "ready.json"
    ready.write_text("left by an earlier one")
    code = f"""
ready = json.load(open({str(ready)!r}))
assert ready['envs'] == {{'app': URL}} and ready['control'] == os.environ['REPLAYPROXY_CONTROL']
assert ready['forward'] is None and ready['token'] is None and ready['pid'] == os.getppid()
get(URL + '/a')
"""
    recorded, _ = await run(options(tmp_path, url, episode="e", ready_file=ready), code)
    assert recorded.exit == 0
    assert stat.S_IMODE(ready.stat().st_mode) == 0o600


async def test_beyond_loopback_the_command_gets_the_token_that_the_api_demands(world: Any, tmp_path: Path) -> None:
    _, url = world
    code = """
import replayproxy, urllib.error
try: get(os.environ['REPLAYPROXY_CONTROL'] + '/v1/health'); sys.exit(1)
except urllib.error.HTTPError as no: assert no.code == 401
with replayproxy.episode() as ep: get(ep.url('app') + '/a')
"""
    made = options(tmp_path, url, control_host="0.0.0.0", token="minted")
    recorded, _ = await run(made, code)
    assert recorded.exit == 0


async def test_an_unreachable_environment_is_refused_before_a_store_is_made(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with pytest.raises(WorldTrouble, match=r"environment app at .* cannot be reached: connection refused"):
        await run(options(tmp_path, f"http://127.0.0.1:{port}"))
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("what", ["listener", "control"])
async def test_a_taken_port_is_refused_and_the_run_s_name_stays_free(world: Any, tmp_path: Path, what: str) -> None:
    _, url = world
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        made = options(tmp_path, url, episode="e")
        if what == "listener":
            blocked = replace(made, envs=(replace(made.envs[0], port=port),))
        else:
            blocked = replace(made, control_port=port)
        with pytest.raises(WorldTrouble, match=f"port taken: 127.0.0.1:{port}"):
            await run(blocked)
    recorded, _ = await run(made, "get(URL)")
    assert recorded.exit == 0


async def test_a_second_recorder_is_refused_and_the_first_goes_on(world: Any, tmp_path: Path) -> None:
    _, url = world
    made = options(tmp_path, url, episode="e")
    with open_store(made.store, create=True) as store:
        writer = store.writer()
        with pytest.raises(StoreTrouble, match=rf"pid {os.getpid()}"):
            await run(made)
        writer.close()


async def test_an_existing_run_is_refused_unless_appended_to(world: Any, tmp_path: Path) -> None:
    _, url = world
    made = options(tmp_path, url, episode="e")
    await run(made, "get(URL)")
    with pytest.raises(WrongUsage, match="exists already"):
        await run(made, "get(URL)")
    with pytest.raises(WrongUsage, match="run r has it already"):
        await run(replace(made, append=True), "get(URL)")
    recorded, _ = await run(replace(made, append=True, episode="e2"), "get(URL); get(URL.replace('/rp/e2', ''))")
    assert recorded.exit == 0
    with open_store(made.store) as store:
        reader = store.reader()
        assert [e.name for e in reader.episodes(reader.run("r"))] == ["e", "e2"]


async def test_appending_keeps_what_was_unattributed_before(world: Any, tmp_path: Path) -> None:
    _, url = world
    made = options(tmp_path, url)
    await run(made, "get(URL + '/1')")
    await run(replace(made, append=True), "get(URL + '/2')")
    with open_store(made.store) as store:
        reader = store.reader()
        bucket = reader.episode(reader.run("r"), "unattributed")
        assert [e.request.target for e in reader.exchanges(bucket)] == [b"/1", b"/2"]
        assert bucket.state is EpisodeState.SEALED


@pytest.mark.parametrize(("command", "code"), [("/nowhere/agent", 127), ("/etc/passwd", 126)])
async def test_a_command_that_cannot_run_leaves_no_run(world: Any, tmp_path: Path, command: str, code: int) -> None:
    _, url = world
    made = options(tmp_path, url, episode="e")
    recorded, _ = await run(made, command=[command])
    assert (recorded.exit, recorded.command_exit) == (code, None)
    assert command in recorded.lines[0]
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


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "f"
    target.write_text("before")
    with pytest.raises(UnicodeEncodeError):
        write_whole(target, "\udcff")
    assert target.read_text() == "before"
    assert list(tmp_path.iterdir()) == [target]


async def appeared(path: Path) -> Any:
    async with asyncio.timeout(20):
        while not path.exists() or not path.read_text():
            await asyncio.sleep(0.01)
    return json.loads(path.read_text())


async def test_a_scraper_reads_what_was_recorded_so_far(world: Any, tmp_path: Path) -> None:
    _, url = world
    code = (
        "page = urllib.request.urlopen(os.environ['REPLAYPROXY_CONTROL'] + '/metrics').read()\n"
        "assert b'replayproxy_exchanges_total{' not in page, page\n"
        "get(URL + '/a'); urllib.request.urlopen(URL + '/b', data=b'x').read()\n"
        "import time; time.sleep(0.3)\n"
        f"out = open({str(tmp_path / 'page')!r}, 'wb')\n"
        "out.write(urllib.request.urlopen(os.environ['REPLAYPROXY_CONTROL'] + '/metrics').read())\n"
    )
    state = (load("app", f"http:{url}/state"),)
    recorded, _ = await run(options(tmp_path, url, episode="e", snapshots=state), code)
    assert recorded.command_exit == 0
    read = {
        (one.name, *one.labels.values()): one.value
        for family in text_string_to_metric_families((tmp_path / "page").read_text())
        for one in family.samples
    }
    assert read["replayproxy_exchanges_total", "app", "answered"] == 2
    assert read["replayproxy_unattributed_total",] == 0
    assert read["replayproxy_episodes", "open"] == 1
    assert read["replayproxy_added_seconds_count",] == 2
    assert 0 < read["replayproxy_added_seconds_sum",] < 1
    assert read["replayproxy_snapshot_seconds_count",] == 2, "at the start, and after the write"
    assert read["replayproxy_queue_depth",] == 0
