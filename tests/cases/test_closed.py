"""A replay never reaches an environment, whatever fails; a recorder that fails changes nothing on the wire."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from replayproxy.core.values import EpisodeState
from replayproxy.serve.express import Express
from replayproxy.session.recording import Recording
from replayproxy.storage import Reader, Store
from tests.cases.lab import OK, get, recording, replaying, talker
from tests.proxy.wire import Environment, says

REPLAY_STEPS = [
    "replayproxy.storage.Reader.exchanges",
    "replayproxy.core.script.exact_key",
    "replayproxy.core.replayer.Replayer.ask",
    "replayproxy.serve.stage.Stage.why_not",
    "replayproxy.serve.playing.Player.play",
    "replayproxy.serve.origin.is_marked",
]
EXPRESS_STEPS = [
    "replayproxy.serve.express.Express.answer",
    "replayproxy.serve.express.is_marked",
    "replayproxy.serve.scene.Scene.at_once",
    "replayproxy.core.replayer.Replayer.plain",
    "replayproxy.core.replayer.Replayer.give",
]
RECORDER_STEPS = ["arrive", "before_forward", "hold", "finished", "event", "sink", "live_of"]


def planted(*_args: Any, **_more: Any) -> Any:
    raise ZeroDivisionError("planted")


@pytest.mark.parametrize("method", [b"GET", b"POST"])
@pytest.mark.parametrize("step", REPLAY_STEPS)
async def test_a_replay_that_fails_inside_answers_locally_and_the_environment_is_not_reached(
    store: Store, monkeypatch: pytest.MonkeyPatch, step: str, method: bytes
) -> None:
    request = get("/step", b"Content-Length: 0", method=method)
    monkeypatch.setattr(Express, "answer", lambda self, message: None)  # the short way has steps of its own: below
    async with recording(store, says(OK)) as on:
        port = on.environment.port
        assert await on.ask(request) == OK
    live = Environment(says(OK))
    live.port = port
    await live.start(reuse_address=True)
    try:
        async with replaying(store, None if step.endswith("exchanges") else "e") as origin:
            lead = b"/rp/e" if step.endswith("exchanges") else b""
            with monkeypatch.context() as broken:
                broken.setattr(step, planted)
                agent = await talker(origin.ports["app"])
                answer = await agent.ask(request.replace(b" /step", b" " + lead + b"/step"))
                agent.close()
            receipt = origin.receipt()
        assert answer.startswith(b"HTTP/1.1 500 Replay Failed\r\n")
        assert b"\r\nReplay-Local: fault" in answer
        assert receipt["reproduced"] is False
        assert receipt["faults"]
        assert live.connections == 0
    finally:
        await live.stop()


@pytest.mark.parametrize("step", EXPRESS_STEPS)
async def test_a_short_way_that_fails_is_no_way_and_the_answer_comes_by_the_long_one(
    store: Store, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    async with recording(store, says(OK)) as on:
        port = on.environment.port
        assert await on.ask(get("/step")) == OK
    live = Environment(says(OK))
    live.port = port
    await live.start(reuse_address=True)
    try:
        monkeypatch.setattr(step, failing := Mock(side_effect=ZeroDivisionError("planted")))
        async with replaying(store, "e") as origin:
            agent = await talker(origin.ports["app"])
            assert await agent.ask(get("/step")) == OK
            agent.close()
            assert origin.receipt()["reproduced"] is True
        assert failing.called
        assert live.connections == 0
    finally:
        await live.stop()


@pytest.mark.parametrize("step", RECORDER_STEPS)
async def test_a_recorder_that_fails_changes_no_byte_and_the_episode_is_incomplete(
    store: Store, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    async with recording(store, says(OK)) as on:
        agent = await on.agent()
        assert await agent.ask(get("/before")) == OK
        with monkeypatch.context() as broken:
            broken.setattr(Recording, step, planted)
            assert await agent.ask(get("/step", method=b"POST", body=b"{}")) == OK
            assert await agent.ask(get("/again")) == OK
        assert await agent.ask(get("/after")) == OK
        assert [one.split(b" ")[1] for one in on.environment.requests] == [b"/before", b"/step", b"/again", b"/after"]
        faults = on.recorder.recording.tally.faults
    reader: Reader = store.reader()
    episode = reader.episode(reader.run("r"), "e")
    if step != "event":  # an event is told beside the exchanges, and none is missing
        assert episode.state is EpisodeState.INCOMPLETE or faults
        assert any("planted" in one for one in (*episode.faults, *faults))
