"""The real `record` while its store takes nothing: the agents do not notice, and nothing is lost unseen."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from replayproxy.cli.main import cli
from replayproxy.storage import open_store
from tests.needs import program
from tests.soak.kit import Agent, Recorder, environment, recorder

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

UNPRIVILEGED = """
import ctypes, os, sys
for capability in (1, 2):  # root may look into everything, and write everywhere: not this one
    ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""

CHANGED = """
import sys
sys.argv = ["replayproxy", *sys.argv[4:]]
from replayproxy.cli.main import main
from replayproxy.storage import committer, environment
{change}
sys.exit(main())
"""


def changed(change: str = "") -> list[str]:
    """The program with a constant that is another. An `end` waits a second for the disk, not five: five times that
    would be most of the time here."""
    return [sys.executable, "-c", CHANGED.format(change=f"committer.GIVE_UP_SECONDS = 1.0; {change}")]


def told(*arguments: str) -> str:
    """What a command prints that ends well. In this process: a dozen more of them would take half of the time here."""
    done = CliRunner().invoke(cli, [*arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


class Scene:
    """One recording with an episode `before` that is sealed, and `during` that is open when the trouble comes."""

    def __init__(self, one: Recorder, agent: Agent, store: Path) -> None:
        self.one, self.store, self._agent = one, store, agent
        self._chance = random.Random(7)
        self.asked: dict[str, int] = {}

    async def open(self, name: str) -> None:
        await self.control("POST", "/v1/episodes", {"episode": name})

    async def ask(self, name: str, count: int, size: int = 20_000) -> None:
        """The agent raises where the answer is not what the environment says to this very request."""
        for _ in range(count):
            n = self.asked[name] = self.asked.get(name, 0) + 1
            await self._agent.ask(f"/rp/{name}", f"/{name}/{n}", self._chance.randbytes(size))

    async def end(self, name: str) -> tuple[str, str]:
        """Its state, and its first fault."""
        ended = await self.control("POST", f"/v1/episodes/{name}/end", {})
        return ended["state"], next(iter(ended["faults"]), "")

    async def control(self, method: str, path: str, body: Any = None) -> Any:
        asked = urllib.request.Request(
            self.one.control + path, None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json"}, method=method,
        )  # fmt: skip
        return json.loads(await asyncio.to_thread(lambda: urllib.request.urlopen(asked, timeout=60).read()))

    async def until(self, *, failing: bool) -> None:
        async with asyncio.timeout(20):
            words = ("cannot be written", "removed or replaced") if failing else ("can be written again",)
            while not self.said(*words) or ((await self.control("GET", "/v1/health"))["store"] != "ok") is not failing:
                await asyncio.sleep(0.05)

    def said(self, *words: str) -> list[str]:
        """The lines on stderr, before the summary, that hold one of these."""
        lines = self.one.output.read_text().partition("\nrecorded r:")[0].splitlines()
        return [line for line in lines if any(word in line for word in words)]

    def incomplete(self, name: str) -> str:
        """What the summary says of the episode."""
        lines = self.one.output.read_text().splitlines()
        return next(line for line in lines if line.startswith(f"incomplete  {name} "))

    def shown(self, name: str, store: Path | None = None) -> tuple[str, int]:
        """The state and the number of exchanges, as `show` tells them."""
        document = json.loads(told("show", f"r/{name}", "--json", "--store", str(store or self.store)))
        return document["state"], len(document["exchanges"])

    def check_readable(self, store: Path | None = None) -> None:
        """What was recorded before is all there, and nothing is damaged."""
        at = str(store or self.store)
        assert self.shown("before", store) == ("sealed", 3)
        listed = json.loads(told("ls", "r", "--json", "--store", at))
        assert {one["episode"] for one in listed["episodes"]} >= {"before", "during"}
        assert "whole" in told("fsck", "--store", at)


@asynccontextmanager
async def recording(folder: Path, *options: str, **more: Any) -> AsyncIterator[Scene]:
    with environment() as port:
        async with recorder(folder, port, *(options or ("--judge", "off")), **more) as one:
            scene = Scene(one, await Agent.connect(one.port), folder / "store")
            await scene.open("before")
            await scene.ask("before", 3)
            assert (await scene.end("before"))[0] == "sealed"
            await scene.open("during")
            await scene.ask("during", 1)
            await _stored(scene)
            yield scene


async def _stored(scene: Scene) -> None:
    """What was asked so far is on disk: the trouble is to meet what comes now."""
    async with asyncio.timeout(20):
        with open_store(scene.store) as store:
            reader = store.reader()
            run = reader.run("r")
            while not any(one.name == "during" and reader.count(one) for one in reader.episodes(run)):
                await asyncio.sleep(0.02)


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[None]:
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)], capture_output=True, check=False
    )  # fmt: skip
    if done.returncode != 0:
        pytest.skip("no file system may be mounted here; the test by a file-size limit shows the same without one")
    try:
        yield
    finally:
        subprocess.run(["umount", str(place)], check=True)


