"""Readers beside a writer: many, and some that are killed inside a transaction."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from replayproxy.storage import open_store
from replayproxy.testing import episode, exchange, run

HOLD = """
import sys
from pathlib import Path
from replayproxy.storage import open_store
store = open_store(Path(sys.argv[1]))
held = [store.env.env.begin() for _ in range(int(sys.argv[2]))]
counts = [txn.stat(store.env.dbs["exchanges"])["entries"] for txn in held]
print(min(counts), max(counts), flush=True)
sys.stdin.readline()
counts = [sum(1 for _ in txn.cursor(store.env.dbs["exchanges"])) for txn in held]
print(min(counts), max(counts), flush=True)
"""


def holding(path: Path, transactions: int) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path), str(transactions)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert child.stdout is not None
    assert child.stdout.readline() == "10 10\n"
    return child


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with open_store(tmp_path / "s", create=True) as store:
        writer = store.writer()
        rollout = writer.open_episode(episode("e", run_key=writer.open_run(run("r")).key))
        for at in range(10):
            writer.put_exchange(rollout.key, exchange(at_ms=at, body=b"x" * 3000))
        writer.close()
    return tmp_path / "s"


def test_two_hundred_readers_see_each_its_moment_while_a_writer_goes_on(path: Path) -> None:
    children = [holding(path, 50) for _ in range(4)]
    with open_store(path) as store:
        writer = store.writer()
        made = store.reader().run("r")
        for n in range(20):
            rollout = writer.open_episode(episode(f"n{n}", run_key=made.key))
            writer.put_exchange(rollout.key, exchange(body=bytes([n]) * 9000))
            writer.seal(rollout).result(30)
        writer.close()
        assert len(store.reader().episodes(made)) == 21
    for child in children:
        assert child.communicate("\n")[0] == "10 10\n"


def test_what_a_killed_reader_held_is_let_go_by_the_next_writer(path: Path) -> None:
    child = holding(path, 3)
    with open_store(path) as store:
        child.kill()
        child.communicate()
        assert store.env.env.readers().count(str(child.pid)) == 3
        store.writer().close()
        assert str(child.pid) not in store.env.env.readers()
        assert len(list(store.reader().exchanges(store.reader().episodes(store.reader().run("r"))[0]))) == 10
