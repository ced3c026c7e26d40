"""Variants of a plan (`core.schedule`): less of it, or one request after the other."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from replayproxy.core.schedule import Plan, Step

LEFT_OUT = "left out"


def only(plan: Plan, keep: Collection[int]) -> Plan:
    """The plan with nothing sent but the exchanges of these numbers, in the order that they had."""
    steps = tuple(step if step.skip or step.seq in keep else replace(step, skip=LEFT_OUT) for step in plan.steps)
    return Plan(steps=steps, skipped=tuple(step for step in steps if step.skip))


def in_turn(plan: Plan) -> Plan:
    """The plan with each request sent when all before it have ended: nothing overlaps, whatever the lanes.

    A stream that the agent closed while others ran is closed when what the recording has of it has come.
    """
    steps: list[Step] = []
    for step in plan.steps:
        done = frozenset(one.seq for one in steps)
        close = None if step.close_after is None else step.close_after & done
        steps.append(replace(step, after=frozenset(done and [steps[-1].seq]), close_after=close, draws=(),
                             hold_after=step.hold_after & done))  # fmt: skip
    return Plan(steps=tuple(steps), skipped=tuple(step for step in steps if step.skip))
