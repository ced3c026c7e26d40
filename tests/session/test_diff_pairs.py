"""Two runs compared by one process or by several: the same document, whatever befalls the others."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from replayproxy.core.rules import Rule
from replayproxy.core.values import Exchange, Trace
from replayproxy.errors import UnknownAddress
from replayproxy.session import diff_pairs
from replayproxy.session.beside import Crew
from replayproxy.session.diff import Diff, diff
from replayproxy.session.diff_pairs import Ground, in_order
from replayproxy.session.look import Stores, looking
from replayproxy.session.porting import choose, export_archive
from replayproxy.storage import Store, Writer, open_store
from replayproxy.storage.gc import collect
from replayproxy.testing import exchange, run, snapshot
from tests.core.world import World, deals
from tests.session.test_beside import lives, until
from tests.session.two_runs import keep, state
from tests.storage.gc_kit import remove

RULES = [
    Rule(name="noisy", pointer="episode/reward", reason="the judge is a model"),
    Rule(name="old", pointer="body/x", reason="was once", until=date(2020, 1, 1)),
]


@pytest.fixture
def writer(store: Store) -> Iterator[Writer]:
    opened = store.writer()
    yield opened
    opened.close()


@pytest.fixture
def several(monkeypatch: pytest.MonkeyPatch) -> list[Crew]:
    """Two processes for whatever is compared, a pair or two at a time; the crews that were started."""
    monkeypatch.setattr(diff_pairs, "WORTH", 1)
    monkeypatch.setattr(diff_pairs, "TOGETHER", 6)
    monkeypatch.setattr(diff_pairs, "cores", lambda: 2)
    started: list[Crew] = []
    real = diff_pairs.crew

    def noted(*given: Any) -> Any:
        made = real(*given)
        started.append(made)  # type: ignore[arg-type]
        return made

    monkeypatch.setattr(diff_pairs, "crew", noted)
    return started


def record(writer: Writer, name: str, side: int) -> None:
    """Nine episodes of every kind: equal, another value or type, a step more, other states, no seal, another reward."""
    made = writer.open_run(run(name))
    for number in range(9):
        world = World(number + 10 * side, start_ms=number * 1000)
        deals(world, amount=(100, 100 + side, ("5", 5)[side], None, {"x": [side]})[number % 5])
        done = list(world.done)
        if number == 5 and side:
            done.append(exchange("GET", "/deals/more", body={"more": True}, at_ms=number * 1000 + 900))
        roots = [state(writer, {"deals": {"42": {"stage": now}}}) for now in ("lead", ("won", "lost")[side])]
        shots = [snapshot(0, roots[0], when="start"), snapshot(1, roots[1], after=done[1])] if number == 6 else []
        keep(writer, made, f"e{number}", done, snapshots=shots, seal=number != 7, reward=float(side * (number == 8)))
    keep(writer, made, f"only-{name}", [])
    writer.flush().result(5)


def document(store: Store, a: str = "main", b: str = "today", **more: Any) -> str:
    return text(diff(Stores([store.reader()]), a, b, rules=RULES, today=date(2026, 1, 1), **more))


def text(found: Diff) -> str:
    """Everything, in its order."""
    return json.dumps(found.to_json(), default=str) + repr([pair.comparison for pair in found.pairs])


def test_several_processes_say_what_one_says(store: Store, writer: Writer, several: list[Crew],
                                             monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    record(writer, "main", 0)
    record(writer, "today", 1)
    with monkeypatch.context() as patch:
        patch.setattr(diff_pairs, "WORTH", 10_000)
        alone = document(store)
    assert several == []  # too few exchanges for it
    with monkeypatch.context() as patch:
        patch.setattr(diff_pairs, "cores", lambda: 1)
        assert document(store) == alone
    assert several == []
    here: list[Any] = []
    with monkeypatch.context() as patch:
        patch.setattr(Ground, "pair", lambda *given: here.append(given))
        told: list[tuple[int, int]] = []
        assert document(store, progress=lambda number, total: told.append((number, total))) == alone
    assert told == [(n, 9) for n in range(1, 10)]
    assert len(several) == 1
    assert here == []  # all of it was done in the others
    for verdict in ("same", "different", "undecided"):
        assert f'"verdict": "{verdict}"' in alone


def test_what_a_killed_process_had_to_do_is_done_here(store: Store, writer: Writer, several: list[Crew],
                                                      monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    record(writer, "main", 0)
    record(writer, "today", 1)
    alone = one_process(store, monkeypatch)
    here: list[str] = []
    real_pair, real_submit = Ground.pair, Crew.submit

    def killing(self: Crew, *given: Any) -> Any:
        asked = real_submit(self, *given)
        assert until(lambda: self.pids or asked.done())
        for pid in self.pids:
            os.kill(pid, signal.SIGKILL)
        return asked

    monkeypatch.setattr(Ground, "pair", lambda self, x, y: here.append(x.name) or real_pair(self, x, y))
    monkeypatch.setattr(Crew, "submit", killing)
    assert document(store) == alone
    assert here


def one_process(store: Store, monkeypatch: pytest.MonkeyPatch, **more: Any) -> str:
    with monkeypatch.context() as patch:
        patch.setattr(diff_pairs, "cores", lambda: 1)
        return document(store, **more)


def test_an_episode_that_is_removed_meanwhile_is_told_as_one_process_tells_it(
    store: Store, several: list[Crew]
) -> None:
    writer = store.writer()
    record(writer, "main", 0)
    record(writer, "today", 1)
    writer.close()
    reader = store.reader()
    runs = reader.run("main"), reader.run("today")
    pairs = list(zip(*map(reader.episodes, runs), strict=True))[:6]
    remove(store.path, "today/e3")
    collect(store.path)
    ground = Ground(readers=(reader, reader), runs=runs, rules=(), today=None)
    coming = in_order(ground, pairs)
    assert [next(coming).b for _ in range(3)] == ["today/e0", "today/e1", "today/e2"]
    with pytest.raises(UnknownAddress, match="e3 was removed"):
        next(coming)


def test_the_runs_may_lie_in_two_stores(
    store: Store, writer: Writer, tmp_path: Path, several: list[Crew], monkeypatch: pytest.MonkeyPatch
) -> None:
    record(writer, "main", 0)
    with open_store(tmp_path / "other", create=True) as other:
        beside = other.writer()
        record(beside, "today", 1)
        beside.close()

    def compared() -> str:
        with looking([store.path, tmp_path / "other"]) as stores:
            return text(diff(stores, "main", "today", rules=RULES))

    with monkeypatch.context() as patch:
        patch.setattr(diff_pairs, "cores", lambda: 1)
        alone = compared()
    assert several == []
    assert compared() == alone
    assert len(several) == 1


def test_an_archive_is_read_by_one_process(store: Store, writer: Writer, tmp_path: Path, several: list[Crew]) -> None:
    record(writer, "main", 0)
    record(writer, "today", 1)
    stores = Stores([store.reader()])
    path = tmp_path / "today.replay"
    export_archive(choose(stores, ["today"]), path)
    with looking([store.path]) as opened:
        found = diff(opened, "main", str(path))
    assert several == []
    assert found.pairs[1].b == f"{path}/today/e1"
    assert found.counts == diff(stores, "main", "today").counts


def test_what_is_kept_of_a_pair_holds_none_of_its_exchanges(store: Store, writer: Writer) -> None:
    record(writer, "main", 0)
    record(writer, "today", 1)
    gc.collect()
    # Held, so that none of an earlier test's goes in between and no new one gets its id.
    before = alive(Exchange, Trace)
    known = {id(one) for one in before}
    found = diff(Stores([store.reader()]), "main", "today")
    gc.collect()
    assert len(found.pairs) == 9
    assert [type(one) for one in alive(Exchange, Trace) if id(one) not in known] == []


def alive(*kinds: type) -> list[object]:
    return [one for one in gc.get_objects() if isinstance(one, kinds)]


INTERRUPTED = """
import sys
from replayproxy.cli.main import main
from replayproxy.session import diff_pairs
diff_pairs.WORTH, diff_pairs.TOGETHER, diff_pairs.cores = 1, 1, lambda: 2
sys.argv = ["replayproxy", "diff", "main", "today", "--store", sys.argv[1]]
sys.exit(main())
"""


def test_an_interrupt_ends_all_processes_and_says_so_once(store: Store, writer: Writer) -> None:
    for name in ("main", "today"):
        made = writer.open_run(run(name))
        for number in range(300):
            keep(writer, made, f"e{number}", [exchange("GET", f"/{n}", body={"n": n}, at_ms=n) for n in range(40)])
    writer.flush().result(5)
    started = subprocess.Popen([sys.executable, "-c", INTERRUPTED, str(store.path)], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, process_group=0)  # fmt: skip
    assert until(lambda: len(children(started.pid)) == 2 or started.poll() is not None)
    pids = children(started.pid)
    began = time.monotonic()
    os.killpg(started.pid, signal.SIGINT)
    _, errors = started.communicate(timeout=60)
    assert started.returncode == 130, errors
    assert "Traceback" not in errors
    assert len(pids) == 2
    assert until(lambda: not any(map(lives, pids)), seconds=2)
    assert time.monotonic() - began < 30


def children(pid: int) -> list[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return []
