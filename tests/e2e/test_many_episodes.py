"""Sixteen episodes through one proxy: each replays by itself, and all together in any interleaving."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from tests.e2e.conftest import SERVERS, Lab, Ran

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

THREE_AT_ONCE = """
import os, threading, urllib.request as u
go = lambda: u.urlopen(os.environ['REPLAYPROXY_URL_APP'] + '/slow?s=0.4').read()
t = [threading.Thread(target=go) for _ in range(3)]
[x.start() for x in t]; [x.join() for x in t]
"""
SIXTEEN = [sys.executable, str(SERVERS / "sixteen.py")]


def answers(ran: Ran) -> dict[str, Any]:
    line = next(line for line in ran.err.splitlines() if line.startswith("ANSWERS "))
    return dict(json.loads(line.removeprefix("ANSWERS ")))


def test_sixteen_interleaved_episodes_replay_alone_and_together(lab: Lab) -> None:
    url = lab.toy()
    ran = lab.run("record", "--env", f"app={url}", "--run", "many", "--json", "--", *SIXTEEN)
    assert ran.code == 0, ran.err
    assert ran.json["exchanges"] == 15 * 18
    said = answers(ran)
    lab.stop_all()
    for shuffle in ("1", "2", "3"):
        together = lab.run("replay", "many", "--json", "--", *SIXTEEN, "--shuffle", shuffle)
        assert together.code == 0, together.out + together.err
        assert together.json["reproduced"] is True
        assert answers(together) == said
    for number in range(16):
        episode = f"ep-{number}"
        alone = lab.run("replay", f"many/{episode}", "--json", "--", *SIXTEEN, "--only", episode, "--shuffle", "9")
        assert alone.code == 0, alone.out + alone.err
        assert alone.json["reproduced"] is True
        assert answers(alone) == {lane: rows for lane, rows in said.items() if lane.startswith(f"{episode}/")}


def test_overlapping_identical_requests_without_lanes_are_never_called_reproduced(lab: Lab) -> None:
    url = lab.toy()
    agent = [sys.executable, "-c", THREE_AT_ONCE]
    ran = lab.run("record", "--env", f"app={url}", "--run", "r", "--episode", "e", "--json", "--", *agent)
    assert ran.code == 0, ran.err
    assert ran.json["lane_ambiguous"] == 2
    again = lab.run("replay", "r/e", "--json", "--", *agent)
    assert again.code in (1, 3), again.out + again.err
    assert again.json["reproduced"] is False
