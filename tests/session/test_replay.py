"""Replay as a session: what is refused, the addresses, the control API, COMMAND, and what an end means."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from replayproxy.core.misses import Document
from replayproxy.core.values import EnvWiring, Event, Exchange, Run
from replayproxy.errors import CannotJudge, WorldTrouble, WrongUsage
from replayproxy.serve.stage import Stage
from replayproxy.session.child import NotStarted
from replayproxy.session.closed import Guard, ReplayIsClosed
from replayproxy.session.config import Config
from replayproxy.session.replay import Replayed, chosen, replay, unmarked_episode
from replayproxy.session.replay_options import ReplayOptions, parse, specs
from replayproxy.storage import Store
from replayproxy.testing import episode as made_episode
from replayproxy.testing import exchange, trace

GET = "import os, urllib.request as u; print(u.urlopen(os.environ['REPLAYPROXY_URL_APP'] + '/x').read().decode())"
FLAGS: dict[str, Any] = {
    "pace": None, "order": None, "on_miss": None, "env": (), "listen": None, "control": None, "advertise": (),
    "ready_file": None, "summary": None,
}  # fmt: skip


def options(**flags: Any) -> ReplayOptions:
    return parse({**FLAGS, **flags}, Config(), environ={})


def record(
    store: Store, episodes: Mapping[str, Sequence[Exchange]], *, unsealed: Sequence[str] = (),
    events: Sequence[Event] = (), **more: Any,
) -> Run:  # fmt: skip
    writer = store.writer()
    wired = {"app": EnvWiring(name="app", upstream="http://127.0.0.1:9/base")}
    run = writer.open_run(Run(key=0, name="r", opened_wall=1, envs=more.pop("envs", wired), **more))
    for name, exchanges in episodes.items():
        opened = writer.open_episode(made_episode(name, run_key=run.key, task="t", seed=len(name)))
        for one in trace(exchanges).exchanges:
            writer.put_exchange(opened.key, one)
        for event in events:
            writer.put_event(opened.key, event)
        if name not in unsealed:
            writer.seal(opened).result(10)
    writer.close()
    return run


@dataclass
class Told:
    """Takes down what is told, and lets a test wait for the addresses."""

    ready: asyncio.Event = field(default_factory=asyncio.Event)
    urls: dict[str, str] = field(default_factory=dict)
    control: str = ""
    misses: list[Document] = field(default_factory=list)
    interruptions: int = 0

    def serving(self, stage: Stage, urls: dict[str, str], control: str) -> None:
        self.urls, self.control = urls, control
        self.ready.set()

    def miss(self, document: Document) -> None:
        self.misses.append(document)

    def interrupted(self) -> None:
        self.interruptions += 1


async def replayed(
    store: Store, address: str, command: Sequence[str], opts: ReplayOptions | None = None, told: Told | None = None
) -> Replayed:
    reader = store.reader()
    return await replay(
        reader, reader.resolve(address), opts or options(), command, tell=told or Told(), stdout_to_stderr=True
    )


def test_what_cannot_be_replayed_is_refused_before_anything_is_served(store: Store) -> None:
    record(store, {"e": [exchange()], "half": [exchange()], "empty": []}, unsealed=["half"])
    reader = store.reader()
    for address, trouble, told in [
        ("r/half", CannotJudge, "r/half is incomplete"),
        ("r/empty", CannotJudge, "nothing is recorded in r/empty"),
        ("r/e#1", WrongUsage, "a run or an episode"),
    ]:
        with pytest.raises(trouble, match=told):
            chosen(reader, reader.resolve(address))
    run, episodes, sole = chosen(reader, reader.resolve("r"))
    assert (run.name, [one.name for one in episodes], sole) == ("r", ["e", "half", "empty"], False)


def test_a_run_without_a_sealed_episode_is_refused(store: Store) -> None:
    record(store, {"half": [exchange()]}, unsealed=["half"])
    reader = store.reader()
    with pytest.raises(CannotJudge, match="no episode of r is sealed"):
        chosen(reader, reader.resolve("r"))


def test_a_run_of_nothing_but_unattributed_traffic_says_so(store: Store) -> None:
    record(store, {"unattributed": [exchange("GET", "/x"), exchange("GET", "/y")], "e": []}, unsealed=["unattributed"])
    reader = store.reader()
    with pytest.raises(CannotJudge, match=r"r holds 2 exchanges of no episode.* -> replayproxy show r/unattributed"):
        chosen(reader, reader.resolve("r"))


async def test_an_episode_that_is_removed_while_the_replay_runs_is_trouble_with_the_store(store: Store) -> None:
    record(store, {"a": [exchange("GET", "/x")], "b": [exchange("GET", "/x")]})
    agent = (
        "import os, subprocess, sys, urllib.request as u, urllib.error as e\n"
        "url = os.environ['REPLAYPROXY_URL_APP'].removesuffix('/base') + '/rp/'\n"
        "ours = [sys.executable, '-m', 'replayproxy']\n"
        "print(u.urlopen(url + 'a/x').status)\n"
        f"where = ['--store', {str(store.path)!r}]\n"
        "subprocess.run([*ours, 'rm', *where, 'r/b'], check=True)\n"
        "subprocess.run([*ours, 'gc', *where], check=True)\n"
        "try: u.urlopen(url + 'b/x')\n"
        "except e.HTTPError as got: sys.exit(0 if got.code == 500 else 9)\n"
        "sys.exit(8)"
    )
    done = await replayed(store, "r", [sys.executable, "-c", agent])
    assert "b was removed from" in done.receipt["faults"][0]
    assert (done.command_exit, done.exit) == (0, 4)


def test_unmarked_traffic_of_a_run_goes_to_the_one_episode_it_can_belong_to(store: Store) -> None:
    by_option = exchange(carrier="option")
    run = record(store, {"a": [exchange()], "b": [by_option]})
    reader = store.reader()
    a, b = reader.episodes(run)
    assert unmarked_episode(reader, run, [a]) == "a"
    assert unmarked_episode(reader, run, [a, b]) == "b"
    assert unmarked_episode(reader, run, [b, b]) is None


def test_unmarked_traffic_is_never_guessed(store: Store) -> None:
    run = record(store, {"a": [exchange()], "b": [exchange()]})
    reader = store.reader()
    assert unmarked_episode(reader, run, reader.episodes(run)) is None


@pytest.mark.parametrize(
    "flags",
    [{"pace": "fast"}, {"order": "any"}, {"on_miss": "guess"}, {"control": "x"}, {"control": "10.0.0.1:1"},
     {"listen": "8101"}, {"env": ("2app",)}, {"env": ("app", "app")}, {"env": ("app,listen=x",)},
     {"summary": "/not/there/x"}],
)  # fmt: skip
def test_wrong_words_are_refused_in_one_line(flags: dict[str, Any]) -> None:
    with pytest.raises(WrongUsage) as wrong:
        options(**flags)
    assert "\n" not in str(wrong.value)


def test_environments_are_those_of_the_recording_with_what_was_said_of_them() -> None:
    wired = EnvWiring(name="app", upstream="http://h:1/v1", options={"as": "APP_URL"})
    run = Run(key=1, name="r", opened_wall=1, envs={"app": wired})
    (plain,) = specs(run, options())
    assert (plain.name, plain.path, plain.variable, plain.port) == ("app", "/v1", "APP_URL", 0)
    (said,) = specs(run, options(env=("app,listen=127.0.0.2:8101,as=OTHER",)))
    assert (said.host, said.port, said.variable) == ("127.0.0.2", 8101, "OTHER")
    (as_recorded,) = specs(run, options(env=("app=http://h:1/v1,listen=8102",)))
    assert (as_recorded.port, as_recorded.variable) == (8102, "APP_URL")
    with pytest.raises(WrongUsage, match="no such environment"):
        specs(run, options(env=("crm",)))


async def test_a_command_finds_the_addresses_and_its_end_is_the_end(
    store: Store, capfd: pytest.CaptureFixture[str]
) -> None:
    record(store, {"e": [exchange("GET", "/base/x", body=b"hello")]})
    script = GET + "; print(sorted(k for k in os.environ if k.startswith('REPLAYPROXY')), 'port {app.port}'.isascii())"
    done = await replayed(store, "r/e", [sys.executable, "-c", script])
    said = capfd.readouterr()
    assert (done.exit, done.command_exit, done.receipt["reproduced"]) == (0, 0, True)
    assert said.out == ""
    assert "hello" in said.err
    assert "['REPLAYPROXY_CONTROL', 'REPLAYPROXY_RUN', 'REPLAYPROXY_URL_APP']" in said.err


@pytest.mark.parametrize(
    ("script", "code"),
    [("pass", 3), (GET, 0), (GET + "; raise SystemExit(7)", 7), ("raise SystemExit(7)", 7), (GET + "\n" + GET, 1)],
)
async def test_the_exit_code_is_the_receipts_or_the_commands_own(store: Store, script: str, code: int) -> None:
    record(store, {"e": [exchange("GET", "/base/x")]})
    script = (
        f"import urllib.error\ntry:\n  {script.replace(chr(10), chr(10) + '  ')}\nexcept urllib.error.HTTPError: pass"
    )
    done = await replayed(store, "r/e", [sys.executable, "-c", script])
    assert done.exit == code
    assert done.summary() == {"command_exit": done.command_exit, "exit": code, "receipt": done.receipt}


async def test_a_command_that_is_not_there_is_told_apart(store: Store) -> None:
    record(store, {"e": [exchange()]})
    with pytest.raises(NotStarted) as missing:
        await replayed(store, "r/e", ["no-such-program-anywhere"])
    assert missing.value.code == 127


async def test_the_first_miss_ends_the_command_where_that_was_asked_for(store: Store) -> None:
    record(store, {"e": [exchange("GET", "/base/x")]})
    script = (
        "import os, time, urllib.request as u, urllib.error as e\n"
        "try: u.urlopen(os.environ['REPLAYPROXY_URL_APP'] + '/never')\n"
        "except e.HTTPError: pass\n"
        "time.sleep(60)"
    )
    told = Told()
    done = await replayed(store, "r/e", [sys.executable, "-c", script], options(on_miss="stop"), told)
    assert (done.exit, done.command_exit, len(told.misses)) == (1, None, 1)


async def test_the_same_signal_twice_is_one_and_the_receipt_is_there(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`timeout` signals the process, and then its group: the second comes while COMMAND ends."""
    monkeypatch.setattr("replayproxy.session.signals.SAME_SECONDS", 3600.0)
    monkeypatch.setattr("replayproxy.session.replay.os._exit", lambda _: None)
    record(store, {"e": [exchange("GET", "/base/x")]})
    script = (
        f"import signal, sys, time; {GET}; ours = os.getppid()\n"
        "def end(*_): os.kill(ours, 15); time.sleep(0.1); sys.exit()\n"
        "signal.signal(15, end); os.kill(ours, 15); time.sleep(60)"
    )
    told = Told()
    done = await replayed(store, "r/e", [sys.executable, "-c", script], told=told)
    assert (done.exit, done.command_exit, told.interruptions) == (0, None, 0)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN  # it may be on its way once more


