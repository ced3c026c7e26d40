"""`record`: what a command finds, what is recorded of it, and what is refused."""

from __future__ import annotations

import os
import socket
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from replayproxy.core.values import EpisodeState, SnapshotStatus
from replayproxy.errors import StoreTrouble, WorldTrouble, WrongUsage
from replayproxy.session.files import write_whole
from replayproxy.session.wiring import EnvSpec
from replayproxy.state.loader import load
from replayproxy.storage import open_store
from tests.session.record_kit import options, python, run


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
        with pytest.raises(WorldTrouble, match=f"port taken: 127.0.0.1:{port}") as told:
            await run(blocked)
        assert ("--control" if what == "control" else f"listen= of --env {made.envs[0].name}") in told.value.hint
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


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "f"
    target.write_text("before")
    with pytest.raises(UnicodeEncodeError):
        write_whole(target, "\udcff")
    assert target.read_text() == "before"
    assert list(tmp_path.iterdir()) == [target]


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
