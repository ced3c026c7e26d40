"""Whatever fails in here is a local error for the agent, and the episode is not reproduced."""

from __future__ import annotations

import json
from typing import Any

import pytest

from replayproxy.core.values import Outcome
from replayproxy.errors import DamagedRecord
from replayproxy.storage import Reader, Store
from replayproxy.testing import exchange
from tests.serve.staged import Staged, large, record, staged

STEPS = (
    "replayproxy.session.dialect.RecordedDialect.take_marks",
    "replayproxy.session.dialect.to_agent",
    "replayproxy.serve.discretion.read_body",
    "replayproxy.serve.giving.plan",
    "replayproxy.serve.giving.Sender",
    "replayproxy.core.script.exact_key",
    "replayproxy.core.replayer.Replayer.ask",
    "replayproxy.core.replayer.Replayer.may_go",
    "replayproxy.serve.stage.Stage.whose",
    "replayproxy.serve.stage.Stage.why_not",
    "replayproxy.serve.origin.is_marked",
    "replayproxy.serve.playing.Player.play",
)


def planted(*_args: Any, **_more: Any) -> Any:
    raise ZeroDivisionError("planted")


async def asked(on: Staged, target: str = "/x") -> tuple[bytes, dict[str, Any]]:
    head, _, body = (await on.get(target)).partition(b"\r\n\r\n")
    return head.split(b"\r\n")[0], json.loads(body)


@pytest.mark.parametrize("step", STEPS)
async def test_a_fault_in_any_step_is_a_local_500_and_no_reproduction(
    store: Store, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    linked = exchange("GET", "/x", headers={"Location": "/y", "Content-Length": "0"})
    run = record(store, {"e": [linked, exchange("GET", "/y", body=b"fine")]})
    async with staged(store, run) as on:
        with monkeypatch.context() as broken:
            broken.setattr(step, planted)
            status, document = await asked(on)
        assert status == b"HTTP/1.1 500 Replay Failed"
        assert "ZeroDivisionError: planted" in document["detail"]
        # The fault is one episode's mark, not the end of the replay.
        assert (await on.get("/y")).endswith(b"fine")
        receipt = on.receipt()
    assert receipt["reproduced"] is False
    assert len(receipt["faults"]) == 1
    assert receipt["upstream_contacts"] == 0


async def test_a_fault_while_an_answer_waits_for_its_turn_is_a_local_500(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = record(store, {"e": [
        exchange("POST", "/x", lane="a", at_ms=0), exchange("GET", "/x", lane="main", at_ms=50),
    ]})  # fmt: skip
    async with staged(store, run) as on:
        monkeypatch.setattr("replayproxy.serve.scene.Scene.turn", planted)
        assert (await asked(on))[0] == b"HTTP/1.1 500 Replay Failed"
        assert on.receipt()["faults"]


@pytest.mark.parametrize("step", ["replayproxy.serve.scene.nearest", "replayproxy.serve.scene.miss_document"])
async def test_a_fault_while_a_miss_is_explained_is_a_local_500(
    store: Store, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    run = record(store, {"e": [exchange("GET", "/x")]})
    async with staged(store, run) as on:
        monkeypatch.setattr(step, planted)
        assert (await asked(on, "/never"))[0] == b"HTTP/1.1 500 Replay Failed"
        assert on.receipt()["faults"]


async def test_a_damaged_episode_is_a_local_500_for_its_own_agent_only(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = record(store, {"a": [exchange("GET", "/x", body=b"fine")], "b": [exchange("GET", "/x")]})
    real = Reader.exchanges

    def exchanges(self: Reader, episode: Any, **more: Any) -> Any:
        if episode.name == "b":
            raise DamagedRecord("r/b#1 is damaged: checksum")
        return real(self, episode, **more)

    monkeypatch.setattr(Reader, "exchanges", exchanges)
    async with staged(store, run, sole=None) as on:
        assert (await asked(on, "/rp/b/x"))[0] == b"HTTP/1.1 500 Replay Failed"
        assert (await on.get("/rp/a/x")).endswith(b"fine")
        receipt = on.receipt()
    assert receipt["reproduced"] is False
    assert "r/b#1 is damaged" in receipt["faults"][0]
    assert [type(fault) for fault in on.faults] == [DamagedRecord]


async def test_a_body_that_cannot_be_read_to_its_end_is_cut(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    body = large(store, b"x" * 1_000_000)
    run = record(store, {"e": [exchange(body=body, headers={"Content-Length": "1000000"})]})
    real, read = Reader.node, []

    def node(self: Reader, address: bytes) -> bytes:
        read.append(address)
        if len(read) > 1:
            raise DamagedRecord("a blob is missing")
        return real(self, address)

    async with staged(store, run) as on:
        monkeypatch.setattr(Reader, "node", node)
        answer = await on.get("/x")
        receipt = on.receipt()
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert len(answer) < 1_000_000
    assert (receipt["reproduced"], len(receipt["faults"])) == (False, 1)


async def test_an_exchange_without_a_recorded_end_is_a_fault_and_no_invention(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = record(store, {"e": [exchange("GET", "/x", status=None, outcome=Outcome.ANSWERED)]})
    async with staged(store, run) as on:
        assert (await asked(on))[0] == b"HTTP/1.1 500 Replay Failed"
