"""Rollout files in the shapes that frameworks document, joined without a word about how."""

from __future__ import annotations

from typing import Any

import pytest

from replayproxy.core.values import Episode
from replayproxy.errors import WrongUsage
from replayproxy.session.rollouts_join import Join
from replayproxy.session.rollouts_shapes import choose
from replayproxy.testing import episode

RESPONSE = {"id": "resp_1", "object": "response", "output": [{"type": "function_call", "name": "get_deal"}]}


def nemo_gym(n: int, **more: Any) -> dict[str, Any]:
    """One line of `<out>.jsonl`: the verify response, with the indices that collection resumes by."""
    return {
        "responses_create_params": {"input": [{"role": "user", "content": "win the deal"}]}, "response": RESPONSE,
        "reward": n / 8, "_ng_task_index": n // 4, "_ng_rollout_index": n % 4,
        "agent_ref": {"type": "responses_api_agents", "name": "simple_agent"}, **more,
    }  # fmt: skip


def verifiers(n: int) -> dict[str, Any]:
    """One line of `traces.jsonl`: an episode, its traces inside."""
    return {
        "id": f"ep-{n}", "task": {"key": f"crm-{n // 4}", "hash": "9f2c"}, "group": {"id": f"g{n // 4}"},
        "run": {"id": "run-1"}, "ok": True, "errors": [], "stop_condition": "done", "info": {},
        "traces": [{"id": f"tr-{n}", "rewards": {"won": {"score": n / 8, "weight": 1.0}}}],
    }  # fmt: skip


def inspect_sample(n: int) -> dict[str, Any]:
    """One `EvalSample` as JSON."""
    return {
        "id": f"crm-{n // 4}", "epoch": n % 4 + 1, "uuid": f"u{n}", "input": "win the deal", "target": "won",
        "scores": {"match": {"value": "C"}}, "messages": [],
    }  # fmt: skip


