"""Episodes of one run re-driven at the same time, each against an instance of the environment of its own."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from pathlib import Path

from replayproxy.storage import open_store
from tests.cli.test_redrive import live
from tests.session.redrive_lab import Shop
from tests.session.redrive_shop import recorded

EPISODES = ("e1", "e2")


def test_an_instance_for_each_command_gives_what_one_command_after_the_other_gives(tmp_path: Path) -> None:
    store = tmp_path / "store"
    shops = {name: Shop(tmp_path / f"{name}.db") for name in EPISODES}
    with open_store(store, create=True) as opened:
        for name in EPISODES:  # both of the first instance, from the same start
            asyncio.run(recorded(opened, shops["e1"], episode=name))
            shutil.copy(tmp_path / "e2.db", tmp_path / "e1.db")
            shops["e1"].next_id = 1
        shops["e1"].seen.clear()
    with live(shops["e1"]) as first, live(shops["e2"]) as second:
        urls = dict(zip(EPISODES, (first, second), strict=True))
        words = {
            name: [f"r/{name}", "--env", f"app={urls[name]}", "--snapshot", f"app=sqlite:{shops[name].path}"]
            for name in EPISODES
        }
        running = [start(store, *words[name], "--save", f"beside-{name}") for name in EPISODES]
        at_once = [outcome(process) for process in running]
        for shop in shops.values():
            shop.next_id = 1
        in_turn = [outcome(start(store, *words[name], "--save", f"after-{name}")) for name in EPISODES]
    assert [told["verdict"] for told in at_once] == ["same", "same"]
    assert [essence(told) for told in at_once] == [essence(told) for told in in_turn]
    assert [len(shop.seen) for shop in shops.values()] == [18, 18]
    with open_store(store) as opened:
        reader = opened.reader()
        for run in ("beside-e1", "beside-e2", "after-e1", "after-e2"):
            (episode,) = reader.episodes(reader.run(run))
            assert reader.count(episode) == 9
        # What each instance held before its first restore is kept, whoever wrote beside it.
        assert len(reader.episodes(reader.run("before-restore"))) == 4


def start(store: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "replayproxy", "redrive", *words, "--store", str(store), "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def outcome(process: subprocess.Popen[str]) -> dict[str, object]:
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    told: dict[str, object] = json.loads(out)
    return told


def essence(told: dict[str, object]) -> object:
    receipt = told["receipt"]
    assert isinstance(receipt, dict)
    kept = {name: receipt[name] for name in ("episode", "sent", "of", "answers") if name in receipt}
    return told["verdict"], told["roots"], sorted(kept.items(), key=str), len(receipt["substitutions"])
