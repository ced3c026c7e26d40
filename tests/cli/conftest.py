"""How the tests of commands call them, and a recording for those that look."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from replayproxy.cli import main
from replayproxy.core import prolly
from replayproxy.core.values import UNATTRIBUTED, Outcome
from replayproxy.storage import open_store
from replayproxy.testing import episode, exchange, run, snapshot


@dataclass(frozen=True)
class Told:
    """What a command said, and its exit code."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()

    @property
    def json(self) -> Any:
        lines = self.text.splitlines()
        assert len(lines) == 1, "exactly one JSON document"
        return json.loads(lines[0])


type Call = Callable[..., Told]


@pytest.fixture
def call(capfdbinary: pytest.CaptureFixture[bytes]) -> Call:
    """`call("ls", "--json")` runs a command as the command line does."""

    def called(*arguments: str) -> Told:
        code = main.run(list(arguments), "--json" in arguments)
        captured = capfdbinary.readouterr()
        return Told(code, captured.out, captured.err.decode())

    return called


EVIL = "\x1b]0;evil\x07"
BEFORE = {"deals": {"42": {"stage": "lead", "n": Decimal("1.10")}, "7": {}}}
AFTER = {"deals": {"42": {"stage": "won", "n": Decimal("1.10")}, "7": {}, "9" + EVIL: {"a": 2**70}}}
FINDING = {
    "id": "state-bleed-0123456789ab", "kind": "state-bleed", "sub": "row", "grade": "proven", "blame": "environment",
    "blame_reason": "reset", "title": "a was poisoned by b", "run": "nightly", "episode": "a", "lane": "main",
    "pointer": "/items/3/id", "values": ["absent", "D-9" + EVIL],
    "exchanges": [{"address": "nightly/a#2", "role": "read", "method": "GET", "target": "/deals", "status": 200,
                   "wall": 1_700_000_000_212_000_000, "pointer": "/items/3/id", "value": "D-9"}],
    "snapshots": ["nightly/a/s0"], "assumptions": ["snapshots atomic"], "ruled_out": ["own write: none"],
    "cannot_say": "whether the reward depends on it", "reproduce": "replayproxy reproduce F1 --env crm=URL", "count": 3,
}  # fmt: skip


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run `nightly`: episode `a` (sealed, checked), `b` (incomplete), unattributed traffic; run `older`, empty."""
    path = tmp_path / "store"
    monkeypatch.setenv("REPLAYPROXY_STORE", str(path))
    with open_store(path, create=True) as store:
        writer = store.writer()
        writer.open_run(run("older", opened_wall=1))
        made = writer.open_run(run("nightly", envs=("crm", "cal"), snapshots={"crm": "sqlite:crm.db"}, meta={"k": "v"}))
        a = writer.open_episode(
            episode("a", run_key=made.key, task="crm-7", seed=7, attempt=1, opened=1, meta={"step": 398})
        )
        before, after = prolly.build(BEFORE), prolly.build(AFTER)
        writer.put_nodes({**before.nodes, **after.nodes})
        patch = exchange(
            "PATCH", "/deals/42", sent={"stage": "won"}, body='{"id": 42, "amount": 1.10, "big": 12345678901234567890}',
            at_ms=6100, took_ms=14, env="crm", upstream="http://127.0.0.1:9000/base", held_ns=2_000_000,
        )  # fmt: skip
        for one in (
            exchange("GET", f"/deals?q={EVIL}", body=b"\x00\xff\x1b[31mred", at_ms=2870, env="crm",
                     headers=[("X-Evil", EVIL), (b"X-\xff", b"\xfe")]),
            patch,
            exchange("GET", "/slots?day=1", body=b"\x1b[31mtext", lane="tool-a", at_ms=6310, took_ms=9, env="cal",
                     headers={"Content-Type": "text/plain"}),
            exchange("POST", "/slots/8", status=409, sent=b"it's \x01\xff", body=b"c" * 9000, lane="tool-b",
                     at_ms=6311, took_ms=12, env="cal"),
            exchange("GET", "/gone", status=None, outcome=Outcome.REFUSED, error="connection refused", at_ms=7000),
        ):  # fmt: skip
            writer.put_exchange(a.key, one)
        writer.put_snapshot(a.key, snapshot(0, before.root, name="crm", when="start", rows=2))
        writer.put_snapshot(a.key, snapshot(1, after.root, name="crm", after=patch, rows=3, at_ms=6110))
        writer.put_snapshot(a.key, snapshot(2, None, name="crm", when="end", at_ms=7100))
        writer.seal(replace(a, reward=1.0, ended_by="end", ended=40_000_000_000)).result(5)
        writer.open_episode(episode("b", run_key=made.key))
        bucket = writer.open_episode(episode(UNATTRIBUTED, run_key=made.key))
        writer.put_exchange(bucket.key, exchange(carrier="no carrier"))
        writer.put_check(made.key, {"run": "nightly", "findings": [FINDING], "verdicts": {"a": "poisoned"}})
        writer.close()
    return path