def fill(place: Path) -> None:
    handle = os.open(place, os.O_CREAT | os.O_WRONLY)
    try:
        while True:
            os.write(handle, bytes(4096))
    except OSError as full:
        if full.errno != errno.ENOSPC:
            raise
    finally:
        os.close(handle)


async def test_a_full_disk_costs_the_episode_that_ends_on_it_and_no_later_one(tmp_path: Path) -> None:
    with small_disk(tmp_path / "store", "4m"):
        async with recording(tmp_path) as scene:
            fill(scene.store / "filler")
            await scene.ask("during", 20)
            await scene.until(failing=True)
            state, fault = await scene.end("during")
            assert (state, "No space left on device" in fault) == ("incomplete", True), fault
            await scene.open("later")
            await scene.ask("later", 2)
            (scene.store / "filler").unlink()
            await scene.until(failing=False)
            await scene.ask("later", 2)
            assert await scene.end("later") == ("sealed", "")
            assert await scene.one.stop() == 4
        assert len(scene.said("cannot be written")) == 1, scene.one.output.read_text()
        assert "free space; it is tried again; the traffic goes on" in scene.said("cannot be written")[0]
        assert len(scene.said("can be written again")) == 1
        scene.check_readable()
        assert scene.shown("later") == ("sealed", 4)
        # `end` could not wait for it; it was stored when there was space, all of it.
        assert scene.shown("during") == ("sealed", 21)


