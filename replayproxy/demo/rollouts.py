"""A harness in small: resets an instance of the demo suite, opens an episode, lets the agent work, ends it.

This is what a rollout worker of one's own looks like. It runs as the child of `replayproxy record`:

    replayproxy record --env app=dynamic -- python -m replayproxy.demo.rollouts --plan clean --instance a=URL ..
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass

from replayproxy import client
from replayproxy.demo.agent import TASKS, work

OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """One episode to run: its name, what to do, and on which instance of the suite."""

    name: str
    task: str
    seed: int
    attempt: int
    instance: str


def clean_plan(episodes: int = 50) -> list[Rollout]:
    """Every task with two seeds, again and again, spread over two instances."""
    plan = []
    for number in range(episodes):
        task = sorted(TASKS)[number % len(TASKS)]
        seed, attempt = 1 + number // len(TASKS) % 2, 1 + number // (2 * len(TASKS))
        plan.append(
            Rollout(name=f"{task}-s{seed}-a{attempt}", task=task, seed=seed, attempt=attempt, instance="ab"[number % 2])
        )
    return plan


def fault_plan() -> list[Rollout]:
    """Three episodes of B's task, then A, then B on the leaky instance; one, three and one on the other three."""
    before = [Rollout(name=f"b-before-{n}", task="crm-renewal", seed=7, attempt=n, instance="leaky") for n in (1, 2, 3)]
    return [
        *before,
        Rollout(name="a", task="crm-new", seed=7, attempt=1, instance="leaky"),
        Rollout(name="b", task="crm-renewal", seed=7, attempt=4, instance="leaky"),
        Rollout(name="win", task="crm-win", seed=7, attempt=1, instance="stale"),
        *[Rollout(name=f"score-{n}", task="crm-score", seed=7, attempt=n, instance="random") for n in (1, 2, 3)],
        Rollout(name="pair", task="cal-same", seed=7, attempt=1, instance="double"),
    ]


def again_plan(times: int = 5) -> list[Rollout]:
    """B alone on a fresh instance."""
    return [
        Rollout(name=f"b-{n}", task="crm-renewal", seed=7, attempt=n, instance="fresh") for n in range(1, times + 1)
    ]


PLANS = {"clean": clean_plan, "faults": fault_plan, "again": again_plan}


def reset(url: str, task: str, seed: int) -> None:
    """The harness's own call to the suite; it does not go through the proxy."""
    document = json.dumps({"task": task, "seed": seed}).encode()
    asked = urllib.request.Request(url + "/admin/reset", data=document, headers={"Content-Type": "application/json"})
    OPENER.open(asked, timeout=30).close()


def run_one(rollout: Rollout, url: str) -> float:
    """One episode from reset to reward."""
    reset(url, rollout.task, rollout.seed)
    with client.episode(
        episode=rollout.name, task=rollout.task, seed=rollout.seed, attempt=rollout.attempt,
        envs={"app": url}, instance={"app": rollout.instance}, snapshots={"app": f"http:{url}/admin/state"},
    ) as episode:  # fmt: skip
        episode.reward = work(episode.url("app"), rollout.task)
    return float(episode.reward)


def run(plan: Sequence[Rollout], urls: dict[str, str]) -> dict[str, float]:
    """All episodes: one after the other on an instance, instances side by side. Episode -> reward."""
    rewards: dict[str, float] = {}
    failures: list[BaseException] = []

    def worker(instance: str) -> None:
        try:
            for rollout in plan:
                if rollout.instance == instance:
                    rewards[rollout.name] = run_one(rollout, urls[instance])
        except Exception as failure:
            failures.append(failure)

    workers = [threading.Thread(target=worker, args=(name,)) for name in {rollout.instance for rollout in plan}]
    for one in workers:
        one.start()
    for one in workers:
        one.join()
    if failures:
        raise failures[0]
    return rewards


def main() -> int:
    parser = argparse.ArgumentParser(description="The demo's rollout worker.")
    parser.add_argument("--plan", choices=sorted(PLANS), required=True)
    parser.add_argument("--instance", action="append", default=[], metavar="NAME=URL")
    given = parser.parse_args()
    urls = dict(pair.split("=", 1) for pair in given.instance)
    plan = [rollout for rollout in PLANS[given.plan]() if rollout.instance in urls]
    print(json.dumps(run(plan, urls)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