def tau2(n: int) -> dict[str, Any]:
    """One `SimulationRun` of a results file."""
    return {
        "id": f"sim-{n}", "task_id": str(n // 4), "trial": n % 4, "seed": 300, "messages": [],
        "termination_reason": "user_stop", "reward_info": {"reward": n / 8, "db_check": None}, "info": {},
    }  # fmt: skip


def openenv(n: int) -> dict[str, Any]:
    return {"episode_id": f"crm-{n:06d}", "reward": n / 8, "messages": [], "extra": {}}


def harbor(n: int) -> dict[str, Any]:
    return {
        "id": f"i{n}", "task_id": {"path": "crm"}, "trial_name": f"crm__{n}", "task_checksum": "c0ffee",
        "verifier_result": {"rewards": {"reward": n / 8}}, "exception_info": None,
    }  # fmt: skip


def lightning(n: int) -> dict[str, Any]:
    return {"rollout_id": f"ro-{n}", "attempt_id": f"at-{n}", "status": "succeeded", "reward": n / 8}


def episodes(**said: Any) -> list[Episode]:
    """Eight episodes; each member is made by its function of the number."""
    found = []
    for n in range(8):
        made = {name: of(n) for name, of in said.items()}
        found.append(episode(made.pop("name", f"e{n}"), reward=n / 8, **made))
    return found


def crm(n: int) -> str:
    return f"crm-{n // 4}"


KNOWN = [
    ("NeMo Gym", nemo_gym, "--on _ng_task_index=task --on _ng_rollout_index=attempt",
     {"task": lambda n: str(n // 4), "attempt": lambda n: n % 4}),
    ("NeMo Gym", lambda n: nemo_gym(n, _ng_rollout_id=f"{n // 4}-{n % 4}"), "--on _ng_rollout_id=episode",
     {"name": lambda n: f"{n // 4}-{n % 4}"}),
    ("NeMo Gym", lambda n: nemo_gym(n, _ng_rollout_id=f"{n // 4}-{n % 4}"), "--on _ng_rollout_id=meta._ng_rollout_id",
     {"meta": lambda n: {"_ng_rollout_id": f"{n // 4}-{n % 4}"}}),
    ("NeMo Gym", nemo_gym,
     "--on _ng_task_index=meta._ng_task_index --on _ng_rollout_index=meta._ng_rollout_index",
     {"meta": lambda n: {"_ng_task_index": n // 4, "_ng_rollout_index": n % 4}}),
    ("verifiers", verifiers, "--on id=episode", {"name": lambda n: f"ep-{n}"}),
    ("verifiers", verifiers, "--on /traces/0/id=alias", {"aliases": lambda n: (("vf", f"tr-{n}"), ("x", f"y{n}"))}),
    ("inspect", inspect_sample, "--on uuid=episode", {"name": lambda n: f"u{n}"}),
    ("inspect", inspect_sample, "--on id=task --on epoch=attempt", {"task": crm, "attempt": lambda n: n % 4 + 1}),
    ("tau2", tau2, "--on task_id=task --on trial=attempt --on seed=seed",
     {"task": lambda n: str(n // 4), "attempt": lambda n: n % 4, "seed": lambda n: 300}),
    ("tau2", tau2, "--on id=alias", {"aliases": lambda n: (("tau2", f"sim-{n}"),)}),
    ("OpenEnv", openenv, "--on episode_id=alias", {"aliases": lambda n: (("openenv", f"crm-{n:06d}"),)}),
    ("Harbor", harbor, "--on trial_name=episode", {"name": lambda n: f"crm__{n}"}),
    ("Agent Lightning", lightning, "--on attempt_id=meta.attempt_id", {"meta": lambda n: {"attempt_id": f"at-{n}"}}),
    ("rollouts of a task", lambda n: {"task": crm(n), "seed": 7, "attempt": n % 4, "score": 1},
     "--on task=task --on seed=seed --on attempt=attempt",
     {"task": crm, "seed": lambda n: 7, "attempt": lambda n: n % 4}),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "line", "on", "said"), KNOWN, ids=[f"{k[0]} {k[2]}" for k in KNOWN])
def test_a_known_shape_is_joined_without_on(shape: str, line: Any, on: str, said: Any) -> None:
    recorded = episodes(**said)
    rollouts = [line(n) for n in range(8)]
    chosen = choose(rollouts, recorded)
    join = Join(chosen.on, recorded)
    assert (chosen.shape.name, str(join)) == (shape, on)
    assert [join.match(one).episodes[0].name for one in rollouts] == [e.name for e in recorded]


def test_a_way_that_joins_by_chance_is_not_taken() -> None:
    """Attempts that count from 1 on one side and from 0 on the other fit all lines but one of each task."""
    recorded = episodes(task=lambda n: str(n // 4), attempt=lambda n: n % 4 + 1)
    with pytest.raises(WrongUsage, match="looks like NeMo Gym, but by none of"):
        choose([nemo_gym(n) for n in range(8)], recorded)


def test_a_way_whose_rewards_contradict_is_not_taken() -> None:
    recorded = episodes(task=lambda n: str((7 - n) // 4), attempt=lambda n: (7 - n) % 4)
    with pytest.raises(WrongUsage, match="looks like NeMo Gym") as refused:
        choose([nemo_gym(n) for n in range(8)], recorded)
    way = "--on _ng_task_index=task --on _ng_rollout_index=attempt"
    assert f"where {way} joins them, the rewards contradict: 0.0 where e7 has 0.875; so 8 of the 8" in str(
        refused.value
    )
    assert refused.value.hint == f"{way}, if it is the right way nevertheless"
    assert choose([nemo_gym(n) for n in range(8)], recorded, by_reward=False).shape.name == "NeMo Gym"


def test_two_ways_that_disagree_are_both_named() -> None:
    recorded = episodes(name=lambda n: f"u{n}", task=lambda n: crm(7 - n), attempt=lambda n: (7 - n) % 4 + 1)
    with pytest.raises(WrongUsage, match=r"--on uuid=episode, or --on id=task --on epoch=attempt"):
        choose([inspect_sample(n) for n in range(8)], recorded)


def test_what_is_not_known_is_said() -> None:
    for rollouts in ([], [{"text": "x"}], [nemo_gym(0), {"text": "x"}]):
        with pytest.raises(WrongUsage) as told:
            choose(rollouts, episodes())
        assert "--on LINE_FIELD=EPISODE_FIELD" in told.value.hint