def _limit(scene: Scene, size: int) -> None:
    resource.prlimit(scene.one.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


async def test_an_episode_that_is_open_through_a_full_disk_is_whole_when_there_is_space_in_time(
    tmp_path: Path,
) -> None:
    async with recording(tmp_path) as scene:
        _limit(scene, (scene.store / "data.mdb").stat().st_size)
        await scene.ask("during", 20)
        await scene.until(failing=True)
        _limit(scene, resource.RLIM_INFINITY)
        await scene.until(failing=False)
        assert await scene.end("during") == ("sealed", "")
        assert await scene.one.stop() == 0, "nothing is missing"
    assert len(scene.said("cannot be written")) == 1
    scene.check_readable()
    assert scene.shown("during") == ("sealed", 21)


async def test_more_than_the_queue_takes_on_a_full_disk_costs_the_episode_and_holds_no_agent(tmp_path: Path) -> None:
    async with recording(tmp_path) as scene:
        _limit(scene, (scene.store / "data.mdb").stat().st_size)
        await scene.ask("during", 80, size=1 << 20)  # 64 MiB are kept waiting
        await scene.until(failing=True)
        _limit(scene, resource.RLIM_INFINITY)
        await scene.until(failing=False)
        state, fault = await scene.end("during")
        assert (state, "File too large" in fault) == ("incomplete", True), fault
        await scene.open("later")
        await scene.ask("later", 2)
        assert await scene.end("later") == ("sealed", "")
        assert await scene.one.stop() == 4
    assert len(scene.said("cannot be written")) == 1
    assert "back pressure" not in scene.one.output.read_text(), "reading was held, and no room could come of it"
    scene.check_readable()
    assert scene.shown("later") == ("sealed", 2)
    state, kept = scene.shown("during")
    assert (state, 1 <= kept < 81) == ("incomplete", True)


async def test_a_full_map_costs_the_episodes_from_then_on(tmp_path: Path) -> None:
    async with recording(tmp_path, before=changed("environment.MAP_SIZES = (1 << 20,)")) as scene:
        await scene.ask("during", 80)
        await scene.until(failing=True)
        await scene.open("later")
        await scene.ask("later", 1)
        assert await scene.one.stop() == 4
    for name in ("during", "later"):
        assert "MDB_MAP_FULL" in scene.incomplete(name)
    assert len(scene.said("cannot be written")) == 1
    scene.check_readable()


def _as_others() -> list[str]:
    """What makes of root somebody whom modes bind."""
    if os.geteuid() != 0:
        return []
    if sys.platform != "linux":
        pytest.skip("root may write anywhere here")
    return [sys.executable, "-c", UNPRIVILEGED]


async def test_a_directory_that_may_not_be_entered_any_more_costs_the_episodes_until_it_may(tmp_path: Path) -> None:
    async with recording(tmp_path, before=[*_as_others(), *changed()]) as scene:
        scene.store.chmod(0)
        try:
            await scene.ask("during", 5)
            await scene.until(failing=True)
        finally:
            scene.store.chmod(0o700)
        await scene.until(failing=False)
        assert await scene.end("during") == ("sealed", "")
        scene.store.chmod(0)
        try:
            await scene.open("last")
            await scene.ask("last", 1)
            assert await scene.one.stop() == 4, scene.one.output.read_text()
        finally:
            scene.store.chmod(0o700)
    assert len(scene.said("cannot be written")) == 1
    assert "permission denied -> make it writable again" in scene.incomplete("last")
    scene.check_readable()
    assert scene.shown("during") == ("sealed", 6)


async def test_what_is_open_already_is_written_whatever_the_modes_become(tmp_path: Path) -> None:
    """The system asks for permission when a file is opened: nothing is lost, and nothing is told."""
    async with recording(tmp_path, before=_as_others()) as scene:
        (scene.store / "data.mdb").chmod(0)
        scene.store.chmod(0o500)
        try:
            await scene.ask("during", 5)
            assert await scene.end("during") == ("sealed", "")
            assert await scene.one.stop() == 0, scene.one.output.read_text()
        finally:
            scene.store.chmod(0o700)
            (scene.store / "data.mdb").chmod(0o600)
    assert scene.said("cannot be written") == []
    scene.check_readable()
    assert scene.shown("during") == ("sealed", 6)


@pytest.fixture
def broken_disk(tmp_path: Path) -> tuple[Mapping[str, str], Path]:
    """The environment of a process whose writes to files fail while there is a file with the number of the error."""
    shim, switch = tmp_path / "broken.so", tmp_path / "broken"
    source = Path(__file__).with_name("broken_disk.c")
    subprocess.run([program("cc", "gcc"), "-shared", "-fPIC", "-o", str(shim), str(source), "-ldl"], check=True)
    return {"LD_PRELOAD": str(shim), "BROKEN_DISK": str(switch)}, switch


async def test_a_disk_that_the_system_makes_read_only_costs_the_episode_that_ends_on_it(
    tmp_path: Path, broken_disk: tuple[Mapping[str, str], Path]
) -> None:
    environ, switch = broken_disk
    async with recording(tmp_path, before=changed(), environ=environ) as scene:
        switch.write_text(str(errno.EROFS))
        await scene.ask("during", 5)
        await scene.until(failing=True)
        assert await scene.one.stop() == 4
    assert len(scene.said("cannot be written")) == 1
    assert "Read-only file system -> make it writable again" in scene.incomplete("during")
    scene.check_readable()
    assert scene.shown("during") == ("incomplete", 1)


async def test_a_root_that_cannot_be_written_ends_the_writing_and_spoils_nothing(
    tmp_path: Path, broken_disk: tuple[Mapping[str, str], Path]
) -> None:
    """The pages of a commit were written and its root was not: LMDB lets the process write nothing from then on."""
    environ, switch = broken_disk
    async with recording(tmp_path, before=changed(), environ=environ) as scene:
        switch.write_text(f"{errno.EIO} 500")
        await scene.ask("during", 5)
        await scene.until(failing=True)
        switch.unlink()
        await scene.ask("during", 5)
        assert await scene.one.stop() == 4
    assert len(scene.said("cannot be written")) == 1
    assert "MDB_PANIC" in scene.incomplete("during")
    assert scene.incomplete("during").endswith("-> stop, and go on with --append)")
    scene.check_readable()
    assert scene.shown("during") == ("incomplete", 1)


def _remove(store: Path) -> None:
    shutil.copytree(store, store.with_name("copy"))
    shutil.rmtree(store)


def _replace(store: Path) -> None:
    shutil.copytree(store, store.with_name("new"))
    store.rename(store.with_name("copy"))
    store.with_name("new").rename(store)


@pytest.mark.parametrize("taken", [_remove, _replace])
async def test_a_store_that_is_removed_or_replaced_costs_every_episode_from_then_on(
    tmp_path: Path, taken: Callable[[Path], None]
) -> None:
    async with recording(tmp_path, "--judge", "on") as scene:
        taken(scene.store)
        copy, data = tmp_path / "copy", scene.store / "data.mdb"
        there = data.read_bytes() if taken is _replace else b""
        await scene.ask("during", 20)
        await scene.until(failing=True)
        state, fault = await scene.end("during")
        assert (state, "was removed or replaced" in fault) == ("incomplete", True), fault
        await scene.open("later")
        await scene.ask("later", 3)
        assert (await scene.end("later"))[0] == "incomplete"
        assert await scene.one.stop() == 4, scene.one.output.read_text()
    assert len(scene.said("removed or replaced")) == 1, scene.one.output.read_text()
    scene.check_readable(copy)
    assert scene.shown("during", copy) == ("incomplete", 1)
    if taken is _replace:
        assert data.read_bytes() == there, "the store of somebody else was written to"
        scene.check_readable()
    else:
        assert not scene.store.exists()
