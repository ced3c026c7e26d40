"""Whose rules a replay obeys."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from replayproxy.core.rules import parse_rules
from replayproxy.errors import WrongUsage
from replayproxy.session.replay_rules import relaxation
from replayproxy.storage import Store
from replayproxy.testing import exchange
from replayproxy.testing import run as made_run
from tests.cli.test_replay import ran, record

TODAY = date(2026, 11, 29)


def rule(name: str, action: str = "ignore", **more: str) -> dict[str, str]:
    return {"name": name, "at": "POST /act", "pointer": "/ts", "action": action, "reason": "a clock", **more}


def test_rules_of_the_config_and_of_the_run_are_obeyed_and_of_two_with_one_name_the_configs() -> None:
    run = replace(
        made_run("r"), config={"rule": [rule("a"), rule("b"), rule("x", "extract"), rule("c", until="2020-01")]}
    )
    found = relaxation(run, parse_rules([rule("a", "mask")]), TODAY)
    assert [(one.name, one.action) for one in found.rules] == [("a", "mask"), ("b", "ignore")]
    assert [one.name for one in found.expired] == ["c"]


def test_a_kept_rule_that_cannot_be_meant_is_named_with_its_run() -> None:
    with pytest.raises(WrongUsage, match="kept in r"):
        relaxation(replace(made_run("r"), config={"rule": [rule("a", reason="")]}), (), TODAY)


POST = (
    "import json, os, urllib.request as u; u.urlopen(u.Request(os.environ['REPLAYPROXY_URL_APP'] + '/act', "
    "json.dumps({'ts': 2}).encode(), {'Content-Type': 'application/json'}))"
)
KIND = {"Content-Type": "application/json"}


def test_a_replay_with_a_rule_counts_it_and_is_not_called_reproduced(store: Store, tmp_path: Path) -> None:
    path = record(store, exchange("POST", "/act", sent={"ts": 1}, request_headers=KIND))
    config = tmp_path / "rules.toml"
    words = ["r/e", "--json", "--", sys.executable, "-c", POST]
    assert ran(path, *words).returncode == 1
    lines = "\n".join(f"{name} = {json.dumps(value)}" for name, value in rule("clock").items())
    config.write_text(f"[[rule]]\n{lines}\n\n[[rule]]\n{lines.replace('clock', 'other', 1).replace('/ts', '/none')}\n")
    done = ran(path, "--config", str(config), *words)
    receipt = json.loads(done.stdout)
    assert done.returncode == 1
    assert receipt["served"]["relaxed"] == 1
    assert receipt["rules"][0] == {"name": "clock", "action": "ignore", "uses": 1}
    assert receipt["unused_rules"] == ["other"]
    assert "rule clock (ignore)  needed 1 time" in done.stderr
    assert receipt["unmatched_rules"] == ["other"]
    assert "rule other matched nothing" in done.stderr
    assert "never needed" not in done.stderr