async def test_a_later_signal_gives_up_and_ends_the_command(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replayproxy.session.signals.SAME_SECONDS", 0.0)
    codes: list[int] = []
    monkeypatch.setattr("replayproxy.session.replay.os._exit", codes.append)
    record(store, {"e": [exchange()]})
    script = (
        "import os, signal, time; signal.signal(15, lambda *_: os.kill(os.getppid(), 15)); os.kill(os.getppid(), 15)\n"
        "while True: time.sleep(60)"
    )
    told = Told()
    await replayed(store, "r/e", [sys.executable, "-c", script], told=told)
    assert (codes, told.interruptions) == ([130], 1)


async def test_a_taken_port_is_the_worlds_trouble(store: Store) -> None:
    record(store, {"e": [exchange()]})
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(WorldTrouble, match=str(port)):
            await replayed(store, "r/e", ["true"], options(env=(f"app,listen={port}",)))


async def serving(store: Store, address: str, opts: ReplayOptions, use: Any) -> Replayed:
    """Runs a replay without a COMMAND for as long as `use(told)` takes, then ends it as a signal would."""
    told = Told()
    running = asyncio.ensure_future(replayed(store, address, (), opts, told))
    await asyncio.wait({running, asyncio.ensure_future(told.ready.wait())}, return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        return running.result()
    await use(told)
    os.kill(os.getpid(), 2)
    return await running


async def test_the_ready_file_names_every_address_and_is_its_owners(store: Store, tmp_path: Path) -> None:
    record(store, {"e": [exchange("GET", "/base/x")]})
    path = tmp_path / "ready.json"

    async def use(told: Told) -> None:
        ready = json.loads(path.read_text())
        assert ready == {"control": told.control, "envs": told.urls, "forward": None, "token": None, "pid": os.getpid()}
        assert told.urls["app"].endswith("/base")
        assert path.stat().st_mode & 0o777 == 0o600
        async with httpx.AsyncClient(trust_env=False) as http:
            assert (await http.get(told.urls["app"] + "/x")).status_code == 200

    done = await serving(store, "r/e", options(ready_file=str(path)), use)
    assert (done.exit, done.command_exit) == (0, None)


async def test_environments_get_different_loopback_addresses(store: Store) -> None:
    wired = {name: EnvWiring(name=name, upstream="http://127.0.0.1:9") for name in ("crm", "cal")}
    record(store, {"e": [exchange(env="crm")]}, envs=wired)

    async def use(told: Told) -> None:
        hosts = {url.rpartition(":")[0] for url in told.urls.values()}
        assert hosts == {"http://127.0.0.1", "http://127.0.0.2"}

    await serving(store, "r/e", options(), use)


async def test_a_harness_opens_and_ends_recorded_episodes(store: Store) -> None:
    record(store, {"a": [exchange("GET", "/base/x", body=b"a")], "bb": [exchange("GET", "/base/x", body=b"bb")]})

    async def use(told: Told) -> None:
        async with httpx.AsyncClient(base_url=told.control, trust_env=False) as api, httpx.AsyncClient() as http:
            by_name = (await api.post("/v1/episodes", json={"episode": "a"})).json()
            by_task = (await api.post("/v1/episodes", json={"task": "t", "seed": 2, "url_style": "port"})).json()
            assert by_task["episode"] == "bb"
            assert (await http.get(by_name["urls"]["app"] + "/x")).text == "a"
            assert (await http.get(by_task["urls"]["app"] + "/x")).text == "bb"
            assert "/rp/" not in by_task["urls"]["app"]
            assert (await api.post("/v1/episodes", json={"episode": "a"})).status_code == 409
            assert (await api.post("/v1/episodes", json={"episode": "c"})).status_code == 404
            assert (await api.post("/v1/episodes", json={"task": "t", "seed": 2})).status_code == 404
            assert (await api.post("/v1/episodes/a/mark", json={"step": 1})).status_code == 200
            ended = (await api.post("/v1/episodes/a/end", json={"reward": 1.0})).json()
            assert (ended["verdict"], ended["mask"], ended["receipt"]["reproduced"]) == ("unknown", False, True)
            late = await http.get(by_name["urls"]["app"] + "/x")
            assert (late.status_code, "episode sealed" in late.json()["detail"]) == (470, True)

    done = await serving(store, "r", options(), use)
    assert {one["episode"]: one["reproduced"] for one in done.receipt["episodes"]} == {"a": True, "bb": True}
    assert done.receipt["missed"] == 1


@pytest.mark.parametrize("address", ["r/a", "r"])
async def test_a_canary_that_is_asked_for_again_is_the_recorded_one(store: Store, address: str) -> None:
    data = {"canary": "rpc-00112233445566aa", "for": "note"}
    event = Event(at=1, wall=1, kind="mark", detail={"label": "canary", "data": data})
    record(store, {"a": [exchange("GET", "/base/x")]}, events=[event])

    async def use(told: Told) -> None:
        async with httpx.AsyncClient(base_url=told.control, trust_env=False) as api:
            await api.post("/v1/episodes", json={"episode": "a"})
            for label, answer in (("note", {"canary": data["canary"]}), ("other", {})):
                asked = {"label": "canary", "data": {"canary": "rpc-ffffffffffffffff", "for": label}}
                assert (await api.post("/v1/episodes/a/mark", json=asked)).json() == answer

    await serving(store, address, options(), use)


async def test_an_incomplete_episode_of_a_run_is_not_replayed_and_asking_for_it_is_3(store: Store) -> None:
    record(store, {"a": [exchange("GET", "/base/x")], "half": [exchange("GET", "/base/x")]}, unsealed=["half"])

    async def use(told: Told) -> None:
        origin = told.urls["app"].removesuffix("/base")
        async with httpx.AsyncClient(trust_env=False) as http:
            assert (await http.get(origin + "/rp/a/base/x")).status_code == 200
            refused = await http.get(origin + "/rp/half/base/x")
            assert (refused.status_code, "incomplete" in refused.json()["detail"]) == (470, True)

    done = await serving(store, "r", options(), use)
    assert (done.exit, done.receipt["incomplete"]) == (3, ["half"])


async def test_one_episode_is_opened_under_any_name(store: Store) -> None:
    record(store, {"e": [exchange("GET", "/base/x", body=b"e")], "f": [exchange("GET", "/base/x", body=b"f")]})

    async def use(told: Told) -> None:
        async with httpx.AsyncClient(base_url=told.control, trust_env=False) as api, httpx.AsyncClient() as http:
            opened = (await api.post("/v1/episodes", json={"episode": "another"})).json()
            assert (await http.get(opened["urls"]["app"] + "/x")).text == "e"
            assert (await api.post("/v1/episodes/another/end", json={})).status_code == 200

    done = await serving(store, "r/e", options(), use)
    assert done.receipt["reproduced"] is True


def test_a_closed_guard_refuses_and_counts_whatever_would_reach_out() -> None:
    guard = Guard()
    with guard.closed():
        with pytest.raises(ReplayIsClosed):
            socket.create_connection(("127.0.0.1", 9), timeout=1)
        with pytest.raises(ReplayIsClosed):
            socket.getaddrinfo("example.invalid", 80)
        with pytest.raises(Exception, match="closed"):
            urllib.request.urlopen("http://127.0.0.1:9/")
    assert guard.contacts >= 3
    before = guard.contacts
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", 9), timeout=1)
    assert guard.contacts == before
