"""The commands as processes: an unmarked agent is recorded by ready rules, and answered with the server gone."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.samples.nemo_gym import Nemo
from tests.samples.serving import served

pytestmark = pytest.mark.e2e

AGENT = """
import concurrent.futures, http.cookiejar, json, sys, urllib.request

def rollout(number):
    client = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))
    def call(tool, **asked):
        headers = {"Content-Type": "application/json", "X-Worker": "w%d" % (number % 2)}
        body = json.dumps(asked).encode()
        return json.load(client.open(urllib.request.Request(f"{sys.argv[1]}/{tool}", body, headers)))
    call("seed_session", task=number)
    for n in range(3):
        assert call("increment_counter", by=number) == {"count": number * (n + 1)}
    assert call("verify") == {"reward": float(number * 3)}

with concurrent.futures.ThreadPoolExecutor(8) as pool:
    list(pool.map(rollout, range(int(sys.argv[2]), int(sys.argv[3]))))
"""
LANES = """
rules = "nemo-gym"
[[rule]]
name = "worker"
action = "extract"
header = "X-Worker"
fills = "lane"
[rule.example]
request = "POST /x"
headers = ["X-Worker: w1"]
value = "w1"
"""


async def command(cwd: Path, *words: str, agent: Sequence[Any]) -> tuple[int, Any, str]:
    started = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "replayproxy", *words, "--json", "--", sys.executable, "-c", AGENT, "{app}",
        *map(str, agent), cwd=cwd, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await asyncio.wait_for(started.communicate(), 100)
    return started.returncode or 0, json.loads(out), err.decode()


async def test_sixteen_unmarked_rollouts_are_recorded_and_replayed_by_the_commands(tmp_path: Path) -> None:
    (tmp_path / "replayproxy.toml").write_text(LANES)
    async with served(Nemo(lambda: 1_780_000_000).app) as url:
        code, told, err = await command(tmp_path, "record", "--env", f"app={url}", "--run", "r", agent=(1, 17))
    assert code == 0, err
    assert (told["episodes"], told["exchanges"], told["unattributed"], told["contradictions"]) == (16, 80, 0, 0)
    assert told["rules"]["used"]["nemo-reward"] == 16
    code, receipt, err = await command(tmp_path, "replay", "r", agent=(1, 17))
    assert code == 0, err
    assert receipt["reproduced"]
    assert len(receipt["adopted"]) == 16


async def test_one_episode_of_them_answers_its_rollout_alone_and_in_its_lane(tmp_path: Path) -> None:
    (tmp_path / "replayproxy.toml").write_text(LANES)
    async with served(Nemo(lambda: 1_780_000_000).app) as url:
        code, _, err = await command(tmp_path, "record", "--env", f"app={url}", "--run", "r", agent=(7, 8))
    assert code == 0, err
    code, receipt, err = await command(tmp_path, "replay", "latest", agent=(7, 8))
    assert code == 0, err
    (episode,) = receipt["episodes"]
    code, receipt, err = await command(tmp_path, "replay", f"r/{episode['episode']}", agent=(7, 8))
    assert code == 0, err
    assert (receipt["reproduced"], receipt["adopted"]) == (True, [])
