"""Each ready rule set: its examples, and a sample of its framework's wire shape, recorded afresh and replayed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web

from replayproxy.core.extract import run_examples
from replayproxy.core.extractrule import extract_rules
from replayproxy.session.ready_rules import names, rule_tables
from tests.samples import tools
from tests.samples.serving import episode, episodes, options, record, replay, served

type Rollout = Callable[[str, str], Awaitable[None]]

SAMPLES: dict[str, tuple[str, Callable[[], web.Application], Rollout, int]] = {
    # sample: (rule set, server, agent, exchanges of one rollout)
    "mcp": ("mcp", tools.mcp_server, tools.mcp_agent, 4),
    "mcp-stateless": ("mcp-stateless", tools.mcp_server, tools.stateless_mcp_agent, 3),
    "tau2": ("tau2", tools.tau2_server, tools.tau2_agent, 5),
    "verifiers": ("verifiers", tools.verifiers_server, tools.verifiers_agent, 3),
    "openenv-rpc": ("openenv", tools.openenv_server, tools.openenv_rpc_agent, 4),
}
PLANTED = {"mcp": "-of-this-server", "mcp-stateless": "key-of-", "verifiers": "signed-for-"}
"""Part of each credential that a sample carries: never in what is kept."""

NAMES = ("ada", "grace", "edsger", "barbara")


def several(rollout: Rollout) -> Callable[[str], Awaitable[None]]:
    async def agent(url: str) -> None:
        await asyncio.gather(*(rollout(url, name) for name in NAMES))

    return agent


@pytest.mark.parametrize("name", names())
def test_the_examples_of_a_ready_set_give_their_values(name: str) -> None:
    rules = extract_rules(rule_tables([name]))
    assert rules
    run_examples(rules)


def test_all_sets_can_be_used_together() -> None:
    assert len(extract_rules(rule_tables(names()))) == len(rule_tables(names()))


@pytest.mark.parametrize("sample", SAMPLES)
async def test_parallel_rollouts_without_any_mark_are_told_apart_and_reproduced(sample: str, tmp_path: Path) -> None:
    rules, server, rollout, each = SAMPLES[sample]
    async with served(server()) as url:
        recorder = await record(options(tmp_path, url, [rules]), several(rollout))
    tally = recorder.recording.tally
    assert tally.why_not_whole() == [], tally.document()
    named = episodes(tmp_path)
    assert named.pop("unattributed") == []
    assert [len(exchanges) for exchanges in named.values()] == [each] * len(NAMES)
    kept = repr((named, [episode(tmp_path, name) for name in named]))
    assert all(episode(tmp_path, name).aliases for name in named)
    assert sample not in PLANTED or PLANTED[sample] not in kept
    receipt = await replay(tmp_path, several(rollout))
    assert receipt["reproduced"], receipt


async def test_openenv_sessions_are_their_connections_and_reproduced(tmp_path: Path) -> None:
    agent = several(tools.openenv_agent)
    async with served(tools.openenv_server()) as url:
        recorder = await record(options(tmp_path, url, ["openenv"]), agent)
    assert recorder.recording.tally.why_not_whole() == []
    assert recorder.recording.tally.probes == len(NAMES)
    named = episodes(tmp_path)
    assert [x.is_probe for x in named.pop("unattributed")] == [True] * len(NAMES)
    assert {name: len(exchanges) for name, exchanges in named.items()} == dict.fromkeys(NAMES, 1)
    assert [episode(tmp_path, name).seed for name in NAMES] == [len(name) for name in NAMES]
    receipt = await replay(tmp_path, agent)
    assert receipt["reproduced"], receipt
    assert (receipt["probes"], receipt["adopted"]) == (len(NAMES), [])


async def test_connections_without_a_name_are_episodes_and_adopted_by_what_they_say_first(tmp_path: Path) -> None:
    async def agent(url: str) -> None:
        await asyncio.gather(*(tools.openenv_agent(url, name, named=False) for name in NAMES))

    async with served(tools.openenv_server()) as url:
        recorder = await record(options(tmp_path, url, ["openenv"]), agent)
    assert recorder.recording.tally.why_not_whole() == []
    names = sorted(name for name in episodes(tmp_path) if name != "unattributed")
    assert names == [f"openenv-connection-{n}" for n in range(1, len(NAMES) + 1)]
    assert "key-of-" not in repr(episodes(tmp_path))
    receipt = await replay(tmp_path, agent)
    assert receipt["reproduced"], receipt
    assert [one["by"] for one in receipt["adopted"]] == ["first message"] * len(NAMES)
